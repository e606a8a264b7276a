#!/bin/sh
# Makes cc/run-make-setup-first/quiche: quiche's published source with the
# patches of this directory. Does nothing when that is already so; with --check
# never, and fails when it is not so.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../run-make-setup-first
stamp=$(cat "$here"/*.patch "$here/Cargo.lock" "$here/prepare.sh" | sha256sum | cut -d' ' -f1)

if [ "$(cat "$out/stamp" 2>/dev/null || true)" = "$stamp" ]; then
    exit 0
fi
[ "${1:-}" != --check ] || exit 1

cargo fetch --locked --manifest-path "$here/Cargo.toml"
source=$(cargo metadata --locked --offline --format-version 1 --manifest-path "$here/Cargo.toml" |
    sed -n 's/.*"manifest_path":"\([^"]*\/quiche-0\.30\.0\)\/Cargo\.toml".*/\1/p')
[ -d "$source" ] || { echo "prepare.sh: cargo did not say where quiche's source is" >&2; exit 1; }

new=$out.$$
trap 'rm -rf "$new"' EXIT
mkdir -p "$new"
cp -R "$source" "$new/quiche"
chmod -R u+w "$new/quiche"
for patch in "$here"/*.patch; do
    patch --directory="$new/quiche" --strip=1 --quiet --forward <"$patch"
done
# Rust programs need no C libraries. Those have one file name for all sets of features, so that cargo would build
# quiche and all that uses it once more whenever the set changes.
sed -i '/^crate-type = \[/,/^\]/d' "$new/quiche/Cargo.toml"
# Below a member of ours it would count as one, and its own tests would not run.
printf '\n[workspace]\n' >>"$new/quiche/Cargo.toml"
echo "$stamp" >"$new/stamp"
rm -rf "$out"
mv "$new" "$out"
trap - EXIT
echo "quiche is ready in cc/run-make-setup-first"
