#!/bin/sh
# Fetches live555's server and openRTSP into target/tools/live555, without touching the system: no stable
# Debian has them. The packages are sid's, from the mirror of this machine's own apt configuration, with
# apt's state of their own; they run with their own libraries. Does nothing that is done already.
set -eu
cd "$(dirname "$0")/../.."

out=$PWD/target/tools/live555
# One that is there may have come with a directory from elsewhere.
runs() { "$out/openRTSP" 2>&1 | grep -q Usage && [ -x "$out/live555MediaServer" ]; }
runs 2>/dev/null && exit 0

say() { echo "live555: $*" >&2; }
mirror=$(apt-get indextargets --format '$(REPO_URI)|$(ORIGIN)|$(LABEL)' 'Identifier: Packages' |
    sed -n 's/|Debian|Debian$//p' | head -n 1)
[ -n "$mirror" ] || { say "this machine's apt knows no Debian mirror"; exit 1; }
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root"
# As if nothing were installed, so that every library comes along.
: >"$work/status"
echo "deb [signed-by=$keyring] $mirror sid main" >"$work/sources.list"
apt() {
    apt-get -qq -o Dir::State="$work" -o Dir::State::status="$work/status" -o Dir::State::lists="$work/lists" \
        -o Dir::Cache="$work/cache" -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Check-Valid-Until=false \
        -o Acquire::Languages=none "$@"
}
say "fetching livemedia-utils from $mirror"
apt update
apt --download-only --yes install livemedia-utils
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$work/root"
done
loader=$(find "$work/root" -name 'ld-linux*.so*' | head -n 1)
[ -n "$loader" ] || { say "no loader among the packages"; exit 1; }

rm -rf "$out"
mkdir -p "$out/lib"
find "$work/root" -path '*/lib*/*.so*' -type f -exec cp {} "$out/lib/" \;
# A link to a library of the same name elsewhere must not take its place.
find "$work/root" -path '*/lib*/*.so*' -type l -exec cp -P -n {} "$out/lib/" \;
for program in openRTSP live555MediaServer; do
    cp "$work/root/usr/bin/$program" "$out/$program.real"
    # The machine's own C library may be older than what they were built with.
    # Beside itself, so that it runs where the directory is moved or copied to.
    cat >"$out/$program" <<END
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
exec "\$here/lib/$(basename "$loader")" --library-path "\$here/lib" "\$here/$program.real" "\$@"
END
    chmod +x "$out/$program"
done
runs || { say "openRTSP does not run"; exit 1; }
say "in $out: $(du -sh "$out" | cut -f1)"
