"""millrace-server and millrace-client with configurations for loopback."""

import subprocess
import urllib.error
import urllib.request

from programs import TIMEOUT_S, Program

SERVER_NAME = "millrace.test"
# The name of the client's certificate.
CLIENT = "edge"

SERVER = """
[tunnel]
listen = ["127.0.0.1:0"]
client_ca = "{dir}/ca.pem"
certificate = "{dir}/server.pem"
private_key = "{dir}/server.key"

[[destinations.allow]]
network = "127.0.0.1"
ports = [{ports}]

[[destinations.allow]]
protocol = "udp"
network = "127.0.0.1"
ports = [{udp_ports}]

[admin]
address = "127.0.0.1:0"

[log]
format = "json"
"""

# A UDP listener of the client.
UDP_LISTEN = """
[[listen]]
mode = "udp"
address = "127.0.0.1:{port}"
destination = "{destination}"
"""

# One worker, because each has a connection of its own. A mark would need a privilege. What a flow
# waits for a server that is gone is what a scenario takes.
CLIENT_CONFIG = """
[tunnel]
servers = ["{server}"]
server_name = "{server_name}"
ca = "{dir}/ca.pem"
certificate = "{certificate}.pem"
private_key = "{certificate}.key"
mark = 0
connect_timeout_s = 2

[[listen]]
mode = "http_connect"
address = "127.0.0.1:0"

[runtime]
workers = 1

[admin]
address = "127.0.0.1:0"

[log]
format = "json"
"""


def make_certificates(binaries, directory):
    made = subprocess.run(
        [binaries / "millrace-server", "certificates", "--dir", directory,
         "--server-name", SERVER_NAME, "--client", CLIENT],
        capture_output=True, text=True, timeout=TIMEOUT_S)
    assert made.returncode == 0, made.stderr


class Millrace(Program):
    """Either program, with what its admin listener says."""

    def __init__(self, name, binary, config, path):
        path.write_text(config)
        super().__init__(name, [binary, "run", "--config", path])
        self.admin = self.address("admin")

    def address(self, what):
        return self.wait_for(message="listening", what=what)["address"]

    def is_healthy(self):
        try:
            with urllib.request.urlopen(f"http://{self.admin}/healthz", timeout=TIMEOUT_S):
                return True
        except urllib.error.HTTPError:
            return False

    def metric(self, name, **labels):
        """The sum of a metric's series that have these labels."""
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=TIMEOUT_S) as page:
            lines = page.read().decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in lines
            if line.split("{")[0].split(" ")[0] == name and all(want in line for want in wanted))


def start_server(binaries, directory, certificates, addresses, udp_addresses):
    """What is not in `addresses`, or for UDP in `udp_addresses`, is not allowed."""
    ports, udp_ports = [
        ", ".join(address.rsplit(":", 1)[1] for address in each)
        for each in [addresses, udp_addresses]]
    config = SERVER.format(dir=certificates, ports=ports, udp_ports=udp_ports)
    return Millrace("millrace-server", binaries / "millrace-server", config,
                    directory / "server.toml")


def start_client(binaries, directory, certificates, server, identity, udp):
    """`identity` is the path of the client's certificate without its ending; `udp` has pairs of the
    port of a UDP listener and its destination."""
    config = CLIENT_CONFIG.format(
        dir=certificates, server=server, server_name=SERVER_NAME, certificate=identity)
    config += "".join(UDP_LISTEN.format(port=port, destination=to) for port, to in udp)
    return Millrace("millrace-client", binaries / "millrace-client", config,
                    directory / "client.toml")
