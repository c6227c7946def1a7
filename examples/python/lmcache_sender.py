"""A KV sender with LMCache's method names, before and after it adopts peerage. Real ZeroMQ, a stand-in for the channel.

    python lmcache_sender.py before 8      # 8 threads put to one receiver that nobody is connected to
    python lmcache_sender.py after 64

Before: each thread that finds the receiver absent connects, and then they share a REQ socket, which belongs to one thread.
After: one connect and one allocation socket, and each put gets its own pages. The lines that differ are in
bindings/python/ADOPTING.md. Needs: pip install 'peerage[zmq]'
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import zmq
from lmcache_receiver import HOST, TransferChannel, get_zmq_socket

from peerage import PeerTable
from peerage.zmq import composite


# before
class SenderBefore:
    def __init__(self, local_id, transfer_channel):
        self.local_id = local_id
        self.transfer_channel = transfer_channel
        self.initialized_peers = set()
        self.mem_alloc_sockets = {}

    def _ensure_peer_connection(self, receiver_id, receiver_host, receiver_init_port, receiver_alloc_port):
        if receiver_id in self.initialized_peers:
            return
        init_url = f"{receiver_host}:{receiver_init_port}"
        alloc_url = f"tcp://{receiver_host}:{receiver_alloc_port}"
        self.transfer_channel.lazy_init_peer_connection(self.local_id, receiver_id, init_url)
        self.mem_alloc_sockets[receiver_id] = get_zmq_socket(alloc_url, zmq.REQ)
        self.initialized_peers.add(receiver_id)

    def _remote_allocate(self, receiver_id, alloc_request):
        side_channel = self.mem_alloc_sockets[receiver_id]
        side_channel.send(json.dumps(alloc_request).encode())
        msg = side_channel.recv()
        return json.loads(msg)

    def put(self, receiver_id, receiver_host, receiver_init_port, receiver_alloc_port, request, data):
        self._ensure_peer_connection(receiver_id, receiver_host, receiver_init_port, receiver_alloc_port)
        response = self._remote_allocate(receiver_id, {"request": request, "pages": 2})
        self.transfer_channel.write(receiver_id, response["pages"], request, data)
        return response


# after
class Sender:
    def __init__(self, local_id, transfer_channel):
        self.local_id = local_id
        self.transfer_channel = transfer_channel
        self.peers = PeerTable(*composite(self._connect, transfer_channel.remove_peer_connection, lambda urls: urls[1]))

    def _ensure_peer_connection(self, receiver_id, receiver_host, receiver_init_port, receiver_alloc_port):
        init_url = f"{receiver_host}:{receiver_init_port}"
        alloc_url = f"tcp://{receiver_host}:{receiver_alloc_port}"
        self.peers.ensure(receiver_id, (init_url, alloc_url))

    def _connect(self, attempt):
        return self.transfer_channel.lazy_init_peer_connection(self.local_id, attempt.name, attempt.metadata[0])

    def _remote_allocate(self, lease, alloc_request):
        msg = lease.connection.alloc.call(json.dumps(alloc_request).encode())
        return json.loads(msg)

    def put(self, receiver_id, receiver_host, receiver_init_port, receiver_alloc_port, request, data):
        self._ensure_peer_connection(receiver_id, receiver_host, receiver_init_port, receiver_alloc_port)
        with self.peers.lease(receiver_id) as lease:
            response = self._remote_allocate(lease, {"request": request, "pages": 2})
            self.transfer_channel.write(receiver_id, response["pages"], request, data)
        return response


# the run
class ReceiverProcess:
    """A receiver that can be killed and started again, where it was or elsewhere."""

    def __init__(self):
        self.start((0, 0, 0))

    def start(self, ports):
        script = pathlib.Path(__file__).with_name("lmcache_receiver.py")
        command = [sys.executable, str(script), *map(str, ports)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.ports = json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def put(self, sender, request, data=b"kv"):
        """A put to this receiver; True if the reply was this request's own."""
        init_port, _, alloc_port = self.ports
        return sender.put("receiver-0", HOST, init_port, alloc_port, request, data)["request"] == request

    def stats(self):
        with get_zmq_socket(f"tcp://{HOST}:{self.ports[2]}", zmq.REQ) as socket:
            socket.linger, socket.rcvtimeo = 0, 30000
            socket.send(b'{"stats": true}')
            return json.loads(socket.recv())


def settled_descriptors():
    """ZeroMQ closes in the background: what is open when nothing has changed for a while."""
    seen, since = None, time.monotonic()
    while time.monotonic() < since + 0.3:
        now = len(os.listdir("/proc/self/fd"))
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.01)
    return seen


def run(kind, threads, puts, patience):
    """Puts from many threads at once, to a receiver that nobody is connected to."""
    channel = TransferChannel()
    sender = {"before": SenderBefore, "after": Sender}[kind]("sender-0", channel)
    receiver = ReceiverProcess()
    zmq.Context.instance().socket(zmq.REQ).close()  # its threads are there now
    descriptors = settled_descriptors()
    ends, gate = collections.Counter(), threading.Barrier(threads)

    def work(thread):
        gate.wait()
        for n in range(puts):
            try:
                own = receiver.put(sender, thread * puts + n)
                ends["own reply" if own else "another request's reply"] += 1
            except Exception as error:
                ends[type(error).__name__] += 1

    workers = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(threads)]
    for worker in workers:
        worker.start()
    end = time.monotonic() + patience
    for worker in workers:
        worker.join(max(0, end - time.monotonic()))
    result = {
        "puts": dict(ends),
        "hung_threads": sum(worker.is_alive() for worker in workers),
        "connects": channel.connects,
        "data_sockets_open": channel.open_sockets(),
        "descriptors_more": settled_descriptors() - descriptors,
    }
    if kind == "after":
        stats = receiver.stats()
        result["alloc_connections"] = stats["alloc_connections"] - 1  # that of this question
        result["foreign_pages"] = stats["foreign"]
        result["clean_shutdown"] = sender.peers.shutdown(10)["clean"]
    receiver.kill()
    print(json.dumps(result), flush=True)
    os._exit(0)  # hung threads, and sockets that threads share, are not to be waited for


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), 20, 60 if sys.argv[1] == "after" else 10)
