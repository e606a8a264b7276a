#!/bin/bash
# Known vulnerabilities in the dependencies. `advisories.sh registries` asks what package registries serve:
# npm's audit, PyPI's project data and the Go module golang.org/x/vulndb. `advisories.sh all` also asks
# RustSec's database, which is a git repository (https://github.com/RustSec/advisory-db).
#
# A vulnerability fails. Data that can't be had fails only `all`, and is reported by both: it is neither a
# clean result nor a fault of the code.
set -u
cd "$(dirname "$0")/../.."

timeout_s=60
case ${1:-} in
registries | all) mode=$1 ;;
*)
    echo "usage: $0 registries|all" >&2
    exit 64
    ;;
esac
work=$PWD/target/advisories
mkdir -p "$work"
found=0
unknown=0

# report NAME STATUS NEEDS: of a check that ended with 0 (clean), 1 (found) or another status (no data).
report() {
    case $2 in
    0) echo "advisories: $1: none known" ;;
    1)
        found=1
        echo "advisories: $1: FOUND" >&2
        cat "$work/log" >&2
        ;;
    *)
        unknown=1
        echo "advisories: $1: NOT CHECKED, it needs $3: $(tail -n 1 "$work/log")" >&2
        ;;
    esac
}

# npm exits with 1 for both; a report of what it found has counts.
npm_audit() {
    (cd "$1" && timeout "$timeout_s" npm audit --json --fetch-retries=0) >"$work/npm.json" 2>"$work/log" && return 0
    node tests/scripts/npm-advisories.mjs "$work/npm.json" >>"$work/log" 2>&1
}

# go_advisories DIRECTORY: of its module.
go_advisories() {
    command -v go >/dev/null || { echo "go is missing" && return 2; }
    GOFLAGS=-mod=mod timeout "$timeout_s" go mod download -json golang.org/x/vulndb@latest >"$work/vulndb.json" ||
        return 2
    (cd "$1" &&
        timeout "$timeout_s" go list -mod=readonly -deps -f '{{$p := .ImportPath}}{{with .Module}}{{$p}} {{.Path}} {{.Version}}{{end}}' .) \
        >"$work/packages" || return 2
    python3 tests/scripts/go-advisories.py "$work/vulndb.json" "$work/packages"
}

rust_advisories() {
    tests/scripts/deny.sh >/dev/null || return 2
    local tool
    tool=$(tests/scripts/cargo-deny.sh) || return 2
    timeout "$timeout_s" "$tool" --locked fetch db || return 2
    "$tool" --offline --locked check advisories
}

for package in player lab/web; do
    npm_audit $package
    report "npm, $package" $? "the npm registry's audit endpoint"
done
timeout "$timeout_s" python3 tests/scripts/python-advisories.py tests/interop/python/requirements.txt \
    learner/requirements.txt >"$work/log" 2>&1
report Python $? "the project data (JSON) of PyPI"
go_advisories tests/interop/go >"$work/log" 2>&1
report Go $? "the Go module golang.org/x/vulndb"
if [ "$mode" = all ]; then
    # Its modules are large, and only `make test-full` needs them.
    go_advisories tests/collector >"$work/log" 2>&1
    report "Go, collector" $? "the Go module golang.org/x/vulndb"
    rust_advisories >"$work/log" 2>&1
    report Rust $? "RustSec's git repository"
else
    echo "advisories: Rust: not part of this; make advisories"
fi
[ $found = 0 ] || exit 1
[ $unknown = 0 ] || [ "$mode" != all ] || exit 3
