"""Bytes both ways between a TCP connection and a request stream."""

import asyncio
import socket
import struct

from tunnel import RemoteReset

READ_BYTES = 64 << 10
# aioquic opens its windows as data arrive, not as they are read: what TCP does not take waits here,
# and more than this resets the flow.
MAX_WAITING_BYTES = 64 << 20


async def relay(reader, writer, stream):
    """Until the flow's end, and returns what an event is to say of it. FIN is the end of one
    direction, a reset ends both (RFC 9114, Section 4.4)."""
    both = [asyncio.create_task(up(reader, stream)), asyncio.create_task(down(writer, stream))]
    try:
        await asyncio.gather(*both)
    except RemoteReset as error:
        end = {"how": "remote_reset", "code": error.code}
    except OSError as error:
        end = {"how": "local_reset", "error": str(error)}
    else:
        writer.close()
        return {"how": "complete"}
    for direction in both:
        direction.cancel()
    reset(writer)
    stream.reset()
    return end


async def up(reader, stream):
    while data := await reader.read(READ_BYTES):
        await stream.send(data)
    stream.end()


async def down(writer, stream):
    while (data := await stream.received.get()) is not None:
        if isinstance(data, RemoteReset):
            raise data
        writer.write(data)
        if writer.transport.get_write_buffer_size() > MAX_WAITING_BYTES:
            raise OSError("the TCP connection takes too little")
        if writer.is_closing():
            raise ConnectionResetError("the TCP connection is gone")
    writer.write_eof()


def reset(writer):
    """Closes with RST, unless asyncio has closed already because of an error."""
    if not writer.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
