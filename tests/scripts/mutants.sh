#!/bin/sh
# Mutants of the code that decides where flows may go and how many, and of the parsers of untrusted input. Each is a small
# change that some test should notice; target/mutants/mutants.out/missed.txt list those that none notices.
# docs/design/mutants.md says why those that remain are harmless.
#
#     mutants.sh [FILE-PATTERN...]        # of these files only
set -eu
cd "$(dirname "$0")/../.."

[ $# -gt 0 ] || set -- 'tunnel/config/src/allow.rs' 'tunnel/config/src/class_of_ports.rs' \
    'tunnel/config/src/destinations/*.rs' 'tunnel/wire/src/**/*.rs' 'tunnel/admission/src/*.rs'

# In a copy: quiche's patched source is ignored by git and would be left out of the copy that cargo-mutants makes. Copied
# files get new times, so that cargo does not reuse what it compiled of a mutant of an earlier run.
top=$PWD
out=$top/target/mutants
copy=$out/source
mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
git ls-files -z | xargs -0 cp --parents --target-directory="$copy"
cp -a third_party/run-make-setup-first "$copy/third_party/"
cd "$copy"

. tests/fuzz/boringssl.sh
use_built_boringssl "$top"
for pattern; do
    set -- "$@" --file "$pattern"
    shift
done
# A test that never ends may allocate until its time limit. In KiB.
ulimit -v 8388608
# Most of the time goes to the compiler: no optimisation, no symbols. What a test noticed in an earlier run is left out.
CARGO_PROFILE_DEV_DEBUG=0 cargo mutants --in-place --output "$out" --no-shuffle --iterate --timeout 120 \
    --cargo-arg=--tests "$@" -- --lib
