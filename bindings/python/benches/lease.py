"""What `with table.lease(name)` costs, in thread CPU time: beside an empty context manager written in C, and beside the lock and
dict that it takes the place of.

    python bindings/python/benches/lease.py

The empty one is a closed `os.scandir`: its `__enter__` answers itself and its `__exit__` finds nothing to close. Each number is
the median of rounds that take turns, so that a busy machine slows all of them alike.
"""

import os
import statistics
import threading
import time

from peerage import PeerTable

ROUNDS = 15
TIMES = 50_000
LIMIT = 4.0


def empty():
    context = os.scandir()
    context.close()

    def run(times):
        for _ in range(times):
            with context:
                pass

    return run


def lease(table):
    def run(times):
        for _ in range(times):
            with table.lease("decode-0"):
                pass

    return run


def lock_and_dict():
    lock, peers = threading.RLock(), {"decode-0": object()}

    def run(times):
        for _ in range(times):
            with lock:
                peers["decode-0"]

    return run


def cpu(run, times=TIMES):
    began = time.thread_time_ns()
    run(times)
    return (time.thread_time_ns() - began) / times


def on_threads(run, threads):
    """CPU time per pass of each thread, and passes per second of all of them."""
    costs, start = [], threading.Barrier(threads + 1)

    def work():
        start.wait()
        costs.append(cpu(run))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return statistics.mean(costs), threads * TIMES / (time.perf_counter() - began)


def main():
    with PeerTable(lambda attempt: object()) as table:
        table.ensure("decode-0", None)
        runs = {"empty": empty(), "lease": lease(table), "lock and dict": lock_and_dict()}
        one = {name: [] for name in runs}
        for _ in range(ROUNDS):
            for name, run in runs.items():
                one[name].append(cpu(run))
        median = {name: statistics.median(costs) for name, costs in one.items()}
        for name, cost in median.items():
            print(f"1 thread, {name}: {cost:.0f} ns of CPU")
        for name in ("lease", "lock and dict"):
            rounds = [on_threads(runs[name], 4) for _ in range(ROUNDS // 3)]
            cost, rate = (statistics.median(column) for column in zip(*rounds))
            print(f"4 threads, {name}: {cost:.0f} ns of CPU, {rate / 1e6:.2f} million a second")
        ratio = median["lease"] / median["empty"]
        print(f"lease / empty: {ratio:.2f} (at most {LIMIT:.0f})")
        return ratio <= LIMIT


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
