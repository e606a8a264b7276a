#!/bin/bash
# debian-packages.sh ARCHITECTURE DIRECTORY PACKAGE...: fetches these packages of Debian 12, with its security updates,
# for amd64 or arm64 into an empty directory. apt checks their signatures, with a state of its own: nothing is installed,
# and root is not needed. They come from where this machine's apt gets Debian 12, or from the mirror in MIRROR.
set -euo pipefail

architecture=$1 out=$2
shift 2
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r $keyring ] || { echo "debian-packages.sh: $keyring is missing; install debian-archive-keyring" >&2; exit 1; }
mirror() {
    apt-get indextargets --format '$(REPO_URI)|$(LABEL)' 'Identifier: Packages' 'Codename: bookworm' \
        'Component: main' 2>/dev/null | sed -n "s/|$1\$//p" | head -n 1
}
main=${MIRROR:-$(mirror Debian)}
security=$(mirror Debian-Security)
[ -n "$main" ] || { echo "debian-packages.sh: apt knows no mirror of Debian 12; set MIRROR to the URL of one" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$out"
: >"$work/status"
echo "deb [signed-by=$keyring] $main bookworm main" >"$work/sources.list"
[ -z "$security" ] || echo "deb [signed-by=$keyring] $security bookworm-security main" >>"$work/sources.list"
# apt reads this file after those of the machine, so that its state and sources count.
cat >"$work/apt.conf" <<END
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
Dir::State "$work";
Dir::State::status "$work/status";
Dir::State::lists "$work/lists";
Dir::Cache "$work/cache";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "";
Acquire::Languages "none";
END
apt() { APT_CONFIG=$work/apt.conf apt-get -qq "$@"; }
apt update
cd "$out"
apt download "$@"
