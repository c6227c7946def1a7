"""LightLLM's transporter, before and after, over the real NIXL on CPU memory.

Skipped without it: pip install --no-deps nixl-cu13==1.5.1, and numpy. ``PEERAGE_TEST_NIXL_RUNS`` and ``_SECONDS`` make the
runs of the after longer: 10 and 60 are what was asked for.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

os.environ.update(NIXL_LOG_LEVEL="FATAL", UCX_LOG_LEVEL="fatal", UCX_MODULES="^ib")
pytest.importorskip("nixl_cu13", reason="the NIXL wheel is not installed")
EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "python"
sys.path.insert(0, str(EXAMPLES))
import peerage  # noqa: E402
from adoption import changed_lines, documented, part  # noqa: E402
from lightllm_transporter import PAGE_LEN, PAGES, Task, Transporter  # noqa: E402
from nixl_rig import Prefill, nixlBind  # noqa: E402
from peerage.nixl import StaleHandle  # noqa: E402

PATIENCE = 60.0
SCRIPT = EXAMPLES / "lightllm_transporter.py"
RUNS = int(os.environ.get("PEERAGE_TEST_NIXL_RUNS", "1"))
SECONDS = os.environ.get("PEERAGE_TEST_NIXL_SECONDS", "10")


def run(kind, seconds, seed):
    """Its exit code, and what it said."""
    command = [sys.executable, str(SCRIPT), kind, str(seconds), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        said, _ = process.communicate(timeout=float(seconds) + 5 * PATIENCE)
    print(kind, seed, "exit code", process.returncode, said.strip())
    return process.returncode, json.loads(said.splitlines()[-1]) if process.returncode == 0 else None


def test_before_a_run_of_five_crashes_or_adds_a_peer_twice():
    for seed in range(1, 6):
        code, result = run("before", 8, seed)
        if code < 0 or result["double_adds"] > 0:
            return
    pytest.fail("five runs without a crash or a double add: the example shows nothing any more")


@pytest.mark.parametrize("seed", range(1, RUNS + 1))
def test_after_there_is_one_native_add_per_generation_and_every_restart_is_served(seed):
    code, result = run("after", SECONDS, seed)
    assert code == 0
    assert result["missed_events"] == 0
    assert result["adds"] == result["generations"] > 3
    assert result["double_adds"] == 0
    assert result["recovered"] == result["kills"] > 0
    assert result["hung_threads"] == 0
    assert result["clean_shutdown"]
    assert result["served"] > 0


@pytest.fixture
def prefill():
    prefill = Prefill("prefill-0", PAGES, PAGE_LEN)
    yield prefill
    if prefill.process.poll() is None:
        prefill.kill()


@pytest.fixture
def transporter():
    transporter = Transporter("decode-0")
    yield transporter
    assert transporter.shutdown()["clean"]


def serve(transporter, prefill):
    """One request, and how its write ended."""
    task = Task(prefill.metadata, 3)
    transporter.send_write_ready_task_to_prefill_node(task)
    status = transporter.write_blocks_paged(task)
    end = time.monotonic() + PATIENCE
    while status == "PROC" and time.monotonic() < end:
        status = transporter.check_task_status(task)
    return status, task


def serve_after_backoff(transporter, prefill):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return serve(transporter, prefill)
        except peerage.BackingOff as refused:
            assert time.monotonic() < end
            time.sleep(refused.retry_after or 0.01)


def test_a_restarted_prefill_is_reconnected_by_the_request_that_has_its_new_metadata(transporter, prefill):
    assert serve(transporter, prefill)[0] == "DONE"
    first = transporter.nixl_agent.peers["prefill-0"].generation
    prefill.kill()
    prefill.start()
    assert serve(transporter, prefill)[0] == "DONE"
    assert transporter.nixl_agent.peers["prefill-0"].generation > first
    assert transporter.nixl_agent._agent.adds == 2


def test_a_dead_prefill_fails_the_request_and_nothing_succeeds_on_its_connection(transporter, prefill):
    status, task = serve(transporter, prefill)
    agent = transporter.nixl_agent
    prefill.kill()
    with pytest.raises((nixlBind.nixlRemoteDisconnectError, nixlBind.nixlNotFoundError, nixlBind.nixlBackendError)):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:  # what was sent before the kernel told NIXL may be accepted
            agent.send_notif("prefill-0", b"x")
    assert agent.peers["prefill-0"].phase != "ready"
    for use in (agent.transfer, agent.check_xfer_state):
        with pytest.raises(StaleHandle):
            use(task.xfer_handle)
    agent.release_xfer_handle(task.xfer_handle)
    prefill.start()
    assert serve_after_backoff(transporter, prefill)[0] == "DONE"


def test_restarts_cost_no_more_descriptors_than_nixl_itself_does(transporter, prefill):
    def restart():
        prefill.kill()
        prefill.start()
        assert serve_after_backoff(transporter, prefill)[0] == "DONE"

    restart()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        restart()
    assert transporter.nixl_agent._agent.adds == 6
    assert len(os.listdir("/proc/self/fd")) <= before + 2 * 5


def test_the_interpreter_exits_cleanly_with_live_peers(prefill):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import nixl_rig, lightllm_transporter as l\n"
        "metadata = nixl_rig.AgentMetadata('prefill-0', bytes.fromhex(sys.argv[2]), int(sys.argv[3]), l.PAGES, l.PAGE_LEN)\n"
        "transporter = l.Transporter('decode-0')\n"
        "transporter.send_write_ready_task_to_prefill_node(l.Task(metadata, 0))\n"
        "print('sent')\n"
    )
    metadata = prefill.metadata
    command = [sys.executable, "-c", script, str(EXAMPLES), metadata.agent_metadata.hex(), str(metadata.base)]
    ended = subprocess.run(command, timeout=PATIENCE, capture_output=True, text=True)
    assert (ended.returncode, "sent" in ended.stdout) == (0, True), ended.stderr


def test_the_adoption_is_the_documented_one_and_under_20_lines():
    source = SCRIPT.read_text()
    before, after = part(source, "before", "after"), part(source, "after", "the run")
    assert changed_lines(before, after) + 3 < 20  # three imports
    assert documented(before.replace("TransporterBefore", "Transporter"), after), "ADOPTING.md shows another diff"
