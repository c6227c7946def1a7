"""What both senders of lmcache_sender.py talk to: a receiver process, and a stand-in for the channel that moves the KV.

The channel's interface is that of LMCache's: one object with all peers in it, `lazy_init_peer_connection` and a write by
receiver id. Instead of HCCL there is a TCP socket per peer, and each write says whose KV it is, so that the receiver sees
when it lands in another request's pages.

    python lmcache_receiver.py INIT_PORT DATA_PORT ALLOC_PORT      (0: any)
"""

import json
import socket
import struct
import sys
import threading

import zmq

HOST = "127.0.0.1"
HEADER = struct.Struct("!QQI")  # page, request, bytes


def get_zmq_socket(url, kind):
    socket = zmq.Context.instance().socket(kind)
    socket.connect(url)
    return socket


class TransferChannel:
    def __init__(self):
        self.peers = {}
        self.connects = 0
        self.opened = []  # every socket there was

    def lazy_init_peer_connection(self, local_id, peer_id, peer_init_url):
        """Asks the init port where to connect, as a real one exchanges handles there, then connects."""
        with zmq.Context.instance().socket(zmq.REQ) as handshake:
            handshake.linger, handshake.rcvtimeo, handshake.sndtimeo = 0, 5000, 5000
            handshake.connect(f"tcp://{peer_init_url}")
            try:
                handshake.send(json.dumps({"init": local_id}).encode())
                answer = json.loads(handshake.recv())
            except zmq.Again:
                raise ConnectionError(f"{peer_id}: no answer from its init port, {peer_init_url}") from None
        data = socket.create_connection((HOST, answer["data_port"]), timeout=5)
        data.settimeout(30)
        self.connects += 1
        self.opened.append(data)
        self.peers[peer_id] = (threading.Lock(), data)
        return peer_id

    def write(self, peer_id, pages, request, data):
        """Writes one request's KV into pages that the receiver has given it."""
        lock, connection = self.peers[peer_id]
        with lock:
            for page in pages:
                connection.sendall(HEADER.pack(page, request, len(data)) + data)
                if connection.recv(1) != b"\1":
                    raise ConnectionError(f"{peer_id}: the connection ended during a write")

    def remove_peer_connection(self, peer_id):
        _, connection = self.peers.pop(peer_id)
        connection.close()

    def open_sockets(self):
        return sum(connection.fileno() >= 0 for connection in self.opened)


class Receiver:
    def __init__(self, init_port, data_port, alloc_port):
        self.owner = {}  # page -> the request that it was given to
        self.written = {}  # request -> pages
        self.foreign = 0  # pages of one request that were written by another
        self.lock = threading.Lock()
        self.data = socket.create_server((HOST, data_port))
        self.data_connections = 0
        context = zmq.Context()
        self.init, self.alloc = bound(context, init_port), bound(context, alloc_port)
        self.accepted = self.alloc.get_monitor_socket(zmq.EVENT_ACCEPTED)
        self.alloc_connections = 0
        self.ports = [port_of(self.init), self.data.getsockname()[1], port_of(self.alloc)]

    def run(self):
        for serve in (self.accept, self.serve_init):
            threading.Thread(target=serve, daemon=True).start()
        print(json.dumps(self.ports), flush=True)
        self.serve_alloc()

    def serve_init(self):
        while True:
            self.init.recv()
            self.init.send(json.dumps({"data_port": self.ports[1]}).encode())

    def serve_alloc(self):
        while True:
            request = json.loads(self.alloc.recv())
            if request.get("stats"):
                while self.accepted.poll(0):
                    self.accepted.recv_multipart()
                    self.alloc_connections += 1
                answer = vars(self)
                names = ("foreign", "written", "data_connections", "alloc_connections")
                self.alloc.send(json.dumps({name: answer[name] for name in names}).encode())
                continue
            with self.lock:
                first = len(self.owner)
                pages = list(range(first, first + request["pages"]))
                self.owner.update((page, request["request"]) for page in pages)
            self.alloc.send(json.dumps({"request": request["request"], "pages": pages}).encode())

    def accept(self):
        while True:
            connection, _ = self.data.accept()
            self.data_connections += 1
            threading.Thread(target=self.serve_data, args=(connection,), daemon=True).start()

    def serve_data(self, connection):
        stream = connection.makefile("rb")
        while header := stream.read(HEADER.size):
            page, request, length = HEADER.unpack(header)
            stream.read(length)
            with self.lock:
                self.foreign += self.owner.get(page) != request
                self.written[request] = self.written.get(request, 0) + 1
            connection.sendall(b"\1")


def bound(context, port):
    rep = context.socket(zmq.REP)
    rep.linger = 0
    rep.bind(f"tcp://{HOST}:{port or '*'}")
    return rep


def port_of(rep):
    return int(rep.last_endpoint.decode().rsplit(":", 1)[1])


if __name__ == "__main__":
    Receiver(*map(int, sys.argv[1:])).run()
