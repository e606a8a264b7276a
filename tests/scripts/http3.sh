#!/bin/sh
# A browser that knows HTTP/3 behind a gateway: figures, and that all of its video crosses the tunnel. Needs root,
# Chromium, what setup.sh installs, and the origin that interop.sh builds. `http3.sh full` has more variants and sessions, IPv6,
# and the goodput of carried QUIC on a link with loss.
set -eu
cd "$(dirname "$0")/../.."

origin=target/interop/quic-go
program=target/release/examples/http3
goodput=target/release/examples/quic_flows
fail() { echo "http3: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "this needs root: it makes network namespaces (run it with sudo)"
[ -d player/node_modules/playwright-core ] || fail "the packages of player are missing; tests/scripts/setup.sh installs them"
for needed in $program $goodput target/release/millrace-client target/release/millrace-server; do
    [ -x $needed ] || fail "$needed is missing; make build"
done
[ -x $origin ] || fail "$origin is missing; tests/scripts/interop.sh builds it"

[ "${1:-}" = full ] || exec $program --origin $origin --out target/http3
failed=0
$program --origin $origin --out target/http3 --full --sessions 5 || failed=1
$goodput --out target/http3/goodput.json || failed=1
exit $failed
