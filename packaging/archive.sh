#!/bin/bash
# archive.sh ARCHITECTURE BINARIES SHARE LICENCES VERSION DIRECTORY: makes DIRECTORY/millrace-VERSION-linux-ARCHITECTURE.tar.gz,
# which is unpacked in /usr/local: systemd, man and the shells look there too.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/settings.sh

architecture=$1 binaries=$2 share=$3 licences=$4 version=$5 out=$6
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
put() { install -D --mode="$1" "$2" "$root/$3"; }

for program in "${programs[@]}"; do
    role=${program#millrace-}
    put 0755 "$binaries/$program" "bin/$program"
    for page in "$share/$program"/man1/*; do put 0644 "$page" "share/man/man1/${page##*/}"; done
    put 0644 "$share/$program/bash" "share/bash-completion/completions/$program"
    put 0644 "$share/$program/zsh" "share/zsh/site-functions/_$program"
    put 0644 "$share/$program/fish" "share/fish/vendor_completions.d/$program.fish"
    put 0644 "proxy-$role/$role.example.toml" "share/doc/millrace/$role.example.toml"
done
for unit in deploy/systemd/*; do put 0644 "$unit" "lib/systemd/system/${unit##*/}"; done
for file in deploy/nftables/*; do put 0644 "$file" "share/doc/millrace/nftables/${file##*/}"; done
cp -R nginx-conf deploy/monitoring "$root/share/doc/millrace"
rm -rf "$root"/share/doc/millrace/nginx-conf/lua/{spec,test.sh}
put 0644 LICENSE share/doc/millrace/LICENSE
put 0644 "$licences" share/doc/millrace/THIRD-PARTY-LICENSES.txt
put 0644 CHANGELOG.md share/doc/millrace/CHANGELOG.md
chmod -R u=rwX,go=rX "$root"
mkdir -p "$out"
archive_directory "$root" "$out/millrace-$version-linux-$architecture.tar.gz"
