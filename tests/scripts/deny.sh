#!/bin/sh
# Licences, bans and sources of the dependencies, by cargo-deny. The advisories need their
# database from the network and are no part of it.
set -eu
cd "$(dirname "$0")/../.."

tool=$(tests/scripts/cargo-deny.sh)
cargo fetch --locked
"$tool" --offline --locked check licenses bans sources
