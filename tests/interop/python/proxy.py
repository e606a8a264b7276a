"""The proxy: CONNECT to the destinations that are allowed, on a UDP port of loopback."""

import asyncio
import itertools

from aioquic.asyncio.server import QuicServer
from aioquic.h3.connection import H3_ALPN
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import HandshakeCompleted
from OpenSSL import crypto

import udp
from events import tell
from relay import relay, reset
from tunnel import MAX_DATAGRAM_FRAME_BYTES, RemoteReset, Tunnel

# For connecting to a destination.
DIAL_S = 5
MAX_FLOWS = 64
# RFC 8446, Section 6.2, as QUIC carries it (RFC 9001, Section 4.8).
BAD_CERTIFICATE = 0x100 + 42
CERTIFICATE_REQUIRED = 0x100 + 116


async def run_proxy(given):
    configuration = QuicConfiguration(
        is_client=False, alpn_protocols=H3_ALPN, idle_timeout=30,
        max_datagram_frame_size=MAX_DATAGRAM_FRAME_BYTES)
    name = f"{given.dir}/{given.certificate}"
    configuration.load_cert_chain(f"{name}.pem", f"{name}.key")
    authority = crypto.X509Store()
    authority.load_locations(f"{given.dir}/ca.pem")
    allow = set(given.allow.split(","))
    allow_udp = set(given.allow_udp.split(","))
    numbers = itertools.count(1)

    def connection(quic, **kwargs):
        return ServerTunnel(quic, next(numbers), authority, allow, allow_udp, **kwargs)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: QuicServer(configuration=configuration, create_protocol=connection),
        local_addr=("127.0.0.1", 0))
    host, port = transport.get_extra_info("sockname")
    tell("listening", address=f"{host}:{port}")
    await asyncio.get_running_loop().create_future()


class ServerTunnel(Tunnel):
    """A connection of a client that has a certificate of the authority."""

    def __init__(self, quic, number, authority, allow, allow_udp, **kwargs):
        super().__init__(quic, **kwargs)
        self._number = number
        self._authority = authority
        self._allow = allow
        self._allow_udp = allow_udp
        self._trusted = False
        self._tasks = set()
        ask_for_certificate(quic)

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            self._trusted = self._check_peer()
        super().quic_event_received(event)

    def _check_peer(self):
        """aioquic checks that the peer has the certificate's key, and nothing else."""
        certificate = self.quic.tls._peer_certificate
        if certificate is None:
            tell("refused", connection=self._number, error="no certificate")
            self.close(CERTIFICATE_REQUIRED, "a certificate is required")
            return False
        try:
            crypto.X509StoreContext(
                self._authority, crypto.X509.from_cryptography(certificate)
            ).verify_certificate()
        except crypto.X509StoreContextError as error:
            tell("refused", connection=self._number, error=str(error))
            self.close(BAD_CERTIFICATE, "the certificate is not trusted")
            return False
        tell("connected", connection=self._number, peer=certificate.subject.rfc4514_string())
        return True

    def on_request(self, stream, fields):
        if not self._trusted or len(self._tasks) >= MAX_FLOWS:
            stream.reset()
            self.forget(stream)
            return
        task = asyncio.create_task(self._serve(stream, dict(fields)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, stream, fields):
        try:
            await self._connect(stream, fields)
        except RemoteReset as error:
            tell("end", how="remote_reset", code=error.code)
        finally:
            self.forget(stream)

    async def _connect(self, stream, fields):
        if fields.get(b":protocol") == b"connect-udp":
            await udp.serve(stream, fields, self._number, self._allow_udp)
            return
        if fields[b":method"] != b"CONNECT" or b":protocol" in fields:
            stream.send_head([(b":status", b"501")], end=True)
            return
        authority = fields[b":authority"].decode()
        others = {key.decode(): value.decode() for key, value in fields.items()
                  if not key.startswith(b":")}
        tell("request", connection=self._number, authority=authority, fields=others)
        if authority not in self._allow:
            refuse(stream, 403, "http_request_denied")
            return
        host, port = authority.rsplit(":", 1)
        try:
            async with asyncio.timeout(DIAL_S):
                reader, writer = await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            refuse(stream, 502, "connection_refused")
            return
        except (TimeoutError, OSError):
            refuse(stream, 504, "connection_timeout")
            return
        if stream.stopped:
            reset(writer)
            raise stream.stopped
        stream.send_head([(b":status", b"200")])
        stream.send_reserved_frame()
        end = await relay(reader, writer, stream)
        tell("end", authority=authority, **end)


def ask_for_certificate(quic):
    """Makes a server ask its client for a certificate, for which aioquic has no setting: the flag
    is in the TLS context, which is made when the first packet arrives."""
    initialize = quic._initialize

    def initialize_and_ask(peer_cid):
        initialize(peer_cid)
        quic.tls._request_client_certificate = True

    quic._initialize = initialize_and_ask


def refuse(stream, status, reason):
    """Answers in the words of RFC 9209."""
    stream.send_head([(b":status", str(status).encode()),
                      (b"proxy-status", f"interop; error={reason}".encode())], end=True)
