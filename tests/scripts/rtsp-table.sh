#!/bin/sh
# RTSP origins x players x transports, directly and through the tunnel: docs/research/rtsp-players.md. Needs root, the
# network for what is not installed, and target/release/millrace-*. Cells that are done are kept: `--again` measures
# all, `--only TEXT` those with TEXT in their names. mediamtx, go2rtc and a VLC with live555 come from PATH or
# target/tools/bin; without them their cells are "not available".
set -eu
cd "$(dirname "$0")/../.."

programs=${PROGRAMS:-target/release}
fail() { echo "rtsp-table: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "this needs root: it makes network namespaces (run it with sudo)"
for needed in millrace-client millrace-server; do
    [ -x "$programs/$needed" ] || fail "$programs/$needed is missing; make build"
done

packages="curl ethtool ffmpeg gir1.2-gst-rtsp-server-1.0 gstreamer1.0-libav gstreamer1.0-plugins-bad
    gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-tools iproute2 nftables python3-gi vlc-bin
    vlc-plugin-base"
missing=""
for package in $packages; do
    dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null |
        grep -qx installed || missing="$missing $package"
done
if [ -n "$missing" ]; then
    echo "rtsp-table: installing$missing" >&2
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
fi
tests/scripts/live555.sh

export PATH="$PWD/target/tools/bin:$PATH" PYTHONPATH=tests/interop
# Twice what a run takes that measures every cell three times.
exec timeout --kill-after=10 3600 python3 -B tests/interop/rtsp/run.py "$programs" target/rtsp-table \
    target/tools/live555 docs/research/results/rtsp docs/research/rtsp-players.md "$@"
