"""The client: an HTTP/1.1 CONNECT listener on loopback that leads into one HTTP/3 connection."""

import asyncio

from aioquic.asyncio.client import connect
from aioquic.h3.connection import H3_ALPN
from aioquic.quic.configuration import QuicConfiguration

from events import tell
from relay import relay, reset
from tunnel import (
    H3_CONNECT_ERROR,
    H3_REQUEST_CANCELLED,
    MAX_DATAGRAM_FRAME_BYTES,
    RemoteReset,
    Tunnel,
)
from udp import open_udp_listener

# For the QUIC handshake, and for the head of a request at the listener.
HANDSHAKE_S = 5
MAX_HEAD_BYTES = 8 << 10
MAX_FLOWS = 64


async def run_client(given):
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=H3_ALPN, server_name=given.server_name, idle_timeout=30,
        max_datagram_frame_size=MAX_DATAGRAM_FRAME_BYTES)
    configuration.load_verify_locations(f"{given.dir}/ca.pem")
    if given.certificate != "none":
        name = f"{given.dir}/{given.certificate}"
        configuration.load_cert_chain(f"{name}.pem", f"{name}.key")
    host, port = given.server.rsplit(":", 1)
    async with asyncio.timeout(HANDSHAKE_S) as timeout:
        async with connect(
            host, int(port), configuration=configuration, create_protocol=Tunnel
        ) as tunnel:
            # A server looks at the client's certificate only after a client's handshake has
            # ended, so that only its settings tell that it took it.
            while tunnel.h3 is None or tunnel.h3.received_settings is None:
                if tunnel.close_reason:
                    raise ConnectionError(tunnel.close_reason)
                await tunnel.moved()
            timeout.reschedule(None)
            settings = {f"{key:#x}": value for key, value in tunnel.h3.received_settings.items()}
            tell("connected", settings=settings)
            tunnel.send_reserved_stream()
            async with asyncio.TaskGroup() as tasks:
                for destination in given.udp.split(",") if given.udp else []:
                    tasks.create_task(open_udp_listener(tunnel, given.server_name, destination))
                tasks.create_task(serve_listener(tunnel))


async def serve_listener(tunnel):
    places = asyncio.Semaphore(MAX_FLOWS)

    async def on_connection(reader, writer):
        async with places:
            await serve(tunnel, reader, writer)

    listener = await asyncio.start_server(on_connection, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
    host, port = listener.sockets[0].getsockname()
    tell("listening", address=f"{host}:{port}")
    async with listener:
        await tunnel.wait_closed()
    raise ConnectionError(f"the connection was closed: {tunnel.close_reason}")


async def serve(tunnel, reader, writer):
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        reset(writer)
        return
    method, authority, *_ = head.split(" ")
    if method != "CONNECT":
        writer.write(b"HTTP/1.1 400 Not a CONNECT request\r\n\r\n")
        writer.close()
        return
    asked = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
    fields = [(b":method", b"CONNECT"), (b":authority", authority.encode())]
    if protocol := asked.get("Connect-Protocol"):  # Extended CONNECT (RFC 9220).
        fields += [(b":protocol", protocol.encode()), (b":scheme", b"https"), (b":path", b"/")]
    stream = tunnel.open_stream()
    try:
        await serve_flow(stream, fields, authority, reader, writer)
    finally:
        tunnel.forget(stream)


async def serve_flow(stream, fields, authority, reader, writer):
    stream.send_head(fields)
    stream.send_reserved_frame()
    try:
        answer = dict(await stream.head)
    except RemoteReset as error:
        tell("answer", authority=authority, error=str(error))
        stream.reset(H3_CONNECT_ERROR)
        reset(writer)
        return
    status = int(answer[b":status"])
    proxy_status = answer.get(b"proxy-status", b"").decode()
    tell("answer", authority=authority, status=status, proxy_status=proxy_status)
    head = f"HTTP/1.1 {status} As received\r\n"
    if proxy_status:
        head += f"Proxy-Status: {proxy_status}\r\n"
    writer.write(f"{head}\r\n".encode())
    if status // 100 != 2:
        stream.reset(H3_REQUEST_CANCELLED)
        writer.close()
        return
    end = await relay(reader, writer, stream)
    tell("end", authority=authority, **end)
