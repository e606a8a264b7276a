#!/bin/bash
# docker-compose.yml as an operator uses it, after `make build`: up, the video byte for byte, a
# server killed, an origin of one's own, three servers behind the balancer, the player and the live pages in a
# browser, Prometheus, down, nothing left. Needs root. It is bounded: 480 s for all, less for each wait.
#
# The images take the programs of target/release where these were made on the images' own Debian
# release: compiling the same source again takes four CPU minutes and would show nothing new.
# FROM_SOURCE=1 compiles in the image all the same, and takes as long as that takes.
set -euo pipefail
cd "$(dirname "$0")/../.."

limit_s=480
[ -z "${FROM_SOURCE:-}" ] || limit_s=3600
if [ -z "${COMPOSE_TEST_BOUNDED:-}" ]; then
    exec env COMPOSE_TEST_BOUNDED=1 timeout --kill-after=60 "$limit_s" "$0" "$@"
fi

# shellcheck source=tests/scripts/docker.sh
. tests/scripts/docker.sh
# shellcheck source=tests/scripts/compose-steps.sh
. tests/scripts/compose-steps.sh

project=millrace-test
work=$PWD/target/test/compose
mkdir -p "$work"
exec 9>"$work/lock"
flock --nonblock 9 || fail "another run of this is under way"

# Of this run only: nothing here may meet what else runs on the machine.
export TAG=test SUBNETS=198.19 PUBLISH=127.0.0.1
export EDGE_PORT=0 EXPLICIT_PORT=0 PLAYER_PORT=0 PROMETHEUS_PORT=0 LIVE_PORT=0
export CARGO_CONFIG=$work/cargo-config.toml
(cat "${CARGO_HOME:-$HOME/.cargo}/config.toml" 2>/dev/null || true) >"$CARGO_CONFIG"
unset ORIGIN SERVERS CONGESTION_CONTROL RENEW
PROGRAMS=prebuilt
grep -q '^VERSION_CODENAME=bookworm' /etc/os-release && [ -z "${FROM_SOURCE:-}" ] || PROGRAMS=build
export PROGRAMS

trap 'clean_up $?' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
docker_start
docker_base_image
remove_project

step build build_images
step up start_and_fetch
step hardening check_hardening
step denied check_denied
step killed kill_server
step certificates check_certificates
step profiles check_player_and_prometheus
step scale check_scale
step origin check_own_origin
step down check_down
say "all well"
