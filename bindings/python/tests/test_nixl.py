"""LifecycleAgent over an agent that says what was called. The real NIXL is in test_nixl_real.py."""

import asyncio
import contextvars
import gc
import pickle
import threading
import time

import fake_nixl
import peerage
import pytest
from fake_nixl import nixlBind
from peerage.nixl import LifecycleAgent, StaleHandle

PATIENCE = 60.0


@pytest.fixture
def fake():
    return fake_nixl.nixl_agent()


@pytest.fixture
def agent(fake):
    # Reports come at once here: no connection is too young for a quick reconnect.
    agent = LifecycleAgent(fake, backoff_min_stable=0.0, backoff_base=0.001, backoff_cap=0.001)
    yield agent
    agent.shutdown_peers(PATIENCE)


def ensure(agent, life=1, name="p", **more):
    """Connects to one life of a peer, after the backoff if there is one; its generation."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            agent.ensure_peer(name, b"%s@%d" % (name.encode(), life), **more)
            return agent.peers[name].generation
        except peerage.BackingOff:
            assert time.monotonic() < end
            time.sleep(0.005)


def elsewhere(body, *args):
    """Runs it in a thread, which has used no peer yet."""
    result = []
    thread = threading.Thread(target=lambda: result.append(body(*args)))
    thread.start()
    thread.join(PATIENCE)
    return result[0]


def is_ready_at(agent, generation, name="p"):
    return (agent.peers[name].phase, agent.peers[name].generation) == ("ready", generation)


def a_call_that_fails(agent, fake, error=nixlBind.nixlInvalidParamError):
    """An exception that names its generation; of this kind it ends no connection by itself."""
    fake.fail["notif"].append(error("refused"))
    with pytest.raises(error) as caught:
        agent.send_notif("p", b"x")
    return caught.value


# One connect.


def test_64_threads_that_find_a_peer_absent_add_it_once(agent, fake):
    gate, values = threading.Barrier(64), []

    def on_connect(name, value):
        return [name, value, agent.prep_xfer_dlist(name, [], "DRAM")]

    def work():
        gate.wait()
        values.append(agent.ensure_peer("p", b"p@1", "v", on_connect))

    threads = [threading.Thread(target=work) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(values) == 64 and all(value is values[0] for value in values) and values[0][:2] == ["p", "v"]
    assert (fake.count("add"), fake.count("prep")) == (1, 1)


def test_new_metadata_ends_the_old_connection_first(agent, fake):
    first = ensure(agent, 1)
    assert ensure(agent, 1) == first
    second = ensure(agent, 2)
    assert second > first
    assert fake.calls == [("add", b"p@1"), ("remove", "p"), ("add", b"p@2")]


def test_a_connect_whose_second_half_fails_is_undone(agent, fake):
    def on_connect(name, value):
        agent.prep_xfer_dlist(name, [], "DRAM")
        raise RuntimeError("no room for its pages")

    with pytest.raises(peerage.ConnectFailed) as caught:
        agent.ensure_peer("p", b"p@1", None, on_connect)
    assert str(caught.value.__cause__) == "no room for its pages"
    assert fake.calls == [("add", b"p@1"), ("prep", "p"), ("release", "dlist", 1), ("remove", "p")]
    ensure(agent, 2)


def test_metadata_of_another_peer_is_taken_back(agent, fake):
    with pytest.raises(peerage.ConnectFailed) as caught:
        agent.ensure_peer("p", b"q@1")
    assert "'q'" in str(caught.value.__cause__)
    assert ("remove", "q") in fake.calls


# Exact reports.


def test_an_error_of_a_broken_connection_ends_it_by_itself(agent, fake):
    for kind in (nixlBind.nixlRemoteDisconnectError, nixlBind.nixlBackendError, nixlBind.nixlNotFoundError):
        generation = ensure(agent)
        error = a_call_that_fails(agent, fake, kind)
        assert not is_ready_at(agent, generation)
        assert not agent.report_failed("p", error)
        with pytest.raises(peerage.NotReady):
            agent.send_notif("p", b"x")
    assert fake.count("notif") == 3


def test_descriptors_that_are_not_found_are_no_fault_of_the_peer(agent, fake):
    generation = ensure(agent)
    fake.fail["prep"].append(nixlBind.nixlNotFoundError("no such memory"))
    with pytest.raises(nixlBind.nixlNotFoundError):
        agent.prep_xfer_dlist("p", [], "DRAM")
    assert is_ready_at(agent, generation)


def test_a_report_means_the_connection_its_error_came_from(agent, fake):
    first = ensure(agent, 1)
    old = a_call_that_fails(agent, fake)
    second = ensure(agent, 2)
    agent.send_notif("p", b"x")  # so this thread has used the new one
    assert not agent.report_failed("p", old)
    assert is_ready_at(agent, second)
    new = a_call_that_fails(agent, fake)
    assert elsewhere(agent.report_failed, "p", new)
    assert not is_ready_at(agent, second) and second > first
    assert not agent.report_failed("p", new)


def test_in_an_except_block_the_error_need_not_be_said(agent, fake):
    ensure(agent, 1)
    fake.fail["notif"].append(nixlBind.nixlInvalidParamError("refused"))
    try:
        agent.send_notif("p", b"x")
    except nixlBind.nixlInvalidParamError:
        second = ensure(agent, 2)
        agent.send_notif("p", b"x")
        assert not agent.report_failed("p")
        assert is_ready_at(agent, second)
    # Out of the block it is the connection that was used last.
    assert agent.report_failed("p")


def test_an_error_that_was_wrapped_is_known(agent, fake):
    ensure(agent, 1)
    old = a_call_that_fails(agent, fake)
    second = ensure(agent, 2)
    try:
        raise RuntimeError("the request failed") from old
    except RuntimeError as wrapped:
        assert not agent.report_failed("p", wrapped)
    assert is_ready_at(agent, second)


def test_who_has_used_nothing_changes_nothing(agent):
    generation = ensure(agent)
    assert not elsewhere(agent.report_failed, "p")
    assert not elsewhere(agent.report_failed, "p", RuntimeError("of something else"))
    assert not contextvars.Context().run(agent.report_failed, "p")
    assert not agent.report_failed("unknown")
    assert is_ready_at(agent, generation)


def test_an_error_of_one_peer_says_nothing_of_another(agent, fake):
    ensure(agent, name="q")
    ensure(agent)
    error = a_call_that_fails(agent, fake)
    agent.send_notif("q", b"x")
    assert not agent.report_failed("q", error)
    assert agent.peers["q"].phase == "ready"


def test_the_same_names_of_another_agent_are_not_meant(agent, fake):
    other = LifecycleAgent(fake_nixl.nixl_agent("other"))
    ensure(agent)
    error = a_call_that_fails(agent, fake)
    generation = ensure(other)
    assert not other.report_failed("p", error)
    assert is_ready_at(other, generation)
    assert other.shutdown_peers(PATIENCE)["clean"]


def test_being_refused_is_no_failure_of_the_connection_that_came_since(agent, fake):
    ensure(agent, 1)
    agent.report_failed("p")
    with pytest.raises(peerage.NotReady) as refused:
        agent.send_notif("p", b"x")
    generation = ensure(agent, 2)
    assert not agent.report_failed("p", refused.value)
    assert is_ready_at(agent, generation)


def test_tasks_of_one_thread_report_what_each_of_them_used(agent):
    async def main():
        used, reported = asyncio.Event(), asyncio.Event()

        async def early():
            agent.send_notif("p", b"early")
            used.set()
            await reported.wait()
            return agent.report_failed("p")

        async def late(generation):
            agent.send_notif("p", b"late")
            await asyncio.sleep(0)
            return agent.report_failed("p"), generation

        async def idle():
            await used.wait()
            return agent.report_failed("p")

        # Contexts of their own, as tasks of a server's connections have.
        def task(coroutine):
            return contextvars.Context().run(asyncio.get_running_loop().create_task, coroutine)

        first = ensure(agent, 1)
        tasks = [task(early()), task(idle())]
        assert not await tasks[1]
        assert is_ready_at(agent, first)
        second = ensure(agent, 2)
        reported.set()
        assert not await tasks[0]  # it used the first
        assert is_ready_at(agent, second)
        assert await task(late(second)) == (True, second)
        assert not is_ready_at(agent, second)

    asyncio.run(main())


# Nothing native in use is released; all of it is, once.


def transfer(agent):
    local = agent.prep_xfer_dlist("", [], "DRAM")
    remote = agent.prep_xfer_dlist("p", [], "DRAM")
    return remote, agent.make_prepped_xfer("WRITE", local, [0], remote, [0])


def test_a_connection_ends_after_the_call_that_uses_it(agent, fake):
    ensure(agent)
    fake.hold = threading.Event()
    sender = threading.Thread(target=agent.send_notif, args=("p", b"x"))
    sender.start()
    assert fake.entered.wait(PATIENCE)
    assert not agent.remove_remote_agent("p", 0.2)
    assert fake.count("remove") == 0
    fake.hold.set()
    sender.join(PATIENCE)
    assert agent.shutdown_peers(PATIENCE)["clean"]
    assert fake.count("remove") == 1


def test_what_belongs_to_a_connection_is_released_with_it_in_order(agent, fake):
    ensure(agent)
    remote, handle = transfer(agent)
    assert agent.transfer(handle) == "PROC"
    del fake.calls[:]
    assert agent.remove_remote_agent("p", PATIENCE)
    assert [call[:2] for call in fake.calls] == [("release", "transfer"), ("release", "dlist"), ("remove", "p")]
    agent.release_xfer_handle(handle)
    remote.release()
    assert fake.count("release") == 2
    for use in (agent.transfer, agent.check_xfer_state):
        with pytest.raises(StaleHandle) as caught:
            use(handle)
        assert caught.value.name == "p"
    assert (fake.count("transfer"), fake.count("check")) == (0, 0)


def test_a_handle_of_an_older_connection_is_refused(agent, fake):
    first = ensure(agent, 1)
    remote, handle = transfer(agent)
    second = ensure(agent, 2)
    agent.send_notif("p", b"x")
    made = fake.count("make")
    with pytest.raises(StaleHandle) as caught:
        agent.make_prepped_xfer("WRITE", None, [0], remote, [0])
    assert (caught.value.generation, fake.count("make")) == (first, made)
    assert f"g{second}" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.name, again.generation) == (str(caught.value), "p", first)
    assert not agent.report_failed("p", caught.value)
    assert is_ready_at(agent, second)


def test_a_release_by_its_user_is_the_only_one(agent, fake):
    ensure(agent)
    remote, handle = transfer(agent)
    for _ in range(2):
        agent.release_xfer_handle(handle)
        agent.release_dlist_handle(remote)
    assert fake.count("release") == 2
    with pytest.raises(ValueError, match="was released"):
        agent.transfer(handle)
    assert agent.remove_remote_agent("p", PATIENCE)
    assert fake.count("release") == 2


def test_a_transfer_that_still_runs_is_kept_and_says_nothing_of_its_peer(agent, fake):
    generation = ensure(agent)
    _, handle = transfer(agent)
    handle.native().stuck = True
    with pytest.raises(nixlBind.nixlBackendError):
        agent.release_xfer_handle(handle)
    assert is_ready_at(agent, generation)
    handle.native().stuck = False
    agent.release_xfer_handle(handle)
    assert fake.count("release") == 2


def test_what_nixl_does_not_take_back_is_counted_and_the_peer_removed(agent, fake):
    ensure(agent)
    _, handle = transfer(agent)
    handle.native().stuck = True
    assert not agent.shutdown_peers(PATIENCE)["clean"]
    assert fake.calls[-1] == ("remove", "p")


def test_a_peer_that_nixl_dropped_itself_is_no_leak(agent, fake):
    ensure(agent)
    fake.fail["remove"].append(nixlBind.nixlNotFoundError("gone"))
    assert agent.shutdown_peers(PATIENCE)["clean"]


def test_dropping_a_handle_only_enqueues(agent, fake):
    ensure(agent)
    remote, handle = transfer(agent)
    del handle
    gc.collect()
    assert fake.count("release") == 0
    kept = agent.make_prepped_xfer("WRITE", None, [0], remote, [0])
    assert [call[:2] for call in fake.calls if call[0] == "release"] == [("release", "transfer")]
    assert agent.transfer(kept) == "PROC"


def test_initialized_transfers_belong_to_the_connection_too(agent, fake):
    ensure(agent)
    handle = agent.initialize_xfer("WRITE", [], [], "p", b"done")
    assert agent.check_xfer_state(handle) == "DONE"
    assert agent.remove_remote_agent("p", PATIENCE)
    assert fake.count("release") == 1


# This side.


def test_own_metadata_is_serialised_once_until_memory_changes(agent, fake):
    assert agent.agent_metadata == agent.get_agent_metadata() == b"me@0"
    assert fake.count("metadata") == 1
    agent.register_memory([])
    assert agent.agent_metadata == b"me@1"
    assert fake.count("metadata") == 2


def test_the_rest_is_the_agents(agent):
    assert agent.get_new_notifs() == {"them": [b"hello"]}
    assert agent.name == "me"
    with pytest.raises(AttributeError):
        agent.no_such_method


def test_what_would_go_behind_the_tables_back_is_refused(agent, fake):
    with pytest.raises(peerage.PeerageError, match="ensure_peer"):
        agent.add_remote_agent(b"p@1")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(agent)
    with pytest.raises(TypeError, match="nixl_agent"):
        LifecycleAgent(object())
    ensure(agent)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(agent.prep_xfer_dlist("p", [], "DRAM"))
