#!/bin/bash
# deb.sh PROGRAM ARCHITECTURE BINARY SHARE LICENCES VERSION DIRECTORY: makes DIRECTORY/PROGRAM_VERSION_ARCHITECTURE.deb of
# the program's file BINARY, of what share.sh made and of the licences of its dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/settings.sh

program=$1 architecture=$2 binary=$3 share=$4/$1 licences=$5 version=$6 out=$7
role=${program#millrace-}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 0755 "$root"

put() { install -D --mode="$1" "$2" "$root/$3"; }
put 0755 "$binary" "usr/bin/$program"
for page in "$share"/man1/*; do put 0644 "$page" "usr/share/man/man1/${page##*/}"; done
put 0644 "$share/bash" "usr/share/bash-completion/completions/$program"
put 0644 "$share/zsh" "usr/share/zsh/vendor-completions/_$program"
put 0644 "$share/fish" "usr/share/fish/vendor_completions.d/$program.fish"

documents=usr/share/doc/$program
put 0644 "proxy-$role/$role.example.toml" "$documents/examples/$role.example.toml"
put 0644 LICENSE "$documents/copyright"
put 0644 "$licences" "$documents/THIRD-PARTY-LICENSES.txt"
put 0644 CHANGELOG.md "$documents/CHANGELOG.md"
gzip -9 --no-name "$root/$documents/THIRD-PARTY-LICENSES.txt" "$root/$documents/CHANGELOG.md"

# Units of an installation by hand name /usr/local/bin.
units=("deploy/systemd/$program".*)
case $role in
client)
    units+=(deploy/systemd/millrace-nginx.service)
    cp -R nginx-conf deploy/nftables "$root/$documents/examples"
    rm -rf "$root/$documents"/examples/nginx-conf/lua/{spec,test.sh}
    ;;
server)
    cp -R deploy/monitoring "$root/$documents/examples"
    ;;
esac
for unit in "${units[@]}"; do
    put 0644 "$unit" "lib/systemd/system/${unit##*/}"
    sed -i 's|/usr/local/bin/|/usr/bin/|' "$root/lib/systemd/system/${unit##*/}"
done

mkdir "$root/DEBIAN"
for script in postinst prerm postrm; do
    sed "s/@PROGRAM@/$program/g; s/@ROLE@/$role/g; s/@UNITS@/${units[*]##*/}/" "packaging/debian/$script" >"$root/DEBIAN/$script"
    chmod 0755 "$root/DEBIAN/$script"
done
installed_kb=$(du --apparent-size --summarize --block-size=1024 "$root" | cut -f1)
sed "s/@PROGRAM@/$program/; s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$installed_kb/
    s/@GLIBC@/$glibc_baseline/; s/@SUMMARY@/$(sed -n 's/^description = "\(.*\)"$/\1/p' "proxy-$role/Cargo.toml")/" \
    packaging/debian/control >"$root/DEBIAN/control"
chmod -R u=rwX,go=rX "$root"
mkdir -p "$out"
# xz, because dpkg of Debian 11 knows no zstd. COMPRESSION=none is for tests.
SOURCE_DATE_EPOCH=$(source_date_epoch) dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$root" \
    "$out/${program}_${version}_$architecture.deb" >/dev/null
