"""Who holds the GIL, and who never waits for it."""

import gc
import threading
import time

import pytest
from recorder import PATIENCE, Recorder, child, until

import peerage
from peerage import PeerTable


def count_until(done):
    """How often this thread gets to run Python until then."""
    passes = 0
    while not done():
        passes += 1
    return passes


def test_while_a_connect_is_blocked_in_native_code_other_threads_run():
    began, entered, release = threading.Event(), threading.Event(), threading.Lock()
    release.acquire()

    def connect(attempt):
        entered.set()
        assert release.acquire(timeout=PATIENCE)  # waits in native code
        return 1

    with PeerTable(connect, connect_timeout=60) as table:
        waiting = threading.Thread(target=lambda: (began.set(), table.ensure("a", 1, PATIENCE)))
        waiting.start()
        assert began.wait(PATIENCE) and entered.wait(PATIENCE)
        cpu, wall = time.thread_time(), time.monotonic()
        end = wall + 0.5
        passes = count_until(lambda: time.monotonic() > end)
        share = (time.thread_time() - cpu) / (time.monotonic() - wall)
        assert table.peers["a"].phase == "connecting" and waiting.is_alive()
        print(f"\nbeside a connect and a wait that block: {passes} passes, {share:.0%} of a processor")
        assert passes > 1000, "it ran on"
        release.release()
        waiting.join(PATIENCE)
        assert not waiting.is_alive()


def test_waits_for_events_removals_and_shutdowns_hold_nobody_up():
    with PeerTable(lambda attempt: 1) as table:
        table.ensure("a", 1)
        lease = table.lease("a")
        events = table.events()
        for wait in (
            lambda: [events.next(0.3) for _ in range(2)],
            lambda: table.remove("a", 0.3),
            lambda: table.shutdown(0.3),
        ):
            waiting = threading.Thread(target=wait)
            waiting.start()
            assert count_until(lambda: not waiting.is_alive()) > 1000
        lease.release()


@pytest.mark.parametrize("what", ["lease", "peer", "table"])
def test_a_handle_that_the_collector_drops_only_enqueues(what):
    """The peer is dead, its disconnect is held up, and another peer's connect too; whoever drops the handle waits for neither."""
    recorder, hold, stuck = Recorder(), threading.Event(), threading.Event()

    def connect(attempt):
        if attempt.name == "stuck":
            stuck.set()
            assert hold.wait(PATIENCE)
        return recorder.connect(attempt)

    def disconnect(connection, closing):
        assert hold.wait(PATIENCE)
        recorder.disconnect(connection, closing)

    table = PeerTable(connect, disconnect, connect_timeout=60)
    table.ensure("a", 1)
    table.insert("stuck", 1)
    with pytest.raises(peerage.NotReady):
        table.lease("stuck")
    assert stuck.wait(PATIENCE)
    lease = table.lease("a")
    table.report_failure(lease)
    gc.collect()
    gc.freeze()  # what the collection itself looks through is not what is measured
    cycle = []
    if what == "lease":
        cycle.append(lease)
    else:
        lease.release()
        cycle.append(table.peers["a"] if what == "peer" else table)
    cycle.append(cycle)
    kept = table if what != "table" else None
    del table, lease
    wall, began = time.monotonic(), time.thread_time_ns()
    del cycle
    gc.collect()
    took, waited = time.thread_time_ns() - began, time.monotonic() - wall
    gc.unfreeze()
    assert waited < PATIENCE and recorder.closes == [], "it waited for no callable"
    print(f"\na collection that drops a {what} of a dead peer: {took / 1000:.0f} us of CPU")
    hold.set()
    until(lambda: "broken" in recorder.reasons())
    assert threading.get_ident() not in [thread for *_, thread in recorder.closes]
    if kept is not None:
        kept.shutdown(PATIENCE)
    else:
        until(lambda: len(recorder.closes) == len(recorder.connects))


def test_a_keyboard_interrupt_ends_a_wait():
    for wait in ("table.ensure('a', 1, 60)", "table.shutdown(60)", "table.remove('b', 60)", "next(events)", "table.peers['a'].wait_ready(60)"):
        ran = child(
            f"""
import os, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it
from peerage import PeerTable
hold = threading.Event()
def connect(attempt):
    if attempt.name == "a":
        hold.wait(60)
    return 1
table = PeerTable(connect, connect_timeout=60)
table.insert("a", 1)
table.ensure("b", 1)
lease = table.lease("b")
events = table.events()
while events.next(0.2): pass
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
hold.set()
lease.release()
print(table.shutdown(30)["clean"])
"""
        )
        assert (ran.stdout, ran.returncode) == ("interrupted\nTrue\n", 0), (wait, ran)
