#!/bin/sh
# Two browsers in a scenario on real packets: the claims of players.toml must hold, and each session must
# be there. Needs root, nginx and Chromium; the video is the demo's.
set -eu
cd "$(dirname "$0")/../.."

out=target/test/players
rm -rf "$out"
target/release/millrace-lab emu --attempts 6 --out "$out" tests/scripts/players.toml
for flow in 0 1; do
    [ -s "$out/players/runs/0000-r00/player-$flow/session.json" ] || {
        echo "players.sh: flow $flow has left no session" >&2
        exit 1
    }
done
