#!/bin/bash
# All tests, after `make build`. Each part runs even if one before it failed; the last line counts the parts.
#
#     tests/scripts/test.sh         what `make test` runs
#     tests/scripts/test.sh full    and the long runs and sweeps: `make test-full`
#
# CONTRIBUTING.md lists what only the second runs. Parts that measure nothing run in two lanes beside each
# other; parts that measure rates, delays or what a viewer sees have the machine to themselves.
set -u
cd "$(dirname "$0")/../.."

full=""
cells=corners
case ${1:-} in
"") ;;
full)
    full=yes
    cells=all
    ;;
*)
    echo "usage: $0 [full]" >&2
    exit 64
    ;;
esac
as_root=(env "PATH=$PATH")
[ "$(id -u)" = 0 ] || as_root=(sudo --preserve-env=PATH,HOME,CI env "PATH=$PATH")
logs=target/test/logs
rm -rf $logs
mkdir -p $logs

# Runs one part. Its outcome is in $logs/NAME.status, its output in $logs/NAME.log.
part() {
    local name=$1 started=$SECONDS status=0
    shift
    echo "== $name: $*"
    "$@" >"$logs/$name.log" 2>&1 </dev/null || status=$?
    echo $status >"$logs/$name.status"
    if [ $status = 0 ]; then
        echo "== $name: ok after $((SECONDS - started)) s"
    else
        echo "== $name: FAILED after $((SECONDS - started)) s"
    fi
}

# The tests that need root say so by being ignored; those of the package and test program given.
root_tests() {
    local name=$1 package=$2
    shift 2
    part "$name" "${as_root[@]}" cargo test --release --no-fail-fast --package "$package" "$@" -- \
        --ignored --test-threads=1 --skip _for_ten_minutes
}

lane_of_programs() {
    part unit cargo test --release --workspace --no-fail-fast
    root_tests nginx millrace-e2e --test nginx
    root_tests interception millrace-client --lib
    part fuzz tests/fuzz/run.sh "${FUZZ_SECONDS:-5}"
}

lane_of_tools() {
    part check tests/scripts/check.sh
    part lua nginx-conf/lua/test.sh
    part report npm --prefix tests/lab/report test
    part deployment tests/scripts/deployment.sh
    part interop tests/scripts/interop.sh
    part learner tests/scripts/learner.sh
    part compose "${as_root[@]}" tests/scripts/compose.sh
    part player npm --prefix player test
}

measured() {
    root_tests namespaces millrace-e2e --test namespaces
    root_tests link millrace-lab --test namespaces
    part demo "${as_root[@]}" tests/scripts/demo.sh
    part players "${as_root[@]}" tests/scripts/players.sh ${full:+full}
    part isolation "${as_root[@]}" target/release/examples/isolation --again \
        --cells "$cells" --out target/test/isolation
    part faults "${as_root[@]}" tests/scripts/soak.sh faults
}

long_runs() {
    root_tests bad-machine millrace-lab --test bad_machine
    part ten-minutes "${as_root[@]}" cargo test --release --no-fail-fast --package millrace-e2e -- \
        --ignored --test-threads=1 _for_ten_minutes
    part soak "${as_root[@]}" "SOAK_SECONDS=${SOAK_SECONDS:-600}" tests/scripts/soak.sh
}

lane_of_programs &
programs=$!
lane_of_tools &
tools=$!
wait $programs $tools
measured
[ -z "$full" ] || long_runs
part leftovers "${as_root[@]}" target/release/millrace-lab clean

passed=0
failed=0
failures=""
for status in "$logs"/*.status; do
    name=$(basename "$status" .status)
    if [ "$(cat "$status")" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        failures="$failures $name"
    fi
done
for name in $failures; do
    echo "== $name ended so ($logs/$name.log has all of it):"
    grep -E "^test .* FAILED|panicked at|^error" "$logs/$name.log" | head -n 20
    tail -n 25 "$logs/$name.log"
done
[ -z "$failures" ] || echo "failed:$failures"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
