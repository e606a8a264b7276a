#!/bin/bash
# The Helm chart: helm lints it and renders it with the values in tests/chart/; the objects are checked against the
# schemas of Kubernetes, their configurations by the programs themselves, and values that would open a proxy are refused.
# After `make build`; helm is built from its Go module, which takes minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

helm_version=v3.22.0
chart=deploy/helm
work=$PWD/target/test/chart
rm -rf "$work"
mkdir -p "$work"
fail() { echo "chart.sh: $*" >&2; exit 1; }

helm=$PWD/target/tools/bin/helm
if ! [ -x "$helm" ] || [ "$(cat "$helm.version" 2>/dev/null)" != "$helm_version" ]; then
    command -v go >/dev/null || fail "helm is built with Go, which is missing: install Go 1.21 or newer"
    GOBIN=$PWD/target/tools/bin GOFLAGS=-mod=mod go install "helm.sh/helm/v3/cmd/helm@$helm_version"
    echo "$helm_version" >"$helm.version"
fi
# Nothing of the user's own settings, plugins and repositories.
export HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
for key in version appVersion; do
    grep -qx "$key: $version" $chart/Chart.yaml || fail "$key in Chart.yaml is not $version, as in Cargo.toml"
done

# The oldest Kubernetes that the chart supports. Built from its module, helm takes 1.20 for the cluster's version.
kubernetes=$(sed -n 's/^kubeVersion: ">=\([0-9.]*\)-0"$/\1/p' $chart/Chart.yaml)
[ -n "$kubernetes" ] || fail "kubeVersion in Chart.yaml has another form than >=X.Y.Z-0"
render() { "$helm" template test $chart --namespace media --kube-version "$kubernetes" "$@"; }

# refused WHY ARGUMENT...: values that must not render; the message has WHY.
refused() {
    local said
    ! said=$(render "${@:2}" 2>&1) || fail "rendered with ${*:2}"
    grep -qF -e "$1" <<<"$said" || fail "refused ${*:2} for another reason: $said"
}
refused destinations
refused destinations --set server.certificatesSecret=a --set server.adminTokenSecret=b
one="--values tests/chart/both.yaml"
# shellcheck disable=SC2086
{
    refused certificatesSecret $one --set server.certificatesSecret=
    refused adminTokenSecret $one --set server.adminTokenSecret=
    for network in 0.0.0.0/0 ::/0; do
        refused network $one --set "server.destinations[0].network=$network,server.destinations[0].name=null,server.destinations[0].ports[0]=80"
    done
    refused listeners $one --set 'clients[0].listeners=null'
    refused destination $one --set 'clients[0].listeners[0].destination=null'
    refused typo $one --set server.typo=1
    refused servers $one --set server.enabled=false
    refused kubeVersion $one --kube-version 1.20.0
}

for values in tests/chart/*.yaml; do
    name=$(basename "$values" .yaml)
    "$helm" lint --strict --quiet --kube-version "$kubernetes" $chart --values "$values" >"$work/lint" 2>&1 || fail "$values: $(cat "$work/lint")"
    render --values "$values" >"$work/$name.yaml"
    tests/scripts/kubernetes-validate.sh "$work/$name.yaml" >"$work/schemas" 2>&1 || fail "$values: $(cat "$work/schemas")"
done

# Each configuration, with paths of this host, is one that the program takes; each selector has its pods, each volume its
# source, each port its name.
target/release/millrace-server certificates --dir "$work/certificates" --server-name millrace-server --client edge >/dev/null
mkdir -p "$work/admin"
(umask 077 && openssl rand -hex 32 >"$work/admin/token")
tests/scripts/kubernetes-validate.sh --python - "$work" server edges both <<'END'
import sys, yaml
work, names = sys.argv[1], sys.argv[2:]
for name in names:
    objects = [it for it in yaml.safe_load_all(open(f"{work}/{name}.yaml")) if it]
    of = lambda kind: [it for it in objects if it["kind"] == kind]
    pods = {it["metadata"]["name"]: it["spec"]["template"] for it in of("Deployment")}
    assert pods, name
    assert len({(it["kind"], it["metadata"]["name"]) for it in objects}) == len(objects), f"{name}: one name twice"
    for it in objects:
        spec, own = it.get("spec", {}), it["metadata"]["name"]
        selector = spec.get("selector") or spec.get("podSelector")
        if not selector:
            continue
        selector = selector.get("matchLabels", selector)
        selected = [pod for pod, template in pods.items() if selector.items() <= template["metadata"]["labels"].items()]
        assert selected == [own], f"{name}: {it['kind']} {own} selects {selected}"
    for own, template in pods.items():
        spec = template["spec"]
        (container,) = spec["containers"]
        assert {v["name"] for v in container["volumeMounts"]} == {v["name"] for v in spec["volumes"]}, own
        ports = {port["name"] for port in container["ports"]}
        for probe, path in [("startupProbe", "/healthz"), ("readinessProbe", "/healthz"), ("livenessProbe", "/livez")]:
            assert container[probe]["httpGet"] == {"path": path, "port": "admin"}, f"{own}: {probe}"
        service = next(it for it in of("Service") if it["metadata"]["name"] == own)
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, own
        assert "admin" not in {port["targetPort"] for port in service["spec"]["ports"]}, f"{own} publishes its admin listener"
    for it in of("ConfigMap"):
        ((file, toml),) = it["data"].items()
        for place in ("certificates", "admin"):
            toml = toml.replace(f'"/{place}/', f'"{work}/{place}/')
        open(f"{work}/{name}-{it['metadata']['name']}-{file}", "w").write(toml)
END
configurations=0
for file in "$work"/*-server.toml "$work"/*-client.toml; do
    program=millrace-$(sed -n 's/.*-\(server\|client\)\.toml$/\1/p' <<<"$file")
    target/release/"$program" check --config "$file" >"$work/check" 2>&1 || fail "$file: $(cat "$work/check")"
    configurations=$((configurations + 1))
done
[ $configurations = 5 ] || fail "$configurations configurations instead of 5"
echo "chart.sh: the chart is well, with $configurations configurations"
