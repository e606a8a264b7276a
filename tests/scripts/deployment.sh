#!/bin/bash
# Checks the systemd units and the Kubernetes manifest with tools that know both formats:
# systemd-analyze, and kubernetes-validate with the schemas of Kubernetes itself. After `make build`.
set -euo pipefail
cd "$(dirname "$0")/../.."

manifest=deploy/kubernetes/millrace-server.yaml
work=$PWD/target/test/deployment
rm -rf "$work"
mkdir -p "$work"
fail() { echo "deployment.sh: $*" >&2; exit 1; }

# systemd: no word that it does not know, and an exposure below 2 of 10.
for unit in deploy/systemd/millrace-server.service deploy/systemd/millrace-client.service; do
    # It also looks whether the program is there.
    copy=$work/${unit##*/}
    sed "s|/usr/local/bin/|$PWD/target/release/|" "$unit" >"$copy"
    said=$(systemd-analyze verify --man=no "$copy" 2>&1) || fail "$unit: $said"
    [ -z "$said" ] || fail "$unit: $said"
    systemd-analyze security --offline=true --threshold=20 --no-pager "$copy" >"$work/security" ||
        fail "$unit: $(cat "$work/security")"
done

# The socket unit, beside the copy of its service.
socket=deploy/systemd/millrace-server.socket
cp "$socket" "$work"
said=$(systemd-analyze verify --man=no "$work/${socket##*/}" 2>&1) || fail "$socket: $said"
[ -z "$said" ] || fail "$socket: $said"

# nginx has a master that stays root, so that its exposure is another.
unit=deploy/systemd/millrace-nginx.service
sed "s|/usr/local/bin/|$PWD/target/release/|" "$unit" >"$work/${unit##*/}"
said=$(systemd-analyze verify --man=no "$work/${unit##*/}" 2>&1) || fail "$unit: $said"
[ -z "$said" ] || fail "$unit: $said"

# Kubernetes: the manifest, and the configuration in it, which the server itself checks.
tests/scripts/kubernetes-validate.sh "$manifest" >"$work/kubernetes" 2>&1 ||
    fail "$manifest: $(cat "$work/kubernetes")"
sed 's/containerPort/containerPorts/' "$manifest" >"$work/wrong.yaml"
! tests/scripts/kubernetes-validate.sh "$work/wrong.yaml" >/dev/null 2>&1 ||
    fail "kubernetes-validate takes anything"
target/release/millrace-server certificates --dir "$work/certificates" \
    --server-name millrace-server --client edge >/dev/null
mkdir -p "$work/admin"
(umask 077 && openssl rand -hex 32 >"$work/admin/token")
tests/scripts/kubernetes-validate.sh --python - "$manifest" "$work" <<'END'
import sys, yaml
manifest, work = sys.argv[1:]
documents = {d["kind"]: d for d in yaml.safe_load_all(open(manifest))}
toml = documents["ConfigMap"]["data"]["server.toml"]
for place in ("certificates", "admin"):
    toml = toml.replace(f'"/{place}/', f'"{work}/{place}/')
open(f"{work}/server.toml", "w").write(toml)
pod = documents["Deployment"]["spec"]["template"]
labels = pod["metadata"]["labels"]
for kind, selector in [
    ("Service", documents["Service"]["spec"]["selector"]),
    ("NetworkPolicy", documents["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]),
    ("PodDisruptionBudget", documents["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]),
    ("Deployment", documents["Deployment"]["spec"]["selector"]["matchLabels"]),
]:
    assert selector.items() <= labels.items(), f"{kind} selects {selector}, the pods have {labels}"
names = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
assert documents["Service"]["spec"]["ports"][0]["targetPort"] in names
END
target/release/millrace-server check --config "$work/server.toml" >/dev/null
echo "deployment.sh: units and manifest are well"
