"""What belongs to one connection to a NIXL peer, and the handles that stand for it.

``Remote.made`` holds every native handle of the connection until it is released: by its user, under a lease; or, when the
connection ends, by the table's lane, after the last lease. Whoever takes it out of there releases it. A handle that is dropped
only enqueues: releasing waits for NIXL's lock, and the collector may run anywhere.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any


class Remote:
    """One generation of a peer."""

    def __init__(self, owner: Any, name: str, generation: int):
        self.owner = owner
        self.name = name
        self.generation = generation
        self.value: Any = None
        self.ids = itertools.count()
        self.made: dict = {}
        self.dropped: collections.deque = collections.deque()

    def keep(self, kind: Any, native: Any) -> Any:
        """A handle for what has just been made."""
        for _ in range(len(self.dropped)):
            id = self.dropped.popleft()
            try:
                self.release(id)
            except Exception:
                self.dropped.append(id)  # it still runs, and is no business of who calls now
        id = next(self.ids)
        self.made[id] = (kind, native)
        return kind(self, id)

    def release(self, id: int) -> None:
        made = self.made.pop(id, None)
        if made is None:
            return
        try:
            with self.owner._exclusive:
                made[1].release()
        except BaseException:
            self.made[id] = made  # a transfer that still runs: it is released with the connection
            raise

    def release_all(self) -> int:
        """Releases what is left, transfers first. How much NIXL did not take back."""
        for kind in (PeerTransfer, PeerDlist):
            for id, (which, native) in list(self.made.items()):
                if which is not kind:
                    continue
                try:
                    native.release()
                    del self.made[id]
                except Exception:
                    pass  # counted below
        return len(self.made)


class Handle:
    """Stands for a native handle of one generation."""

    __slots__ = ("_remote", "_id")

    def __init__(self, remote: Remote, id: int):
        self._remote = remote
        self._id = id

    @property
    def name(self) -> str:
        return self._remote.name

    @property
    def generation(self) -> int:
        return self._remote.generation

    def native(self) -> Any:
        made = self._remote.made.get(self._id)
        if made is None:
            raise ValueError(f"{self!r} was released")
        return made[1]

    def release(self) -> None:
        """Gives it back to NIXL, unless it has been. Raises NIXL's error if a transfer can't be: it still runs."""
        self._remote.owner._release_kept(self._remote, self._id)

    def __del__(self) -> None:
        self._remote.dropped.append(self._id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.name!r} at g{self.generation}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} is a native handle and cannot be pickled")


class PeerDlist(Handle):
    """A prepared descriptor list of a peer."""

    __slots__ = ()


class PeerTransfer(Handle):
    """A transfer to or from a peer."""

    __slots__ = ()
