"""The thread that owns the socket of an ``AllocChannel``.

A call is in ``calls`` from its submission to its end. Whoever takes it out of there, and only they, ends it: the owner with
a reply or a failure, or its caller, who gives up. Everything else here belongs to the owner's thread, except ``inbox`` and
the wake-up pipe, which ``lock`` guards. The lock is reentrant because a finaliser may run wherever memory is allocated.
"""

from __future__ import annotations

import collections
import itertools
import os
import threading
import time
from typing import Any, Optional

import zmq
from zmq.utils.monitor import recv_monitor_message

ATTEMPT = 5.0  # for one attempt to connect: a black-holed one must not use up a patient caller's deadline
BACKOFF = (0.05, 1.0)
EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class Call:
    """One request and its end. Without a request it waits for the connection."""

    __slots__ = ("id", "request", "deadline", "sent", "done", "reply", "failure")

    def __init__(self, request: Optional[bytes]):
        self.request = request
        self.sent = False
        self.done = threading.Event()
        self.reply = b""
        self.failure: Optional[tuple] = None


class Connection:
    """A DEALER socket with one connection in its life, and the calls that were sent over it."""

    def __init__(self, context: zmq.Context, endpoint: str):
        self.monitor: Any = None
        self.socket = context.socket(zmq.DEALER)
        try:
            self.socket.linger = 0
            # Long gone by then. Not -1, and not `immediate`: with these libzmq drops replies that came just before the end.
            self.socket.reconnect_ivl = 24 * 3600 * 1000
            self.monitor = self.socket.get_monitor_socket(EVENTS)
            self.socket.connect(endpoint)
        except BaseException:
            self.close()
            raise
        self.up = False
        self.over = False
        self.give_up_at = time.monotonic() + ATTEMPT
        self.sent: dict = {}  # id -> when it was sent
        self.heard = 0.0

    def watch(self) -> None:
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.up = True
            else:
                self.over = True

    def close(self) -> None:
        try:
            self.socket.disable_monitor()
        except zmq.ZMQError:
            pass  # the context has ended, and waits for its sockets; or it has closed them
        if self.monitor is not None:
            self.monitor.close(0)
        self.socket.close(0)


class Owner:
    def __init__(self, endpoint: str, reconnect: bool, context: Any):
        self.endpoint = endpoint
        self.reconnect = reconnect
        self.context = context or zmq.Context.instance()
        self.ids = itertools.count(1)
        self.calls: dict = {}
        self.lock = threading.RLock()
        self.inbox: collections.deque = collections.deque()
        self.ending = False
        self.ended_by = "the channel is closed"
        self.pid = os.getpid()
        self.wake_out, self.wake_in = os.pipe()
        os.set_blocking(self.wake_out, False)
        os.set_blocking(self.wake_in, False)
        self.thread = threading.Thread(target=self._run, name="peerage-alloc", daemon=True)

        self.unsent: collections.deque = collections.deque()
        self.current: Optional[Connection] = None
        self.silent: list = []
        self.retry_at = 0.0
        self.backoff = BACKOFF[0]
        self.lost: Optional[str] = None  # without reconnect: why there will be no connection any more
        self.trouble: Optional[str] = None
        self.connects = 0
        self.late = 0

    # What any thread calls.

    def start(self) -> None:
        try:
            self.thread.start()
        except BaseException:
            self._close_pipe()
            raise

    def submit(self, call: Call, deadline: float) -> None:
        call.id = next(self.ids).to_bytes(8, "big")
        call.deadline = deadline
        self.calls[call.id] = call
        with self.lock:
            if not self.ending:
                self._tell(call)
                return
        self._fail(call.id, "closed", self.ended_by)

    def give_up(self, call: Call) -> bool:
        if self.calls.pop(call.id, None) is None:
            return False
        with self.lock:
            if not self.ending:
                self._tell(None)  # the owner looks whether the connection was silent
        return True

    def why_unsent(self) -> str:
        return f"no connection ({self.trouble})" if self.trouble else "no connection"

    def end(self) -> None:
        if os.getpid() != self.pid:
            return  # after a fork the lock may be held by a thread that is not here
        with self.lock:
            if not self.ending:
                self.ending = True
                self._tell(None)

    def snapshot(self) -> dict:
        current = self.current is not None
        return {
            "waiting": len(self.calls),
            "sockets": current + len(self.silent),
            "connects": self.connects,
            "late_replies": self.late,
        }

    def _tell(self, call: Optional[Call]) -> None:
        self.inbox.append(call)
        try:
            os.write(self.wake_in, b"\0")
        except BlockingIOError:
            pass  # full: it will wake

    # The owner's thread.

    def _run(self) -> None:
        try:
            while not self.ending:
                self._step()
        except Exception as error:
            self.ended_by = f"the channel has failed: {error!r}"
        finally:
            self._close_pipe()
            for connection in [self.current, *self.silent]:
                if connection is not None:
                    connection.close()
            self.current, self.silent = None, []
            for id in list(self.calls):
                self._fail(id, "closed", self.ended_by)

    def _close_pipe(self) -> None:
        with self.lock:
            self.ending = True  # from here on nobody writes to it
            os.close(self.wake_in)
            os.close(self.wake_out)

    def _step(self) -> None:
        self._take_inbox()
        now = time.monotonic()
        self._connections(now)
        self._send()
        poller = zmq.Poller()
        poller.register(self.wake_out, zmq.POLLIN)
        for connection in self.silent:
            poller.register(connection.socket, zmq.POLLIN)
            poller.register(connection.monitor, zmq.POLLIN)
        if self.current is not None:
            full = self.current.up and self.unsent
            poller.register(self.current.socket, zmq.POLLIN | (zmq.POLLOUT if full else 0))
            poller.register(self.current.monitor, zmq.POLLIN)
        poller.poll(self._patience(now))

    def _take_inbox(self) -> None:
        try:
            os.read(self.wake_out, 4096)
        except BlockingIOError:
            pass
        while self.inbox:
            call = self.inbox.popleft()
            if call is not None:
                self.unsent.append(call)
        self.unsent = collections.deque(call for call in self.unsent if call.id in self.calls)

    def _patience(self, now: float) -> Optional[int]:
        if self.current is not None:
            wait = None if self.current.up else self.current.give_up_at - now
        elif self.unsent:
            wait = self.retry_at - now
        else:
            wait = None
        return None if wait is None else max(0, int(wait * 1000) + 1)

    def _connections(self, now: float) -> None:
        for connection in [*self.silent, self.current]:
            if connection is None:
                continue
            # First the end, then what came: what was received before the end is a reply all the same.
            connection.watch()
            self._receive(connection, now)
            if connection is self.current:
                self._judge(connection, now)
            elif connection.over or not self._alive(connection):
                self.silent.remove(connection)
                self._drop(connection)
        if self.unsent and self.lost is not None:
            for call in self.unsent:
                self._fail(call.id, "lost", self.lost)
            self.unsent.clear()
        if self.unsent and self.current is None and now >= self.retry_at:
            self._open(now)

    def _open(self, now: float) -> None:
        try:
            self.current = Connection(self.context, self.endpoint)
            self.connects += 1
        except zmq.ZMQError as error:  # a name that is none, no sockets left
            if self.context.closed:
                raise
            self._unmade(str(error), now)

    def _unmade(self, why: str, now: float) -> None:
        self._gone(why)
        self.retry_at = now + self.backoff
        self.backoff = min(2 * self.backoff, BACKOFF[1])

    def _judge(self, connection: Connection, now: float) -> None:
        if connection.over or (not connection.up and now >= connection.give_up_at):
            if connection.up:
                self._gone("the connection ended")
            else:
                self._unmade("it was refused or not answered", now)
            self.current = None
            self._drop(connection)
            return
        if connection.up:
            self.backoff = BACKOFF[0]
            self.trouble = None
        gave_up = [id for id in connection.sent if id not in self.calls]
        silence = self.reconnect and any(connection.heard <= connection.sent[id] for id in gave_up)
        for id in gave_up:
            del connection.sent[id]
        if silence:
            self._gone("the server was silent past a deadline")
            self.current = None
            self.silent.append(connection)
            if not self._alive(connection):
                self.silent.remove(connection)
                self._drop(connection)

    def _gone(self, why: str) -> None:
        self.trouble = why
        if not self.reconnect:
            self.lost = why

    def _alive(self, connection: Connection) -> bool:
        return any(id in self.calls for id in connection.sent)

    def _drop(self, connection: Connection) -> None:
        connection.close()
        for id in connection.sent:
            self._fail(id, "lost", "the connection ended before the reply came; the server may have carried it out")

    def _receive(self, connection: Connection, now: float) -> None:
        while True:
            try:
                frames = connection.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            connection.heard = now
            id = frames[0]
            sent = connection.sent.pop(id, None)
            call = self.calls.pop(id, None) if sent is not None else None
            if call is None:
                self.late += 1
            else:
                if len(frames) == 3 and not frames[1]:
                    call.reply = frames[2]
                else:
                    call.failure = ("lost", f"a reply of one frame was expected, {max(0, len(frames) - 2)} came")
                call.done.set()

    def _send(self) -> None:
        connection = self.current
        if connection is None or not connection.up:
            return
        while self.unsent:
            call = self.unsent[0]
            if call.request is None:
                self._end(call)
            elif time.monotonic() < call.deadline:
                call.sent = True
                try:
                    connection.socket.send_multipart([call.id, b"", call.request], zmq.NOBLOCK)
                except zmq.Again:
                    call.sent = False
                    return
                connection.sent[call.id] = time.monotonic()
            self.unsent.popleft()

    def _end(self, call: Call) -> None:
        if self.calls.pop(call.id, None) is not None:
            call.done.set()

    def _fail(self, id: bytes, kind: str, text: str) -> None:
        call = self.calls.pop(id, None)
        if call is not None:
            call.failure = (kind, text)
            call.done.set()
