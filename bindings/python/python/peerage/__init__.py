"""The lifecycle of remote peers, for processes that move KV cache: one connect, exact removal, nothing closed in use."""

import collections.abc as _abc
import sys as _sys

if not getattr(_sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "peerage rests on the GIL and does not run where it is off; "
        "use an ordinary build of CPython, or start this one with PYTHON_GIL=1"
    )

from ._errors import (
    AlreadyPresent,
    BackingOff,
    Broken,
    Busy,
    ConnectFailed,
    Connecting,
    InvalidArgument,
    LeaseReleased,
    NotConnected,
    NotReady,
    PeerageError,
    PeerRemoved,
    TableClosed,
    TableFull,
    TimedOut,
    Undrained,
    UnknownPeer,
    UsedAfterFork,
    WouldDeadlock,
)
from ._native import KEEP, Attempt, Closed, Closing, Event, Events, Lease, Peer, Peers, PeerTable

__all__ = [
    "AlreadyPresent",
    "Attempt",
    "BackingOff",
    "Broken",
    "Busy",
    "Closed",
    "Closing",
    "ConnectFailed",
    "Connecting",
    "Event",
    "Events",
    "InvalidArgument",
    "KEEP",
    "Lease",
    "LeaseReleased",
    "NotConnected",
    "NotReady",
    "Peer",
    "PeerRemoved",
    "PeerTable",
    "Peers",
    "PeerageError",
    "TableClosed",
    "TableFull",
    "TimedOut",
    "Undrained",
    "UnknownPeer",
    "UsedAfterFork",
    "WouldDeadlock",
]

_abc.Mapping.register(Peers)
