#!/bin/bash
# sbom.sh VERSION DIRECTORY: makes DIRECTORY/PROGRAM-VERSION.cdx.json, the crates of each program with their versions,
# digests and licences (CycloneDX 1.5).
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/settings.sh

version=$1 out=$2
cyclonedx_version=0.5.9
tool=${cross_tools%/*}/bin/cargo-cyclonedx
case $("$tool" cyclonedx --version 2>/dev/null || true) in
*" $cyclonedx_version") ;;
*) cargo install cargo-cyclonedx --version $cyclonedx_version --locked --debug --root "${cross_tools%/*}" ;;
esac

# It writes files beside each Cargo.toml, so it gets a copy, without lab and tests.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -R cc ops proxy-client proxy-server third_party tunnel Cargo.lock rust-toolchain.toml "$copy"
sed '/^    "\(lab\|tests\)/d' Cargo.toml >"$copy/Cargo.toml"
mkdir -p "$out"
for program in "${programs[@]}"; do
    role=${program#millrace-}
    SOURCE_DATE_EPOCH=$(source_date_epoch) "$tool" cyclonedx \
        --manifest-path "$copy/proxy-$role/Cargo.toml" --format json --spec-version 1.5 --describe binaries \
        --target "$(rust_target amd64)" --quiet
    # Without the path of the copy.
    sed "s|$copy|/usr/src/millrace|g" "$copy/proxy-$role/${program}_bin.cdx.json" >"$out/$program-$version.cdx.json"
done
