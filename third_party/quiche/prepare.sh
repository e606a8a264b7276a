#!/bin/sh
# Makes third_party/run-make-setup-first/quiche: the published source of the quiche release that Cargo.toml names,
# with the patches of the file series. Does nothing if the result is current. With --check it only tells whether
# the result is current.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../run-make-setup-first

fail() {
    echo "prepare.sh: $1" >&2
    exit 1
}

# In order; comments and empty lines removed.
patches=$(sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "$here/series")
twice=$(printf '%s\n' "$patches" | sort | uniq -d)
[ -z "$twice" ] || fail "third_party/quiche/series lists a patch twice: $twice"
for name in $patches; do
    [ -f "$here/$name" ] || fail "third_party/quiche/series lists $name, but there is no such file"
done
for file in "$here"/*.patch; do
    printf '%s\n' "$patches" | grep -qxF "${file##*/}" ||
        fail "third_party/quiche/${file##*/} is not listed in third_party/quiche/series: add it, or delete the file"
done

stamp=$(cd "$here" && cat series $patches Cargo.toml Cargo.lock prepare.sh | sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/stamp" 2>/dev/null || true)" = "$stamp" ]; then
    exit 0
fi
[ "${1:-}" != --check ] || exit 1

version=$(sed -n 's/^quiche = "=\(.*\)"$/\1/p' "$here/Cargo.toml")
[ -n "$version" ] || fail 'third_party/quiche/Cargo.toml has no line quiche = "=VERSION"'
cargo fetch --locked --manifest-path "$here/Cargo.toml"
source=$(cargo metadata --locked --offline --format-version 1 --manifest-path "$here/Cargo.toml" |
    sed -n "s/.*\"manifest_path\":\"\([^\"]*\/quiche-$version\)\/Cargo\.toml\".*/\1/p")
[ -d "$source" ] || fail "cargo did not tell where the source of quiche $version is"

new=$out.$$
trap 'rm -rf "$new"' EXIT
mkdir -p "$new"
cp -R "$source" "$new/quiche"
chmod -R u+w "$new/quiche"
for name in $patches; do
    # Without fuzz: a patch that almost fits may change the wrong place.
    patch --directory="$new/quiche" --strip=1 --quiet --forward --fuzz=0 --no-backup-if-mismatch <"$here/$name" ||
        fail "$name does not apply to quiche $version; UPGRADING.md tells how to refresh a patch"
done
# Rust programs need no C libraries. Those have one file name for all sets of features, so that cargo would build
# quiche and all that uses it again whenever the set changes.
sed -i '/^crate-type = \[/,/^\]/d' "$new/quiche/Cargo.toml"
# Without it cargo takes quiche for a member of this workspace, and its own tests do not run.
printf '\n[workspace]\n' >>"$new/quiche/Cargo.toml"
echo "$stamp" >"$new/stamp"
rm -rf "$out"
mv "$new" "$out"
trap - EXIT
echo "quiche $version is ready in third_party/run-make-setup-first"
