#!/bin/bash
# The tests, after `make setup`: `test.sh` what `make test` runs, `test.sh full` what `make test-full` runs
# (CONTRIBUTING.md lists the difference). A failed part does not stop the others, except the build; the last line
# counts the parts. target/test/logs/PART.log has a part's output.
#
# Parts that measure rates and delays run last, alone or beside what makes way for them. Before them run the others, two
# at a time, and while the programs are built those that need none.
set -u
cd "$(dirname "$0")/../.."

case ${1:-} in
'') full='' cells=corners faults_s=120 max_part_s=1800 ;;
full) full=full cells=all faults_s=600 max_part_s=14400 ;;
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

# tree PROCESS: it and all that it started, itself first.
tree() {
    local child
    echo "$1"
    for child in $(pgrep -P "$1"); do
        tree "$child"
    done
}

# kill_tree PROCESS: kills them, parents first, so that none goes on when its child is gone.
kill_tree() {
    # shellcheck disable=SC2046 # a word for each process
    "${as_root[@]}" kill -KILL $(tree "$1") 2>/dev/null
}

# within_limit COMMAND...: runs it, and kills it with a reason when it has not ended after $max_part_s.
within_limit() {
    local job timer result=0
    "$@" &
    job=$!
    {
        sleep "$max_part_s"
        echo "not ended after $max_part_s s: killed"
        kill_tree "$job"
    } &
    timer=$!
    disown "$timer"
    wait "$job" || result=$?
    kill_tree "$timer"
    return "$result"
}

# part NAME COMMAND...: runs the command, and says how long it took and how much processor time it and its children.
part() {
    local name=$1 started=$SECONDS result=ok processor TIMEFORMAT='%0U + %0S'
    shift
    echo "== $name: $*"
    # A shell of its own: the time is that of its children, and of no other part.
    (time within_limit "$@" >"$logs/$name.log" 2>&1 </dev/null) 2>"$logs/$name.processor" || result=FAILED
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
# threads for all that tests/e2e/src/test_lock.rs lets run or wait. Those of `millrace-lab` repeat runs for which the
# machine had no time.
in_namespaces() {
    local failed=0
    threads=16 ignored -e '^millrace-e2e\tnamespaces\t' "${skip_long[@]}" || failed=1
    threads=3 ignored -e '^millrace-lab\tnamespaces\t' "${skip_long[@]}" || failed=1
    ignored -ve "$waiting|^millrace-(e2e|lab)\tnamespaces\t" "${skip_long[@]}" || failed=1
    return $failed
}

# quiche's own tests, with the patches. Some of them have deadlines of milliseconds.
quiche_tests() {
    cargo test --lib --manifest-path third_party/run-make-setup-first/quiche/Cargo.toml --target-dir target/quiche
}

vitest() { (cd "$1" && npx --no-install vitest run); }

# What needs no program of the workspace, while these are built: cargo uses one processor only much of the time.
building_job() {
    part lua nginx-conf/lua/test.sh
    part report vitest lab/web
}

# The parts that run beside each other, the longest first.
concurrent_parts=(end-to-end check compose player unit quic-peers nginx-and-machine dist-package deployment join)
[ -z "$full" ] || concurrent_parts+=(chart collector docs fuzz)

concurrent_part() {
    case $1 in
    # Those of `loopback` get a thread each besides the ones that wait to run exclusively (tests/e2e/src/test_lock.rs).
    end-to-end) part "$1" end_to_end '^millrace-e2e\t(?!quic_peers\t)' 64 ;;
    check) part "$1" tests/scripts/check.sh ;;
    compose) part "$1" "${as_root[@]}" tests/scripts/compose.sh ;;
    player) part "$1" vitest player ;;
    unit)
        part "$1" env RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}" cargo test --release --workspace \
            --exclude millrace-e2e --no-fail-fast
        ;;
    quic-peers) part "$1" end_to_end '^millrace-e2e\tquic_peers\t' 4 ;;
    # Namespaces and nginx, without measuring.
    nginx-and-machine) part "$1" ignored -e "$waiting" "${skip_long[@]}" ;;
    dist-package) part "$1" "${as_root[@]}" tests/scripts/dist-package.sh ;;
    deployment) part "$1" tests/scripts/deployment.sh ;;
    join) part "$1" "${as_root[@]}" tests/scripts/join.sh ;;
    chart) part "$1" tests/scripts/chart.sh ;;
    collector) part "$1" tests/scripts/collector.sh ;;
    docs) part "$1" make --no-print-directory docs ;;
    fuzz) part "$1" tests/fuzz/run.sh "${FUZZ_SECONDS:-60}" ;;
    esac
}

# Two of these run: each takes the next part that the other has not taken.
concurrent_job() {
    local name
    for name in "${concurrent_parts[@]}"; do
        if mkdir "$logs/$name.taken" 2>/dev/null; then
            concurrent_part "$name"
        fi
    done
}

# What computes without measuring uses what parts that measure leave of the processors: a thread of the idle class
# (sched(7)) makes way for any other at once.
spare_job() {
    part learner chrt --idle 0 tests/scripts/learner.sh
    part interop chrt --idle 0 tests/scripts/interop.sh
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

# One after the other, but for demo and players.
measuring_parts() {
    part namespaces in_namespaces
    wait "$media_job"
    # All at once: of 130 s of both processors the demo takes 21 s, and the players 18 s of 54. What this does not show of
    # the demo is repeated with nothing beside it.
    spare_job &
    local spare=$!
    within_limit "${as_root[@]}" tests/scripts/demo.sh play >"$logs/demo-first.log" 2>&1 </dev/null &
    local demo=$!
    [ -z "$full" ] || wait "$demo" || true
    part players "${as_root[@]}" tests/scripts/players.sh $full
    wait "$demo" || true
    wait "$spare"
    part demo "${as_root[@]}" tests/scripts/demo.sh judge
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

part pages make --no-print-directory pages
# The video of the demo, from what the others leave of the processors (as spare_job).
part media chrt --idle 0 node player/dist/media.js --out target/media &
media_job=$!
building_job &
building_job=$!
part build make --no-print-directory workspace
wait "$building_job"
if [ "$(cat "$logs/build.result")" != ok ]; then
    wait "$media_job"
    tail -n 40 "$logs/build.log"
    echo "0 passed, 1 failed"
    exit 1
fi
part programs list_programs
concurrent_job &
other_job=$!
concurrent_job
wait "$other_job"
measuring_parts

failed=()
for result in "$logs"/*.result; do
    [ "$(cat "$result")" = ok ] || failed+=("$(basename "$result" .result)")
done
for name in "${failed[@]}"; do
    echo "== $name ended so ($logs/$name.log has all of it):"
    tail -n 25 "$logs/$name.log"
done
# At the end, which is shown of long outputs: the tests that failed, and why; of other programs their last lines.
for name in "${failed[@]}"; do
    echo "failed: $name"
    {
        grep -hE -A 1 '^test .* FAILED$|^ +FAIL |^FAILS: |^thread .* panicked at ' "$logs/$name.log" ||
            tail -n 5 "$logs/$name.log"
    } | cut -c1-160 | tail -n 12
done
echo "$(($(find "$logs" -name '*.result' | wc -l) - ${#failed[@]})) passed, ${#failed[@]} failed"
[ ${#failed[@]} = 0 ]
