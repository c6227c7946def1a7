"""What peerage raises. Everything is a PeerageError."""

from typing import Optional


class PeerageError(Exception):
    """Base of all errors of this package. None of them says that a connection is broken, so none is ever reported as a
    failure of a lease it passes through."""

    #: The peer, where there is one.
    name: Optional[str] = None

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotReady(PeerageError, ConnectionError):
    """There is no connection to use now; nothing was sent. Fail the request, or wait with ensure."""

    #: The generation that the peer stands at.
    generation: Optional[int] = None
    #: Where it stands: "idle", "connecting", "ready", "failed", "removing" or "removed".
    phase: Optional[str] = None
    #: Not before so many seconds will a reconnect start, if that is known.
    retry_after: Optional[float] = None


class NotConnected(NotReady):
    """Nobody has asked for this connection yet, or its peer was updated: this call has asked for one."""


class Connecting(NotReady):
    """An attempt runs."""


class Broken(NotReady):
    """The last connection was reported broken: this call has asked for another one."""


class ConnectFailed(NotReady):
    """The attempt failed. ``__cause__`` is what the connect callable raised, the same for all who waited for it; None
    where it did not return in time."""


class BackingOff(NotReady):
    """The last attempt failed, and the next one may not start before ``retry_after`` seconds."""


class Undrained(NotReady):
    """The old connection is still in use, or its disconnect has not returned. Release failed leases before waiting."""


class Busy(NotReady):
    """Too many connects hang, or too many callers wait for this peer."""


class PeerRemoved(NotReady):
    """The peer is being removed, or was. Insert it again if it is still wanted."""


class TimedOut(PeerageError, TimeoutError):
    """The caller's own time is over; what was waited for goes on."""


class UnknownPeer(PeerageError, KeyError):
    """No peer has this name. Insert it, or give ensure its metadata."""


class AlreadyPresent(PeerageError):
    """The name is in the table with other metadata. Update it, or use ensure."""


class TableFull(PeerageError):
    """The table holds as many peers as it may: ``max_peers``."""


class TableClosed(PeerageError):
    """The table is shut down, for ever."""


class WouldDeadlock(PeerageError):
    """A callable of a table would wait for the thread it runs on."""


class LeaseReleased(PeerageError):
    """The lease was given back: its connection may be closed already."""


class UsedAfterFork(PeerageError):
    """This is a forked child, the table is the parent's. Build another one here."""


class InvalidArgument(PeerageError, ValueError):
    """A name that is none, or a setting that makes no sense."""
