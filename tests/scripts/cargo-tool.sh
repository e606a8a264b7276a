#!/bin/sh
# cargo-tool.sh NAME VERSION: builds a cargo subcommand of this version into target/tools/bin, unless it is there.
set -eu
cd "$(dirname "$0")/../.."

name=$1 version=$2
program=target/tools/bin/$name
case $("$program" "${name#cargo-}" --version 2>/dev/null || true) in
"$name $version") exit ;;
esac
cargo install --locked --root target/tools "$name" --version "$version"
