"""The interpreter ends, or forks, with peers that live."""

import os

import pytest
from recorder import child

RUNS = int(os.environ.get("PEERAGE_EXIT_RUNS", "10"))

LIVE = """
import os, random, sys, threading, time
from peerage import PeerTable, PeerageError
closes = []
def connect(attempt):
    time.sleep(random.random() / 500)
    if random.random() < 0.2:
        raise OSError("no")
    return object()
def disconnect(connection, closing):
    time.sleep(random.random() / 500)
    closes.append(closing.reason)
tables = [PeerTable(connect, disconnect, backoff_base=0, breaker_after=None) for _ in range(2)]
def work(table, name):
    while True:
        try:
            table.ensure(name, random.random(), 10)
            with table.lease(name) as lease:
                if random.random() < 0.5:
                    table.report_failure(lease)
        except PeerageError:
            pass
for table in tables:
    for name in "abcd":
        threading.Thread(target=work, args=(table, name), daemon=True).start()
def follow():
    for event in tables[0].events():
        pass
threading.Thread(target=follow, daemon=True).start()
held = None
while held is None:
    try:
        held = tables[0].ensure("mine", 1).lease()
    except PeerageError:
        pass
time.sleep(random.random() / 10)
print("ends", flush=True)
"""


def test_an_exit_amid_connects_waits_and_leases_is_clean():
    for _ in range(RUNS):
        ran = child(LIVE)
        assert (ran.stdout, ran.stderr, ran.returncode) == ("ends\n", "", 0), ran


def test_live_peers_are_disconnected_before_the_interpreter_ends():
    ran = child(
        """
from peerage import PeerTable
table = PeerTable(lambda attempt: 1, lambda connection, closing: print(closing.name, closing.reason, flush=True))
table.ensure("a", 1)
"""
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("a shutdown\n", "", 0)


@pytest.mark.parametrize(
    "hangs",
    [
        "time.sleep(3600)",
        "lock.acquire()",
        "[time.sleep(0.001) for _ in iter(int, 1)]",
        "[None for _ in iter(int, 1)]",
    ],
)
def test_callables_that_hang_do_not_keep_the_interpreter_from_its_end(hangs):
    source = f"""
import threading, time
from peerage import PeerTable
lock = threading.Lock(); lock.acquire()
entered = threading.Event()
def call(*_):
    entered.set()
    {hangs}
def connect(attempt):
    return 1 if attempt.name == "closes" else call()
table = PeerTable(connect, call)
table.ensure("closes", 1)
table.insert("connects", 1)
try:
    table.lease("connects")
except ConnectionError:
    pass
entered.wait()
print("ends", flush=True)
"""
    for _ in range(max(1, RUNS // 5)):
        ran = child(source)
        assert (ran.stdout, ran.returncode) == ("ends\n", 0), ran


def ends_late(source):
    """`Late` is the last thing that finalisation drops, and keeps it from its end for the time of some wakings."""
    late = """
class Late:
    def __del__(self, sleep=time.sleep):
        sleep(1)
sys.late = Late()
print("ends", flush=True)
"""
    ran = child(source + late)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("ends\n", "", 0), ran


@pytest.mark.parametrize("goes_on", ["time.sleep(0.7)", "swallow()"])
def test_callables_that_come_back_while_the_interpreter_ends_do_not_abort_it(goes_on):
    """CPython ends their threads then."""
    source = f"""
import sys, threading, time
from peerage import PeerTable
entered = threading.Barrier(3)
def swallow():
    try:
        time.sleep(0.01)
    except BaseException:
        pass
def call(*_):
    entered.wait()
    while True:
        {goes_on}
table = PeerTable(lambda attempt: 1 if attempt.name == "closes" else call(), call)
table.ensure("closes", 1)
table.insert("connects", 1)
try:
    table.lease("connects")
except ConnectionError:
    pass
table.remove("closes")
entered.wait()
"""
    ends_late(source)


def test_what_python_does_after_our_own_end_is_refused_and_does_not_hang():
    """`late` was registered before the package's own end, so it runs after that."""
    ran = child(
        """
import atexit
def late():
    try:
        table.ensure("b", 1, 10)
    except peerage.TableClosed:
        print("closed", flush=True)
    other = peerage.PeerTable(lambda attempt: 1)
    try:
        other.ensure("b", 1, 10)
    except peerage.PeerageError as error:
        print(type(error).__name__, flush=True)
atexit.register(late)
import peerage
table = peerage.PeerTable(lambda attempt: 1)
table.ensure("a", 1)
"""
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("closed\nConnectFailed\n", "", 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_and_may_build_its_own():
    ran = child(
        """
import asyncio, os, sys, threading, time
import peerage
from peerage import PeerTable
closes = []
table = PeerTable(lambda attempt: 1, lambda connection, closing: closes.append(closing.reason))
peer = table.ensure("a", 1)
lease = table.lease("a")
events = table.events()
def wait():
    try:
        table.ensure("stuck", 1, 60)
    except peerage.PeerageError:
        pass
hold = threading.Event()
asyncio.run(table.ready("a"))
if (pid := os.fork()) == 0:
    uses = [
        lambda: table.lease("a"), lambda: peer.lease(), lambda: table.ensure("a"), lambda: table.ensure("a", 2),
        lambda: table.insert("b", 1), lambda: table.update("a", 2), lambda: table.remove("a", 5), lambda: table.shutdown(5),
        lambda: table.report_failure(lease), lambda: table.report_failure(("a", 1)), lambda: peer.wait_ready(5),
    ]
    for number, use in enumerate(uses):
        try:
            print(number, use())
        except peerage.UsedAfterFork:
            pass
    assert list(events) == [] and table.snapshot() and "a" in table.peers
    lease.release()
    own = PeerTable(lambda attempt: time.sleep(0.1))
    async def ready():
        own.insert("c", 1)
        assert own.peers["c"].phase == "idle"
        return (await own.ready("c", 30)).name
    print("child", own.ensure("b", 1).phase, asyncio.run(ready()), own.shutdown(30)["clean"], closes, flush=True)
    del lease, peer, table, events
    sys.exit(7)
_, status = os.waitpid(pid, 0)
print("parent", os.WEXITSTATUS(status), lease.connection, closes, flush=True)
lease.release()
print(table.shutdown(30)["clean"], closes)
"""
    )
    assert ran.stderr == "" and ran.returncode == 0, ran
    assert ran.stdout == "child ready c True []\nparent 7 1 []\nTrue ['shutdown']\n"


def test_without_the_gil_the_import_says_what_to_do():
    ran = child("import sys; sys._is_gil_enabled = lambda: False\nimport peerage")
    assert ran.returncode == 1 and "ImportError: peerage rests on the GIL" in ran.stderr
    assert child("import sys; sys._is_gil_enabled = lambda: True\nimport peerage").returncode == 0




def test_a_subinterpreter_is_refused_and_its_end_is_not_the_processs():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = __import__(name)
            break
        except ImportError:
            pass
    else:
        pytest.skip("no subinterpreters here")
    ran = child(
        f"""
import {interpreters.__name__} as interpreters
from peerage import PeerTable
table = PeerTable(lambda attempt: 1)
table.ensure("a", 1)
sub = interpreters.create()
source = '''
try:
    import peerage
except ImportError as error:
    print("main interpreter only" in str(error), flush=True)
'''
interpreters.run_string(sub, source)
interpreters.destroy(sub)
table.lease("a").release()
table.ensure("b", 1)
"""
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("True\n", "", 0), ran


def test_metadata_that_is_compared_while_the_interpreter_ends_does_not_abort_it():
    source = """
import sys, threading, time
from peerage import PeerTable
entered = threading.Event()
class Slow:
    def __eq__(self, other):
        entered.set()
        while True:
            time.sleep(0.5)
table = PeerTable(lambda attempt: 1)
table.insert("a", Slow())
threading.Thread(target=lambda: table.update("a", Slow()), daemon=True).start()
entered.wait()
"""
    ends_late(source)
