#!/bin/sh
# Installs what building, testing and the demo need. Debian's packages and npm's only,
# from wherever this machine's own configuration says; does nothing that is done already.
set -eu
cd "$(dirname "$0")/../.."

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

command -v cargo >/dev/null || fail "cargo is missing; install Rust with rustup, the version is in rust-toolchain.toml"
command -v node >/dev/null || fail "node is missing; Node.js 20.19 or newer is needed"
node -e 'const [a,b]=process.versions.node.split(".").map(Number);process.exit(a>20||a==20&&b>=19?0:1)' ||
    fail "Node.js 20.19 or newer is needed, this is $(node --version)"

packages="chromium clang cmake curl ethtool ffmpeg g++ git iproute2 libclang-dev libnginx-mod-stream
    make nftables nginx-light openssl patch procps python3-venv valgrind"
missing=""
for package in $packages; do
    dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null |
        grep -qx installed || missing="$missing $package"
done
if [ -n "$missing" ]; then
    as_root=""
    [ "$(id -u)" = 0 ] || as_root=sudo
    say "installing$missing"
    $as_root apt-get update -qq
    # The package would start a web server of its own; ours run in namespaces.
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -qq --no-install-recommends $missing >&2
fi

cc/quiche/prepare.sh

for package in player tests/lab/report; do
    stamp=$package/node_modules/.millrace-lock
    if ! cmp -s "$package/package-lock.json" "$stamp"; then
        say "installing the packages of $package"
        (cd "$package" && npm ci --no-audit --no-fund --loglevel=error)
        cp "$package/package-lock.json" "$stamp"
    fi
done
