"""Whose code runs when, what it is told, and what its outcome does."""

import threading
import time

import pytest
from recorder import PATIENCE, Recorder, ensured, threads, until

import peerage
from peerage import Closed, PeerTable


def test_who_waits_for_an_attempt_gets_what_it_raised():
    failed = ConnectionRefusedError("nobody listens")
    recorder = Recorder(fails=failed, gate=threading.Event())
    with PeerTable(recorder.connect) as table:
        threading.Timer(0.2, recorder.gate.set).start()
        errors = threads(8, lambda _: table.ensure("a", 1, PATIENCE))
        assert {type(error) for error in errors} == {peerage.ConnectFailed} and len(recorder.connects) == 1
        for error in errors:
            assert error.__cause__ is failed and error.name == "a"
            assert error.generation == recorder.connects[0][2] and "nobody listens" in str(error)


def test_a_peer_that_backs_off_says_until_when():
    recorder = Recorder(fails=OSError("no"))
    with PeerTable(recorder.connect, backoff_base=60, backoff_cap=60) as table:
        with pytest.raises(peerage.ConnectFailed):
            table.ensure("a", 1)
        with pytest.raises(peerage.BackingOff, match="OSError: no") as refused:
            table.ensure("a", 1)
        assert 0 <= refused.value.retry_after <= 60
        with pytest.raises(peerage.NotReady) as refused:
            table.lease("a")
        assert 0 <= refused.value.retry_after <= 60


def test_a_connect_that_is_busy_says_when_to_come_again():
    class Busy(Exception):
        retry_after = 40.0

    def connect(attempt):
        raise Busy

    with PeerTable(connect, busy_on=Busy) as table:
        with pytest.raises(peerage.ConnectFailed):
            table.ensure("a", 1)
        with pytest.raises(peerage.BackingOff) as refused:
            table.ensure("a", 1)
        assert 30 < refused.value.retry_after <= 40
        assert table.snapshot()[0]["record"]["failures"] == 0


def test_an_attempt_that_outlives_its_timeout_fails_is_cancelled_and_its_connection_closed():
    released, cancelled = threading.Event(), []

    def connect(attempt):
        assert attempt.remaining() <= 0.1
        until(attempt.is_cancelled)
        cancelled.append(attempt.remaining())
        assert released.wait(PATIENCE)
        return recorder_connection(attempt)

    recorder = Recorder()
    recorder_connection = recorder.connect
    with PeerTable(connect, recorder.disconnect, connect_timeout=0.1, backoff_base=0) as table:
        with pytest.raises(peerage.ConnectFailed) as failed:
            table.ensure("a", 1, PATIENCE)
        assert failed.value.__cause__ is None
        until(lambda: cancelled)
        assert cancelled == [0.0] and table.counters()["stuck_connects"] in (0, 1)
        released.set()
        until(lambda: recorder.reasons() == ["superseded"])


def test_a_callers_timeout_ends_its_wait_alone():
    recorder = Recorder(gate=threading.Event())
    with PeerTable(recorder.connect) as table:
        with pytest.raises(peerage.TimedOut) as late:
            table.ensure("a", 1, 0.05)
        assert isinstance(late.value, TimeoutError) and late.value.name == "a"
        recorder.gate.set()
        table.ensure("a", 1, PATIENCE)
        assert len(recorder.connects) == 1


@pytest.mark.parametrize("answer, leaked, calls", [(None, 0, 1), (Closed.ALREADY_GONE, 0, 1), (Closed.LEAKED, 1, 1), (Closed.RETRY, 0, 3)])
def test_what_disconnect_answers(answer, leaked, calls):
    called = []

    def disconnect(connection, closing):
        called.append((connection, closing.generation))
        return None if answer is Closed.RETRY and len(called) == 3 else answer

    table = PeerTable(lambda attempt: "connection", disconnect)
    generation = table.ensure("a", 1).generation
    report = table.shutdown(PATIENCE)
    assert report["leaked_connections"] == leaked and report["clean"] is (leaked == 0)
    assert called == [("connection", generation)] * calls


def test_a_disconnect_that_raises_is_a_leak_and_is_told(monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: told.append(unraisable.exc_value))
    wrong = RuntimeError("it hangs on")

    def disconnect(connection, closing):
        raise wrong

    table = PeerTable(lambda attempt: 1, disconnect)
    table.ensure("a", 1)
    assert table.shutdown(PATIENCE)["leaked_connections"] == 1
    assert told == [wrong]


def test_a_disconnect_that_answers_nonsense_is_a_leak(monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: told.append(unraisable.exc_type))
    table = PeerTable(lambda attempt: 1, lambda connection, closing: "closed")
    table.ensure("a", 1)
    assert table.shutdown(PATIENCE)["leaked_connections"] == 1 and told == [TypeError]


def test_without_a_disconnect_the_connection_is_dropped_when_its_leases_are():
    import weakref

    class Socket:
        pass

    with PeerTable(lambda attempt: Socket()) as table:
        table.ensure("a", 1)
        with table.lease("a") as lease:
            gone = weakref.ref(lease.connection)
            table.report_failure(lease)
            time.sleep(0.05)
            assert gone() is not None
        until(lambda: gone() is None)


@pytest.mark.parametrize("overlap", [False, True])
def test_only_with_overlap_is_the_next_one_opened_beside_an_old_one_in_use(overlap):
    recorder = Recorder()
    with PeerTable(recorder.connect, recorder.disconnect, overlap=overlap, backoff_base=0, drain_deadline=0.1) as table:
        table.ensure("a", 1)
        with table.lease("a") as lease:
            table.report_failure(lease)
            if overlap:
                assert ensured(table, "a", 1).generation > lease.generation and recorder.closes == []
            else:
                with pytest.raises(peerage.Undrained, match="1 leases"):
                    ensured(table, "a", 1)
        until(lambda: recorder.reasons() == ["broken"])
        assert ensured(table, "a", 1).generation > lease.generation


def test_no_two_calls_run_at_once_for_one_peer():
    inside, most = [0], [0]
    lock = threading.Lock()

    def call(*_):
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.001)
        with lock:
            inside[0] -= 1

    with PeerTable(call, call, backoff_base=0, breaker_after=None) as table:

        def work(number):
            for _ in range(20):
                generation = ensured(table, "a", 1).generation
                table.report_failure(("a", generation))

        assert threads(4, work) == [None] * 4
    assert most == [1]


def test_callables_run_under_no_lock_and_may_use_the_table():
    seen = {}

    def connect(attempt):
        if attempt.name == "b":
            seen["peers"] = sorted(table.peers)
            seen["snapshot"] = len(table.snapshot())
            seen["ready"] = table.ensure("a", 1).phase
            seen["lease"] = table.lease("a").connection
            for wait in (lambda: table.ensure("c", 1), lambda: table.ensure("b", 1), lambda: table.remove("a", 1), lambda: list(table.events())):
                with pytest.raises(peerage.WouldDeadlock):
                    wait()
            with pytest.raises(peerage.WouldDeadlock):
                table.ready("c")  # ensure has inserted it
        return attempt.name

    def disconnect(connection, closing):
        seen["closes"] = seen.get("closes", 0) + 1
        with pytest.raises(peerage.WouldDeadlock):
            table.shutdown(1)

    table = PeerTable(connect, disconnect)
    table.ensure("a", 1)
    table.ensure("b", 1)
    assert "closes" not in seen and table.peers["a"].phase == "ready", "what would deadlock was not begun"
    assert seen == {"peers": ["a", "b"], "snapshot": 2, "ready": "ready", "lease": "a"}
    assert table.shutdown(PATIENCE)["leaked_connections"] == 0


def test_the_mark_of_a_tables_thread_ends_with_the_call():
    with PeerTable(lambda attempt: threading.get_ident()) as table:
        table.ensure("a", 1)
        table.ensure("b", 1)  # waits here, after calls there
        with table.lease("a") as lease:
            assert lease.connection != threading.get_ident()


def test_out_of_descriptors_blames_no_peer():
    def connect(attempt):
        raise OSError(24, "Too many open files")

    with PeerTable(connect) as table:
        with pytest.raises(peerage.ConnectFailed):
            table.ensure("a", 1)
        assert table.snapshot()[0]["record"]["failures"] == 0
