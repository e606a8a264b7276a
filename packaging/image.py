#!/usr/bin/env python3
"""Makes an image of one program without a container engine.

The file is a tar with an OCI image layout and the manifest of `docker save`, so that `docker load`, `podman load`,
`skopeo copy oci-archive:FILE` and `ctr images import` take it. The same input makes the same bytes.

image.py --role client --architecture arm64 --program FILE --packages DIRECTORY --version 0.1.0 --commit C --time 0 FILE

The first layer is glibc and busybox of Debian packages, the second one the program and its start script.
"""

import argparse
import gzip
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from datetime import datetime, timezone
from pathlib import Path

TRIPLES = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
USER = 10001
# What docker-entrypoint.sh, docker-compose.yml and an operator in `docker exec` use.
APPLETS = """ash awk basename cat chmod chown cp cut date df dirname du env expr false find free grep gunzip gzip head hostname id
    ip kill ls md5sum mkdir mktemp mv nc netstat nproc nslookup od ping ps pwd readlink rm sed seq sh sha256sum sleep sort stat
    tail tar tee test timeout top touch tr true uname uniq vi wc wget xargs""".split()
# Directories that volumes are mounted on, as in deploy/docker/proxies.Dockerfile: a new volume has their owner and mode.
OWNED = ["admin", "authority", "certificates", "certificates/client", "certificates/server", "run/millrace",
         "var/lib/millrace-server"]
PORTS = {"client": ["8080/tcp", "3128/tcp"], "server": ["4433/udp"]}
DESCRIPTIONS = {"client": "Millrace tunnel client (viewer side)", "server": "Millrace tunnel server (origin side)"}
ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/:/bin/sh\nmillrace:x:{USER}:{USER}::/nonexistent:/bin/false\n",
    "etc/group": f"root:x:0:\nmillrace:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # Scanners find the packages below by these two.
    "etc/os-release": 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian 12 (glibc only)"\n',
    "etc/debian_version": "12\n",
}


class Layer:
    """A layer: entries by path, written in order, all with the same time."""

    def __init__(self, time):
        self.time = time
        self.entries = {}

    def directory(self, path, mode=0o755, owner=0):
        self.parents(path)
        self.entries[path] = (tarfile.DIRTYPE, mode, owner, b"")

    def file(self, path, content, mode=0o644):
        self.parents(path)
        self.entries[path] = (tarfile.REGTYPE, mode, 0, content)

    def link(self, path, target):
        self.parents(path)
        self.entries[path] = (tarfile.SYMTYPE, 0o777, 0, target)

    def parents(self, path):
        parent = path.rpartition("/")[0]
        if parent and parent not in self.entries:
            self.directory(parent)

    def tar(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path, (kind, mode, owner, content) in sorted(self.entries.items()):
                info = tarfile.TarInfo(path)
                info.type, info.mode, info.uid, info.gid, info.mtime = kind, mode, owner, owner, self.time
                if kind == tarfile.SYMTYPE:
                    info.linkname = content
                    tar.addfile(info)
                else:
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        return out.getvalue()


def base_layer(packages, architecture, time):
    layer = Layer(time)
    triple = TRIPLES[architecture]
    for path, mode in [("tmp", 0o1777), ("etc/millrace", 0o755), ("proc", 0o755), ("sys", 0o755), ("dev", 0o755)]:
        layer.directory(path, mode)
    for path, text in ACCOUNTS.items():
        layer.file(path, text.encode())
    for package in sorted(packages.glob("*.deb")):
        fields = subprocess.run(["dpkg-deb", "--field", package], check=True, stdout=subprocess.PIPE).stdout
        name = package.name.partition("_")[0]
        layer.file(f"var/lib/dpkg/status.d/{name}", fields)
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run(["dpkg-deb", "--extract", package, directory], check=True)
            root = Path(directory)
            wanted = [*root.glob("lib/*"), *root.glob("lib64/*"), *root.glob(f"lib/{triple}/*"), root / "bin/busybox",
                      root / f"usr/share/doc/{name}/copyright"]
            for file in wanted:
                path = str(file.relative_to(root))
                if file.is_symlink():
                    layer.link(path, str(file.readlink()))
                elif file.is_file():
                    layer.file(path, file.read_bytes(), file.stat().st_mode & 0o777)
    for applet in APPLETS:
        layer.link(f"bin/{applet}", "busybox")
    loader = [path for path in layer.entries if "/ld-linux" in path]
    if not loader or "bin/busybox" not in layer.entries:
        raise SystemExit(f"image.py: {packages} has no libc6 or no busybox-static")
    return layer


def program_layer(role, program, time):
    layer = Layer(time)
    for path in OWNED:
        layer.directory(path, 0o700, USER)
    layer.file(f"usr/local/bin/millrace-{role}", program.read_bytes(), 0o755)
    docker = Path(__file__).parent.parent / "deploy/docker"
    layer.file("usr/local/bin/docker-entrypoint.sh", (docker / "docker-entrypoint.sh").read_bytes(), 0o755)
    layer.file("usr/local/lib/millrace/docker-role.sh", (docker / f"{role}-role.sh").read_bytes())
    return layer


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def path_of(blob):
    return "blobs/sha256/" + blob["digest"].removeprefix("sha256:")


class Image:
    """The blobs of an image, and what its manifests say of them."""

    def __init__(self):
        self.blobs = {}

    def blob(self, content, media_type):
        blob = {"mediaType": media_type, "digest": digest(content), "size": len(content)}
        self.blobs[path_of(blob)] = content
        return blob

    def json(self, value, media_type):
        return self.blob(json.dumps(value, sort_keys=True).encode(), media_type)


def configuration(arguments, created, diff_ids):
    labels = {"title": f"millrace-{arguments.role}", "description": DESCRIPTIONS[arguments.role], "licenses": "Apache-2.0",
              "version": arguments.version, "revision": arguments.commit, "created": created}
    second = 1_000_000_000
    return {
        "architecture": arguments.architecture,
        "os": "linux",
        "created": created,
        "config": {
            # By number, so that Kubernetes can see that it is not root.
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/local/bin:/bin"],
            "Entrypoint": ["docker-entrypoint.sh"],
            "Cmd": ["run"],
            "ExposedPorts": {port: {} for port in PORTS[arguments.role]},
            "Healthcheck": {"Test": ["CMD", "docker-entrypoint.sh", "healthy"], "Interval": 2 * second,
                            "Timeout": 2 * second, "Retries": 3, "StartPeriod": 10 * second},
            "Labels": {f"org.opencontainers.image.{key}": value for key, value in labels.items() if value},
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created": created, "created_by": text} for text in ("glibc and busybox of Debian 12", "Millrace")],
    }


def build(arguments):
    image = Image()
    created = datetime.fromtimestamp(arguments.time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    tars = [base_layer(arguments.packages, arguments.architecture, arguments.time).tar(),
            program_layer(arguments.role, arguments.program, arguments.time).tar()]
    layers = [image.blob(gzip.compress(tar, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip") for tar in tars]
    diff_ids = [digest(tar) for tar in tars]
    config = image.json(configuration(arguments, created, diff_ids), "application/vnd.oci.image.config.v1+json")
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = image.json({"schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": layers}, manifest_type)
    manifest["platform"] = {"architecture": arguments.architecture, "os": "linux"}
    # A tag has no "~", which versions between releases have.
    tag = arguments.version.replace("~", "-")
    name = f"millrace-{arguments.role}:{tag}"
    manifest["annotations"] = {"io.containerd.image.name": f"docker.io/library/{name}", "org.opencontainers.image.ref.name": tag}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}
    docker = [{"Config": path_of(config), "RepoTags": [name], "Layers": [path_of(layer) for layer in layers]}]
    layout = Layer(arguments.time)
    layout.file("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    layout.file("index.json", json.dumps(index, sort_keys=True).encode())
    layout.file("manifest.json", json.dumps(docker, sort_keys=True).encode())
    for path, content in image.blobs.items():
        layout.file(path, content)
    arguments.out.write_bytes(layout.tar())
    print(f"{arguments.out}: {sum(map(len, tars)) / 1e6:.1f} MB, {sum(l['size'] for l in layers) / 1e6:.1f} MB compressed")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--role", required=True, choices=list(PORTS))
    parser.add_argument("--architecture", required=True, choices=list(TRIPLES))
    parser.add_argument("--program", required=True, type=Path)
    parser.add_argument("--packages", required=True, type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", default="")
    parser.add_argument("--time", required=True, type=int)
    parser.add_argument("out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    build(parse())
