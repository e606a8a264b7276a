#!/bin/bash
# programs.sh ARCHITECTURE: compiles the two programs, stripped, for Linux on amd64 or arm64 with glibc_baseline or
# newer, into target/cross/ARCHITECTURE/.
# The C++ library is linked in: the programs need nothing but glibc.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/settings.sh

architecture=${1:?usage: programs.sh ARCHITECTURE}
target=$(rust_target "$architecture")

tools=$cross_tools
if ! cmp -s packaging/requirements.txt "$tools/requirements.txt"; then
    python3 -m venv --clear "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        --requirement packaging/requirements.txt
    cp packaging/requirements.txt "$tools"
fi
rustup target list --installed | grep -qx "$target" || rustup target add "$target"

export CARGO_ZIGBUILD_ZIG_PATH
CARGO_ZIGBUILD_ZIG_PATH=$(echo "$tools"/lib/python3*/site-packages/ziglang/zig)
export CARGO_ZIGBUILD_CACHE_DIR=$tools/cache ZIG_GLOBAL_CACHE_DIR=$tools/cache/zig ZIG_LOCAL_CACHE_DIR=$tools/cache/zig
export CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_DEBUG=false
# No path of this machine in a program.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$PWD=/usr/src/millrace"$'\x1f'"--remap-path-prefix=$cargo_home=/usr/src/cargo"
c_flags="-g0 -ffile-prefix-map=$PWD=/usr/src/millrace -ffile-prefix-map=$cargo_home=/usr/src/cargo"
export "CFLAGS_${target//-/_}=$c_flags" "CXXFLAGS_${target//-/_}=$c_flags"

# Its own directory: host tools of a build with a target are others than those of a build without one.
"$tools/bin/cargo-zigbuild" zigbuild --locked --release --target "$target.$glibc_baseline" --target-dir target/cross/build \
    "${programs[@]/#/--package=}" "${programs[@]/#/--bin=}"
out=target/cross/$architecture
mkdir -p "$out"
install --target-directory="$out" "${programs[@]/#/target/cross/build/$target/release/}"
