#!/bin/sh
# Checks that a build of programs and a build of tests use the same features of dependencies. Otherwise cargo builds these
# dependencies, and what uses them, twice (tests/controllers/Cargo.toml).
set -eu
cd "$(dirname "$0")/../.."

# A line for each package and each set of its features.
features() {
    cargo tree --locked --workspace --prefix none --format '{p}|{f}' --edges "$1" >"$2.tree"
    sed 's/ ([*])$//' "$2.tree" | LC_ALL=C sort -u >"$2"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
features normal,build "$scratch/programs"
features normal,build,dev "$scratch/tests"
different=$(LC_ALL=C comm -23 "$scratch/programs" "$scratch/tests")
[ -z "$different" ] || {
    echo "package|features, of programs but not of tests; make the dependency that adds the others a normal one in"
    echo "tests/controllers/Cargo.toml:"
    echo "$different"
    exit 1
}
