"""A connect and a disconnect that write down how they are called, and helpers of the tests."""

import subprocess
import sys
import threading
import time

PATIENCE = 30.0


class Connection:
    def __init__(self, attempt):
        self.name, self.generation = attempt.name, attempt.generation


class Recorder:
    """`connect` fails with `fails`, where that is set, and waits for `gate`, where that is one."""

    def __init__(self, fails=None, gate=None):
        self.fails, self.gate = fails, gate
        self.connects, self.closes, self.inside, self.most_inside = [], [], 0, 0
        self.lock = threading.Lock()

    def connect(self, attempt):
        with self.lock:
            self.connects.append((attempt.name, attempt.metadata, attempt.generation))
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            if self.gate is not None:
                assert self.gate.wait(PATIENCE)
            if self.fails is not None:
                raise self.fails
            return Connection(attempt)
        finally:
            with self.lock:
                self.inside -= 1

    def disconnect(self, connection, closing):
        self.closes.append((closing.name, connection.generation, closing.reason, threading.get_ident()))
        assert connection.generation == closing.generation

    def reasons(self):
        return [reason for _, _, reason, _ in self.closes]


def until(condition):
    """Waits until it holds; the test fails if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.002)


def ensured(table, name, metadata):
    """Sits backoffs out."""
    import peerage

    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return table.ensure(name, metadata, PATIENCE)
        except peerage.BackingOff as error:
            assert time.monotonic() < deadline
            time.sleep(error.retry_after)


def threads(many, work):
    """What `work(number)` answered or raised on each of so many threads that begin together."""
    start, results = threading.Barrier(many), [None] * many

    def run(number):
        start.wait(PATIENCE)
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    all_of_them = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(many)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a thread hangs"
    return results


def child(source, timeout=60):
    """Runs `source` in another interpreter."""
    forks = ["-W", "ignore::DeprecationWarning"]  # which newer versions warn of, where there are threads
    return subprocess.run([sys.executable, *forks, "-c", source], capture_output=True, text=True, timeout=timeout)
