"""A nixl_agent without NIXL: says what was called, holds calls, fails on demand. For what LifecycleAgent does, not for NIXL."""

import collections
import threading
import types


def _error(name):
    return type(name, (Exception,), {})


nixlBind = types.SimpleNamespace(
    **{
        name: _error(name)
        for name in (
            "nixlRemoteDisconnectError",
            "nixlBackendError",
            "nixlCancelledError",
            "nixlNotFoundError",
            "nixlInvalidParamError",
        )
    }
)


class Native:
    """A native handle. Its release is a call that is seen."""

    def __init__(self, agent, kind):
        self.agent, self.kind, self.number = agent, kind, next(agent.numbers)
        self.stuck = False

    def release(self):
        self.agent.saw("release", self.kind, self.number)
        if self.stuck:
            raise nixlBind.nixlBackendError("still active")


class nixl_agent:
    def __init__(self, name="me"):
        self.name = name
        self.calls = []
        self.fail = collections.defaultdict(list)  # method -> exceptions to raise, one a call
        self.entered, self.hold = threading.Event(), None
        self.numbers = iter(range(1, 10**9))
        self.registered = 0

    def saw(self, *call):
        self.calls.append(call)
        if self.fail[call[0]]:
            raise self.fail[call[0]].pop(0)

    def count(self, method):
        return sum(call[0] == method for call in self.calls)

    def add_remote_agent(self, metadata):
        self.saw("add", metadata)
        return metadata.split(b"@")[0]

    def remove_remote_agent(self, agent):
        self.saw("remove", agent)

    def send_notif(self, remote_agent_name, notif_msg, backend=None):
        self.saw("notif", remote_agent_name, notif_msg)
        if self.hold is not None:
            self.entered.set()
            self.hold.wait(60)

    def prep_xfer_dlist(self, agent_name, xfer_list, mem_type=None, backends=()):
        self.saw("prep", agent_name)
        return Native(self, "dlist")

    def make_prepped_xfer(self, operation, local, local_indices, remote, remote_indices, notif_msg=b"", *more):
        self.saw("make", remote.number)
        return Native(self, "transfer")

    def initialize_xfer(self, operation, local, remote, remote_agent, notif_msg=b"", *more):
        self.saw("initialize", remote_agent)
        return Native(self, "transfer")

    def transfer(self, handle, notif_msg=b""):
        self.saw("transfer", handle.number)
        return "PROC"

    def check_xfer_state(self, handle):
        self.saw("check", handle.number)
        return "DONE"

    def release_xfer_handle(self, handle):
        handle.release()

    def release_dlist_handle(self, handle):
        handle.release()

    def register_memory(self, *args):
        self.registered += 1

    def get_agent_metadata(self):
        self.saw("metadata")
        return b"me@%d" % self.registered

    def get_new_notifs(self):
        return {"them": [b"hello"]}
