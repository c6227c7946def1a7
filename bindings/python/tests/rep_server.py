"""A REP server in a process of its own: ``rep_server.py ENDPOINT [silent]``. Says the endpoint when it is bound."""

import sys
import time

import zmq

socket = zmq.Context().socket(zmq.REP)
socket.linger = 0
for _ in range(200):  # the port of a predecessor may take a moment to be free
    try:
        socket.bind(sys.argv[1])
        break
    except zmq.ZMQError:
        time.sleep(0.05)
else:
    sys.exit(f"{sys.argv[1]} cannot be bound")
print(socket.last_endpoint.decode(), flush=True)
while True:
    request = socket.recv()
    if sys.argv[2:] == ["silent"]:
        time.sleep(3600)
    socket.send(b"reply to " + request)
