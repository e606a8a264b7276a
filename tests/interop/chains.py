"""A peer's client in front of millrace-server, and millrace-client in front of a peer's proxy."""

import socket
import threading
import time

from http_connect_client import ask, connected
from millrace import CLIENT, SERVER_NAME, start_client, start_server
from origin import (BEHAVIOURS, SMALL_BYTES, Closed, Origin, read_exactly, read_to_end, some_bytes,
                    watch)
from programs import Program, wait_until
from udp_origin import UdpEcho, unused_port


# With pauses of 0.1, 0.2, 0.4 and 0.8 s, each shortened by up to a half, the next is the longest.
GROWN_S = 1.6
COUNTED_S = 2


class Chain:
    """What the scenarios use: `listener`, `udp_listener(origin)`, `peer`, `peer_is_client`, `origins`, `closed`,
    `forbidden` and `connections()`."""

    def __init__(self, world):
        self.world = world
        self.origins = {behaviour.__name__: Origin(behaviour) for behaviour in BEHAVIOURS}
        self.closed = Closed()
        self.forbidden = Origin(watch)
        self.udp_origin = UdpEcho()
        self.udp_forbidden = UdpEcho()
        self.programs = []
        try:
            self.start()
        except BaseException:
            print("".join(program.said() for program in self.programs), flush=True)
            self.stop()
            raise

    def allowed(self):
        return [origin.address for origin in self.origins.values()] + [self.closed.address]

    def run(self, program):
        self.programs.append(program)
        return program

    def forget(self):
        """What origins saw is each scenario's own."""
        for origin in [*self.origins.values(), self.forbidden]:
            while not origin.seen.empty():
                origin.seen.get()

    def stop(self):
        for program in reversed(self.programs):
            program.stop()
        for place in [*self.origins.values(), self.closed, self.forbidden, self.udp_origin,
                      self.udp_forbidden]:
            place.close()


class PeersClient(Chain):
    """peer's client ══ millrace-server"""

    peer_is_client = True

    def start(self):
        self.millrace = self.run(start_server(
            self.world.binaries, self.world.directory, self.world.certificates, self.allowed(),
            [self.udp_origin.address]))
        self.peer = self.run(self.start_peer(self.world.certificates, CLIENT))
        self.listener = self.peer.wait_for(event="listening")["address"]

    def start_peer(self, certificates, certificate):
        return Program("peer", [
            *self.world.peer, "client", "--dir", certificates, "--certificate", certificate,
            "--server", self.millrace.address("tunnel"), "--server-name", SERVER_NAME,
            "--udp", f"{self.udp_origin.address},{self.udp_forbidden.address}"])

    def udp_listener(self, origin):
        return self.peer.wait_for(event="udp_listening", destination=origin.address)["address"]

    def connections(self):
        return self.millrace.metric("millrace_connections", state="established")


class PeersProxy(Chain):
    """millrace-client ══ peer's proxy"""

    peer_is_client = False

    def start(self):
        self.peer = self.run(Program("peer", [
            *self.world.peer, "proxy", "--dir", self.world.certificates, "--certificate", "server",
            "--allow", ",".join(self.allowed()), "--allow-udp", self.udp_origin.address]))
        self.udp_listeners = {
            origin.address: unused_port() for origin in [self.udp_origin, self.udp_forbidden]}
        self.millrace = self.run(self.start_millrace(self.world.certificates, udp=True))
        wait_until("millrace-client is healthy", self.millrace.is_healthy)
        self.listener = self.millrace.address("http_connect")

    def start_millrace(self, certificates, udp=False):
        return start_client(
            self.world.binaries, self.world.directory, self.world.certificates,
            self.peer.wait_for(event="listening")["address"], certificates / CLIENT,
            [(port, to) for to, port in self.udp_listeners.items()] if udp else [])

    def udp_listener(self, origin):
        return f"127.0.0.1:{self.udp_listeners[origin.address]}"

    def connections(self):
        return len(self.peer.events(event="connected"))


def no_certificate(chain):
    refused_handshake(chain, chain.world.certificates, "none", "no_certificate")


def a_certificate_of_another_authority_at_the_server(chain):
    refused_handshake(chain, chain.world.mixed_certificates, CLIENT, "unknown_authority")


def refused_handshake(chain, certificates, certificate, reason):
    """Another client of the peer's, which trusts the server and which the server must not trust."""
    peer = chain.start_peer(certificates, certificate)
    try:
        failed = peer.wait_for(event="failed")
        assert peer.wait_for_end() == 1, failed
        assert not peer.events(event="connected"), f"connected before: {failed}"
    finally:
        peer.stop()
    wait_until("the server counts the refusal", lambda: chain.millrace.metric(
        "millrace_handshake_failures_total", reason=reason) == 1)


def settings_promise_datagrams_and_extended_connect(chain):
    """CONNECT-UDP (RFC 9298) needs both."""
    settings = chain.peer.wait_for(event="connected")["settings"]
    if "extended_connect" in settings:
        assert settings["extended_connect"] and settings["datagrams"], settings
    else:
        # SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220) and SETTINGS_H3_DATAGRAM (RFC 9297).
        assert settings.get("0x8") == 1 and settings.get("0x33") == 1, settings


def another_protocol_is_answered_with_501(chain):
    origin = chain.origins["watch"]
    with ask(chain.listener, origin.address, "Connect-Protocol: websocket\r\n") as answer:
        assert answer, "reset instead of an answer"
        assert answer.status == 501, answer.status
    assert origin.seen.empty(), "the destination was connected to"


def a_certificate_of_another_authority_at_the_client(chain):
    """millrace-client trusts the proxy, and the proxy must not trust it."""
    origin = chain.origins["watch"]
    before = chain.connections()
    millrace = chain.start_millrace(chain.world.other_certificates)
    try:
        chain.peer.wait_for(event="refused")
        with ask(millrace.address("http_connect"), origin.address) as answer:
            assert answer, "reset instead of an answer"
            assert answer.status == 503, answer.status
        refused_again_and_again(chain, millrace)
    finally:
        millrace.stop()
    assert origin.seen.empty(), "the destination was connected to"
    assert chain.connections() == before


def refused_again_and_again(chain, millrace):
    """Peers finish the handshake, and send their settings, before they look at the certificate. It
    counts as a refusal still: the pauses grow, and the server is not healthy for a moment."""
    def watched(seconds):
        before = len(chain.peer.events(event="refused"))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert not millrace.is_healthy(), "healthy, with a server that refuses it"
            time.sleep(0.002)
        return len(chain.peer.events(event="refused")) - before

    watched(GROWN_S)
    # By now the one worker waits for half of the longest pause, a second, at the least.
    refused = watched(COUNTED_S)
    most = COUNTED_S / 0.5 + 1
    assert 1 <= refused <= most, f"{refused} attempts in {COUNTED_S} s, at most {most} are right"


def millrace_found_nothing_wrong(chain):
    """Whatever the peer sent, reserved identifiers too, was taken as it should be."""
    assert chain.millrace.is_running(), "it has ended"
    # An extended CONNECT is counted as one.
    expected = 1 if chain.peer_is_client else 0
    assert chain.millrace.metric("millrace_protocol_errors_total") == expected
    assert chain.connections() == 1, f"{chain.connections()} connections"


def a_draining_server_lets_the_flow_end(chain):
    """The last scenario, as millrace-server ends."""
    drains(chain, chain.millrace, {"message": "draining"})


def a_draining_proxy_lets_the_flow_end(chain):
    """The last scenario, as the proxy ends."""
    drains(chain, chain.peer, {"event": "draining"})


def drains(chain, program, says):
    """GOAWAY: the flow that is there goes on, and there is no new one."""
    origin, other = chain.origins["echo"], chain.origins["watch"]
    with connected(chain.listener, origin.address) as flow:
        program.terminate()
        program.wait_for(**says)
        data = some_bytes("drain", SMALL_BYTES)
        sender = threading.Thread(target=flow.sendall, args=[data])
        sender.start()
        assert read_exactly(flow, len(data)) == data
        sender.join()
        with ask(chain.listener, other.address) as answer:
            assert answer is None or answer.status == 503, answer.status
        assert other.seen.empty(), "a new flow got through"
        assert program.is_running(), "it has ended before its flow"
        flow.shutdown(socket.SHUT_WR)
        assert read_to_end(flow) == (b"", "eof")
    assert origin.saw() == "eof"
    assert program.wait_for_end() == 0


def own_scenarios(kind, world):
    if kind is PeersClient:
        return [
            no_certificate,
            a_certificate_of_another_authority_at_the_server,
            settings_promise_datagrams_and_extended_connect,
            another_protocol_is_answered_with_501,
            millrace_found_nothing_wrong,
            a_draining_server_lets_the_flow_end,
        ]
    return [
        a_certificate_of_another_authority_at_the_client,
        millrace_found_nothing_wrong,
    ] + [a_draining_proxy_lets_the_flow_end] * world.peer_sends_goaway
