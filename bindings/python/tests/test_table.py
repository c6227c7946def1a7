"""Peers come, are leased, fail, are updated and go."""

import sys
import threading

import pytest
from recorder import PATIENCE, Recorder, ensured, threads, until

import peerage
from peerage import KEEP, PeerTable


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def table(recorder):
    with PeerTable(recorder.connect, recorder.disconnect, backoff_base=0.0, breaker_after=None) as table:
        yield table


def test_ensure_inserts_connects_and_answers_one_handle(table, recorder):
    peer = table.ensure("a", ("host", 1))
    assert peer is table.ensure("a", ("host", 1)) is table.ensure("a") is table.peers["a"]
    assert (peer.name, peer.phase) == ("a", "ready")
    assert recorder.connects == [("a", ("host", 1), peer.generation)]


def test_64_threads_that_race_for_an_absent_peer_connect_once(recorder):
    recorder.gate = threading.Event()
    with PeerTable(recorder.connect, recorder.disconnect) as table:
        threading.Timer(0.2, recorder.gate.set).start()
        peers = threads(64, lambda _: table.ensure("a", ("host", 1), PATIENCE))
        assert {type(peer) for peer in peers} == {peerage.Peer} and len(set(map(id, peers))) == 1
        assert len(recorder.connects) == 1
        assert table.counters()["elections"] == 1


def test_metadata_that_differs_retires_the_connection_and_connects_with_the_new(table, recorder):
    first = table.ensure("a", ("host", 1)).generation
    second = table.ensure("a", ("host", 2)).generation
    assert second > first
    assert [metadata for _, metadata, _ in recorder.connects] == [("host", 1), ("host", 2)]
    assert recorder.reasons() == ["updated"]
    with table.lease("a") as lease:
        assert (lease.metadata, lease.generation, lease.connection.generation) == (("host", 2), second, second)


def test_metadata_is_compared_by_equality_and_none_is_metadata(table, recorder):
    table.ensure("a", [1, 2])
    table.ensure("a", [1, 2])
    assert len(recorder.connects) == 1
    table.ensure("a", None)
    assert [metadata for _, metadata, _ in recorder.connects] == [[1, 2], None]


def test_metadata_that_cannot_be_compared_raises_and_changes_nothing(table, recorder):
    class Odd:
        def __eq__(self, other):
            raise RuntimeError("no")

    table.ensure("a", Odd())
    for change in (table.ensure, table.insert, table.update):
        with pytest.raises(RuntimeError, match="no"):
            change("a", Odd())
    assert len(recorder.connects) == 1 and recorder.closes == []


def test_a_lease_keeps_its_connection_open_and_is_released_once(table, recorder):
    table.ensure("a", 1)
    lease = table.lease("a")
    assert table.snapshot()[0]["leases"] == 1
    assert table.report_failure(lease, "gone") is True
    assert lease.connection.generation == lease.generation, "it is open as long as the lease is held"
    assert recorder.closes == []
    lease.release()
    lease.release()
    until(lambda: recorder.reasons() == ["broken"])
    for use in (lambda: lease.connection, lambda: lease.metadata, lambda: lease.__enter__()):
        with pytest.raises(peerage.LeaseReleased, match="'a'|\"a\""):
            use()
    assert lease.name == "a" and lease.generation == recorder.connects[0][2]


def test_disconnects_run_on_no_thread_of_a_caller_and_once_each(table, recorder):
    for _ in range(20):
        ensured(table, "a", 1)
        with pytest.raises(ConnectionResetError), table.lease("a"):
            raise ConnectionResetError
    until(lambda: len(recorder.closes) == 20)
    assert threading.get_ident() not in [thread for *_, thread in recorder.closes]
    assert [generation for _, generation, *_ in recorder.closes] == [generation for *_, generation in recorder.connects]


def test_an_exception_of_broken_on_reports_exactly_that_generation_and_propagates(table):
    peer = table.ensure("a", 1)
    with pytest.raises(ConnectionResetError), table.lease("a") as lease:
        assert table.report_failure(("a", lease.generation)) is True
        second = ensured_beside(table, lease)
        raise ConnectionResetError
    assert (peer.phase, peer.generation) == ("ready", second), "the late error of the old one changes nothing"
    assert table.counters()["stale_reports"] == 1


def ensured_beside(table, lease):
    lease.release()
    return ensured(table, lease.name, 1).generation


def test_other_exceptions_report_nothing(table):
    peer = table.ensure("a", 1)
    with pytest.raises(ValueError), table.lease("a"):
        raise ValueError
    assert peer.phase == "ready" and table.counters()["reports"] == 0


def test_busy_wins_over_broken(recorder):
    with PeerTable(recorder.connect, broken_on=OSError, busy_on=(BlockingIOError,)) as table:
        peer = table.ensure("a", 1)
        with pytest.raises(BlockingIOError), table.lease("a"):
            raise BlockingIOError
        assert peer.phase == "ready"
        with pytest.raises(OSError), table.lease("a"):
            raise OSError
        assert peer.phase == "failed"


def test_an_error_raised_under_a_lease_of_another_peer_blames_that_one_alone(table):
    outer, inner = table.ensure("outer", 1), table.ensure("inner", 1)
    with pytest.raises(ConnectionResetError) as raised, table.lease("outer"), table.lease("inner") as lease:
        raise ConnectionResetError
    assert (outer.phase, inner.phase) == ("ready", "failed")
    assert raised.value.peerage_lease == ("inner", lease.generation)


def test_an_exception_that_is_raised_again_blames_the_lease_it_leaves_then(table):
    first, second = table.ensure("first", 1), table.ensure("second", 1)
    fatal = ConnectionResetError()
    for peer in (first, second):
        with pytest.raises(ConnectionResetError), table.lease(peer.name):
            raise fatal
        assert peer.phase == "failed"
        assert fatal.peerage_lease[0] == peer.name


def test_a_timeout_that_is_none_begins_nothing(table):
    with pytest.raises(ValueError):
        table.ensure("new", 1, float("nan"))
    assert "new" not in table.peers


def test_a_lease_that_is_refused_under_another_blames_nobody(table):
    outer = table.ensure("outer", 1)
    table.insert("inner", 1)
    with pytest.raises(peerage.NotReady) as refused, table.lease("outer"):
        table.lease("inner")
    assert isinstance(refused.value, ConnectionError), "so it is of a kind that breaks"
    assert outer.phase == "ready"


def test_a_report_is_exact(table):
    peer = table.ensure("a", 1)
    first = peer.generation
    assert table.report_failure(("a", first + 1)) is False
    assert peer.phase == "ready"
    assert table.report_failure(("a", first), RuntimeError("lost")) is True
    assert table.report_failure(("a", first)) is False and peer.report_failure(first) is False
    assert table.report_failure(("nobody", first)) is False
    with pytest.raises(peerage.Broken) as refused:
        table.lease("a")
    assert (refused.value.name, refused.value.generation, refused.value.phase) == ("a", first, "failed")
    until(lambda: "RuntimeError: lost" in str(table.snapshot()[0]["record"]) or peer.generation > first)


def test_a_lease_of_one_peer_does_not_report_another(table):
    table.ensure("a", 1)
    other = table.ensure("b", 1)
    with table.lease("a") as lease, pytest.raises(TypeError, match="is of peer"):
        other.report_failure(lease)


def test_why_no_lease_is_granted(table, recorder):
    with pytest.raises(peerage.UnknownPeer) as unknown:
        table.lease("nobody")
    assert isinstance(unknown.value, KeyError) and "nobody" in str(unknown.value)
    table.insert("a", 1)
    recorder.gate = threading.Event()
    with pytest.raises((peerage.NotConnected, peerage.Connecting)):  # this call asks, and may see that it is done
        table.lease("a")
    until(lambda: recorder.connects)
    with pytest.raises(peerage.Connecting):
        table.lease("a")
    recorder.gate.set()
    table.ensure("a").lease().release()


def test_insert_connects_nothing_and_refuses_other_metadata(table, recorder):
    peer = table.insert("a", 1)
    assert table.insert("a", 1) is peer and peer.phase == "idle"
    with pytest.raises(peerage.AlreadyPresent):
        table.insert("a", 2)
    assert table.update("a", 2) is True and table.update("a", 2) is False
    with pytest.raises(peerage.UnknownPeer):
        table.update("b", 2)
    assert recorder.connects == [] or recorder.connects[0][1] == 2, "an update asks for a connect"


def test_keep_is_for_peers_that_are_there(table):
    with pytest.raises(peerage.UnknownPeer):
        table.ensure("a", KEEP)


def test_a_removed_peer_is_gone_when_its_lease_is(table, recorder):
    old = table.ensure("a", 1)
    lease = table.lease("a")
    assert table.remove("a", 0.05) is False and "a" not in table.peers
    with pytest.raises(peerage.PeerRemoved):
        old.lease()
    lease.release()
    until(lambda: recorder.reasons() == ["removed"])
    until(lambda: old.phase == "removed")
    new = table.ensure("a", 2)
    assert new is not old and table.lease("a").connection.generation == new.generation
    assert table.remove("a", PATIENCE) is True
    with pytest.raises(peerage.UnknownPeer):
        table.remove("a")


def test_a_kept_handle_does_not_answer_for_a_peer_that_is_gone(recorder):
    with PeerTable(recorder.connect, idle_ttl=0.001) as table:
        old = table.insert("a", 1)
        until(lambda: table.snapshot() == [])
        with pytest.raises(peerage.UnknownPeer):
            table.lease("a")
        with pytest.raises(peerage.PeerRemoved):
            old.lease()


def test_peers_that_the_table_removes_by_itself_leave_no_handle(recorder):
    names = [f"comes-and-goes-{number}" for number in range(400)]

    def kept():
        return [sys.getrefcount(name) for name in names]

    before = kept()
    with PeerTable(recorder.connect, idle_ttl=0.001) as table:
        for number in range(len(names)):
            table.insert(names[number], 1)
        assert kept() > before, "their handles are kept"
        until(lambda: table.snapshot() == [])
        for number in range(600):
            table.insert(f"next-{number}", 1)
        assert kept() == before


def test_names_and_arguments_that_make_no_sense(table):
    for name in ("", "x" * 256, "a\nb"):
        with pytest.raises(peerage.InvalidArgument):
            table.insert(name, 1)
    for wrong in (
        lambda: PeerTable(1),
        lambda: PeerTable(print, 1),
        lambda: PeerTable(print, broken_on="x"),
        lambda: PeerTable(print, no_such_setting=1),
        lambda: table.lease(1),
        lambda: table.report_failure("a"),
    ):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (
        lambda: PeerTable(print, connect_timeout=-1),
        lambda: PeerTable(print, max_peers=0),
        lambda: PeerTable(print, max_stuck="many"),
        lambda: table.ensure("a", 1, float("nan")),
    ):
        with pytest.raises(ValueError):
            wrong()


def test_settings_are_taken():
    with PeerTable(lambda attempt: 1, max_peers=1) as table:
        table.insert("a", 1)
        with pytest.raises(peerage.TableFull):
            table.insert("b", 1)
    seen = []
    with PeerTable(lambda attempt: seen.append(attempt.remaining()), connect_timeout=100, breaker_after=None) as table:
        table.ensure("a", 1)
    assert 50 < seen[0] <= 100


def test_a_table_does_not_take_its_own_name():
    with PeerTable(lambda attempt: 1, name="me") as table, pytest.raises(peerage.InvalidArgument):
        table.insert("me", 1)


def test_shutdown_disconnects_all_and_says_what_was_left(recorder):
    table = PeerTable(recorder.connect, recorder.disconnect)
    for name in "abc":
        table.ensure(name, 1)
    lease = table.lease("a")
    report = table.shutdown(0.05)
    assert report == {"clean": False, "leaked_leases": {"a": 1}, "stuck_connects": [], "leaked_connections": 0}
    lease.release()
    assert table.shutdown(PATIENCE)["clean"] is True
    assert sorted(recorder.reasons()) == ["shutdown"] * 3
    for use in (lambda: table.lease("a"), lambda: table.ensure("a", 1), lambda: table.insert("z", 1)):
        with pytest.raises(peerage.TableClosed):
            use()


def test_a_table_that_is_shut_down_lets_its_owner_go():
    import weakref

    class Owner:
        def __init__(self):
            self.table = PeerTable(self.connect, self.disconnect)

        def connect(self, attempt):
            return object()

        def disconnect(self, connection, closing):
            pass

    owner = Owner()
    owner.table.ensure("a", 1)
    assert owner.table.shutdown(PATIENCE)["clean"]
    gone = weakref.ref(owner)
    del owner
    until(lambda: gone() is None)
