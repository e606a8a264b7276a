#!/bin/sh
# A browser through an outage: the claims must hold, each session must be there, and the stall must be where the
# outage puts it. Needs root, nginx and Chromium; the video is the demo's. `players.sh full` has two browsers at
# once and streams over RTSP too, for which it needs live555.
set -eu
cd "$(dirname "$0")/../.."

out=target/test/players
rm -rf "$out"

# An outage of a known length makes a stall where arithmetic puts it, but for a browser that had no processor at its end:
# what differs is played again, and fails the third time.
outage() {
    rm -rf "$out/qoe-outage"
    target/release/millrace-lab run --driver emulator --attempts 6 --out "$out" lab/scenarios/players/qoe-outage.toml
    node tests/scripts/outage.mjs "$out/qoe-outage/runs/0000-r00/player-0" "$out/qoe-outage/runs/0001-r00/player-0"
}
outage || outage || outage

[ "${1:-}" = full ] || exit 0

# Two browsers at once.
target/release/millrace-lab run --driver emulator --attempts 6 --out "$out" tests/scripts/players.toml
for flow in 0 1; do
    [ -s "$out/players/runs/0000-r00/player-$flow/session.json" ] || {
        echo "players.sh: flow $flow has left no session" >&2
        exit 1
    }
done

# openRTSP through the outage.
tests/scripts/live555.sh
target/release/millrace-lab run --driver emulator --attempts 6 --out "$out" lab/scenarios/players/qoe-rtsp.toml
node tests/scripts/outage-stream.mjs "$out"/qoe-rtsp/runs/????-r00/player-0

# RTP over UDP, plain and through the tunnel: where nothing is lost all of it comes.
target/release/millrace-lab run --driver emulator --attempts 6 --out "$out" --select link.loss=0 --select flow.0.cc=kernel:cubic \
    --select flow.0.cc=vivace-latency lab/scenarios/players/qoe-rtsp-udp.toml
