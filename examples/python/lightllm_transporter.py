"""A KV transporter with LightLLM's method names, before and after it adopts peerage. The real NIXL on CPU memory.

    python lightllm_transporter.py before 20 1     # seconds, seed
    python lightllm_transporter.py after 60 1

Seven threads of a decode process send tasks and write pages to three prefill processes, which are killed and started again;
now and then a live one answers for a moment as if it were gone. Before: two threads add one peer, and one removes what others
use; most runs end with a crash. After: one native add per generation. The lines that differ are in
bindings/python/ADOPTING.md; what it needs is said in nixl_rig.py.
"""

import collections
import dataclasses
import json
import os
import random
import sys
import threading
import time

from nixl_cu13 import nixl_agent_config
from nixl_cu13._api import nixl_thread_sync_t
from nixl_rig import CountedAgent, Pages, Prefill, quiet

from peerage.nixl import LifecycleAgent

PAGES, PAGE_LEN, THREADS = 64, 4096, 7


@dataclasses.dataclass
class Task:
    prefill: object  # AgentMetadata
    page: int
    xfer_handle: object = None


# before
class TransporterBefore:
    def __init__(self, agent_name):
        self.nixl_agent = CountedAgent(agent_name)
        self.remote_agents = {}
        self.pages = Pages(self.nixl_agent, PAGES, PAGE_LEN)
        self.page_local_xfer_handles = self._create_paged_xfer_handles(self.pages.base, PAGES)

    @property
    def agent_metadata(self):
        return self.nixl_agent.get_agent_metadata()

    def _create_paged_xfer_handles(self, base, num_pages, agent_name=""):
        pages = [(base + page * PAGE_LEN, PAGE_LEN, 0) for page in range(num_pages)]
        return self.nixl_agent.prep_xfer_dlist(agent_name, pages, "DRAM")

    def connect_add_remote_agent(self, remote_agent):
        name = remote_agent.agent_name
        if name in self.remote_agents:
            return
        self.nixl_agent.add_remote_agent(remote_agent.agent_metadata)
        self.remote_agents[name] = self._create_paged_xfer_handles(remote_agent.base, remote_agent.num_pages, name)

    def remove_remote_agent(self, peer_name):
        page_xfer_handles = self.remote_agents.pop(peer_name, None)
        if page_xfer_handles is not None:
            self.nixl_agent.release_dlist_handle(page_xfer_handles)
            self.nixl_agent.remove_remote_agent(peer_name)

    def send_write_ready_task_to_prefill_node(self, task):
        name = task.prefill.agent_name
        self.connect_add_remote_agent(task.prefill)
        try:
            self.nixl_agent.send_notif(name, b"ready %d " % task.page + self.agent_metadata)
        except Exception:
            self.remove_remote_agent(name)
            raise

    def write_blocks_paged(self, task):
        name = task.prefill.agent_name
        self.connect_add_remote_agent(task.prefill)
        try:
            src, dst = self.page_local_xfer_handles, self.remote_agents[name]
            task.xfer_handle = self.nixl_agent.make_prepped_xfer("WRITE", src, [task.page], dst, [task.page], b"done")
            return self.nixl_agent.transfer(task.xfer_handle)
        except Exception:
            self.remove_remote_agent(name)
            raise

    def check_task_status(self, task):
        return self.nixl_agent.check_xfer_state(task.xfer_handle)

    def release_xfer_handle(self, handle):
        self.nixl_agent.release_xfer_handle(handle)

    def shutdown(self):
        for name in list(self.remote_agents):
            self.remove_remote_agent(name)


# after
class Transporter:
    def __init__(self, agent_name):
        config = nixl_agent_config(sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT)
        self.nixl_agent = LifecycleAgent(CountedAgent(agent_name, config))
        self.pages = Pages(self.nixl_agent, PAGES, PAGE_LEN)
        self.page_local_xfer_handles = self._create_paged_xfer_handles(self.pages.base, PAGES)

    @property
    def agent_metadata(self):
        return self.nixl_agent.get_agent_metadata()

    def _create_paged_xfer_handles(self, base, num_pages, agent_name=""):
        pages = [(base + page * PAGE_LEN, PAGE_LEN, 0) for page in range(num_pages)]
        return self.nixl_agent.prep_xfer_dlist(agent_name, pages, "DRAM")

    def connect_add_remote_agent(self, remote_agent):
        name = remote_agent.agent_name
        return self.nixl_agent.ensure_peer(name, remote_agent.agent_metadata, remote_agent, self._on_connect)

    def _on_connect(self, name, remote_agent):
        return self._create_paged_xfer_handles(remote_agent.base, remote_agent.num_pages, name)

    def remove_remote_agent(self, peer_name):
        self.nixl_agent.report_failed(peer_name)

    def send_write_ready_task_to_prefill_node(self, task):
        name = task.prefill.agent_name
        self.connect_add_remote_agent(task.prefill)
        try:
            self.nixl_agent.send_notif(name, b"ready %d " % task.page + self.agent_metadata)
        except Exception:
            self.remove_remote_agent(name)
            raise

    def write_blocks_paged(self, task):
        name = task.prefill.agent_name
        dst = self.connect_add_remote_agent(task.prefill)
        try:
            src = self.page_local_xfer_handles
            task.xfer_handle = self.nixl_agent.make_prepped_xfer("WRITE", src, [task.page], dst, [task.page], b"done")
            return self.nixl_agent.transfer(task.xfer_handle)
        except Exception:
            self.remove_remote_agent(name)
            raise

    def check_task_status(self, task):
        return self.nixl_agent.check_xfer_state(task.xfer_handle)

    def release_xfer_handle(self, handle):
        self.nixl_agent.release_xfer_handle(handle)

    def shutdown(self):
        return self.nixl_agent.shutdown_peers(10.0)


# the run
class Run:
    """Seven threads of requests, and what is done to the peers meanwhile."""

    def __init__(self, kind, seconds, seed):
        self.kind, self.end, self.random = kind, seconds, random.Random(seed)
        self.transporter = {"before": TransporterBefore, "after": Transporter}[kind]("decode-0")
        self.agent = self.transporter.nixl_agent if kind == "before" else self.transporter.nixl_agent._agent
        self.prefills = [Prefill(f"prefill-{i}", PAGES, PAGE_LEN) for i in range(3)]
        self.over = threading.Event()
        self.served = collections.Counter()  # by peer and life
        self.failures = collections.Counter()
        self.kills = self.recovered = self.faults = 0
        self.phases = collections.Counter()  # how often a peer came to be so, by the table's own account
        if kind == "after":
            events = self.transporter.nixl_agent.table.events()
            count = lambda: self.phases.update(event.phase for event in events)  # noqa: E731
            self.watcher = threading.Thread(target=count, daemon=True)
            self.watcher.start()

    def request(self, thread, random):
        prefill = random.choice(self.prefills)
        life = prefill.metadata
        task = Task(life, thread)
        try:
            self.transporter.send_write_ready_task_to_prefill_node(task)
            status = self.transporter.write_blocks_paged(task)
            give_up = time.monotonic() + 10
            while status == "PROC" and time.monotonic() < give_up:
                time.sleep(0.0005)
                status = self.transporter.check_task_status(task)
            self.served[life.agent_metadata] += status == "DONE"
        except Exception as error:
            self.failures[type(error).__name__] += 1
            time.sleep(0.002)
        finally:
            if task.xfer_handle is not None:
                try:
                    self.transporter.release_xfer_handle(task.xfer_handle)
                except Exception as error:
                    self.failures[f"release: {type(error).__name__}"] += 1

    def work(self, thread):
        random_ = random.Random(thread)
        while not self.over.is_set():
            self.request(thread, random_)

    def fault(self):
        while not self.over.wait(self.random.uniform(0.1, 0.4)):
            self.agent.faulty_until[self.random.choice(self.prefills).name] = time.monotonic() + 0.05
            self.faults += 1

    def kill_one(self):
        prefill = self.random.choice(self.prefills)
        prefill.kill()
        self.kills += 1
        prefill.start()
        # A later request succeeds: of this life, for its metadata is new.
        patience = time.monotonic() + 30
        while not self.served[prefill.metadata.agent_metadata] and time.monotonic() < patience:
            time.sleep(0.01)
        self.recovered += self.served[prefill.metadata.agent_metadata] > 0

    def run(self):
        threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(THREADS)]
        threads.append(threading.Thread(target=self.fault, daemon=True))
        for thread in threads:
            thread.start()
        end = time.monotonic() + self.end
        while time.monotonic() < end:
            time.sleep(self.random.uniform(1, 3))
            self.kill_one()
        self.over.set()
        for thread in threads:
            thread.join(60)
        result = {
            "served": sum(self.served.values()),
            "failures": dict(self.failures),
            "hung_threads": sum(thread.is_alive() for thread in threads),
            "kills": self.kills,
            "recovered": self.recovered,
            "faults": self.faults,
            "descriptors": len(os.listdir("/proc/self/fd")),
        }
        if self.kind == "after":
            result["clean_shutdown"] = self.transporter.shutdown()["clean"]
            self.watcher.join(60)
            result["generations"] = self.phases["ready"]
            result["missed_events"] = self.phases[None]
        for name in ("adds", "failed_adds", "double_adds", "removes"):
            result[name] = getattr(self.agent, name)
        for prefill in self.prefills:
            prefill.kill()
        print(json.dumps(result), flush=True)
        os._exit(0)  # what NIXL does at its own end is not part of the run


if __name__ == "__main__":
    if os.environ.get("NIXL_LOG_LEVEL") != "FATAL":
        os.execve(sys.executable, [sys.executable, *sys.argv], quiet())
    Run(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])).run()
