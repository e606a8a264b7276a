#!/bin/sh
# Installs cargo-deny where it is missing, for all clones of this user, and prints its path.
set -eu

version=0.20.2
tools=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/tools
tool=$tools/bin/cargo-deny
if ! [ -x "$tool" ] || [ "$("$tool" --version)" != "cargo-deny $version" ]; then
    cargo install cargo-deny --version "$version" --locked --debug --root "$tools" >&2
fi
echo "$tool"
