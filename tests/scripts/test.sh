#!/bin/sh
# All tests, after `make build`. Each part is run even if one before it failed; the last line
# counts the parts.
set -u
cd "$(dirname "$0")/../.."

as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo --preserve-env=PATH,HOME,CI"
passed=0
failed=0
failures=""
logs=target/test/logs
mkdir -p $logs

part() {
    name=$1
    shift
    started=$(date +%s)
    echo "== $name: $*"
    # A pipe has the status of its last command; so it is kept in a file.
    { "$@" 2>&1; echo $? >"$logs/$name.status"; } | tee "$logs/$name.log"
    if [ "$(cat "$logs/$name.status")" = 0 ]; then
        passed=$((passed + 1))
        result=ok
    else
        failed=$((failed + 1))
        failures="$failures $name"
        result=FAILED
    fi
    echo "== $name: $result after $(($(date +%s) - started)) s"
}

part check tests/scripts/check.sh
part unit cargo test --release --workspace
# Tests that make namespaces say so by being ignored; as root they run one after the other,
# because they measure rates and delays.
part namespaces $as_root env "PATH=$PATH" cargo test --release --workspace --no-fail-fast -- \
    --ignored --test-threads=1
part lua nginx-conf/lua/test.sh
part player npm --prefix player test
part report npm --prefix tests/lab/report test
part demo $as_root env "PATH=$PATH" tests/scripts/demo.sh
part players $as_root env "PATH=$PATH" tests/scripts/players.sh
part deployment tests/scripts/deployment.sh
part learner tests/scripts/learner.sh
part interop tests/scripts/interop.sh
# Ten minutes; SOAK_SECONDS for another time. It needs 20 at least.
part soak $as_root env "PATH=$PATH" "SOAK_SECONDS=${SOAK_SECONDS:-600}" tests/scripts/soak.sh
part compose $as_root env "PATH=$PATH" tests/scripts/compose.sh
part fuzz tests/fuzz/run.sh "${FUZZ_SECONDS:-10}"
part leftovers $as_root target/release/millrace-lab clean

for name in $failures; do
    echo "== $name ended so ($logs/$name.log has all of it):"
    tail -n 25 "$logs/$name.log"
done
[ -z "$failures" ] || echo "failed:$failures"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
