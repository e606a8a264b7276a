#!/bin/sh
# Every file of tests/fuzz/targets is a target that run.sh builds and runs, and one that `make check` compiles.
set -eu
cd "$(dirname "$0")/../.."

for file in tests/fuzz/targets/*.rs; do
    name=$(basename "$file")
    for list in fuzz/Cargo.toml:targets fuzz-check/Cargo.toml:../fuzz/targets; do
        grep -qx "path = \"${list#*:}/$name\"" "tests/${list%%:*}" || {
            echo "fuzz-targets.sh: tests/${list%%:*} has no [[bin]] of ${list#*:}/$name" >&2
            exit 1
        }
    done
    target=${name%.rs}
    grep -qE "^(parsers|connections)='(.* )?$target( .*)?'\$" tests/fuzz/run.sh || {
        echo "fuzz-targets.sh: tests/fuzz/run.sh has $target neither in parsers nor in connections" >&2
        exit 1
    }
done
