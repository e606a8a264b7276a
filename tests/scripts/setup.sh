#!/bin/sh
# Installs what building, testing and the demo need: Debian's packages, and npm's, Go's and PyPI's
# of lock files, from wherever this machine's own configuration says; does nothing that is done
# already.
#   setup.sh            all
#   setup.sh programs   what millrace-client and millrace-server need
#   setup.sh dist       what packages of them need
#   setup.sh demo       what the demo needs besides the programs
set -eu
cd "$(dirname "$0")/../.."

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

[ "${1:-all}" = demo ] || command -v cargo >/dev/null ||
    fail "cargo is missing; install Rust with rustup, the version is in rust-toolchain.toml"
# Of the build of BoringSSL, of the bindings to it (bindgen), and of quiche's patches.
packages="clang cmake g++ git libclang-dev make patch"
case ${1:-all} in
programs) only=programs ;;
demo) only=demo packages="chromium ethtool ffmpeg iproute2 nftables nginx-light procps" ;;
dist) only=programs packages="$packages debian-archive-keyring python3-venv" ;;
all)
    only=
    packages="$packages chromium conntrack curl debootstrap ethtool ffmpeg iproute2 iptables
        libnginx-mod-http-lua libnginx-mod-stream lua-busted lua-cjson luajit2 nftables
        nginx-light openjdk-17-jre-headless openssl procps python3-venv socat valgrind"
    # Docker may have come from elsewhere; both at once don't fit together.
    [ -x /usr/sbin/dockerd ] || [ -x /usr/bin/dockerd ] || packages="$packages docker.io"
    ;;
*)
    echo "usage: $0 [programs|dist|demo]" >&2
    exit 64
    ;;
esac

check_node() {
    command -v node >/dev/null || fail "node is missing; Node.js 20.19 or newer is needed"
    node -e 'const [a,b]=process.versions.node.split(".").map(Number);process.exit(a>20||a==20&&b>=19?0:1)' ||
        fail "Node.js 20.19 or newer is needed, this is $(node --version)"
}
[ "$only" = programs ] || check_node

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

[ "$only" = demo ] || third_party/quiche/prepare.sh
[ "$only" != programs ] || exit 0

for package in player lab/web; do
    stamp=$package/node_modules/.millrace-lock
    if ! cmp -s "$package/package-lock.json" "$stamp"; then
        say "installing the packages of $package"
        (cd "$package" && npm ci --no-audit --no-fund --loglevel=error)
        cp "$package/package-lock.json" "$stamp"
    fi
done

[ -z "$only" ] || exit 0

# The peers of the interop tests (docs/research/interop.md), without which everything else works.
go_module=tests/interop/go
stamp=target/interop/go.sum
if ! cmp -s $go_module/go.sum $stamp; then
    if command -v go >/dev/null && (cd $go_module && go mod download); then
        mkdir -p target/interop
        cp $go_module/go.sum $stamp
    else
        say "the interop tests need Go $(sed -n 's/^go //p' $go_module/go.mod), or any from 1.21 on" \
            "that may fetch it (GOTOOLCHAIN=auto); Debian 12's is too old, see https://go.dev/dl/"
    fi
fi
locked=tests/interop/python/requirements.txt
venv=target/interop/venv
if ! cmp -s $locked $venv/requirements.txt; then
    if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        say "installing the Python packages of the interop tests"
        python3 -m venv --clear $venv
        $venv/bin/pip install --quiet --disable-pip-version-check --require-hashes \
            --requirement $locked
        cp $locked $venv/requirements.txt
    else
        say "the interop tests need Python 3.11 or newer, this is $(python3 --version)"
    fi
fi
