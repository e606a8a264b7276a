#!/bin/bash
# What `make dist` left in target/dist: digests, the glibc that the programs need, packages, images and SBOMs of all
# architectures. Programs of another architecture than this machine's run under qemu: a tunnel, and a download through it.
# Images of this machine's run in Compose. Needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=packaging/settings.sh
. packaging/settings.sh
# shellcheck source=tests/scripts/docker.sh
. tests/scripts/docker.sh

dist=$PWD/target/dist work=$PWD/target/test/dist-programs
version=$(package_version)
native=$(dpkg --print-architecture)
declare -A machine=([amd64]=x86_64 [arm64]=aarch64)
max_image_bytes=40000000
say() { echo "dist-programs.sh: $SECONDS s: $*" >&2; }
fail() { say "$*"; exit 1; }
started=()
clean_up() {
    local status=$?
    trap - EXIT
    if [ $status != 0 ]; then tail -n 20 "$work"/*.log >&2 || true; fi
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    [ -z "${composed:-}" ] || compose down --volumes --remove-orphans --timeout 5 >/dev/null 2>&1 || true
    docker_stop
    exit $status
}
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
until_true() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "not in time: $what"
        sleep 0.2
    done
}

rm -rf "$work"
mkdir -p "$work/origin"
head --bytes 2000000 /dev/urandom >"$work/origin/file"
[ -e "$dist/millrace-$version-linux-$native.tar.gz" ] || fail "target/dist has no $version: make dist"
(cd "$dist" && sha256sum --check --quiet --strict SHA256SUMS) || fail "SHA256SUMS has other digests"
unlisted=$(cd "$dist" && for file in *; do grep -qF "  $file" SHA256SUMS || echo "$file"; done)
[ "$unlisted" = SHA256SUMS ] || fail "not in SHA256SUMS: $unlisted"

# check_program FILE ARCHITECTURE
check_program() {
    local needed newest
    readelf --file-header "$1" | grep -q "Machine:.*$([ "$2" = amd64 ] && echo X86-64 || echo AArch64)" || fail "$1 is not of $2"
    needed=$(readelf --dynamic "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(lib(c|m|dl|rt|pthread|util)\.so\.[0-9]+|ld-linux-.*)$' || true)
    [ -z "$needed" ] || fail "$1 needs more than glibc: $needed"
    newest=$(readelf --version-info "$1" | grep -oE 'GLIBC_[0-9.]+' | sort --unique --version-sort | tail -n 1)
    [ -n "$newest" ] || fail "$1 names no version of glibc"
    [ "$(printf '%s\n' "${newest#GLIBC_}" $glibc_baseline | sort --version-sort | tail -n 1)" = $glibc_baseline ] ||
        fail "$1 needs $newest, and the baseline is $glibc_baseline"
    ! readelf --sections --wide "$1" | grep -qE ' \.(symtab|debug_info) ' || fail "$1 is not stripped"
    ! grep -qaF -e "$PWD" -e "${CARGO_HOME:-$HOME/.cargo}/" "$1" || fail "$1 has paths of this machine"
    say "${1#"$work"/}: $newest, $(stat --format=%s "$1") bytes"
}

# unpack_image FILE DIRECTORY: applies the layers, in the order of the manifest that index.json names, after checking digests.
unpack_image() {
    python3 - "$1" "$2" $max_image_bytes <<'PYTHON'
import gzip, hashlib, io, json, sys, tarfile
file, directory, limit = sys.argv[1:]
layout = tarfile.open(file)
read = lambda path: layout.extractfile(path).read()
def blob(descriptor):
    content = read("blobs/" + descriptor["digest"].replace(":", "/"))
    assert descriptor["digest"] == "sha256:" + hashlib.sha256(content).hexdigest(), descriptor
    assert descriptor["size"] == len(content), descriptor
    return content
[entry] = json.loads(read("index.json"))["manifests"]
manifest = json.loads(blob(entry))
config = json.loads(blob(manifest["config"]))
[docker] = json.loads(read("manifest.json"))
assert docker["Config"] == "blobs/" + manifest["config"]["digest"].replace(":", "/")
assert config["architecture"] == entry["platform"]["architecture"]
size = 0
for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
    tar = gzip.decompress(blob(layer))
    size += len(tar)
    assert diff_id == "sha256:" + hashlib.sha256(tar).hexdigest()
    tarfile.open(fileobj=io.BytesIO(tar)).extractall(directory, numeric_owner=True, filter="fully_trusted")
assert size < int(limit), f"{size} bytes"
assert config["config"]["User"] == "10001:10001", config
print(config["architecture"])
PYTHON
}

for architecture in "${architectures[@]}"; do
    unpacked=$work/$architecture
    mkdir -p "$unpacked/archive"
    tar --extract --directory "$unpacked/archive" --file "$dist/millrace-$version-linux-$architecture.tar.gz"
    for program in "${programs[@]}"; do
        check_program "$unpacked/archive/bin/$program" "$architecture"
        dpkg-deb --extract "$dist/${program}_${version}_$architecture.deb" "$unpacked/deb-$program"
        cmp "$unpacked/archive/bin/$program" "$unpacked/deb-$program/usr/bin/$program"
        mkdir "$unpacked/image-$program"
        [ "$(unpack_image "$dist/$program-$version-$architecture.oci.tar" "$unpacked/image-$program")" = "$architecture" ] ||
            fail "the image of $program for $architecture is for another"
        cmp "$unpacked/archive/bin/$program" "$unpacked/image-$program/usr/local/bin/$program"
    done
done
for program in "${programs[@]}"; do
    python3 - "$dist/$program-$version.cdx.json" "$program" <<'PYTHON'
import json, sys
sbom = json.load(open(sys.argv[1]))
assert sbom["bomFormat"] == "CycloneDX", sbom["bomFormat"]
assert sbom["metadata"]["component"]["name"] == sys.argv[2], sbom["metadata"]["component"]["name"]
names = {component["name"] for component in sbom["components"]}
assert {"quiche", "boring-sys", "mlua", "tokio"} <= names, sorted(names)
assert "/tmp/" not in json.dumps(sbom)
PYTHON
done
for component in BoringSSL Lua "quiche " "LLVM libc++ "; do
    grep -q "^$component" "$dist/THIRD-PARTY-LICENSES.txt" || fail "THIRD-PARTY-LICENSES.txt has no $component"
done
say "files are well"

python3 -u -m http.server --bind 127.0.0.1 --directory "$work/origin" 0 >"$work/origin.log" 2>&1 &
started+=($!)
until_true 10 "the origin listens" grep -q 'port [0-9]' "$work/origin.log"
origin_port=$(sed -n 's/.* port \([0-9]*\).*/\1/p' "$work/origin.log")
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# carry ARCHITECTURE: a pair of programs that qemu runs with the glibc of the image carries a download.
carry() {
    local directory=$work/$1/run image=$work/$1/image-millrace tunnel listener pair=()
    local emulator=("$qemu/usr/bin/qemu-${machine[$1]}-static" -L "$image-server")
    local server=("${emulator[@]}" "$image-server/usr/local/bin/millrace-server")
    local client=("${emulator[@]}" "$image-client/usr/local/bin/millrace-client")
    [ "$("${server[@]}" --version)" = "millrace-server $expected_version" ] || fail "$1: another version of millrace-server"
    [ "$("${client[@]}" --version)" = "millrace-client $expected_version" ] || fail "$1: another version of millrace-client"
    mkdir "$directory"
    "${server[@]}" certificates --dir "$directory" --server-name millrace-server --client edge >/dev/null
    tunnel=$(free_port) listener=$(free_port)
    # qemu knows no SO_ATTACH_REUSEPORT_CBPF, which several workers need.
    tee "$directory/server.toml" >"$directory/client.toml" <<END
[runtime]
workers = 1
END
    cat >>"$directory/server.toml" <<END
[tunnel]
listen = ["127.0.0.1:$tunnel"]
client_ca = "ca.pem"
certificate = "server.pem"
private_key = "server.key"
congestion_control = "mcc"
[[destinations.allow]]
network = "127.0.0.1"
ports = [$origin_port]
[admin]
address = "127.0.0.1:$(free_port)"
END
    cat >>"$directory/client.toml" <<END
[tunnel]
servers = ["127.0.0.1:$tunnel"]
server_name = "millrace-server"
ca = "ca.pem"
certificate = "edge.pem"
private_key = "edge.key"
mark = 0
[[listen]]
mode = "static"
address = "127.0.0.1:$listener"
destination = "127.0.0.1:$origin_port"
[admin]
address = "127.0.0.1:$(free_port)"
END
    "${server[@]}" check --config "$directory/server.toml" >/dev/null
    "${server[@]}" run --config "$directory/server.toml" >"$work/$1-server.log" 2>&1 &
    pair+=($!)
    "${client[@]}" run --config "$directory/client.toml" >"$work/$1-client.log" 2>&1 &
    pair+=($!)
    started+=("${pair[@]}")
    until_true 60 "a download through $1 programs" bash -c \
        "curl --silent --fail --max-time 20 http://127.0.0.1:$listener/file | cmp - '$work/origin/file'"
    kill "${pair[@]}"
    say "$1: a tunnel under qemu carried a download"
}
expected_version="$("$work/$native/archive/bin/millrace-server" --version | cut -d' ' -f2-)"
commit=$(git rev-parse --verify --quiet HEAD | cut -c1-12 || true)
case $expected_version in
*"($commit)"*) ;;
*) fail "--version is $expected_version, without the commit $commit" ;;
esac
for architecture in "${architectures[@]}"; do
    [ "$architecture" != "$native" ] || continue
    qemu=$work/qemu
    packaging/debian-packages.sh "$native" "$work/packages" qemu-user-static
    dpkg-deb --extract "$work"/packages/qemu-user-static_*.deb "$qemu"
    carry "$architecture"
done

# Compose with the images, without a build.
docker_start
for program in "${programs[@]}"; do
    docker load --quiet --input "$dist/$program-$version-$native.oci.tar" >/dev/null
done
export TAG=${version//\~/-} SUBNETS=198.19 PUBLISH=127.0.0.1 EDGE_PORT=0 EXPLICIT_PORT=0
compose() { docker compose --project-name millrace-dist "$@" 2>>"$work/compose.log"; }
composed=1
compose create --no-build proxy-client >/dev/null
python3 -u -m http.server --bind "$SUBNETS.3.1" --directory "$work/origin" 0 >"$work/compose-origin.log" 2>&1 &
started+=($!)
until_true 10 "the origin of Compose listens" grep -q 'port [0-9]' "$work/compose-origin.log"
ORIGIN="$SUBNETS.3.1:$(sed -n 's/.* port \([0-9]*\).*/\1/p' "$work/compose-origin.log")"
export ORIGIN
compose up --detach --no-build proxy-client
client=$(compose ps --quiet proxy-client)
until_true 30 "proxy-client is healthy" bash -c "docker inspect --format '{{.State.Health.Status}}' $client | grep -qx healthy"
curl --silent --show-error --fail --max-time 20 "http://$(docker port "$client" 8080 | head -n 1)/file" | cmp - "$work/origin/file"
docker exec "$client" millrace-client flows --config /run/millrace/client.toml >/dev/null
say "Compose carried a download; all well"
