"""What both transporters of lightllm_transporter.py run on: prefill processes, and an agent that counts and can be made to fail.

CPU memory, the real NIXL wheel: pip install --no-deps nixl-cu13==1.5.1, and numpy. With Debian's libucx installed too, set
UCX_MODULES=^ib.

    python nixl_rig.py NAME PAGES PAGE_LEN        a prefill process: says its metadata, takes what comes
"""

import ctypes
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time

from nixl_cu13 import nixl_agent
from nixl_cu13._api import nixlBind


def quiet():
    """The environment of a run in which peers are killed: NIXL and UCX log each of it."""
    return {**os.environ, "NIXL_LOG_LEVEL": "FATAL", "UCX_LOG_LEVEL": "fatal", "UCX_MODULES": "^ib"}


class Pages:
    """CPU memory in pages, registered with an agent."""

    def __init__(self, agent, pages, page_len):
        self.memory = ctypes.create_string_buffer(pages * page_len)
        self.base, self.pages, self.page_len = ctypes.addressof(self.memory), pages, page_len
        self.registration = agent.register_memory([(self.base, pages * page_len, 0, "")], "DRAM")


@dataclasses.dataclass(frozen=True)
class AgentMetadata:
    """What discovery says of a prefill process."""

    agent_name: str
    agent_metadata: bytes
    base: int
    num_pages: int
    page_len: int


class Prefill:
    """A prefill process that can be killed and started again under its name."""

    def __init__(self, name, pages, page_len):
        self.name, self.args = name, [name, str(pages), str(page_len)]
        self.start()

    def start(self):
        command = [sys.executable, os.path.abspath(__file__), *self.args]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=quiet())
        for line in self.process.stdout:  # NIXL may say something first
            if line.startswith("{"):
                said = json.loads(line)
                break
        else:
            raise RuntimeError(f"{self.name} did not start")
        said["agent_metadata"] = bytes.fromhex(said["agent_metadata"])
        self.metadata = AgentMetadata(**said)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class CountedAgent(nixl_agent):
    """Counts native adds, and those of a peer that is there already; a live peer can be made to answer as a dead one."""

    def __init__(self, *args):
        super().__init__(*args)
        self.lock = threading.Lock()
        self.there = {}  # metadata -> adds less removes
        self.names = {}
        self.adds = self.failed_adds = self.double_adds = self.removes = self.dlists = self.dlists_released = 0
        self.faulty_until = {}

    def add_remote_agent(self, metadata):
        with self.lock:
            self.double_adds += self.there.get(metadata, 0) > 0
            self.there[metadata] = self.there.get(metadata, 0) + 1
        try:
            name = super().add_remote_agent(metadata)
        except Exception:
            with self.lock:
                self.failed_adds += 1
                self.there[metadata] -= 1
            raise
        with self.lock:
            self.adds += 1
            self.names[name.decode() if isinstance(name, bytes) else name] = metadata
        return name

    def remove_remote_agent(self, agent):
        with self.lock:
            self.removes += 1
            self.there[self.names.get(agent)] = 0
        super().remove_remote_agent(agent)

    def send_notif(self, remote_agent_name, notif_msg, backend=None):
        if time.monotonic() < self.faulty_until.get(remote_agent_name, 0):
            raise nixlBind.nixlRemoteDisconnectError("NIXL_ERR_REMOTE_DISCONNECT")
        super().send_notif(remote_agent_name, notif_msg, backend)

    def prep_xfer_dlist(self, agent_name, *args, **kwargs):
        handle = super().prep_xfer_dlist(agent_name, *args, **kwargs)
        with self.lock:
            self.dlists += bool(agent_name)
        return handle


def serve(name, pages, page_len):
    agent = nixl_agent(name)
    memory = Pages(agent, pages, page_len)
    said = AgentMetadata(name, agent.get_agent_metadata(), memory.base, pages, page_len)
    print(json.dumps({**dataclasses.asdict(said), "agent_metadata": said.agent_metadata.hex()}), flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        agent.get_new_notifs()
        time.sleep(0.002)
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
