"""Millrace against peers on other QUIC stacks, over loopback: run.py BINARIES WORK [ONLY]

BINARIES has millrace-server and millrace-client; WORK has the peers (tests/scripts/interop.sh);
ONLY is a part of the names of those that are to run.
"""

import dataclasses
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from chains import PeersClient, PeersProxy, own_scenarios
from millrace import CLIENT, make_certificates
from scenarios import SCENARIOS

# All of it together.
TIME_LIMIT_S = 110
HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass
class World:
    """What chains are made of."""

    binaries: pathlib.Path
    # How the peer is called.
    peer: list
    peer_sends_goaway: bool
    # Empty datagrams; asyncio sends none.
    peer_sends_empty: bool
    directory: pathlib.Path
    certificates: pathlib.Path
    # Of another authority.
    other_certificates: pathlib.Path
    # The authority that all trust, and a client's certificate of the other one.
    mixed_certificates: pathlib.Path


def worlds(binaries, work, directory):
    places = [directory / name for name in ["certificates", "other", "mixed"]]
    certificates, other, mixed = places
    make_certificates(binaries, certificates)
    make_certificates(binaries, other)
    mixed.mkdir()
    shutil.copy(certificates / "ca.pem", mixed)
    for ending in ["pem", "key"]:
        shutil.copy(other / f"{CLIENT}.{ending}", mixed)
    return {
        "quic-go": World(binaries, [work / "quic-go"], True, True, directory, *places),
        "aioquic": World(
            binaries, [work / "venv/bin/python", "-B", HERE / "python/peer.py"], False, False,
            directory, *places),
    }


def run_chain(name, kind, world, only):
    """Runs one chain's scenarios; returns how many passed and the names of those that failed."""
    scenarios = [
        (f"{name}: {scenario.__name__.replace('_', ' ')}", scenario)
        for scenario in SCENARIOS + own_scenarios(kind, world)
    ]
    scenarios = [each for each in scenarios if only in each[0]]
    if not scenarios:
        return 0, []
    try:
        chain = kind(world)
    except (AssertionError, OSError) as error:
        print(f"FAILED  {name}: it does not start: {error}", flush=True)
        return 0, [f"{name}: start"]
    passed, failed = 0, []
    try:
        for title, scenario in scenarios:
            started = time.monotonic()
            chain.forget()
            try:
                scenario(chain)
            except Exception as error:  # Whatever it is, the others are to run.
                failed.append(title)
                print(f"FAILED  {title}: {type(error).__name__}: {error}")
                print("".join(program.said() for program in chain.programs), flush=True)
            else:
                passed += 1
                print(f"ok      {title} ({time.monotonic() - started:.1f} s)", flush=True)
    finally:
        chain.stop()
    return passed, failed


def out_of_time(_signal, _frame):
    raise SystemExit(f"not done after {TIME_LIMIT_S} s")


def main():
    binaries, work = [pathlib.Path(argument).resolve() for argument in sys.argv[1:3]]
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    signal.signal(signal.SIGALRM, out_of_time)
    signal.signal(signal.SIGTERM, out_of_time)
    signal.alarm(TIME_LIMIT_S)
    passed, failed = 0, []
    with tempfile.TemporaryDirectory(prefix="millrace-interop-") as directory:
        for peer, world in worlds(binaries, work, pathlib.Path(directory)).items():
            for title, kind in [
                (f"{peer} client to millrace-server", PeersClient),
                (f"millrace-client to {peer} proxy", PeersProxy),
            ]:
                chain_passed, chain_failed = run_chain(title, kind, world, only)
                passed += chain_passed
                failed += chain_failed
    if passed + len(failed) == 0:
        sys.exit(f"nothing has {only!r} in its name")
    print(f"interop: {passed} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


main()
