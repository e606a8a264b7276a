#!/bin/bash
# Two bare systems become server and client edge with three commands, without an editor and without a file that is copied:
# `millrace-server init --run`, `millrace-server invite`, `millrace-client join --run`. Then a second edge. Each system is a
# root directory with the programs, curl and what these link, and a network namespace; edges reach the server, and only
# the server reaches the origin. As root, after `make build`.
set -euo pipefail
cd "$(dirname "$0")/../.."

max_seconds=60
programs=$PWD/target/release
work=$PWD/target/test/join
server_address=198.18.20.1
origin=198.18.21.2:8000
prefix=mj$$
pids=()
fail() {
    echo "join.sh: $*" >&2
    tail -n 20 "$work"/*.log >&2
    exit 1
}

cleanup() {
    [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait
    for name in server origin edge-1 edge-2; do
        ip netns del "$prefix-$name" 2>/dev/null || true
    done
    rm -rf "$work"/root-*
}
trap cleanup EXIT
rm -rf "$work"
mkdir -p "$work/site"

# bare_root NAME PROGRAM: a root directory with a program, curl, and nothing of Millrace else.
bare_root() {
    local root=$work/root-$1 file
    mkdir -p "$root"/{dev,etc,proc,tmp,usr/bin,var/lib}
    for file in "$programs/$2" "$(command -v curl)"; do
        cp "$file" "$root/usr/bin/"
        { ldd "$file" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r library; do
            [ -e "$root$library" ] || cp --parents --dereference "$library" "$root"
        done
    done
}

# in_root NAME COMMAND...: runs it in that root directory and namespace. `ip netns exec` has mounts of its own.
in_root() {
    local name=$1
    shift
    # shellcheck disable=SC2016 # For the inner shell.
    exec ip netns exec "$prefix-$name" sh -c '
        root=$0
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && exec chroot "$root" "$@"
    ' "$work/root-$name" "$@"
}

# start NAME LOG COMMAND...: in the background.
start() {
    in_root "$1" "${@:3}" >"$work/$2.log" 2>&1 </dev/null &
    pids+=($!)
}

# wait_for WHAT COMMAND...: until it succeeds.
wait_for() {
    local tries
    for tries in $(seq 200); do
        # shellcheck disable=SC2034 # Only counted.
        "${@:2}" && return
        sleep 0.05
    done
    fail "not within 10 s: $1"
}

# A bridge for the tunnel in the server's namespace, a link to the origin, no other routes.
for name in server origin edge-1 edge-2; do
    ip netns add "$prefix-$name"
    ip -n "$prefix-$name" link set lo up
done
ip -n "$prefix-server" link add tunnel type bridge
ip -n "$prefix-server" address add $server_address/24 dev tunnel
ip -n "$prefix-server" link set tunnel up
ip -n "$prefix-server" link add origin type veth peer name eth0 netns "$prefix-origin"
ip -n "$prefix-server" address add 198.18.21.1/24 dev origin
ip -n "$prefix-server" link set origin up
ip -n "$prefix-origin" address add ${origin%:*}/24 dev eth0
ip -n "$prefix-origin" link set eth0 up
for edge in 1 2; do
    ip -n "$prefix-server" link add "edge-$edge" master tunnel type veth peer name eth0 netns "$prefix-edge-$edge"
    ip -n "$prefix-server" link set "edge-$edge" up
    ip -n "$prefix-edge-$edge" address add "198.18.20.1$edge/24" dev eth0
    ip -n "$prefix-edge-$edge" link set eth0 up
done
bare_root server millrace-server
bare_root edge-1 millrace-client
bare_root edge-2 millrace-client

head -c 3000000 /dev/urandom >"$work/site/video"
(cd "$work/site" && exec ip netns exec "$prefix-origin" python3 -m http.server ${origin#*:}) \
    >"$work/origin.log" 2>&1 </dev/null &
pids+=($!)
wait_for "the origin" ip netns exec "$prefix-origin" curl --silent --output /dev/null "http://$origin/"

edge_ran_curl() {
    (in_root "edge-$1" curl --silent --fail --max-time 20 --proxy http://127.0.0.1:3128 "http://$origin/video") \
        >"$work/edge-$1.video" 2>>"$work/curl.log"
}
! (in_root edge-1 curl --silent --max-time 1 "http://$origin/") >/dev/null 2>&1 || fail "an edge reaches the origin by itself"

started=$(date +%s%N)
# seconds: since `started`.
seconds() { awk -v ns=$(($(date +%s%N) - started)) 'BEGIN { printf "%.1f", ns / 1e9 }'; }
within_limit() { [ $((($(date +%s%N) - started) / 1000000000)) -lt $max_seconds ] || fail "longer than $max_seconds s"; }

# Command 1.
start server server millrace-server init --address $server_address --allow $origin --run
wait_for "the server" grep -q 'listening.*enrolment\|enrolment.*listening' "$work/server.log"
for edge in 1 2; do
    # Commands 2 and 3.
    token=$(in_root server millrace-server invite "edge-$edge" 2>>"$work/invite.log") || fail "no invitation"
    start "edge-$edge" "edge-$edge" millrace-client join "$token" --run
    wait_for "a download at edge-$edge" edge_ran_curl $edge
    cmp "$work/site/video" "$work/edge-$edge.video" || fail "the download differs"
    within_limit
    echo "join.sh: from bare systems to a download at edge-$edge: $(seconds) s"
    [ "$edge" = 2 ] || started=$(date +%s%N)
done

# The tunnel carried it, for two clients with certificates of their own.
list=$(in_root server millrace-server certificates --list --dir /var/lib/millrace-server)
for edge in 1 2; do
    grep -q " name edge-$edge\$" <<<"$list" || fail "no certificate of edge-$edge: $list"
    grep -q "joined $server_address:4433 as edge-$edge" "$work/edge-$edge.log" || fail "edge-$edge has not joined"
    grep -q '0 failed' "$work/edge-$edge.log" || fail "the doctor found a fault at edge-$edge"
done
# Nothing is overwritten, and no token is valid twice.
token2=$(in_root server millrace-server invite edge-1 2>>"$work/invite.log")
if said=$( (in_root edge-1 millrace-client join "$token2") 2>&1); then
    fail "a second join has overwritten files"
fi
grep -q -- --replace <<<"$said" || fail "$said"
if said=$( (in_root edge-2 millrace-client join "$token" --config /tmp/client.toml --state-dir /tmp/state) 2>&1); then
    fail "a token was valid twice"
fi
grep -q 'was used already' <<<"$said" || fail "$said"
echo "join.sh: three commands for the first edge, two for the second"
