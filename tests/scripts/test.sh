#!/bin/bash
# The tests, after `make setup`: `test.sh` what `make test` runs, `test.sh full` what `make test-full` runs
# (CONTRIBUTING.md lists the difference). A failed part does not stop the others, except the build; the last line
# counts the parts. target/test/logs/PART.log has a part's output.
#
# Parts that measure rates and delays run alone. Before them run the others, in two concurrent jobs, and while
# the programs are built those that need none.
set -u
cd "$(dirname "$0")/../.."

case ${1:-} in
'') full='' cells=corners faults_s=120 ;;
full) full=full cells=all faults_s=600 ;;
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

# part NAME COMMAND...: runs the command, and says how long it took and how much processor time it and its children.
part() {
    local name=$1 started=$SECONDS result=ok processor TIMEFORMAT='%0U + %0S'
    shift
    echo "== $name: $*"
    { time "$@" >"$logs/$name.log" 2>&1 </dev/null; } 2>"$logs/$name.processor" || result=FAILED
    echo "$result" >"$logs/$name.result"
    processor=$(($(tail -n 1 "$logs/$name.processor")))
    echo "== $name: $result after $((SECONDS - started)) s, of the processors $processor s"
}

# The test programs of the workspace, a line each: package, name, directory of the package, program. They run
# without cargo, which would wait for a lint that runs beside them.
programs=$PWD/$logs/programs.tsv
list_programs() {
    set -o pipefail
    cargo test --release --workspace --no-run --message-format=json |
        node tests/scripts/test-programs.mjs >"$programs"
}

# Ends of the names of tests that take minutes, for `make test-full`.
long=(_for_ten_minutes _with_ten_thousand_connections)
skip_long=("${long[@]/#/--skip=}")
# Test programs whose tests wait without measuring: the ones of nginx, and of machines with faults.
waiting='^millrace-e2e\tnginx\t|^millrace-lab\tbad_machine\t'

# run_programs GREP-OPTION PATTERN COMMAND... -- ARGUMENT...: the programs whose lines grep selects, one after the
# other, each with these arguments, started by this command.
run_programs() {
    local option=$1 pattern=$2 failed=0 ran=0 package name directory program
    local starter=()
    shift 2
    while [ "$1" != -- ]; do
        starter+=("$1")
        shift
    done
    shift
    while IFS=$'\t' read -r package name directory program; do
        ran=$((ran + 1))
        echo "     Running $package $name ($program)"
        (cd "$directory" && "${starter[@]}" "$program" "$@") || failed=1
    done < <(grep -P "$option" "$pattern" "$programs")
    echo "$ran test programs"
    [ $ran -gt 0 ] && [ $failed = 0 ]
}

# ignored GREP-OPTION PATTERN [ARGUMENT...]: of these programs the tests that say by being ignored what they
# need, one at a time, or in $threads threads.
ignored() { run_programs "$1" "$2" "${as_root[@]}" "RUST_TEST_THREADS=${threads:-1}" -- "${@:3}" --ignored; }

# end_to_end PATTERN THREADS: of these programs the tests that need nothing.
end_to_end() { run_programs -e "$1" env -- --test-threads="${RUST_TEST_THREADS:-$2}"; }

# Several tests at once: they wait most of the time, and each makes namespaces of its own. Those of `millrace-e2e` have
# threads for all that tests/e2e/src/test_lock.rs lets run or wait.
in_namespaces() {
    threads=2 ignored -e '^millrace-lab\tnamespaces\t' "${skip_long[@]}" >"$logs/namespaces-lab.log" 2>&1 &
    local lab=$! failed=0
    threads=16 ignored -e '^millrace-e2e\tnamespaces\t' "${skip_long[@]}" || failed=1
    ignored -ve "$waiting|^millrace-(e2e|lab)\tnamespaces\t" "${skip_long[@]}" || failed=1
    wait $lab || failed=1
    cat "$logs/namespaces-lab.log"
    return $failed
}

# quiche's own tests, with the patches. Some of them have deadlines of milliseconds.
quiche_tests() {
    cargo test --lib --manifest-path third_party/run-make-setup-first/quiche/Cargo.toml --target-dir target/quiche
}

vitest() { (cd "$1" && npx --no-install vitest run); }

# What needs no program of the workspace, while these are built: cargo uses one processor only much of the time.
building_job() {
    part pages make --no-print-directory pages
    # The video of the demo.
    part media node player/dist/media.js --out target/media
    part lua nginx-conf/lua/test.sh
    part report vitest lab/web
}

# Tests that wait most of the time. Those of `loopback` get a thread each besides the ones that wait to run
# exclusively (tests/e2e/src/test_lock.rs).
waiting_job() {
    part unit env RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}" cargo test --release --workspace \
        --exclude millrace-e2e --no-fail-fast
    part end-to-end end_to_end '^millrace-e2e\t(?!quic_peers\t)' 64
    # Namespaces and nginx, without measuring.
    part nginx-and-machine ignored -e "$waiting" "${skip_long[@]}"
    part deployment tests/scripts/deployment.sh
    part dist-package "${as_root[@]}" tests/scripts/dist-package.sh
    part join "${as_root[@]}" tests/scripts/join.sh
    part player vitest player
}

# What compiles and computes, and as much of the rest as makes the jobs equally long.
computing_job() {
    part check tests/scripts/check.sh
    part compose "${as_root[@]}" tests/scripts/compose.sh
    part quic-peers end_to_end '^millrace-e2e\tquic_peers\t' 4
    part learner tests/scripts/learner.sh
    part interop tests/scripts/interop.sh
    if [ -n "$full" ]; then
        part chart tests/scripts/chart.sh
        part docs make --no-print-directory docs
        part fuzz tests/fuzz/run.sh "${FUZZ_SECONDS:-60}"
    fi
}

isolation_cells() {
    "${as_root[@]}" target/release/examples/isolation --again --cells $cells --out "target/test/isolation$1" "${@:2}"
}

# The corner over 800 ms takes as long as the others together, and little of the processor: both at once.
isolation() {
    if [ -n "$full" ]; then
        isolation_cells ''
        return
    fi
    isolation_cells -long --filter '800 ms' >"$logs/isolation-long.log" 2>&1 &
    local long=$! failed=0
    isolation_cells '' --filter '100 Mbit/s' || failed=1
    wait $long || failed=1
    cat "$logs/isolation-long.log"
    return $failed
}

# One after the other, but for demo and players, and nothing beside them.
measuring_parts() {
    part namespaces in_namespaces
    # Both at once: of 130 s of both processors the demo takes 21 s, and the players 18 s of 54.
    part demo "${as_root[@]}" tests/scripts/demo.sh &
    local demo=$!
    [ -z "$full" ] || wait "$demo"
    part players "${as_root[@]}" tests/scripts/players.sh $full
    wait "$demo"
    if [ -n "$full" ]; then
        part http3 "${as_root[@]}" tests/scripts/http3.sh full
    fi
    part isolation isolation
    part faults "${as_root[@]}" "SOAK_SECONDS=${FAULTS_SECONDS:-$faults_s}" tests/scripts/soak.sh faults
    if [ -n "$full" ]; then
        part quiche quiche_tests
        part dist make --no-print-directory dist
        part dist-programs "${as_root[@]}" tests/scripts/dist-programs.sh
        part soak "${as_root[@]}" "SOAK_SECONDS=${SOAK_SECONDS:-1800}" tests/scripts/soak.sh
        part long ignored -e . "${long[@]}"
    fi
    part leftovers "${as_root[@]}" target/release/millrace-lab clean
}

building_job &
building_job=$!
part build make --no-print-directory workspace
wait "$building_job"
if [ "$(cat "$logs/build.result")" != ok ]; then
    tail -n 40 "$logs/build.log"
    echo "0 passed, 1 failed"
    exit 1
fi
part programs list_programs
waiting_job &
waiting_job=$!
computing_job &
wait "$waiting_job" "$!"
measuring_parts

failed=()
for result in "$logs"/*.result; do
    [ "$(cat "$result")" = ok ] || failed+=("$(basename "$result" .result)")
done
for name in "${failed[@]}"; do
    echo "== $name ended so ($logs/$name.log has all of it):"
    tail -n 25 "$logs/$name.log"
done
# At the end, which is shown of long outputs: the tests that failed, and where they panicked.
for name in "${failed[@]}"; do
    echo "failed: $name"
    grep -hE '^test .* FAILED$|^ +FAIL |^thread .* panicked at ' "$logs/$name.log" | sort -u | cut -c1-160 | tail -n 12
done
echo "$(($(find "$logs" -name '*.result' | wc -l) - ${#failed[@]})) passed, ${#failed[@]} failed"
[ ${#failed[@]} = 0 ]
