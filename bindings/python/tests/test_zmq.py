"""AllocChannel: every caller gets its own reply or, by its deadline, an error that says what may have happened."""

import contextlib
import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

zmq = pytest.importorskip("zmq")
from peerage import UsedAfterFork  # noqa: E402
from peerage.zmq import AllocChannel, AllocClosed, AllocError, AllocLost, AllocTimedOut  # noqa: E402

PATIENCE = 60.0
SERVER = pathlib.Path(__file__).with_name("rep_server.py")


class Server:
    """A REP server that is a process, and can be killed and started again on its port."""

    def __init__(self, *mode):
        self.endpoint = "tcp://127.0.0.1:*"
        self.start(*mode)

    def start(self, *mode):
        self.process = subprocess.Popen([sys.executable, str(SERVER), self.endpoint, *mode], stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()
        assert self.endpoint, "the server did not start"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


@contextlib.contextmanager
def router():
    """A ROUTER socket in this thread's hands: what it is sent, and when it answers, is up to the test."""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.linger = 0
    socket.rcvtimeo = int(PATIENCE * 1000)
    socket.bind("tcp://127.0.0.1:*")
    try:
        yield socket, socket.last_endpoint.decode()
    finally:
        socket.close()
        context.term()


def bind(socket, endpoint):
    """Binds where another socket of ZeroMQ was, which lets go of its port a moment after it was closed."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.bind(endpoint)
        except zmq.ZMQError:
            assert time.monotonic() < end
            time.sleep(0.02)


def in_threads(n, body):
    """Runs ``body(i)`` in n threads at once; the results, or the exception of the first that failed."""
    results, gate = [None] * n, threading.Barrier(n)

    def run(i):
        gate.wait()
        try:
            results[i] = body(i)
        except BaseException as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "a call hangs"
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def time_out(channel, request):
    """A call that is sent and not answered, however slow this machine is."""
    timeout = 0.2
    while True:
        with pytest.raises(AllocTimedOut) as caught:
            channel.call(request, timeout)
        if caught.value.sent:
            return
        timeout *= 2
        assert timeout < PATIENCE


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.01)


def test_each_of_32_threads_gets_its_own_replies_from_a_rep_server():
    with Server() as server, AllocChannel(server.endpoint) as channel:
        def calls(i):
            return [channel.call(b"%d/%d" % (i, n), PATIENCE) for n in range(20)]

        for i, replies in enumerate(in_threads(32, calls)):
            assert replies == [b"reply to %d/%d" % (i, n) for n in range(20)]
        assert channel.snapshot() == {"waiting": 0, "sockets": 1, "connects": 1, "late_replies": 0}


def test_replies_out_of_order_reach_their_callers():
    with router() as (socket, endpoint), AllocChannel(endpoint) as channel:
        def serve():
            for message in reversed([socket.recv_multipart() for _ in range(8)]):
                socket.send_multipart(message)

        server = threading.Thread(target=serve)
        server.start()
        assert in_threads(8, lambda i: channel.call(b"%d" % i, PATIENCE)) == [b"%d" % i for i in range(8)]
        server.join()


def test_a_rep_server_that_never_answers_costs_each_caller_its_own_deadline():
    with Server("silent") as server, AllocChannel(server.endpoint) as channel:
        def call(i):
            with pytest.raises(AllocTimedOut) as caught:
                channel.call(b"", 0.3 + 0.1 * i)
            return [caught.value]

        errors = [error for error, in in_threads(8, call)]
        again = pickle.loads(pickle.dumps(errors[0]))
        assert (type(again), str(again), again.sent) == (AllocTimedOut, str(errors[0]), errors[0].sent)
        assert channel.snapshot()["waiting"] == 0
        with Server() as other, AllocChannel(other.endpoint) as healthy:
            assert healthy.call(b"x", PATIENCE) == b"reply to x"


def test_a_call_that_is_not_answered_takes_no_other_along():
    with router() as (socket, endpoint), AllocChannel(endpoint) as channel:
        patient = threading.Thread(target=lambda: replies.append(channel.call(b"patient", PATIENCE)))
        replies = []
        patient.start()
        first = socket.recv_multipart()
        time_out(channel, b"ignored")
        assert socket.recv_multipart()[-1] == b"ignored"
        # The silence gave later calls another connection; who waits on the first keeps it.
        later = threading.Thread(target=lambda: replies.append(channel.call(b"later", PATIENCE)))
        later.start()
        second = socket.recv_multipart()
        assert second[0] != first[0] and channel.snapshot()["sockets"] == 2
        socket.send_multipart(second)
        later.join(PATIENCE)
        socket.send_multipart(first)
        patient.join(PATIENCE)
        assert replies == [b"later", b"patient"]
        until(lambda: channel.snapshot()["sockets"] == 1)


def test_a_late_reply_is_dropped_and_counted():
    with router() as (socket, endpoint), AllocChannel(endpoint, reconnect=False) as channel:
        time_out(channel, b"first")
        late = socket.recv_multipart()
        socket.send_multipart(late)
        until(lambda: channel.snapshot()["late_replies"] == 1)
        answer = threading.Thread(target=lambda: socket.send_multipart(socket.recv_multipart()))
        answer.start()
        assert channel.call(b"second", PATIENCE) == b"second"
        answer.join()


def test_a_server_that_restarts_is_called_again_and_is_sent_nothing_of_before():
    with router() as (probe, endpoint):
        pass
    channel = AllocChannel(endpoint)
    with channel:
        with pytest.raises(AllocTimedOut) as caught:
            channel.call(b"given up before there was a server", 0.3)
        assert not caught.value.sent and "no connection" in str(caught.value)
        context = zmq.Context()
        for life in (b"first life", b"second life"):
            socket = context.socket(zmq.ROUTER)
            socket.linger, socket.rcvtimeo = 0, int(PATIENCE * 1000)
            bind(socket, endpoint)
            served = []
            answer = threading.Thread(target=lambda: (served.append(socket.recv_multipart()), socket.send_multipart(served[0])))
            answer.start()
            assert channel.call(life, PATIENCE) == life
            answer.join()
            assert served[0][-1] == life
            with pytest.raises(AllocTimedOut):
                channel.call(b"not answered", 0.2)
            socket.close()
        context.term()


def test_a_killed_server_fails_what_was_sent_at_once_and_calls_work_again():
    with Server("silent") as server, AllocChannel(server.endpoint) as channel:
        failures = []

        def call():
            with pytest.raises(AllocLost) as caught:
                channel.call(b"in flight", PATIENCE * 10)
            failures.append(caught.value.sent)

        thread = threading.Thread(target=call)
        thread.start()
        until(lambda: channel._owner.current is not None and channel._owner.current.sent)
        server.kill()
        thread.join(PATIENCE)
        assert failures == [True]
        server.start()
        assert channel.call(b"again", PATIENCE) == b"reply to again"


def test_a_channel_of_one_generation_never_reaches_the_successor():
    with Server() as server, AllocChannel(server.endpoint, reconnect=False) as channel:
        assert channel.call(b"1", PATIENCE) == b"reply to 1"
        server.kill()
        server.start()
        for _ in range(3):
            with pytest.raises(AllocLost, match="connection ended"):
                channel.call(b"2", PATIENCE)


def test_a_channel_of_one_generation_says_at_once_that_nobody_is_there():
    with router() as (_, endpoint):
        pass
    with AllocChannel(endpoint, reconnect=False) as channel:
        with pytest.raises(AllocLost, match="refused or not answered") as caught:
            channel.wait_connected(PATIENCE * 10)
        assert not caught.value.sent and endpoint in str(caught.value)


def test_a_reply_that_came_before_the_end_is_a_reply():
    for _ in range(20):
        with router() as (socket, endpoint), AllocChannel(endpoint, reconnect=False) as channel:
            def answer_and_leave():
                message = socket.recv_multipart()
                socket.linger = 1000
                socket.send_multipart(message)
                socket.close()

            server = threading.Thread(target=answer_and_leave)
            server.start()
            assert channel.call(b"last", PATIENCE) == b"last"
            server.join()


def test_a_reply_of_several_frames_fails_its_call_alone():
    with router() as (socket, endpoint), AllocChannel(endpoint) as channel:
        def serve():
            socket.send_multipart(socket.recv_multipart() + [b"one too many"])
            socket.send_multipart(socket.recv_multipart())

        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(AllocLost, match="2 came"):
            channel.call(b"1", PATIENCE)
        assert channel.call(b"2", PATIENCE) == b"2"
        server.join()


def test_closing_ends_who_waits_and_gives_everything_back():
    gc.collect()
    with Server("silent") as server:
        zmq.Context.instance().socket(zmq.REQ).close()  # the process-wide context has its threads now
        before, threads = descriptors(), threading.active_count()
        for _ in range(10):
            channel = AllocChannel(server.endpoint)
            ends = []

            def call():
                with pytest.raises(AllocClosed) as caught:
                    channel.call(b"", PATIENCE * 10)
                ends.append(caught.value)

            waiting = threading.Thread(target=call)
            waiting.start()
            channel.wait_connected(PATIENCE)
            assert channel.close(PATIENCE)
            waiting.join(PATIENCE)
            assert len(ends) == 1
            with pytest.raises(AllocClosed):
                channel.call(b"", PATIENCE)
            assert channel.close(PATIENCE)
        assert threading.active_count() == threads
        until(lambda: descriptors() <= before)


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("end", ["term", "destroy"])
def test_a_context_that_ends_meanwhile_ends_the_channel_and_is_not_held_up(end, connected):
    with router() as (_, endpoint):
        context = zmq.Context()
        channel = AllocChannel(endpoint if connected else "tcp://127.0.0.1:1", context=context)
        failures = []

        def call():
            with pytest.raises(AllocClosed) as caught:
                channel.call(b"not answered", PATIENCE)
            failures.append(str(caught.value))

        threads = [threading.Thread(target=call) for _ in range(4)]
        threads.append(threading.Thread(target=getattr(context, end)))
        for thread in threads[:-1]:
            thread.start()
        if connected:
            channel.wait_connected(PATIENCE)
        time.sleep(0.2)
        threads[-1].start()
        for thread in threads:
            thread.join(PATIENCE / 3)
        assert not any(thread.is_alive() for thread in threads)
        assert len(failures) == 4 and all("the channel has failed" in failure for failure in failures)
        with pytest.raises(AllocClosed):
            channel.call(b"later", PATIENCE)
        assert channel.close()


def test_a_call_that_is_interrupted_is_over():
    class Interrupt(BaseException):
        pass

    def interrupt(*_):
        raise Interrupt

    with router() as (socket, endpoint), AllocChannel(endpoint) as channel:
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Interrupt):
                channel.call(b"not answered", PATIENCE)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert channel.snapshot()["waiting"] == 0


def test_a_timeout_may_be_for_ever_but_is_a_number():
    with Server() as server:
        channel = AllocChannel(server.endpoint)
        for forever in (float("inf"), 1e10, 2**63):
            assert channel.call(b"x", forever) == b"reply to x"
        with pytest.raises(ValueError):
            channel.call(b"x", float("nan"))
        assert channel.snapshot()["waiting"] == 0
        assert channel.close(float("inf"))


@pytest.mark.parametrize("request_", [5, "text", None])
def test_a_request_is_bytes(request_):
    with AllocChannel("tcp://127.0.0.1:1") as channel, pytest.raises(TypeError):
        channel.call(request_, 0.1)


def test_descriptors_of_restarts_and_silences_are_given_back():
    with Server() as server, AllocChannel(server.endpoint) as channel:
        channel.call(b"", PATIENCE)
        before = descriptors()
        for _ in range(3):
            server.kill()
            server.start("silent")
            for _ in range(3):
                with pytest.raises(AllocError):
                    channel.call(b"", 0.2)
            server.kill()
            server.start()
            until(lambda: answers(channel))
        until(lambda: descriptors() <= before)
        assert channel.snapshot()["sockets"] == 1


def answers(channel):
    try:
        return channel.call(b"", 5.0) == b"reply to "
    except AllocError:
        return False


def test_a_dropped_channel_ends_its_thread():
    with Server() as server:
        before = threading.active_count()
        channel = AllocChannel(server.endpoint)
        channel.call(b"", PATIENCE)
        assert threading.active_count() == before + 1
        del channel
        gc.collect()
        until(lambda: threading.active_count() == before)


def test_it_is_refused_where_it_cannot_work():
    with pytest.raises(ValueError, match="tcp:// and ipc://"):
        AllocChannel("inproc://x")
    with router() as (_, endpoint), AllocChannel(endpoint) as channel:
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(channel)
        child = os.fork()
        if child == 0:
            try:
                channel.call(b"", 1.0)
            except UsedAfterFork:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_interpreter_exits_with_a_call_in_flight():
    script = (
        "import sys, threading, peerage.zmq as z\n"
        "channel = z.AllocChannel(sys.argv[1])\n"
        "threading.Thread(target=channel.call, args=(b'', 3600), daemon=True).start()\n"
        "channel.wait_connected(60)\n"
    )
    with Server("silent") as server:
        ended = subprocess.run([sys.executable, "-c", script, server.endpoint], timeout=PATIENCE, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")
