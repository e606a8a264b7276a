#!/bin/sh
# The soak (docs/research/soak.md) with 200 clients, as root.
#
#     tests/scripts/soak.sh [ARGUMENT...]           programs and links fail, SOAK_SECONDS (600); then that it finds
#                                                   wrong bytes, and that nothing is left of one that is killed
#     tests/scripts/soak.sh faults [ARGUMENT...]    the path and ends of flows have faults, SOAK_SECONDS (120)
#
# A day by hand: SOAK_SECONDS=86400 tests/scripts/soak.sh faults. The arguments are the program's.
set -eu
cd "$(dirname "$0")/../.."

soak=target/release/examples/soak
lab=target/release/millrace-lab
out=target/soak
fail() { echo "soak: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "this needs root: it makes network namespaces (run it with sudo)"
for program in $soak $lab target/release/millrace-client target/release/millrace-server; do
    [ -x $program ] || fail "$program is missing; make build"
done
mkdir -p $out

if [ "${1:-}" = faults ]; then
    shift
    exec $soak --seconds "${SOAK_SECONDS:-120}" --clients 200 --faults --no-trouble --out $out/faults "$@"
fi
$soak --seconds "${SOAK_SECONDS:-600}" --clients 200 --out $out "$@"

# It must be able to fail.
log=$out/wrong-bytes.log
if $soak --seconds 20 --clients 100 --no-trouble --wrong-bytes --out $out/wrong-bytes >$log 2>&1; then
    fail "wrong bytes from the origin were not found out; $log"
fi
grep -q 'WRONG.* byte [0-9]* of [0-9]* is wrong' $log || fail "it failed for another reason; $log"
echo "soak: wrong bytes are found out"

# Killed in the middle, it leaves what `millrace-lab clean` takes away.
log=$out/killed.log
$soak --seconds 120 --clients 50 --out $out/killed >$log 2>&1 &
killed=$!
tries=0
until grep -q 'soak: begun' $log; do
    tries=$((tries + 1))
    if [ $tries -gt 600 ] || ! kill -0 $killed 2>/dev/null; then
        kill -9 $killed 2>/dev/null || :
        fail "the run that is to be killed has not begun; $log"
    fi
    sleep 0.1
done
run=$(sed -n 's/^soak: begun, mr-//p' $log)
kill -9 $killed
wait $killed 2>/dev/null || :
[ -e /run/millrace-lab/"$run" ] || fail "nothing was left of mr-$run: this proves nothing"
$lab clean >$out/clean.log
left=$(ip netns list | grep "mr-$run" || :)
[ -z "$left" ] || fail "namespaces are left: $left"
[ ! -e /run/millrace-lab/"$run" ] && [ ! -e /run/millrace-lab/"$run".lock ] ||
    fail "/run/millrace-lab/$run is left"
for process in /proc/[0-9]*; do
    command=$(tr '\0' ' ' 2>/dev/null <"$process"/cmdline || :)
    case $command in
    *millrace-lab/"$run"/*) fail "a process is left: $command" ;;
    esac
done
echo "soak: nothing is left of a run that was killed"
