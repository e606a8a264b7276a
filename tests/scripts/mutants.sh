#!/bin/sh
# Mutants of the code that decides where flows may go and how many, and of the parsers of untrusted input. Each is a small
# change that some test should notice; target/mutants/mutants.out/missed.txt lists those that none notices.
# docs/design/mutants.md says why those that remain are harmless.
#
#     mutants.sh [FILE-PATTERN...]        # of these files only
set -eu
cd "$(dirname "$0")/../.."

# In a copy: quiche's patched source is ignored by git and would be left out of the copy that cargo-mutants makes. Copied
# files get new times, so that cargo does not reuse what it compiled of a mutant of an earlier run.
out=$PWD/target/mutants
copy=$out/source
mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
git ls-files -z | xargs -0 cp --parents --target-directory="$copy"
cp -a third_party/run-make-setup-first "$copy/third_party/"
cd "$copy"

if [ $# = 0 ]; then
    set -- 'tunnel/config/src/allow.rs' 'tunnel/config/src/class_of_ports.rs' 'tunnel/config/src/destinations/*.rs' \
        'tunnel/src/fair_share.rs' 'tunnel/src/flow_admission.rs' 'tunnel/src/peer_limits.rs' 'tunnel/wire/src/**/*.rs'
fi
for pattern; do
    set -- "$@" --file "$pattern"
    shift
done
# Without optimisation: most of the time goes to the compiler. What a test noticed in an earlier run is left out.
cargo mutants --in-place --output "$out" --no-shuffle --iterate --timeout 120 "$@" -- --lib --tests
