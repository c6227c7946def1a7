"""What is seen of a table: the mapping, snapshots, events."""

import collections.abc
import copy
import inspect
import json
import pickle
import threading

import pytest
from recorder import PATIENCE, Recorder, until

import peerage
from peerage import PeerTable


@pytest.fixture
def table():
    with PeerTable(Recorder().connect, backoff_base=60, backoff_cap=60) as table:
        yield table


def test_peers_are_a_mapping(table):
    b, a = table.ensure("b", 1), table.ensure("a", 1)
    peers = table.peers
    assert isinstance(peers, collections.abc.Mapping)
    assert "a" in peers and "c" not in peers and 1 not in peers
    assert peers["a"] is a and peers.get("b") is b and peers.get("c") is None and peers.get("c", 7) == 7
    assert len(peers) == 2 and list(peers) == peers.keys() == ["a", "b"] and peers.values() == [a, b]
    assert dict(peers.items()) == dict(peers) == {"a": a, "b": b}
    with pytest.raises(KeyError, match="'c'|\"c\""):
        peers["c"]
    with pytest.raises(KeyError):
        peers[1]
    table.remove("a", PATIENCE)
    assert list(peers) == ["b"], "it shows the table as it is"


def test_a_peer_that_is_removed_and_inserted_again_is_in_the_mapping_once(table):
    table.ensure("a", 1)
    with table.lease("a"):
        table.remove("a")
        assert list(table.peers) == []
        table.insert("a", 2)
        assert [state["phase"] for state in table.snapshot()].count("removing") == 1
        assert list(table.peers) == ["a"] and table.peers.values() == [table.peers["a"]]


def test_a_snapshot_is_plain_dicts(table):
    peer = table.ensure("a", b"secret of a native library")
    (state,) = table.snapshot()
    assert json.loads(json.dumps(state)) == state
    assert (state["name"], state["phase"], state["generation"], state["leases"]) == ("a", "ready", peer.generation, 0)
    assert state["record"]["metadata"] == "<26 bytes>" and state["record"]["reason"] == "ready"
    with table.lease("a"):
        assert table.snapshot()[0]["leases"] == 1
    counters = table.counters()
    assert counters["elections"] == 1 and counters["leaked"] == 0 and json.dumps(counters)


def test_metadata_whose_repr_is_long_or_raises_is_shown_all_the_same(table):
    class Odd:
        def __repr__(self):
            raise RuntimeError

    table.insert("long", "x" * 1000)
    table.insert("odd", Odd())
    shown = {state["name"]: state["record"]["metadata"] for state in table.snapshot()}
    assert len(shown["long"]) == 121 and shown["odd"] == "<metadata whose repr() raises>"


def test_events_begin_with_what_is_there_and_tell_each_transition_in_order(table):
    peer = table.ensure("a", 1)
    events = table.events()
    first = events.next()
    assert (first.kind, first.name, first.phase, first.generation) == ("current", "a", "ready", peer.generation)
    assert events.next() is None and events.next(0.05) is None
    table.report_failure(("a", peer.generation))
    failed = events.next(PATIENCE)
    assert (failed.kind, failed.before, failed.phase, failed.reason) == ("changed", "ready", "failed", "broken")
    assert failed.lasted > 0 and failed.missed == 0
    table.remove("a")
    assert [events.next(PATIENCE).phase for _ in range(2)] == ["removing", "removed"]


def test_an_iterator_of_events_ends_with_the_table():
    table = PeerTable(Recorder().connect)
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(table.events()))
    reader.start()
    table.ensure("a", 1)
    until(lambda: any(event.phase == "ready" for event in seen))
    table.shutdown(PATIENCE)
    reader.join(PATIENCE)
    assert not reader.is_alive() and seen[-1].phase == "removed"


def test_a_slow_reader_is_told_how_much_it_missed(table):
    events = table.events()
    for number in range(2000):
        table.insert(f"peer-{number}", 1)
    first = events.next()
    assert (first.kind, first.missed, first.name) == ("missed", 2000 - 1024, None)


def test_a_subscription_has_one_reader_at_a_time(table):
    events = table.events()
    reader = threading.Thread(target=lambda: events.next(PATIENCE))
    reader.start()

    def refused():
        try:
            return events.next() and False
        except RuntimeError as error:
            return "another thread" in str(error)

    until(refused)
    table.insert("a", 1)
    reader.join(PATIENCE)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_handle_is_pickled_or_copied(table, protocol):
    def told(what):
        def keep(handle):
            handles[what] = handle
            return handle

        return keep

    handles = {}
    with PeerTable(told("attempt"), lambda _, closing: told("closing")(closing) and None) as other:
        peer = other.ensure("a", 1)
        lease = peer.lease()
        lease.release()
    for handle in (other, peer, lease, other.peers, other.events(), *handles.values()):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(handle, protocol)
        with pytest.raises(TypeError, match="cannot pickle"):
            copy.copy(handle)
    assert len(handles) == 2
    assert pickle.loads(pickle.dumps(peerage.KEEP, protocol)) is peerage.KEEP


def test_errors_are_pickled_with_what_they_say(table):
    with pytest.raises(peerage.NotReady) as refused:
        table.insert("a", 1) and table.lease("a")
    again = pickle.loads(pickle.dumps(refused.value))
    assert type(again) is type(refused.value) and str(again) == str(refused.value) and again.__dict__ == refused.value.__dict__


def test_every_error_has_one_base_and_a_text():
    errors = [value for value in vars(peerage._errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    assert len(errors) > 15
    for error in errors:
        assert issubclass(error, peerage.PeerageError) and getattr(peerage, error.__name__) is error
        assert str(error("as it is")) == "as it is" and error.__doc__


def test_the_stub_and_the_documentation_have_every_name():
    import ast
    import pathlib

    package = pathlib.Path(peerage.__file__).parent
    assert (package / "py.typed").exists()
    stub = ast.parse((package / "_native.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    for name, value in vars(peerage._native).items():
        if inspect.isclass(value):
            there = {attribute for attribute in vars(value) if not attribute.startswith("__")}
            written = {getattr(node, "name", getattr(getattr(node, "target", None), "id", None)) for node in classes[name].body}
            assert there - written == set(), f"{name} in the stub"
            assert {name for name in written if name and not name.startswith("__")} - there == set(), f"{name} in the stub"
            assert value.__doc__ and all(inspect.getdoc(getattr(value, attribute)) for attribute in there), name
    assert set(peerage.__all__) == {name for name in vars(peerage) if not name.startswith("_") and name not in ("zmq", "nixl")}
