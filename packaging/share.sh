#!/bin/bash
# share.sh PROGRAMS DIRECTORY: man pages and completions, which the programs in the directory PROGRAMS write themselves,
# as DIRECTORY/PROGRAM/{man1,bash,zsh,fish}. They are the same for all architectures.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/settings.sh

from=$1 out=$2
rm -rf "$out"
for program in "${programs[@]}"; do
    "$from/$program" man "$out/$program/man1"
    gzip -9 --no-name "$out/$program"/man1/*.1
    for shell in bash zsh fish; do
        "$from/$program" completions $shell >"$out/$program/$shell"
    done
done
