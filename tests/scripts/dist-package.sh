#!/bin/bash
# The Debian packages in a bare Debian 12 whose first process is systemd: installed, configured and started, a download
# through the tunnel, upgraded, removed and purged. They have the programs of target/release. Needs root and `make build`.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=packaging/settings.sh
. packaging/settings.sh
# shellcheck source=tests/scripts/bare-debian.sh
. tests/scripts/bare-debian.sh

work=$PWD/target/test/dist-package
say() { echo "dist-package.sh: $((SECONDS)) s: $*" >&2; }
fail() { say "$*"; exit 1; }
clean_up() {
    local status=$?
    trap - EXIT
    if [ $status != 0 ] && [ -n "${debian_init:-}" ]; then
        debian journalctl --no-pager --lines 40 --unit 'millrace-*' >&2 || true
    fi
    [ -z "${origin:-}" ] || kill "$origin" 2>/dev/null || true
    debian_stop
    exit $status
}
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

rm -rf "$work"
mkdir -p "$work/programs" "$work/packages" "$work/origin"
architecture=$(dpkg --print-architecture)
for program in "${programs[@]}"; do
    strip -o "$work/programs/$program" "target/release/$program"
done
packaging/share.sh "$work/programs" "$work/share"
echo "of packages" >"$work/licences"
# package VERSION
package() {
    for program in "${programs[@]}"; do
        COMPRESSION=none packaging/deb.sh "$program" "$architecture" "$work/programs/$program" "$work/share" \
            "$work/licences" "$1" "$work/packages"
    done
}
package 1.0~dev1
package 1.0
say "packages are made"

debian_start "$work/root"
say "systemd runs"
mkdir "$work/root/packages"
cp "$work"/packages/*.deb "$work/root/packages/"
install_version() { debian sh -ec "dpkg --install /packages/*_$1_$architecture.deb" >"$work/dpkg-$1.log" 2>&1; }
main_pid() { debian systemctl show --property MainPID --value "$1"; }

# A new installation runs nothing, because it has no configuration.
install_version 1.0~dev1
for program in "${programs[@]}"; do
    [ "$(debian systemctl is-enabled "$program" || true)" = disabled ] || fail "$program is enabled without a configuration"
    [ "$(debian systemctl is-active "$program" || true)" = inactive ] || fail "$program runs without a configuration"
    [ "$(debian "$program" --version)" = "$("target/release/$program" --version)" ] || fail "$program has another version"
    debian test -s "/usr/share/man/man1/$program-run.1.gz" || fail "$program has no man page of run"
    debian bash -ec ". /usr/share/bash-completion/completions/$program && complete -p $program" >/dev/null ||
        fail "bash has no completions of $program"
done
debian id millrace >/dev/null || fail "there is no user millrace"

debian sh -ec '
    cd /etc/millrace
    millrace-server certificates --dir . --server-name millrace-server --client edge-1 >/dev/null
    mv ca.key /root
    chown millrace: *.key
    cat >server.toml
' <<'END'
[tunnel]
listen = ["127.0.0.1:4433"]
client_ca = "ca.pem"
certificate = "server.pem"
private_key = "server.key"
state_dir = "/var/lib/millrace-server"

[[destinations.allow]]
network = "127.0.0.1"
ports = [8000]
END
debian sh -ec 'cat >/etc/millrace/client.toml' <<'END'
[tunnel]
servers = ["127.0.0.1:4433"]
server_name = "millrace-server"
ca = "ca.pem"
certificate = "edge-1.pem"
private_key = "edge-1.key"

[[listen]]
mode = "static"
address = "127.0.0.1:8080"
destination = "127.0.0.1:8000"
END
head --bytes 5000000 /dev/urandom >"$work/origin/file"
nsenter --target "$debian_init" --net \
    python3 -m http.server 8000 --bind 127.0.0.1 --directory "$work/origin" >"$work/origin.log" 2>&1 &
origin=$!

# The path is what the client's listener has, which leads to the origin by the tunnel only.
download() {
    debian curl --silent --show-error --fail --retry 20 --retry-delay 1 --retry-all-errors --max-time 20 \
        http://127.0.0.1:8080/file | cmp - "$work/origin/file"
}
# Both are ready when this returns (Type=notify).
debian systemctl enable --quiet --now "${programs[@]}"
download || fail "the download through the tunnel"
say "started, and carried a download"

before=$(main_pid millrace-server)-$(main_pid millrace-client)
install_version 1.0
[ "$(debian dpkg-query --show --showformat '${Version} ' "${programs[@]}")" = "1.0 1.0 " ] || fail "it is not upgraded"
debian systemctl --quiet is-active "${programs[@]}" || fail "the upgrade stopped a program"
after=$(main_pid millrace-server)-$(main_pid millrace-client)
[[ $after != *"${before%-*}"* && $after != *"${before#*-}"* ]] || fail "the upgrade left an old program running"
download || fail "the download after the upgrade"
say "upgraded"

debian dpkg --remove millrace-client >"$work/remove.log" 2>&1
[ "$(debian systemctl is-active millrace-client || true)" = inactive ] || fail "millrace-client runs after its removal"
debian test ! -e /usr/bin/millrace-client || fail "the removal left the program"
debian test -s /etc/millrace/client.toml || fail "the removal took the configuration"
debian dpkg --purge "${programs[@]}" >"$work/purge.log" 2>&1
left=$(debian sh -c 'ls -d /etc/millrace/*.toml /var/lib/millrace-server /usr/share/doc/millrace-* /lib/systemd/system/millrace-* \
    /etc/systemd/system/*/millrace-* 2>/dev/null; systemctl list-unit-files --no-legend "millrace-*"') || true
[ -z "$left" ] || fail "the purge left $left"
debian test -s /etc/millrace/server.key || fail "the purge took a key"
say "removed and purged; all well"
