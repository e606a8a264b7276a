"""HTTP/3 on an aioquic connection, with streams that can be awaited."""

import asyncio

from aioquic.asyncio import QuicConnectionProtocol
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3Connection, encode_frame
from aioquic.h3.events import DatagramReceived, DataReceived, HeadersReceived
from aioquic.quic.events import (
    ConnectionTerminated,
    ProtocolNegotiated,
    StopSendingReceived,
    StreamReset,
)

# Identifiers of the form 0x1f * N + 0x21 are reserved for exercising the rule that the unknown is
# ignored (RFC 9114, Sections 6.2.3 and 7.2.8). aioquic itself sends 0x21 as a setting.
RESERVED_FRAME = 0x1F * 5 + 0x21
RESERVED_STREAM_TYPE = 0x1F * 3 + 0x21

# RFC 9114, Section 8.1.
H3_NO_ERROR = 0x100
H3_REQUEST_CANCELLED = 0x10C
H3_CONNECT_ERROR = 0x10F

# As RFC 9221, Section 3, recommends it.
MAX_DATAGRAM_FRAME_BYTES = 65535
# Datagrams that wait here, for each stream; more are lost.
MAX_DATAGRAMS = 256
# What may wait in aioquic for the peer, for each stream.
MAX_UNSENT_BYTES = 1 << 20


class RemoteReset(Exception):
    """The peer reset the stream, or the connection is gone."""

    def __init__(self, code):
        super().__init__(f"reset with {code:#x}")
        self.code = code


class Stream:
    """A request stream. What the peer sends arrives in `received`: bytes, None for the end, or a
    RemoteReset."""

    def __init__(self, tunnel, number):
        self.number = number
        self.head = asyncio.get_running_loop().create_future()
        self.received = asyncio.Queue()
        self.datagrams = asyncio.Queue(MAX_DATAGRAMS)
        # Why nothing can be sent any more.
        self.stopped = None
        self._tunnel = tunnel

    def send_head(self, fields, end=False):
        self._tunnel.h3.send_headers(self.number, fields, end_stream=end)
        self._tunnel.transmit()

    def send_reserved_frame(self):
        """A frame of a type that the peer must skip."""
        self._tunnel.quic.send_stream_data(self.number, encode_frame(RESERVED_FRAME, b"ignored"))

    def send_datagram(self, datagram):
        self._tunnel.h3.send_datagram(self.number, datagram)
        self._tunnel.transmit()

    def send_data(self, data):
        """Without waiting for room."""
        self._tunnel.h3.send_data(self.number, data, end_stream=False)
        self._tunnel.transmit()

    async def send(self, data):
        while self._unsent_bytes() > MAX_UNSENT_BYTES and self.stopped is None:
            await self._tunnel.moved()
        if self.stopped:
            raise self.stopped
        self._tunnel.h3.send_data(self.number, data, end_stream=False)
        self._tunnel.transmit()

    def end(self):
        if self.stopped:
            raise self.stopped
        self._tunnel.h3.send_data(self.number, b"", end_stream=True)
        self._tunnel.transmit()

    def reset(self, code=H3_CONNECT_ERROR):
        quic = self._tunnel.quic
        quic.reset_stream(self.number, code)
        try:
            quic.stop_stream(self.number, code)
        except ValueError:
            pass  # aioquic has forgotten the stream: both directions have ended.
        self._tunnel.transmit()

    def on_lost(self, reset):
        self.stopped = self.stopped or reset
        if not self.head.done():
            self.head.set_exception(reset)
            self.head.exception()  # Marks it as retrieved.
        self.received.put_nowait(reset)

    def _unsent_bytes(self):
        # aioquic has no public way to ask; write() takes any amount at once.
        stream = self._tunnel.quic._streams.get(self.number)
        return len(stream.sender._buffer) if stream else 0


class Tunnel(QuicConnectionProtocol):
    """One HTTP/3 connection."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.quic = self._quic
        self.h3 = None
        self.streams = {}
        self.close_reason = None
        self._moved = asyncio.Event()

    def open_stream(self):
        number = self.quic.get_next_available_stream_id()
        stream = self.streams[number] = Stream(self, number)
        return stream

    def forget(self, stream):
        self.streams.pop(stream.number, None)

    def send_reserved_stream(self):
        """A unidirectional stream of a type that the peer must ignore."""
        number = self.quic.get_next_available_stream_id(is_unidirectional=True)
        data = encode_uint_var(RESERVED_STREAM_TYPE) + b"ignored"
        self.quic.send_stream_data(number, data, end_stream=True)
        self.transmit()

    async def moved(self):
        """Until something has come from the peer, an acknowledgement for example."""
        self._moved.clear()
        await self._moved.wait()

    def on_request(self, stream, fields):
        """For servers."""

    def datagram_received(self, data, addr):
        super().datagram_received(data, addr)
        self._moved.set()

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            # The only way to HTTP datagrams in this version is through WebTransport.
            self.h3 = H3Connection(self._quic, enable_webtransport=True)
        elif isinstance(event, ConnectionTerminated):
            self.close_reason = f"error {event.error_code:#x} {event.reason_phrase}".strip()
            for stream in self.streams.values():
                stream.on_lost(RemoteReset(event.error_code))
            self._moved.set()
        elif isinstance(event, StreamReset):
            if stream := self.streams.get(event.stream_id):
                stream.on_lost(RemoteReset(event.error_code))
        elif isinstance(event, StopSendingReceived):
            # The other direction goes on: a refusal comes with H3_NO_ERROR (RFC 9114, Section 4.1).
            if stream := self.streams.get(event.stream_id):
                stream.stopped = RemoteReset(event.error_code)
            self._moved.set()
        if self.h3:
            for what in self.h3.handle_event(event):
                self._on_http(what)

    def _on_http(self, event):
        if isinstance(event, HeadersReceived):
            stream = self.streams.get(event.stream_id)
            if stream is None:
                stream = self.streams[event.stream_id] = Stream(self, event.stream_id)
                self.on_request(stream, event.headers)
            elif not stream.head.done():
                stream.head.set_result(event.headers)
            if event.stream_ended:
                stream.received.put_nowait(None)
        elif isinstance(event, DatagramReceived):
            stream = self.streams.get(event.stream_id)
            if stream and not stream.datagrams.full():
                stream.datagrams.put_nowait(event.data)
        elif isinstance(event, DataReceived):
            if stream := self.streams.get(event.stream_id):
                if event.data:
                    stream.received.put_nowait(event.data)
                if event.stream_ended:
                    stream.received.put_nowait(None)
