#!/bin/bash
# Makes all that a release has, in target/dist: archives, Debian packages and images for each architecture, SBOMs, licences,
# SHA256SUMS. RELEASING.md tells what each file is for.
#
#   ARCHITECTURES   those to make, separated by spaces; amd64 arm64
#   PROGRAMS        a directory with programs for the only architecture in ARCHITECTURES, instead of compiling them
#   VERSION         instead of the one of Cargo.toml and of the commit
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/settings.sh

out=target/dist work=target/cross
read -r -a architectures <<<"${ARCHITECTURES:-${architectures[*]}}"
version=${VERSION:-$(package_version)}
say() { echo "dist: $*" >&2; }

directory_of() { echo "${PROGRAMS:-$work/$1}"; }
if [ -z "${PROGRAMS:-}" ]; then
    for architecture in "${architectures[@]}"; do
        say "compiling for $architecture"
        packaging/programs.sh "$architecture"
    done
elif [ ${#architectures[@]} != 1 ]; then
    say "PROGRAMS needs one architecture in ARCHITECTURES"
    exit 64
fi

rm -rf $out
mkdir -p $out
native=$(dpkg --print-architecture)
case " ${architectures[*]} " in
*" $native "*) ;;
*)
    say "man pages and completions need programs for this machine: add $native to ARCHITECTURES"
    exit 64
    ;;
esac
share=$work/share
packaging/share.sh "$(directory_of "$native")" $share
licences=$out/THIRD-PARTY-LICENSES.txt
zig=$(echo "$cross_tools"/lib/python3*/site-packages/ziglang)
packaging/licences.py "$(rust_target "${architectures[0]}")" "$zig" >$licences
packaging/sbom.sh "$version" $out

for architecture in "${architectures[@]}"; do
    directory=$(directory_of "$architecture")
    packaging/archive.sh "$architecture" "$directory" $share $licences "$version" $out
    packages=$work/debian-$architecture
    rm -rf "$packages"
    packaging/debian-packages.sh "$architecture" "$packages" libc6 busybox-static
    for program in "${programs[@]}"; do
        packaging/deb.sh "$program" "$architecture" "$directory/$program" $share $licences "$version" $out
        packaging/image.py --role "${program#millrace-}" --architecture "$architecture" --program "$directory/$program" \
            --packages "$packages" --version "$version" --commit "$(git rev-parse --verify --quiet HEAD || true)" \
            --time "$(source_date_epoch)" "$out/$program-$version-$architecture.oci.tar"
    done
done
(cd $out && sha256sum -- * >SHA256SUMS)
say "$version is ready:"
ls -l --human-readable $out >&2
