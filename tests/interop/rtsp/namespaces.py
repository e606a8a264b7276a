"""The namespaces of a run, and Millrace at their edges.

    direct  198.18.1.2 ──┐
                         gateway 198.18.2.1 ── 198.18.2.2 edge 198.18.3.1 ── 198.18.3.2 origin
    tunnel  198.18.5.2 ──┘

Both players use the gateway as their router. It intercepts the player in `tunnel`, with the shipped rules and the
configuration of docs/integrate/gateway.md, and forwards the packets of the player in `direct`.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import time

from millrace import make_certificates
from programs import TIMEOUT_S, Program, wait_until

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE.parents[2] / "deploy/nftables/tproxy.nft"

PREFIX = "millrace-rtsp-"
# Held while a run lives; what another left behind without it comes from a crash.
LOCK = "/run/millrace-rtsp-table.lock"
ROLES = ["direct", "tunnel", "gateway", "edge", "origin"]
# The two ways of a player to the origin: the names of their namespaces.
WAYS = ["direct", "tunnel"]

ORIGIN = "198.18.3.2"
EDGE = "198.18.2.2"
# Ends of cables: namespace, interface, address.
CABLES = [
    (("direct", "eth0", "198.18.1.2"), ("gateway", "lan-direct", "198.18.1.1")),
    (("tunnel", "eth0", "198.18.5.2"), ("gateway", "lan-tunnel", "198.18.5.1")),
    (("gateway", "wan", "198.18.2.1"), ("edge", "wan", EDGE)),
    (("edge", "lan", "198.18.3.1"), ("origin", "eth0", ORIGIN)),
]
ROUTES = [
    ("direct", "198.18.1.1"), ("tunnel", "198.18.5.1"), ("gateway", EDGE),
    ("edge", "198.18.2.1"), ("origin", "198.18.3.1"),
]
OFFLOADS = ["tso", "gso", "gro", "lro", "tx", "rx"]

SERVER = """
[tunnel]
listen = ["{edge}:4433"]
client_ca = "ca.pem"
certificate = "server.pem"
private_key = "server.key"
congestion_control = "vivace-latency"

[[destinations.allow]]
network = "198.18.3.0/24"
ports = [80, 443, 554, 8554]
"""

CLIENT = """
[tunnel]
servers = ["{edge}:4433"]
server_name = "millrace.test"
ca = "ca.pem"
certificate = "edge.pem"
private_key = "edge.key"

[[listen]]
mode = "tproxy"
address = "127.0.0.1:15001"
class = "dash"
fail_mode = "open"
"""

# Packets of both directions, each where it comes off the cable.
LOSS = """
table netdev loss {{
    chain arrivals {{
        type filter hook ingress device "wan" priority 0;
        numgen random mod 1000 < {per_mille} drop
    }}
}}
"""

# The admin listeners, in their own namespaces.
ADMIN = {"gateway": "127.0.0.1:9464", "edge": "127.0.0.1:9465"}
# How long processes in a namespace that is removed get to end.
GRACE_S = 2


def output_of(command, **more):
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                           timeout=TIMEOUT_S, check=False, **more)
    assert ended.returncode == 0, f"{' '.join(map(str, command))}: {ended.stderr or ended.stdout}"
    return ended.stdout


def inside(role, command):
    """A command that runs in a namespace."""
    return ["ip", "netns", "exec", PREFIX + role, *command]


@contextlib.contextmanager
def exclusive(work):
    """The only run of this machine: what a crashed one left in `work` and of namespaces is removed."""
    with open(LOCK, "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another run of the table has the namespaces") from None
        remove_namespaces()
        for left in work.glob(f"{PREFIX}*"):
            shutil.rmtree(left)
        yield


class Site:
    """Everything of a run. A context manager: what it has made goes when it ends."""

    def __init__(self, binaries, directory):
        self._binaries = binaries
        self._directory = directory
        self._programs = contextlib.ExitStack()

    def __enter__(self):
        remove_namespaces()
        try:
            self._build()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._programs.close()
        remove_namespaces()

    def _build(self):
        for role in ROLES:
            output_of(["ip", "netns", "add", PREFIX + role])
            output_of(["ip", "-n", PREFIX + role, "link", "set", "lo", "up"])
        for left, right in CABLES:
            self._join(left, right)
        for role, router in ROUTES:
            output_of(["ip", "-n", PREFIX + role, "route", "add", "198.18.0.0/15", "via", router])
        for role in ["gateway", "edge"]:
            output_of(inside(role, ["sysctl", "-qw", "net.ipv4.ip_forward=1"]))
        output_of(["ip", "-n", PREFIX + "gateway", "rule", "add", "fwmark", "0x4d54",
                   "lookup", "4454"])
        output_of(["ip", "-n", PREFIX + "gateway", "route", "add", "local", "default", "dev", "lo",
                   "table", "4454"])
        output_of(inside("gateway", ["nft", "-f", RULES]))
        output_of(inside("gateway", ["nft", "add element inet millrace_tproxy client_interfaces "
                                     '{ "lan-tunnel" }']))

    @staticmethod
    def _join(left, right):
        (role, device, _), (peer_role, peer_device, _) = left, right
        output_of(["ip", "link", "add", device, "netns", PREFIX + role, "type", "veth",
                   "peer", "name", peer_device, "netns", PREFIX + peer_role])
        for each_role, each_device, address in [left, right]:
            namespace = PREFIX + each_role
            output_of(["ip", "-n", namespace, "address", "add", f"{address}/24",
                       "dev", each_device])
            # Packets cross the link as a network card sends them, and not joined.
            off = [word for offload in OFFLOADS for word in (offload, "off")]
            output_of(inside(each_role, ["ethtool", "-K", each_device, *off]))
            output_of(["ip", "-n", namespace, "link", "set", each_device, "up"])

    def _start(self):
        make_certificates(self._binaries, self._directory)
        for name, role, config in [("server", "edge", SERVER), ("client", "gateway", CLIENT)]:
            path = self._directory / f"{name}.toml"
            path.write_text(config.format(edge=EDGE))
            command = [self._binaries / f"millrace-{name}", "run", "--config", path]
            self.start(f"millrace-{name}", role, command)
        wait_until("the tunnel is healthy", self._is_healthy)

    def _is_healthy(self):
        url = f"http://{ADMIN['gateway']}/healthz"
        asked = subprocess.run(inside("gateway", ["curl", "-sf", "-m", "2", "-o", os.devnull, url]),
                               timeout=TIMEOUT_S, check=False)
        return asked.returncode == 0

    def start(self, name, role, command):
        """A program that runs in a namespace until the site ends, or until it is stopped."""
        program = Program(name, inside(role, command))
        self._programs.callback(program.stop)
        return program

    def listens(self, port):
        """Whether the origin listens on a TCP port."""
        sockets = output_of(inside("origin", ["ss", "-Hltn", f"sport = :{port}"]))
        return bool(sockets.strip())

    def metrics(self):
        """The client's counters: name with labels, value."""
        text = output_of(inside("gateway", [
            "curl", "-sf", "-m", "5", f"http://{ADMIN['gateway']}/metrics"]))
        pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def lose(self, per_mille):
        """Drops packets of the link at random, in each direction; 0 ends that."""
        for role in ["gateway", "edge"]:
            subprocess.run(inside(role, ["nft", "delete", "table", "netdev", "loss"]),
                           capture_output=True, timeout=TIMEOUT_S, check=False)
            if per_mille:
                rules = LOSS.format(per_mille=per_mille)
                output_of(inside(role, ["nft", "-f", "-"]), input=rules)


def remove_namespaces():
    """Removes the namespaces of a run and ends the processes inside."""
    for role in ROLES:
        namespace = PREFIX + role
        if not os.path.exists(f"/run/netns/{namespace}"):
            continue
        end_processes(namespace)
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True, timeout=TIMEOUT_S,
                       check=False)


def end_processes(namespace):
    def processes():
        listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True,
                                timeout=TIMEOUT_S, check=False)
        return [int(pid) for pid in listed.stdout.split()]

    deadline = time.monotonic() + GRACE_S
    for each_signal in [signal.SIGTERM, signal.SIGKILL]:
        for pid in processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, each_signal)
        while processes() and time.monotonic() < deadline:
            time.sleep(0.05)
