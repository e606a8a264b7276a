#!/bin/sh
# Licences, bans and sources of the dependencies, by cargo-deny. The advisories need their
# database from the network and are no part of it.
set -eu
cd "$(dirname "$0")/../.."

version=0.20.2
# It takes minutes to build, and each clone can use it.
tools=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/tools
tool=$tools/bin/cargo-deny
if ! [ -x "$tool" ] || [ "$("$tool" --version)" != "cargo-deny $version" ]; then
    cargo install cargo-deny --version "$version" --locked --debug --root "$tools"
fi
cargo fetch --locked
"$tool" --offline --locked check licenses bans sources
