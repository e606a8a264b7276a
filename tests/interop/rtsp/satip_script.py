"""What a SAT>IP server says and sends, without a receiver: satip_script.py --video FILE --port PORT --seconds SECONDS

FILE is an MPEG transport stream; each client gets it from the begin, over RTP to the UDP port that it has asked for,
whatever frequency and PIDs it names. A script and no server: it shows that a SAT>IP client gets its picture, and
nothing of servers. The message forms are those of the SAT>IP specification, version 1.2.2.
"""

import argparse
import pathlib
import socket
import threading
import time

# As the specification has it: seven packets of 188 bytes in one of RTP.
PAYLOAD_BYTES = 7 * 188
PAYLOAD_TYPE_MP2T = 33
RTP_CLOCK_HZ = 90_000
RTP_VERSION_2 = 0x80
SSRC = b"\0\0\0\1"
SESSION = "0521595368"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--video", type=pathlib.Path, required=True)
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--seconds", type=float, required=True)
    options = arguments.parse_args()
    video = options.video.read_bytes()
    with socket.create_server(("", options.port)) as listener:
        while True:
            flow, _ = listener.accept()
            client = Client(flow, video, options.seconds)
            threading.Thread(target=client.serve, daemon=True).start()


class Client:
    """One RTSP connection, which has one session."""

    def __init__(self, flow, video, seconds):
        self._flow = flow
        self._video = video
        self._seconds = seconds
        self._is_over = threading.Event()
        self._media = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._media.bind(("", 0))
        self._to = None

    def serve(self):
        """Answers requests until the client hangs up."""
        with self._flow, self._flow.makefile("rb") as lines:
            while method := lines.readline().split(b" ")[0].decode():
                fields = {}
                while line := lines.readline().strip().decode():
                    name, _, value = line.partition(":")
                    fields[name.strip().lower()] = value.strip()
                self._flow.sendall(self._answer(method, fields).encode())
        self._is_over.set()

    def _answer(self, method, fields):
        lines = ["RTSP/1.0 200 OK", f"CSeq: {fields.get('cseq', '0')}"]
        if method == "OPTIONS":
            lines.append("Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN")
        elif method == "SETUP":
            lines += self._set_up(fields["transport"])
        else:
            lines.append(f"Session: {SESSION}")
        if method == "PLAY":
            threading.Thread(target=self._send, daemon=True).start()
        if method == "TEARDOWN":
            self._is_over.set()
        return "\r\n".join([*lines, "", ""])

    def _set_up(self, transport):
        client_port = transport.partition("client_port=")[2].partition(";")[0]
        self._to = (self._flow.getpeername()[0], int(client_port.partition("-")[0]))
        own = self._media.getsockname()[1]
        return [
            f"Session: {SESSION};timeout=60", "com.ses.streamID: 1",
            f"Transport: RTP/AVP;unicast;client_port={client_port};server_port={own}-{own + 1}",
        ]

    def _send(self):
        packets = len(self._video) // PAYLOAD_BYTES
        started = time.monotonic()
        for number in range(packets):
            due = number * self._seconds / packets
            if self._is_over.wait(max(0, started + due - time.monotonic())):
                return
            head = bytes([RTP_VERSION_2, PAYLOAD_TYPE_MP2T]) + (number & 0xFFFF).to_bytes(2, "big")
            head += int(RTP_CLOCK_HZ * due).to_bytes(4, "big") + SSRC
            begin = number * PAYLOAD_BYTES
            self._media.sendto(head + self._video[begin:begin + PAYLOAD_BYTES], self._to)


main()
