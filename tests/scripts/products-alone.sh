#!/bin/sh
# The proxies need neither the lab nor the tests to be built: cargo reads their workspace as
# deploy/docker/proxies.Dockerfile has it.
set -eu
cd "$(dirname "$0")/../.."

top=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for item in cc ops proxy-client proxy-server third_party tunnel; do
    ln -s "$top/$item" "$work/$item"
done
cp Cargo.lock "$work"
sed '/^    "\(lab\|tests\)/d' Cargo.toml >"$work/Cargo.toml"
grep -q "sed -i '/^    \"" deploy/docker/proxies.Dockerfile || {
    echo "products-alone: proxies.Dockerfile no longer leaves out the lab and the tests" >&2
    exit 1
}
cd "$work"
cargo tree --quiet --offline --package millrace-client --package millrace-server >/dev/null
