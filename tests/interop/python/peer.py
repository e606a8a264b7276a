"""An HTTP/3 CONNECT client and an HTTP/3 CONNECT proxy on aioquic, as peers for Millrace.

What they are started with and what they write is in ../README.md.
"""

import argparse
import asyncio
import sys

from client import run_client
from events import tell
from proxy import run_proxy


def arguments():
    parser = argparse.ArgumentParser(prog="peer.py")
    parser.add_argument("role", choices=["client", "proxy"])
    parser.add_argument("--dir", required=True, help="directory of the certificates")
    parser.add_argument("--certificate", required=True,
                        help="name of the certificate in it, without .pem; none for none")
    parser.add_argument("--server", help="client: UDP address of the server")
    parser.add_argument("--server-name", help="client: name that its certificate must be for")
    parser.add_argument("--udp", default="",
                        help="client: destinations of UDP flows, as for --allow; each gets a port")
    parser.add_argument("--allow-udp", default="",
                        help="proxy: destinations that are allowed for UDP")
    parser.add_argument("--allow", default="",
                        help="proxy: destinations that are allowed, as host:port with commas between")
    return parser.parse_args()


def main():
    given = arguments()
    run = {"client": run_client, "proxy": run_proxy}[given.role]
    try:
        asyncio.run(run(given))
    except* (OSError, TimeoutError) as errors:
        error = errors.exceptions[0]
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        tell("failed", error=f"{type(error).__name__}: {error}")
        sys.exit(1)


main()
