"""examples/python/lmcache_sender.py, before and after: what is opened, whose reply comes, what a restart does."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("zmq")
EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "python"
sys.path.insert(0, str(EXAMPLES))
import peerage  # noqa: E402
from adoption import changed_lines, documented, part  # noqa: E402
from lmcache_receiver import TransferChannel  # noqa: E402
from lmcache_sender import ReceiverProcess, Sender  # noqa: E402

PATIENCE = 60.0
SCRIPT = EXAMPLES / "lmcache_sender.py"


def run(*args):
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *args], cwd=EXAMPLES, timeout=3 * PATIENCE, capture_output=True, text=True
    )
    return ended.returncode, json.loads(ended.stdout) if ended.returncode == 0 else ended.stderr


@pytest.fixture
def receiver():
    process = ReceiverProcess()
    yield process
    if process.process.poll() is None:
        process.kill()


@pytest.fixture
def sender():
    sender = Sender("sender-0", TransferChannel())
    yield sender
    sender.peers.shutdown(PATIENCE)


def test_before_8_threads_connect_8_times_and_spoil_each_others_calls():
    code, result = run("before", "8")
    print("before:", code, result)
    if code >= 0:  # else the shared socket took the process along
        assert code == 0, result
        assert result["connects"] > 1
        assert result["hung_threads"] > 0 or result["puts"].get("own reply", 0) < 8 * 20


def test_after_64_threads_make_one_connection_of_one_channel_and_one_socket():
    code, result = run("after", "64")
    print("after:", code, result)
    assert code == 0, result
    assert result["puts"] == {"own reply": 64 * 20}
    assert result["hung_threads"] == 0
    assert result["connects"] == result["data_sockets_open"] == result["alloc_connections"] == 1
    # The channel's; of the allocation socket: itself, its connection, two to watch that, two to wake its thread.
    assert result["descriptors_more"] == 1 + 6
    assert result["foreign_pages"] == 0
    assert result["clean_shutdown"]


def test_a_receiver_that_restarted_elsewhere_is_reconnected_by_the_put_that_says_so(receiver, sender):
    assert receiver.put(sender, 1)
    receiver.kill()
    receiver.start((0, 0, 0))
    assert receiver.put(sender, 2)
    assert receiver.stats()["written"] == {"2": 2}
    assert sender.transfer_channel.connects == 2


def test_a_receiver_that_restarted_idle_fails_one_put_and_is_reconnected(receiver, sender):
    assert receiver.put(sender, 1)
    receiver.kill()
    receiver.start(receiver.ports)
    with pytest.raises(ConnectionError):
        receiver.put(sender, 2)
    assert receiver.stats()["written"] == {}
    assert put_after_backoff(receiver, sender, 3)
    # What a put reported as done is there, on the receiver that lives.
    assert receiver.stats()["written"] == {"3": 2}
    assert sender.transfer_channel.connects == 2


def test_a_receiver_that_dies_with_a_request_in_flight_fails_it_and_is_reconnected(receiver, sender):
    assert receiver.put(sender, 1)
    os.kill(receiver.process.pid, signal.SIGSTOP)
    failures = []

    def put(request):
        with pytest.raises(ConnectionError) as caught:
            receiver.put(sender, request)
        failures.append(caught.value)

    threads = [threading.Thread(target=put, args=(2 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    with sender.peers.lease("receiver-0") as lease:
        until(lambda: lease.connection.alloc.snapshot()["waiting"] == 4)
    receiver.kill()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(failures) == 4
    receiver.start(receiver.ports)
    assert put_after_backoff(receiver, sender, 9)
    assert receiver.stats()["written"] == {"9": 2}
    assert sender.transfer_channel.connects == 2


def test_a_receiver_that_is_gone_costs_a_failed_put_and_leaves_no_half(receiver, sender):
    init_port, data_port, alloc_port = receiver.ports
    with pytest.raises(peerage.ConnectFailed):
        sender.put("receiver-0", "127.0.0.1", init_port, free_port(), 1, b"kv")
    assert sender.transfer_channel.connects == 1 and sender.transfer_channel.open_sockets() == 0
    assert receiver.put(sender, 2)  # its address has changed


def test_restarts_leave_no_descriptors(receiver, sender):
    def restart(n):
        receiver.kill()
        receiver.start((0, 0, 0))
        assert receiver.put(sender, n)

    restart(0)
    before = len(os.listdir("/proc/self/fd"))
    for n in range(1, 6):
        restart(n)
    assert sender.transfer_channel.open_sockets() == 1
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_the_adoption_is_the_documented_one_and_under_20_lines():
    source = SCRIPT.read_text()
    before, after = part(source, "before", "after"), part(source, "after", "the run")
    assert changed_lines(before, after) + 2 < 20  # two imports
    assert documented(before.replace("SenderBefore", "Sender"), after), "bindings/python/ADOPTING.md shows another diff"


def put_after_backoff(receiver, sender, request):
    """A connection that lived a moment only is made again after a moment; until then a put is refused, nothing sent."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return receiver.put(sender, request)
        except peerage.BackingOff as refused:
            assert time.monotonic() < end
            time.sleep(refused.retry_after or 0.01)


def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.01)
