"""Allocation calls to a receiver over ZeroMQ, from any thread, and connections that are made of two parts.

:class:`AllocChannel` takes the place of a REQ socket that threads share: each caller gets its own reply or an error.
:func:`composite` puts a data channel and its ``AllocChannel`` under one generation of a :class:`peerage.PeerTable`.

Needs pyzmq: ``pip install 'peerage[zmq]'``.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Callable, Optional

from . import UsedAfterFork
from ._alloc import Call, Owner

__all__ = ["AllocChannel", "AllocClosed", "AllocError", "AllocLost", "AllocTimedOut", "Composite", "composite"]


class AllocError(ConnectionError):
    """A call that got no reply. ``sent`` says whether the server may have carried it out.

    Not a PeerageError: inside a lease it breaks the generation.
    """

    endpoint: Optional[str] = None
    sent = False


class AllocTimedOut(AllocError, TimeoutError):
    """The deadline of this one call passed. Others on the channel are not concerned."""


class AllocLost(AllocError):
    """The connection ended, or could not be made, and a channel without ``reconnect`` has no other."""


class AllocClosed(AllocError):
    """The channel was closed on this side."""


class AllocChannel:
    """Requests to a REP or ROUTER server, from any number of threads, each with its own deadline.

    One thread owns the socket, a DEALER. A request goes out as ``[correlation id, empty, request]``: a REP server sees
    ``request`` alone and returns the rest by itself; a ROUTER server must return all frames up to the empty one.

    - *Deadline*: it covers waiting for the connection, sending and waiting for the reply. A reply that comes later is
      dropped and counted; no other call can get it.
    - *Connection*: a socket has one connection in its life, and only an established one is given requests. So nothing is
      queued in ZeroMQ for a server that is not there: a request whose caller gave up before it was sent is never sent, and
      none is sent again. When the connection ends, calls that were sent fail with :class:`AllocLost` at once; those that
      were not wait for the next one.
    - *Silence*: if a deadline passes and nothing has come over the connection since the request was sent, later calls get
      a fresh one. Calls that wait on the silent one keep it until they end; then it is closed, with what it had not
      written yet. What the server has received it may still carry out. A REP server that is stuck in one request answers
      nobody until it is done: each caller pays its own deadline.
    - *High-water mark*: a full socket delays its calls, up to their deadlines. It blocks no thread.

    ``reconnect=False`` is for a channel that belongs to one generation of a peer: it connects once, within 5 s, and fails
    for good when that connection ends, so that it never reaches the process that took the peer's place. Silence ends
    nothing there: it is for the table to judge what fails.

    ``endpoint`` is ``tcp://`` or ``ipc://``.
    """

    def __init__(self, endpoint: str, *, reconnect: bool = True, context: Any = None):
        if not endpoint.startswith(("tcp://", "ipc://")):
            raise ValueError(f"AllocChannel speaks tcp:// and ipc://, not {endpoint!r}")
        self.endpoint = endpoint
        self._pid = os.getpid()
        self._owner = Owner(endpoint, reconnect, context)
        # Enqueues only: the collector may run it on any thread, the owner's too.
        self._finalizer = weakref.finalize(self, Owner.end, self._owner)
        self._finalizer.atexit = False
        self._owner.start()

    def call(self, request: bytes, timeout: float = 30.0) -> bytes:
        """Sends ``request`` and returns the reply to it, or raises a subclass of :class:`AllocError`."""
        return self._finish(Call(memoryview(request).tobytes()), timeout)  # bytes(5) would be five of them

    def wait_connected(self, timeout: float = 30.0) -> None:
        """Returns when there is a connection. Raises as :meth:`call` does, having sent nothing."""
        self._finish(Call(None), timeout)

    def close(self, timeout: float = 5.0) -> bool:
        """Ends the channel; calls that wait fail with :class:`AllocClosed`. May be called again.

        Returns whether its socket and thread were gone when ``timeout`` passed.
        """
        self._check_process()
        self._finalizer.detach()
        self._owner.end()
        if threading.current_thread() is not self._owner.thread:
            self._owner.thread.join(min(timeout, threading.TIMEOUT_MAX))
        return not self._owner.thread.is_alive()

    def snapshot(self) -> dict:
        """What the channel is doing: ``waiting`` calls, ``sockets`` that are open, ``connects`` so far, ``late_replies``."""
        self._check_process()
        return self._owner.snapshot()

    def __enter__(self) -> "AllocChannel":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<AllocChannel {self.endpoint}>"

    def __reduce__(self) -> Any:
        raise TypeError("an AllocChannel belongs to its process and cannot be pickled; make one from its endpoint there")

    def _finish(self, call: Call, timeout: float) -> bytes:
        self._check_process()
        if timeout != timeout:
            raise ValueError("a timeout must be a number of seconds, not nan")
        wait = min(max(0.0, timeout), threading.TIMEOUT_MAX)
        self._owner.submit(call, time.monotonic() + timeout)
        try:
            done = call.done.wait(wait)
        except BaseException:  # an interrupt: nobody waits any more
            self._owner.give_up(call)
            raise
        if not done and self._owner.give_up(call):
            state = "no reply" if call.sent else self._owner.why_unsent()
            raise self._error(AllocTimedOut, f"{state} within {timeout:g} s", call)
        call.done.wait()  # whoever took the call ends it in the next few instructions
        if call.failure is not None:
            kind, text = call.failure
            raise self._error({"closed": AllocClosed, "lost": AllocLost}[kind], text, call)
        return call.reply

    def _error(self, kind: type, text: str, call: Call) -> AllocError:
        error = kind(f"{self.endpoint}: {text}")
        error.endpoint, error.sent = self.endpoint, call.sent
        return error

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise UsedAfterFork(f"{self!r} was made before a fork; make another one in the child")


class Composite:
    """A data channel and the ``AllocChannel`` to the same receiver: one connection of a table."""

    __slots__ = ("channel", "alloc")

    def __init__(self, channel: Any, alloc: AllocChannel):
        self.channel = channel
        self.alloc = alloc

    def __repr__(self) -> str:
        return f"<Composite {self.channel!r} {self.alloc!r}>"


def composite(
    open_channel: Callable[[Any], Any],
    close_channel: Callable[[Any], Any],
    alloc_endpoint: Callable[[Any], str],
    *,
    context: Optional[Any] = None,
) -> "tuple[Callable[[Any], Composite], Callable[[Composite, Any], Any]]":
    """The ``connect`` and ``disconnect`` of a table whose connections are a channel and an allocation socket.

    ``open_channel(attempt)`` makes the channel; then the allocation socket is connected to ``alloc_endpoint(attempt.metadata)``.
    If that fails, or the attempt is given up, the channel is closed again: no half is ever visible. Both end together, the
    socket first. ``close_channel(channel)`` answers what a table's ``disconnect`` may answer, such as ``Closed.LEAKED``.

    A call that fails is a ``ConnectionError``: inside a lease it breaks that generation, channel and socket.
    """

    def connect(attempt: Any) -> Composite:
        channel = open_channel(attempt)
        alloc = None
        try:
            if attempt.is_cancelled():
                raise ConnectionAbortedError(f"{attempt.name}: given up before its allocation socket was connected")
            alloc = AllocChannel(alloc_endpoint(attempt.metadata), reconnect=False, context=context)
            alloc.wait_connected(attempt.remaining())
        except BaseException as failed:
            try:
                if alloc is not None:
                    alloc.close()
            finally:
                _undo(close_channel, channel, attempt.name, failed)
            raise
        return Composite(channel, alloc)

    def disconnect(connection: Composite, closing: Any) -> Any:
        try:
            alloc_gone = connection.alloc.close()
        finally:
            channel_gone = close_channel(connection.channel)
        if not alloc_gone:
            raise TimeoutError(f"{closing.name}: the thread of its allocation socket did not end; socket and thread are leaked")
        return channel_gone

    return connect, disconnect


def _undo(close_channel: Callable[[Any], Any], channel: Any, name: str, failed: BaseException) -> None:
    try:
        close_channel(channel)
    except Exception as undo:
        raise ConnectionError(f"{name}: {failed}; and its channel could not be closed again ({undo}): it is leaked") from failed
