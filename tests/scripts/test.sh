#!/bin/bash
# The tests, after `make build`: `test.sh` what `make test` runs, `test.sh full` what `make test-full` runs
# (CONTRIBUTING.md lists the difference). A failed part does not stop the others; the last line counts the
# parts. target/test/logs/PART.log has a part's output.
#
# Parts that measure rates and delays run alone. Before them run the others, in two lanes beside each other.
set -u
cd "$(dirname "$0")/../.."

case ${1:-} in
'') full='' cells=corners faults_s=120 fuzz_s=5 fuzz_targets=parsers ;;
full) full=full cells=all faults_s=600 fuzz_s=60 fuzz_targets='' ;;
*)
    echo "usage: $0 [full]" >&2
    exit 64
    ;;
esac

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo "--preserve-env=PATH,HOME,CI")
as_root+=(env "PATH=$PATH")
logs=target/test/logs
rm -rf $logs
mkdir -p $logs

part() {
    local name=$1 started=$SECONDS result=ok
    shift
    echo "== $name: $*"
    "$@" >"$logs/$name.log" 2>&1 </dev/null || result=FAILED
    echo "$result" >"$logs/$name.result"
    echo "== $name: $result after $((SECONDS - started)) s"
}

# ignored CARGO-ARGUMENTS -- FILTERS: tests that say by being ignored what they need, one at a time.
ignored() { "${as_root[@]}" cargo test --release --no-fail-fast "$@" --ignored --test-threads=1; }

# others DIRECTORY NAME: `--test` of every test program in DIRECTORY/tests but NAME.
others() {
    local program
    for program in "$1"/tests/*; do
        [ -d "$program" ] && [ ! -e "$program/main.rs" ] && continue
        program=$(basename "$program" .rs)
        [ "$program" = "$2" ] || [ "${program%.*}" != "$program" ] || echo "--test $program"
    done
}

# What needs root, without the programs that the waiting lane has run.
namespaces() {
    local failed=0
    ignored --workspace --exclude millrace-e2e --exclude millrace-lab -- --skip _for_ten_minutes || failed=1
    # shellcheck disable=SC2046 # Several arguments.
    ignored --package millrace-e2e --lib $(others tests/e2e nginx) -- --skip _for_ten_minutes || failed=1
    # shellcheck disable=SC2046
    ignored --package millrace-lab --lib $(others tests/lab bad_machine) -- --skip _for_ten_minutes || failed=1
    return $failed
}

vitest() { (cd "$1" && npx --no-install vitest run); }

# Tests that wait most of the time: more of them at once than there are processors.
waiting_lane() {
    part unit env RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}" cargo test --release --workspace --no-fail-fast
    # Namespaces and nginx, without measuring.
    part nginx ignored --package millrace-e2e --test nginx -- --skip _for_ten_minutes
    part bad-machine ignored --package millrace-lab --test bad_machine -- --skip _for_ten_minutes
    part compose "${as_root[@]}" tests/scripts/compose.sh
}

# What compiles and computes.
computing_lane() {
    part check tests/scripts/check.sh
    part lua nginx-conf/lua/test.sh
    # `make build` has built what they test.
    part player vitest player
    part report vitest tests/lab/report
    part deployment tests/scripts/deployment.sh
    part learner tests/scripts/learner.sh
    part interop tests/scripts/interop.sh
    # shellcheck disable=SC2086 # All of them where it is empty.
    part fuzz tests/fuzz/run.sh "${FUZZ_SECONDS:-$fuzz_s}" $fuzz_targets
}

# One after the other, and nothing beside them.
measuring_parts() {
    part namespaces namespaces
    part demo "${as_root[@]}" tests/scripts/demo.sh
    part players "${as_root[@]}" tests/scripts/players.sh $full
    part isolation "${as_root[@]}" target/release/examples/isolation --again --cells $cells \
        --out target/test/isolation
    part faults "${as_root[@]}" "SOAK_SECONDS=${FAULTS_SECONDS:-$faults_s}" tests/scripts/soak.sh faults
    if [ -n "$full" ]; then
        part soak "${as_root[@]}" "SOAK_SECONDS=${SOAK_SECONDS:-1800}" tests/scripts/soak.sh
        part ten-minutes ignored --workspace -- _for_ten_minutes
    fi
    part leftovers "${as_root[@]}" target/release/millrace-lab clean
}

waiting_lane &
waiting=$!
computing_lane &
wait "$waiting" "$!"
measuring_parts

failed=()
for result in "$logs"/*.result; do
    [ "$(cat "$result")" = ok ] || failed+=("$(basename "$result" .result)")
done
for name in "${failed[@]}"; do
    echo "== $name ended so ($logs/$name.log has all of it):"
    tail -n 25 "$logs/$name.log"
done
[ ${#failed[@]} = 0 ] || echo "failed: ${failed[*]}"
echo "$(($(find "$logs" -name '*.result' | wc -l) - ${#failed[@]})) passed, ${#failed[@]} failed"
[ ${#failed[@]} = 0 ]
