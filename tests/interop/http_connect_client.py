"""The client side of an HTTP CONNECT listener."""

import contextlib
import socket

from programs import TIMEOUT_S


class Answer:
    """An answer to CONNECT, and the flow behind it."""

    def __init__(self, flow, head):
        self.flow = flow
        first, *fields = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        named = dict(line.split(":", 1) for line in fields if line)
        named = {name.lower(): value.strip() for name, value in named.items()}
        self.proxy_status = named.get("proxy-status", "")


@contextlib.contextmanager
def ask(listener, destination, more=""):
    """Asks `listener` for `destination`; None where it was reset instead of an answer."""
    host, port = listener.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as flow:
        flow.sendall(f"CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n{more}\r\n".encode())
        head = b""
        try:
            while not head.endswith(b"\r\n\r\n"):
                byte = flow.recv(1)
                assert byte, f"the listener closed after {head!r}"
                head += byte
        except ConnectionResetError:
            yield None
            return
        yield Answer(flow, head)


@contextlib.contextmanager
def connected(listener, destination):
    """A flow to `destination`."""
    with ask(listener, destination) as answer:
        assert answer, "reset instead of an answer"
        assert answer.status == 200, f"{answer.status} {answer.proxy_status}"
        yield answer.flow
