"""TCP destinations on loopback, and TCP flows to them through an HTTP CONNECT listener."""

import hashlib
import queue
import random
import socket
import struct
import threading

from programs import TIMEOUT_S

BULK_BYTES = 10_000_000
SMALL_BYTES = 1_000_000
READ_BYTES = 1 << 16


def some_bytes(seed, length):
    return random.Random(seed).randbytes(length)


def read_to_end(flow):
    """All bytes to the end, and whether that was "eof" or "reset"."""
    pieces = []
    try:
        while piece := flow.recv(READ_BYTES):
            pieces.append(piece)
    except ConnectionResetError:
        return b"".join(pieces), "reset"
    return b"".join(pieces), "eof"


def read_exactly(flow, length):
    read = b""
    while len(read) < length:
        piece = flow.recv(length - len(read))
        assert piece, f"the flow ended after {len(read)} of {length} bytes"
        read += piece
    return read


def reset(flow):
    flow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    flow.close()


class Origin:
    """Accepts on a port of loopback and treats each connection as `behaviour` does, whose results
    are in `seen`."""

    def __init__(self, behaviour):
        self.seen = queue.Queue()
        self._behaviour = behaviour
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = "%s:%d" % self._socket.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                flow, _ = self._socket.accept()
            except OSError:
                return
            flow.settimeout(TIMEOUT_S)
            threading.Thread(target=self._serve, args=[flow], daemon=True).start()

    def _serve(self, flow):
        with flow:
            try:
                self.seen.put(self._behaviour(flow))
            except (OSError, AssertionError) as error:
                self.seen.put(f"{type(error).__name__}: {error}")

    def saw(self):
        """What the next connection came to."""
        return self.seen.get(timeout=TIMEOUT_S)

    def close(self):
        self._socket.close()


class Closed:
    """An address that refuses connections, and that no other program can take."""

    def __init__(self):
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.address = "%s:%d" % self._socket.getsockname()

    def close(self):
        self._socket.close()


def download(flow):
    """Sends and ends, and sees how the other direction ends."""
    flow.sendall(some_bytes("download", BULK_BYTES))
    flow.shutdown(socket.SHUT_WR)
    return read_to_end(flow)


def upload(flow):
    """Answers only when all has come, which takes the end of that direction."""
    data, end = read_to_end(flow)
    flow.sendall(hashlib.sha256(data).digest())
    return len(data), end


def farewell(flow):
    """Ends first, and takes what still comes."""
    flow.sendall(b"farewell")
    flow.shutdown(socket.SHUT_WR)
    data, end = read_to_end(flow)
    return hashlib.sha256(data).digest(), end


def echo(flow):
    while piece := flow.recv(READ_BYTES):
        flow.sendall(piece)
    return "eof"


def watch(flow):
    """Sees how the connection ends."""
    flow.sendall(b"x")
    return read_to_end(flow)[1]


def reset_in_answer(flow):
    """Cuts off its own answer."""
    read_exactly(flow, 1)
    flow.sendall(some_bytes("cut off", SMALL_BYTES))
    reset(flow)
    return "reset"


BEHAVIOURS = [download, upload, farewell, echo, watch, reset_in_answer]
