#!/bin/sh
# Runs the demo with shorter sessions than `make demo`, and checks what it is to show: Millrace's mean bitrate at
# least three times CUBIC's and not below BBR's, and no stall. Needs root, nginx and Chromium.
# A session during which the machine was taken away says that it is not valid, does not count, and
# is played again. Valid ones vary too, so that a run which does not show it is followed by two
# more, and the medians decide.
#
#     demo.sh          all of it
#     demo.sh play     the first run alone
#     demo.sh judge    the rest
set -eu
cd "$(dirname "$0")/../.."

out=target/test/demo
run_demo() {
    mkdir -p "$out"
    # What is wrong with a session is told by the check; any other failure ends this here.
    target/release/millrace-lab demo --duration-s 40 --attempts 3 --out "$out/$1" || [ -s "$out/$1/results.json" ]
}

play() {
    rm -rf "$out"
    run_demo 1
}

judge() {
    if ! [ -s "$out/1/results.json" ]; then
        echo "the first run has ended without results" >&2
        exit 1
    fi
    if node tests/scripts/demo-claims.mjs "$out"; then
        exit 0
    fi
    run_demo 2
    run_demo 3
    node tests/scripts/demo-claims.mjs "$out"
}

case ${1:-} in
'')
    play
    judge
    ;;
play | judge) "$1" ;;
*)
    echo "usage: $0 [play | judge]" >&2
    exit 64
    ;;
esac
