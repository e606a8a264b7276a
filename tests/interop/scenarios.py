"""What every chain must carry, written once: a listener at one end, origins at the other."""

import hashlib
import socket
import threading

from http_connect_client import ask, connected
from origin import (BULK_BYTES, SMALL_BYTES, read_exactly, read_to_end, reset, some_bytes)
from programs import wait_until
from udp_origin import udp_client

FLOWS = 8
# Payloads; the largest fits into a packet of 1,200 bytes, which is what aioquic sends.
UDP_SIZES = [1, 0, 64, 700, 1100, 2]
# RFC 9114, Section 8.1.
H3_CONNECT_ERROR = 0x10F


def download_of_10_mb(chain):
    origin = chain.origins["download"]
    with connected(chain.listener, origin.address) as flow:
        got, end = read_to_end(flow)
        assert end == "eof", end
        assert got == some_bytes("download", BULK_BYTES), f"{len(got)} bytes, or others than sent"
        flow.shutdown(socket.SHUT_WR)
        assert origin.saw() == (b"", "eof")


def upload_of_10_mb_then_the_answer(chain):
    """The client ends its direction first; the answer comes after that."""
    origin = chain.origins["upload"]
    data = some_bytes("upload", BULK_BYTES)
    with connected(chain.listener, origin.address) as flow:
        flow.sendall(data)
        flow.shutdown(socket.SHUT_WR)
        digest, end = read_to_end(flow)
        assert (digest, end) == (hashlib.sha256(data).digest(), "eof"), (digest, end)
        assert origin.saw() == (BULK_BYTES, "eof")


def upload_after_the_origins_end(chain):
    origin = chain.origins["farewell"]
    data = some_bytes("late", SMALL_BYTES)
    with connected(chain.listener, origin.address) as flow:
        assert read_to_end(flow) == (b"farewell", "eof")
        flow.sendall(data)
        flow.shutdown(socket.SHUT_WR)
        assert origin.saw() == (hashlib.sha256(data).digest(), "eof")


def refused_by_the_destination(chain):
    with ask(chain.listener, chain.closed.address) as answer:
        assert answer, "reset instead of an answer"
        assert answer.status == 502, answer.status
        assert "error=connection_refused" in answer.proxy_status, answer.proxy_status


def not_on_the_allow_list(chain):
    with ask(chain.listener, chain.forbidden.address) as answer:
        assert answer, "reset instead of an answer"
        assert answer.status == 403, answer.status
        assert "error=http_request_denied" in answer.proxy_status, answer.proxy_status
    assert chain.forbidden.seen.empty(), "the destination was connected to"


def reset_by_the_client(chain):
    origin = chain.origins["watch"]
    with connected(chain.listener, origin.address) as flow:
        read_exactly(flow, 1)
        reset(flow)
        assert origin.saw() == "reset"
    # That the test can tell: an end in order arrives as one.
    with connected(chain.listener, origin.address) as flow:
        read_exactly(flow, 1)
        flow.shutdown(socket.SHUT_WR)
        assert origin.saw() == "eof"


def reset_by_the_origin(chain):
    origin = chain.origins["reset_in_answer"]
    with connected(chain.listener, origin.address) as flow:
        flow.sendall(b"x")
        got, end = read_to_end(flow)
        assert end == "reset", (len(got), end)
        assert origin.saw() == "reset"


def reset_has_the_code_of_connect(chain):
    """What the peer saw of the reset that Millrace passed on."""
    origin = chain.origins["reset_in_answer" if chain.peer_is_client else "watch"]
    with connected(chain.listener, origin.address) as flow:
        if chain.peer_is_client:
            flow.sendall(b"x")
            assert read_to_end(flow)[1] == "reset"
        else:
            read_exactly(flow, 1)
            reset(flow)
        assert origin.saw() == "reset"
    end = chain.peer.wait_for(event="end", how="remote_reset", authority=origin.address)
    assert end["code"] == H3_CONNECT_ERROR, end


def flows_side_by_side_on_one_connection(chain):
    """All are open before one goes on, and data go both ways at a time."""
    origin = chain.origins["echo"]
    begun = threading.Barrier(FLOWS)
    wrong = []

    def flow_of(number):
        try:
            data = some_bytes(number, SMALL_BYTES)
            with connected(chain.listener, origin.address) as flow:
                begun.wait(20)

                def send():
                    flow.sendall(data)
                    flow.shutdown(socket.SHUT_WR)

                sender = threading.Thread(target=send)
                sender.start()
                got, end = read_to_end(flow)
                sender.join()
                assert (got == data, end) == (True, "eof"), f"flow {number}: {len(got)} bytes, {end}"
        except (AssertionError, OSError, threading.BrokenBarrierError) as error:
            begun.abort()
            wrong.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=flow_of, args=[number]) for number in range(FLOWS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert [origin.saw() for _ in range(FLOWS)] == ["eof"] * FLOWS
    assert chain.connections() == 1, f"{chain.connections()} connections"


def datagrams_both_ways(chain):
    """UDP by CONNECT-UDP: whole, in order, each flow's own."""
    sizes = [size for size in UDP_SIZES if size or chain.world.peer_sends_empty]
    with udp_client(chain.udp_listener(chain.udp_origin)) as flow:
        for turn in range(50):
            sent = [some_bytes(turn * 10_000 + size, size) for size in sizes]
            for datagram in sent:
                flow.send(datagram)
            got = [flow.recv(65536) for _ in sent]
            assert got == sent, f"turn {turn}: {[len(each) for each in got]}"
    assert chain.udp_origin.seen == 50 * len(sizes), chain.udp_origin.seen
    check_udp_request(chain)


def check_udp_request(chain):
    to = chain.udp_origin.address
    if chain.peer_is_client:
        answer = chain.peer.wait_for(event="udp_answer", destination=to)
        assert (answer["status"], answer["capsule_protocol"]) == (200, "?1"), answer
    else:
        asked = chain.peer.wait_for(event="udp_request", destination=to)
        assert asked["authority"].startswith("millrace.test:"), asked
        fields = {name.lower(): value for name, value in asked["fields"].items()}
        assert fields["capsule-protocol"] in ["?1", ["?1"]], asked
    # What the peer sends with a context of its own.
    dropped = chain.millrace.metric("millrace_drops_total", reason="datagram_context")
    assert dropped == 1, dropped


def udp_not_on_the_allow_list(chain):
    to = chain.udp_forbidden.address
    with udp_client(chain.udp_listener(chain.udp_forbidden)) as flow:
        flow.send(b"anybody?")
        if chain.peer_is_client:
            answer = chain.peer.wait_for(event="udp_answer", destination=to)
            assert answer["status"] == 403, answer
            assert "error=http_request_denied" in answer["proxy_status"], answer
        else:
            chain.peer.wait_for(event="udp_request", destination=to)
            wait_until("the refusal is counted", lambda: chain.millrace.metric(
                "millrace_flows_finished_total", outcome="denied") >= 1)
    assert chain.udp_forbidden.seen == 0, chain.udp_forbidden.seen


SCENARIOS = [
    download_of_10_mb,
    upload_of_10_mb_then_the_answer,
    upload_after_the_origins_end,
    refused_by_the_destination,
    not_on_the_allow_list,
    reset_by_the_client,
    reset_by_the_origin,
    reset_has_the_code_of_connect,
    flows_side_by_side_on_one_connection,
    datagrams_both_ways,
    udp_not_on_the_allow_list,
]
