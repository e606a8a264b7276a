"""CONNECT-UDP (RFC 9298) on an aioquic connection: the client's port, and the proxy's side."""

import asyncio
import urllib.parse

from aioquic.buffer import Buffer, encode_uint_var

from events import tell
from tunnel import H3_NO_ERROR, RemoteReset

# The default template's (RFC 9298, Section 2).
PATH = "/.well-known/masque/udp/"
IDLE_S = 120
# Datagrams that wait for either side; more are lost, as on any link.
MAX_WAITING = 256
# Neither context nor capsule means anything to the other end, which must drop the one and skip the
# other (RFC 9298, Section 4; RFC 9297, Sections 3.2 and 5.4).
UNKNOWN_CONTEXT = 2
RESERVED_CAPSULE = 0x29 * 3 + 0x17


class DatagramSocket(asyncio.DatagramProtocol):
    """A UDP socket. What comes is in `received`, with its sender."""

    def __init__(self):
        self.received = asyncio.Queue(MAX_WAITING)
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        if not self.received.full():
            self.received.put_nowait((data, addr))

    def error_received(self, exc):
        if not self.received.full():
            self.received.put_nowait((exc, None))


async def open_udp_listener(tunnel, server_name, destination):
    """Offers a UDP port of loopback whose first client gets a flow to `destination`."""
    transport, socket = await asyncio.get_running_loop().create_datagram_endpoint(
        DatagramSocket, local_addr=("127.0.0.1", 0))
    host, port = transport.get_extra_info("sockname")
    tell("udp_listening", address=f"{host}:{port}", destination=destination)
    try:
        await serve_first_client(tunnel, socket, server_name, destination)
    except RemoteReset as error:
        tell("udp_end", destination=destination, error=str(error))
    finally:
        transport.close()


async def serve_first_client(tunnel, socket, server_name, destination):
    first, client = await socket.received.get()
    host, port = destination.rsplit(":", 1)
    stream = tunnel.open_stream()
    try:
        stream.send_head([
            (b":method", b"CONNECT"), (b":protocol", b"connect-udp"), (b":scheme", b"https"),
            (b":authority", server_name.encode()), (b":path", f"{PATH}{host}/{port}/".encode()),
            (b"capsule-protocol", b"?1")])
        answer = dict(await stream.head)
        status = int(answer[b":status"])
        tell("udp_answer", destination=destination, status=status,
             proxy_status=answer.get(b"proxy-status", b"").decode(),
             capsule_protocol=answer.get(b"capsule-protocol", b"").decode())
        if status // 100 != 2:
            return
        stream.send_datagram(encode_uint_var(0) + first)
        await relay(stream, socket, client)
    finally:
        tunnel.forget(stream)


async def serve(stream, fields, number, allow):
    """The proxy's side."""
    path = fields[b":path"].decode()
    parts = path.removeprefix(PATH).split("/")
    if not path.startswith(PATH) or len(parts) != 3 or parts[2]:
        stream.send_head([(b":status", b"404")], end=True)
        return
    host, port = urllib.parse.unquote(parts[0]), parts[1]
    destination = f"{host}:{port}"
    others = {key.decode(): value.decode() for key, value in fields.items()
              if not key.startswith(b":")}
    tell("udp_request", connection=number, destination=destination,
         authority=fields[b":authority"].decode(), fields=others)
    if destination not in allow:
        stream.send_head([(b":status", b"403"),
                          (b"proxy-status", b"interop; error=http_request_denied")], end=True)
        return
    transport, socket = await asyncio.get_running_loop().create_datagram_endpoint(
        DatagramSocket, remote_addr=(host, int(port)))
    try:
        stream.send_head([(b":status", b"200"), (b"capsule-protocol", b"?1")])
        await relay(stream, socket, None)
        tell("udp_end", destination=destination, error="")
    finally:
        transport.close()


async def relay(stream, socket, client):
    """Datagrams both ways until the stream ends, or nothing comes for too long. With a `client`
    only what that one sends counts."""
    stream.send_data(encode_uint_var(RESERVED_CAPSULE) + encode_uint_var(7) + b"ignored")
    stream.send_datagram(encode_uint_var(UNKNOWN_CONTEXT) + b"ignored")

    async def up():
        while True:
            async with asyncio.timeout(IDLE_S):
                data, sender = await socket.received.get()
            if isinstance(data, Exception):
                return
            if client is None or sender == client:
                stream.send_datagram(encode_uint_var(0) + data)

    async def down():
        while True:
            datagram = await stream.datagrams.get()
            head = Buffer(data=datagram)
            if head.pull_uint_var() == 0:
                socket.transport.sendto(datagram[head.tell():], client)

    async def capsules():
        while (data := await stream.received.get()) is not None:
            if isinstance(data, RemoteReset):
                raise data

    tasks = [asyncio.create_task(part()) for part in [up, down, capsules]]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        stream.reset(H3_NO_ERROR)
    finally:
        for task in tasks:
            task.cancel()
