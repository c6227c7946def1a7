"""A NIXL agent that many threads may use: ``LifecycleAgent(nixl_agent)``.

It has the methods of ``nixl_agent``. Those that reach a peer hold a lease of it meanwhile; those that would add a peer, or use
what belongs to an older connection, are refused. Nothing native is released while a call that uses it runs, and everything
that belongs to a connection is released once, in the order that NIXL needs: transfers, descriptor lists, peer.

Make the agent for several threads, or NIXL corrupts its memory whatever is done here::

    agent = LifecycleAgent(nixl_agent(name, nixl_agent_config(sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT)))

This module imports no NIXL: it uses that of the agent it is given.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from typing import Any, Callable, Optional

from . import Closed, NotReady, PeerageError, PeerTable, UnknownPeer
from ._nixl import Handle, PeerDlist, PeerTransfer, Remote

__all__ = ["LifecycleAgent", "PeerDlist", "PeerTransfer", "StaleHandle"]

# What says that a peer's connection is of no more use. NIXL folds several causes into a backend error: on a call to a peer it
# is the peer's until another connect says otherwise. Not found says so where no descriptors are looked up: NIXL has dropped
# the peer by itself.
BROKEN = ("nixlRemoteDisconnectError", "nixlBackendError", "nixlCancelledError")
GONE = "nixlNotFoundError"

# The generation that this thread or task used last, by (agent, peer).
_used: "contextvars.ContextVar[dict]" = contextvars.ContextVar("peerage_nixl_used", default={})
# The connect that runs here: on_connect may use the peer before anybody else can.
_attempt: "contextvars.ContextVar[Optional[Remote]]" = contextvars.ContextVar("peerage_nixl_attempt", default=None)


class StaleHandle(PeerageError, ConnectionError):
    """A descriptor list or a transfer of an older connection. Nothing was called. Make it anew after ``ensure_peer``."""

    generation: Optional[int] = None


class LifecycleAgent:
    """A ``nixl_agent`` whose peers have a lifecycle. See the module.

    ``policy`` is that of :class:`peerage.PeerTable`. What is not here goes to the agent as it is.
    """

    def __init__(self, agent: Any, **policy: Any):
        self._agent = agent
        self._key = os.urandom(8)  # in what its exceptions say; they may be pickled, and end up in another process
        errors = _nixl_of(agent)
        self._gone = getattr(errors, GONE)
        # One slot per name in NIXL: an old connection ends before the new one is made.
        self._table = PeerTable(
            self._connect,
            self._disconnect,
            overlap=False,
            broken_on=tuple(getattr(errors, name) for name in BROKEN),
            name=agent.name,
            **policy,
        )
        # NIXL takes its own lock exclusively in these calls, in some of them with the GIL: who waits for it there stops the
        # interpreter. Waiting here does not.
        self._exclusive = threading.Lock()
        self._leaked: list = []
        self._metadata: Optional[bytes] = None
        self._metadata_version = object()

    # Peers.

    @property
    def peers(self) -> Any:
        """The table's peers, as a mapping."""
        return self._table.peers

    @property
    def table(self) -> PeerTable:
        """The table itself: snapshots, events, ``await table.ready(name)``."""
        return self._table

    def ensure_peer(
        self,
        name: str,
        metadata: bytes,
        value: Any = None,
        on_connect: Optional[Callable[[str, Any], Any]] = None,
        timeout: float = 30.0,
    ) -> Any:
        """Connects to ``name``, once for all who ask, unless it is connected; returns what belongs to the connection.

        That is what ``on_connect(name, value)`` returned, or ``value`` without it. ``on_connect`` runs after NIXL has added the
        peer and before anybody else sees it: what it prepares through this agent belongs to the connection. If it raises,
        the peer is taken back.

        If ``metadata`` or ``value`` differ (by ``==``) from what the peer is connected with, it has restarted or changed: the old
        connection is ended, then the new one made.
        """
        try:
            self._table.ensure(name, _Wanted(bytes(metadata), value, on_connect), timeout)
        except NotReady as why:
            _tag(why, (self._key, name, None))  # nothing that a report could end
            raise
        return self.peer_value(name)

    def peer_value(self, name: str) -> Any:
        """What belongs to the current connection, as ``ensure_peer`` returned it. Never waits; raises NotReady."""
        return self._at(name, None, lambda remote: remote.value)

    def report_failed(self, name: str, error: Optional[BaseException] = None) -> bool:
        """Says that ``name`` has failed, in place of removing it by its name. True: this report ended a connection. False: it is
        stale, nothing changed; so too where a call raised what says that the connection is broken, and has reported it.

        Which connection is meant is known from ``error``, or the exception that is being handled, if a call of this agent raised
        it; else it is the one that this thread or task used last. If neither is known, or another connection has taken its place,
        nothing changes.
        """
        error = error if error is not None else sys.exc_info()[1]
        known, generation = self._blamed(name, error)
        if not known:
            generation = _used.get().get((self._key, name))
        return generation is not None and self._table.report_failure((name, generation), error)

    def remove_remote_agent(self, agent: str, timeout: Optional[float] = None) -> bool:
        """Removes a peer on purpose: see ``PeerTable.remove``. After a failure use ``report_failed``."""
        return self._table.remove(agent, timeout)

    def shutdown_peers(self, timeout: float = 10.0) -> dict:
        """Ends all connections, when their calls have returned, and says what was left."""
        return self._table.shutdown(timeout)

    # Calls that reach a peer.

    def send_notif(self, remote_agent_name: str, notif_msg: bytes, backend: Optional[str] = None) -> None:
        self._at(remote_agent_name, None, lambda _: self._agent.send_notif(remote_agent_name, notif_msg, backend), self._gone)

    def make_connection(self, remote_agent: str, *args: Any, **kwargs: Any) -> Any:
        return self._at(remote_agent, None, lambda _: self._agent.make_connection(remote_agent, *args, **kwargs))

    def prep_xfer_dlist(self, agent_name: str, *args: Any, **kwargs: Any) -> Any:
        if agent_name in ("", "NIXL_INIT_AGENT", self._agent.name):
            return self._agent.prep_xfer_dlist(agent_name, *args, **kwargs)
        return self._at(
            agent_name,
            None,
            lambda remote: remote.keep(PeerDlist, self._agent.prep_xfer_dlist(agent_name, *args, **kwargs)),
        )

    def make_prepped_xfer(
        self, operation: str, local_xfer_side: Any, local_indices: Any, remote_xfer_side: Any, *args: Any, **kwargs: Any
    ) -> Any:
        make = self._agent.make_prepped_xfer
        if not isinstance(remote_xfer_side, PeerDlist):  # loopback
            return make(operation, local_xfer_side, local_indices, remote_xfer_side, *args, **kwargs)
        return self._with(
            remote_xfer_side,
            lambda remote, dlist: remote.keep(
                PeerTransfer, make(operation, local_xfer_side, local_indices, dlist, *args, **kwargs)
            ),
        )

    def initialize_xfer(
        self, operation: str, local_descs: Any, remote_descs: Any, remote_agent: str, *args: Any, **kwargs: Any
    ) -> Any:
        make = self._agent.initialize_xfer
        if remote_agent == self._agent.name:
            return make(operation, local_descs, remote_descs, remote_agent, *args, **kwargs)
        return self._at(
            remote_agent,
            None,
            lambda remote: remote.keep(
                PeerTransfer, make(operation, local_descs, remote_descs, remote_agent, *args, **kwargs)
            ),
        )

    def transfer(self, handle: Any, notif_msg: bytes = b"") -> str:
        return self._with(handle, lambda _, native: self._agent.transfer(native, notif_msg), self._gone)

    def check_xfer_state(self, handle: Any) -> str:
        return self._with(handle, lambda _, native: self._agent.check_xfer_state(native), self._gone)

    def estimate_xfer_cost(self, req_handle: Any) -> Any:
        return self._with(req_handle, lambda _, native: self._agent.estimate_xfer_cost(native))

    def get_xfer_telemetry(self, handle: Any) -> Any:
        return self._with(handle, lambda _, native: self._agent.get_xfer_telemetry(native))

    def query_xfer_backend(self, handle: Any) -> str:
        return self._with(handle, lambda _, native: self._agent.query_xfer_backend(native))

    def release_xfer_handle(self, handle: Any) -> None:
        """Releases a transfer. One of a connection that has ended was released with it."""
        self._release(handle, self._agent.release_xfer_handle)

    def release_dlist_handle(self, handle: Any) -> None:
        """Releases a descriptor list. One of a connection that has ended was released with it."""
        self._release(handle, self._agent.release_dlist_handle)

    # This side.

    @property
    def agent_metadata(self) -> bytes:
        """``get_agent_metadata()``, serialised once and then again only after memory was registered or deregistered."""
        return self.get_agent_metadata()

    def get_agent_metadata(self) -> bytes:
        metadata = self._metadata
        if metadata is None:
            version = self._metadata_version
            with self._exclusive:
                metadata = self._agent.get_agent_metadata()
            if version is self._metadata_version:
                self._metadata = metadata
        return metadata

    def register_memory(self, *args: Any, **kwargs: Any) -> Any:
        return self._changing_metadata(self._agent.register_memory, *args, **kwargs)

    def deregister_memory(self, *args: Any, **kwargs: Any) -> Any:
        return self._changing_metadata(self._agent.deregister_memory, *args, **kwargs)

    def create_backend(self, *args: Any, **kwargs: Any) -> Any:
        return self._changing_metadata(self._agent.create_backend, *args, **kwargs)

    def add_remote_agent(self, metadata: bytes) -> str:
        raise PeerageError("add_remote_agent would connect behind the table's back; use ensure_peer(name, metadata)")

    def fetch_remote_metadata(self, *args: Any, **kwargs: Any) -> None:
        raise PeerageError("fetch_remote_metadata would connect behind the table's back; use ensure_peer(name, metadata)")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._agent, name)

    def __repr__(self) -> str:
        return f"<LifecycleAgent {self._agent.name}, {len(self._table.peers)} peers>"

    def __reduce__(self) -> Any:
        raise TypeError("a LifecycleAgent belongs to its process and cannot be pickled; make another agent there")

    # Leases.

    def _at(self, name: str, generation: Optional[int], call: Callable[[Remote], Any], gone: Any = ()) -> Any:
        """Calls with the peer's connection, while it cannot end. What breaks it is reported, and said in the exception."""
        attempt = _attempt.get()
        if attempt is not None and attempt.owner is self and attempt.name == name:
            return call(attempt)
        try:
            lease = self._table.lease(name)
        except (NotReady, UnknownPeer) as why:
            _tag(why, (self._key, name, None))  # nothing that a report could end
            raise
        with lease:
            if generation is not None and generation != lease.generation:
                raise self._stale(name, generation, f"is at g{lease.generation} now")
            self._note(name, lease.generation)
            try:
                return call(lease.connection)
            except Exception as error:
                _tag(error, (self._key, name, lease.generation))
                if isinstance(error, gone):
                    self._table.report_failure(lease, error)
                raise

    def _with(self, handle: Any, call: Callable[[Remote, Any], Any], gone: Any = ()) -> Any:
        """The same, with what a handle stands for."""
        if not isinstance(handle, Handle):
            return call(None, handle)
        try:
            return self._at(handle.name, handle.generation, lambda remote: call(remote, handle.native()), gone)
        except (NotReady, UnknownPeer) as why:
            raise self._stale(handle.name, handle.generation, "is not connected") from why

    def _stale(self, name: str, generation: int, state: str) -> StaleHandle:
        text = f"a handle of peer {name!r} at g{generation}, which {state}; make it anew after ensure_peer"
        error = StaleHandle(text)
        error.name, error.generation = name, generation
        _tag(error, (self._key, name, generation))
        return error

    def _release(self, handle: Any, native: Callable[[Any], None]) -> None:
        if isinstance(handle, Handle):
            handle.release()
        else:
            with self._exclusive:
                native(handle)

    def _release_kept(self, remote: Remote, id: int) -> None:
        """Releases one handle of a connection, under a lease, so that it comes before the connection's own end."""
        if _attempt.get() is remote:
            return remote.release(id)
        failed = None
        try:
            with self._table.lease(remote.name) as lease:
                if lease.generation == remote.generation:
                    try:
                        remote.release(id)
                    except Exception as error:
                        failed = error  # says nothing about the peer
        except PeerageError:
            return None  # the connection has ended, and what belongs to it is released with it
        if failed is not None:
            raise failed
        return None

    def _note(self, name: str, generation: int) -> None:
        used = _used.get()
        if used.get((self._key, name)) != generation:
            _used.set({**used, (self._key, name): generation})

    def _blamed(self, name: str, error: Optional[BaseException]) -> "tuple[bool, Optional[int]]":
        """Whether an exception is, or comes from, one of an agent's, and the generation of ``name`` that it is about."""
        seen = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            tag = getattr(error, "peerage_nixl", None)
            if tag is not None:
                return True, tag[2] if tag[:2] == (self._key, name) else None
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return False, None

    # What the table calls, on its lanes.

    def _connect(self, attempt: Any) -> Remote:
        wanted = attempt.metadata
        remote = Remote(self, attempt.name, attempt.generation)
        try:
            with self._exclusive:
                added = self._agent.add_remote_agent(wanted.metadata)
                added = added.decode() if isinstance(added, bytes) else added
                if added != remote.name:
                    self._agent.remove_remote_agent(added)
                    raise ValueError(f"{remote.name}: the metadata is that of {added!r}; ask discovery for the right one")
            remote.value = wanted.value
            if wanted.on_connect is not None:
                token = _attempt.set(remote)
                try:
                    remote.value = wanted.on_connect(remote.name, wanted.value)
                finally:
                    _attempt.reset(token)
        except BaseException:
            self._disconnect(remote, attempt)  # also where the add failed: NIXL may know half of it
            raise
        return remote

    def _disconnect(self, remote: Remote, _: Any) -> Any:
        with self._exclusive:
            kept = remote.release_all()
            try:
                self._agent.remove_remote_agent(remote.name)
            except self._gone:
                return Closed.ALREADY_GONE
        if kept:
            self._leaked.append(remote)  # not to be finalised: that would try again, wherever the collector runs
        return Closed.LEAKED if kept else None

    def _changing_metadata(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        finally:
            self._metadata_version = object()
            self._metadata = None


class _Wanted:
    """What a peer is connected with. ``on_connect`` is no part of what it is."""

    __slots__ = ("metadata", "value", "on_connect")

    def __init__(self, metadata: bytes, value: Any, on_connect: Any):
        self.metadata = metadata
        self.value = value
        self.on_connect = on_connect

    def __eq__(self, other: Any) -> Any:
        return isinstance(other, _Wanted) and (self.metadata, self.value) == (other.metadata, other.value)

    def __repr__(self) -> str:
        return f"<NIXL metadata of {len(self.metadata)} bytes>"


def _nixl_of(agent: Any) -> Any:
    """The bindings, with the exceptions, of the NIXL that an agent is of; its classes may be subclassed."""
    for kind in type(agent).__mro__:
        bindings = getattr(sys.modules.get(kind.__module__), "nixlBind", None)
        if bindings is not None:
            return bindings
    raise TypeError(f"a LifecycleAgent is made from a nixl_agent, not from {type(agent).__name__}")


def _tag(error: BaseException, tag: tuple) -> None:
    if getattr(error, "peerage_nixl", None) is None:
        try:
            error.peerage_nixl = tag
        except AttributeError:
            pass  # no room: the context variable is left
