#!/bin/bash
# `make demo`: sets up what the demo needs, builds it, plays, and says where the time went.
#
#     PROGRAMS=DIRECTORY   takes millrace-client, millrace-server and millrace-lab from there instead of compiling them
set -eu
[ -z "${PROGRAMS:-}" ] || PROGRAMS=$(realpath -- "$PROGRAMS")
cd "$(dirname "$0")/.."

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo "--preserve-env=PATH,HOME,CI")
began=$SECONDS
times=()

# step NAME COMMAND...: runs it, and notes how long it took.
step() {
    local name=$1 started=$SECONDS
    shift
    "$@"
    times+=("$(printf '%6d s  %s' $((SECONDS - started)) "$name")")
}

if [ -n "${PROGRAMS:-}" ]; then
    for program in client server lab; do
        if ! "$PROGRAMS/millrace-$program" --version; then
            echo "PROGRAMS=$PROGRAMS has no millrace-$program that runs here; it must have millrace-client, millrace-server and millrace-lab" >&2
            exit 1
        fi
    done
    directory=$PROGRAMS
    step "packages of Debian and npm" tests/scripts/setup.sh demo
else
    directory=target/release
    step "packages of Debian, npm, Go and PyPI, sources of quiche" tests/scripts/setup.sh
    step "programs" cargo build --release --workspace --bin millrace-client --bin millrace-server --bin millrace-lab
fi
step "pages" make --no-print-directory pages-built
step "demo, of which see above" "${as_root[@]}" env "MILLRACE_BIN_DIR=$directory" "$directory/millrace-lab" demo

echo "where the time went:"
printf '%s\n' "${times[@]}"
printf '%6d s  together\n' $((SECONDS - began))
