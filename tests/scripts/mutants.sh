#!/bin/sh
# Mutants of the code that decides where flows may go and how many, and of what reads bytes of strangers. Each is a small
# change that some test should notice; target/mutants/mutants.out/missed.txt lists those that none notices.
set -eu
cd "$(dirname "$0")/../.."

cargo mutants --output target/mutants --test-tool cargo --profile release --no-shuffle \
    --package millrace-config --package millrace-wire --package millrace-tunnel \
    --file 'tunnel/config/src/destinations/*.rs' --file 'tunnel/config/src/allow.rs' \
    --file 'tunnel/wire/src/*.rs' \
    --file 'tunnel/src/fair_share.rs' --file 'tunnel/src/flow_admission.rs' --file 'tunnel/src/peer_limits.rs' \
    "$@"
