#!/bin/sh
# Millrace against HTTP/3 stacks of others, over loopback, both ways: quic-go and aioquic.
# tests/interop/README.md. Needs what setup.sh installs, and target/release/millrace-*.
# `interop.sh TEXT` runs the scenarios that have TEXT in their names.
set -eu
cd "$(dirname "$0")/../.."

work=target/interop
fail() { echo "interop: $*" >&2; exit 1; }

command -v go >/dev/null ||
    fail "go is missing; tests/scripts/setup.sh says which one is needed"
[ -x $work/venv/bin/python ] ||
    fail "$work/venv is missing; tests/scripts/setup.sh makes it"
[ -x target/release/millrace-server ] && [ -x target/release/millrace-client ] ||
    fail "target/release/millrace-server or millrace-client is missing; make build"

timeout 300 go -C tests/interop/go build -mod=readonly -o "$PWD/$work/quic-go" .
# It has a time limit of its own, which leaves nothing behind.
timeout --kill-after=5 120 $work/venv/bin/python -B tests/interop/run.py target/release $work "$@"
