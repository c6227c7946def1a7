#!/usr/bin/env python3
"""Writes the seed corpora. Their bytes are in the repository; run this after the wire, or the operations of
tests/model/op.rs, have changed, and commit what it writes."""
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
MAGIC = b"peerage\x01"
VERSION = 2


def write(target, name, data):
    directory = CORPUS / target
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(data)


def frame(kind, body, generation=7):
    return struct.pack("<IBQ", len(body), kind, generation) + body


def page(length):
    return bytes(range(16)) + struct.pack("<QQQ", 3, 64, length)


number = struct.Struct("<Q").pack
frames = {
    "notify": frame(1, number(1) + b"pages ready"),
    "empty": frame(1, number(2)),
    "write": frame(2, number(1) + page(5)) + frame(3, number(1) + b"12345"),
    "read": frame(4, number(2) + page(5)),
    "read-data": frame(5, number(2) + b"12345"),
    "ack": frame(6, number(1) + b"\0") + frame(6, number(2) + b"\x05"),
    "ping": frame(7, number(9)) + frame(8, number(9)),
    "cancel": frame(2, number(1) + page(5)) + frame(10, number(1)),
    "goodbye": frame(9, b"\1"),
    "goodbye-unknown": frame(9, b"\xff"),
    "another-generation": frame(1, number(3) + b"late", generation=6),
    "long-claim": struct.pack("<IBQ", 0xFFFFFFFF, 1, 7) + b"x",
    "unknown-kind": frame(99, b""),
}
frames["all"] = b"".join(frames[name] for name in ("notify", "write", "read", "read-data", "ack", "cancel", "ping", "goodbye"))
for name, data in frames.items():
    # Generation, limit of notifications, size of the pieces.
    write("frame", name, struct.pack("<BHB", 7, 100, 12) + data)


def token(token):
    return bytes((len(token) > 0,)) + token


def hello(name, target, nonce=b""):
    return MAGIC + struct.pack("<HQQBB", VERSION, 5, 7, len(name), len(target)) + token(nonce) + name + target


def answer(code, name, proof=b""):
    return MAGIC + struct.pack("<HBQIB", VERSION, code, 5, 65536, len(name)) + token(proof) + name


write("handshake", "hello", b"\0" + hello(b"decode-0", b"prefill-0"))
write("handshake", "hello-long-names", b"\0" + hello(b"d" * 255, b"p" * 255))
write("handshake", "hello-no-name", b"\0" + hello(b"", b"p"))
write("handshake", "hello-not-text", b"\0" + hello(b"\xff\xfe", b"p"))
write("handshake", "hello-version", b"\0" + MAGIC + b"\x01\x00")
write("handshake", "other-protocol", b"\0GET / HTTP/1.1\r\n\r\n")
write("handshake", "hello-nonce", b"\0" + hello(b"decode-0", b"prefill-0", bytes(range(32))))
write("handshake", "hello-flag", b"\0" + hello(b"d", b"p").replace(b"\1\1\0", b"\1\1\2"))
for code in range(10):
    write("handshake", f"answer-{code}", b"\1" + answer(code, b"prefill-0"))
write("handshake", "answer-challenge", b"\1" + answer(5, b"prefill-0", bytes(range(32))))
write("handshake", "answer-proven", b"\1" + answer(0, b"prefill-0", bytes(range(32))))

for at, text in enumerate(
    ["127.0.0.1:7000", "[::1]:65535", "prefill-0.local:7000#00000000000000ff", "h:1#ff", "h:0", "::1", "a b:1", "h:1#",
     "[fe80::1%2]:7000", "prefill-0 \u00e9", "a\nb"]
):
    write("address", f"text-{at}", text.encode())
write("address", "page", page(20) + number(5) + number(15))
write("address", "page-overflow", bytes(16) + b"\xff" * 24 + b"\xff" * 8 + number(2))

line = '{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [%s]}\n'
good = line % (5, 1000, 3, "7, 8") + line % (11, 512, 0, "7")
write("trace", "good", good.encode())
write("trace", "no-newline-at-the-end", good.strip().encode())
write("trace", "falls", (line % (5, 1, 1, "1") + line % (4, 1, 1, "1")).encode())
write("trace", "wrong-blocks", (line % (5, 1000, 1, "1")).encode())
write("trace", "huge", (line % (2**64 - 1, 2**64 - 1, 2**64 - 1, "18446744073709551615")).encode())
write("trace", "float", good.replace("512", "5e2").encode())
write("trace", "deep", b"[" * 200)
write("trace", "empty", b"\n")

# Four bytes an operation: the first byte of each kind as in `Op::of`, then its numbers.
INSERT, LEASE, BY_ID, DROP_LEASE, NOTIFY, REPORT, NATIVE = 0, 46, 84, 92, 110, 116, 131
LATE, READY, HOLD, RELEASE, NEXT_CONNECT, NEXT_CLOSE = 137, 141, 160, 170, 180, 186
KILL, RESTART, REMOVE, WRITE, GRANT, BORROW, DEREGISTER, ADVANCE, SHUTDOWN = 190, 192, 198, 208, 220, 227, 230, 232, 255
CONNECT, CLOSE, COMPLETE = 0, 1, 2


def ops(*operations):
    return b"".join(bytes((operation + (0, 0, 0))[:4]) for operation in operations)


sequences = {
    "reconnect": ops((INSERT,), (READY,), (LEASE,), (REPORT,), (DROP_LEASE,), (ADVANCE, 2), (READY,), (LEASE,)),
    "late": ops((INSERT,), (HOLD, 0, CONNECT), (READY,), (ADVANCE, 5), (RELEASE, 0, CONNECT), (ADVANCE, 2), (READY,)),
    "undrained": ops((INSERT,), (READY,), (LEASE,), (WRITE,), (REPORT,), (ADVANCE, 4), (READY,), (DROP_LEASE,), (READY,)),
    "quarantine": ops(
        (INSERT,), (READY,), (LEASE,), (HOLD, 0, COMPLETE), (WRITE,), (NATIVE,), (DROP_LEASE,), (DEREGISTER,),
        (ADVANCE, 4), (RELEASE, 0, COMPLETE), (DEREGISTER,)
    ),
    "close-hangs": ops(
        (INSERT,), (READY,), (LEASE,), (HOLD, 0, COMPLETE), (HOLD, 0, CLOSE), (WRITE,), (REPORT,), (DROP_LEASE,),
        (ADVANCE, 4), (DEREGISTER,), (RELEASE, 0, COMPLETE), (DEREGISTER,), (RELEASE, 0, CLOSE)
    ),
    "removal": ops(
        (INSERT,), (READY,), (LEASE,), (REMOVE, 0, 0, 2), (INSERT,), (READY, 1), (ADVANCE, 2), (DROP_LEASE,), (BY_ID, 0),
        (INSERT, 1), (BY_ID, 0)
    ),
    "restart": ops((INSERT, 0, 5), (READY,), (RESTART,), (ADVANCE, 2), (READY,), (ADVANCE, 3), (INSERT, 0, 5), (LATE,)),
    "leaks": ops((INSERT,), (NEXT_CLOSE,), (NEXT_CONNECT, 0, 3), (READY,), (ADVANCE, 2), (READY,), (REMOVE, 0, 0, 1)),
    "grants": ops((INSERT,), (GRANT,), (BORROW, 0, 1), (BORROW,), (GRANT,), (SHUTDOWN, 0, 0, 2), (ADVANCE, 3)),
    "shutdown": ops(
        (INSERT,), (INSERT, 1), (READY,), (LEASE,), (HOLD, 1, CONNECT), (READY, 1), (SHUTDOWN, 0, 0, 3), (ADVANCE, 3),
        (LEASE,), (DROP_LEASE,), (RELEASE, 1, CONNECT), (SHUTDOWN, 0, 0, 1)
    ),
    "send": ops((INSERT,), (READY,), (LEASE,), (NOTIFY,), (NOTIFY, 0, 2), (NOTIFY, 0, 1), (NOTIFY,), (KILL,), (ADVANCE, 2)),
}
for name, data in sequences.items():
    for setup in range(4):
        write("table", f"{name}-{setup}", bytes((setup,)) + data)
