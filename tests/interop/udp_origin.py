"""UDP destinations on loopback, and clients of a UDP listener."""

import contextlib
import socket
import threading

from programs import TIMEOUT_S


class UdpEcho:
    """Answers each datagram with itself; `seen` is how many there were."""

    def __init__(self):
        self.seen = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = "%s:%d" % self._socket.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                datagram, sender = self._socket.recvfrom(65536)
                if sender is None:
                    return
                self.seen += 1
                self._socket.sendto(datagram, sender)
            except OSError:
                return

    def close(self):
        # A thread that waits in recvfrom would not notice close() alone.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextlib.contextmanager
def udp_client(listener):
    host, port = listener.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flow:
        flow.settimeout(TIMEOUT_S)
        flow.connect((host, int(port)))
        yield flow


def unused_port():
    """A UDP port that the system would choose now, for a configuration that has to name one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
