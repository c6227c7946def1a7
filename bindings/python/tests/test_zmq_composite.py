"""Composite connections: a channel and its allocation socket live and die together, and no half is left."""

import os
import threading

import pytest

zmq = pytest.importorskip("zmq")
import peerage  # noqa: E402
from peerage.zmq import AllocChannel, AllocLost, AllocTimedOut, composite  # noqa: E402
from test_zmq import PATIENCE, Server, descriptors, in_threads, router, until  # noqa: E402


class Channels:
    """Stands in for the channels to receivers: counts what is open."""

    def __init__(self):
        self.opened, self.closed = [], []

    def open(self, attempt):
        self.opened.append(attempt.generation)
        return attempt.generation

    def close(self, channel):
        self.closed.append(channel)


def table_of(channels, **policy):
    return peerage.PeerTable(*composite(channels.open, channels.close, lambda endpoint: endpoint), **policy)


def test_64_threads_that_find_a_peer_absent_make_one_channel_and_one_socket():
    channels = Channels()
    with Server() as server, table_of(channels) as table:
        def work(i):
            table.ensure("r", server.endpoint, PATIENCE)
            with table.lease("r") as lease:
                assert lease.connection.alloc.call(b"%d" % i, PATIENCE) == b"reply to %d" % i
                return lease.connection.alloc

        assert len(set(in_threads(64, work))) == 1
        assert len(channels.opened) == 1
    assert channels.closed == channels.opened


def test_a_channel_whose_socket_cannot_be_connected_is_closed_again():
    channels = Channels()
    with router() as (_, endpoint):
        pass
    with table_of(channels) as table:
        before, threads = descriptors(), alloc_threads()
        with pytest.raises(peerage.ConnectFailed) as caught:
            table.ensure("r", endpoint, PATIENCE)
        assert isinstance(caught.value.__cause__, AllocLost)
        assert len(channels.opened) == 1 and channels.closed == channels.opened
        assert alloc_threads() == threads
        until(lambda: descriptors() <= before)


def test_a_channel_that_cannot_be_closed_again_is_named_in_the_error():
    def refuse(channel):
        raise RuntimeError("it is stuck")

    with router() as (_, endpoint):
        pass
    with peerage.PeerTable(*composite(lambda attempt: 1, refuse, lambda endpoint: endpoint)) as table:
        with pytest.raises(peerage.ConnectFailed) as caught:
            table.ensure("r", endpoint, PATIENCE)
        cause = caught.value.__cause__
        assert "it is stuck" in str(cause) and "leaked" in str(cause) and isinstance(cause.__cause__, AllocLost)


def test_a_failed_call_breaks_the_generation_and_the_next_one_has_both_parts_new():
    channels = Channels()
    with Server() as server, table_of(channels, backoff_base=0.01) as table:
        table.ensure("r", server.endpoint, PATIENCE)
        server.kill()
        server.start()
        with pytest.raises(AllocLost):
            with table.lease("r") as lease:
                lease.connection.alloc.call(b"", PATIENCE)
        until(lambda: connected(table, "r"))
        with table.lease("r") as lease:
            assert lease.connection.alloc.call(b"x", PATIENCE) == b"reply to x"
            assert lease.connection.channel == lease.generation == channels.opened[1]
        assert channels.closed == channels.opened[:1]


def test_a_call_that_is_not_answered_breaks_its_own_generation_only():
    channels = Channels()
    with Server("silent") as silent, Server() as server, table_of(channels) as table:
        table.ensure("silent", silent.endpoint, PATIENCE)
        table.ensure("well", server.endpoint, PATIENCE)
        with table.lease("well") as well:
            with pytest.raises(AllocTimedOut):
                with table.lease("silent") as lease:
                    lease.connection.alloc.call(b"", 0.2)
            assert not table.report_failure(("silent", lease.generation))  # it was reported already
            assert well.connection.alloc.call(b"x", PATIENCE) == b"reply to x"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what a disconnect raises is shown
def test_the_socket_is_closed_before_the_channel_and_with_it_whatever_the_channel_does():
    seen = []

    def close(channel):
        seen.append(alloc_threads())
        raise RuntimeError("cannot be closed")

    before = alloc_threads()
    with Server() as server:
        table = peerage.PeerTable(*composite(lambda attempt: 1, close, lambda endpoint: endpoint))
        table.ensure("r", server.endpoint, PATIENCE)
        assert alloc_threads() == before + 1
        report = table.shutdown(PATIENCE)
        assert seen == [before]
        assert not report["clean"]


def test_what_the_channel_answers_is_what_the_table_counts():
    with Server() as server:
        table = peerage.PeerTable(
            *composite(lambda attempt: 1, lambda channel: peerage.Closed.LEAKED, lambda endpoint: endpoint)
        )
        table.ensure("r", server.endpoint, PATIENCE)
        assert not table.shutdown(PATIENCE)["clean"]


def alloc_threads():
    return sum(thread.name == "peerage-alloc" for thread in threading.enumerate())


def connected(table, name):
    try:
        return table.ensure(name, timeout=PATIENCE)
    except peerage.BackingOff:
        return False
