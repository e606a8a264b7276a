#!/bin/bash
# The export over OTLP against an OpenTelemetry Collector: its metrics and the spans of a TCP and a UDP flow of both
# programs arrive. Needs Go, python3, curl and target/release/millrace-*. The Collector is built from its modules the
# first time, which takes some minutes.
set -eu
cd "$(dirname "$0")/../.."

programs=$PWD/target/release
collector=$PWD/target/tools/bin/otel-collector
fail() { echo "FAILS: $*" >&2; exit 1; }

command -v go >/dev/null || fail "go is missing; tests/collector/go.mod says which one is needed"
for program in client server; do
    [ -x "$programs/millrace-$program" ] || fail "$programs/millrace-$program is missing; make programs"
done
timeout 900 go -C tests/collector build -mod=readonly -trimpath -o "$collector" .

work=$(mktemp -d)
started=()
end() {
    [ ${#started[@]} = 0 ] || kill "${started[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap end EXIT

# start NAME COMMAND...: in the background, its output in a file of this name.
start() {
    "${@:2}" >"$work/$1.log" 2>&1 &
    started+=($!)
}

# wait_for TEXT FILE: until the file has it.
wait_for() {
    for _ in $(seq 200); do
        ! grep -qE -- "$1" "$work/$2.log" || return 0
        sleep 0.1
    done
    tail -n 30 "$work/$2.log" >&2
    fail "$2 has not said $1 after 20 s"
}

read -r -a port <<<"$(python3 -c '
import socket
sockets = [socket.socket(type=kind) for kind in [socket.SOCK_STREAM] * 5 + [socket.SOCK_DGRAM] * 3]
for it in sockets: it.bind(("127.0.0.1", 0))
print(*(it.getsockname()[1] for it in sockets))')"
cat >"$work/collector.yaml" <<YAML
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:${port[0]}"}}}
exporters:
  debug: {verbosity: detailed}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [debug]}
    traces: {receivers: [otlp], exporters: [debug]}
YAML
otlp="[otlp]
endpoint = \"http://127.0.0.1:${port[0]}\"
interval_s = 1
sampling_ratio = 1
"
cat >"$work/server.toml" <<TOML
[tunnel]
listen = ["127.0.0.1:${port[5]}"]
client_ca = "ca.pem"
certificate = "server.pem"
private_key = "server.key"
[[destinations.allow]]
network = "127.0.0.1"
ports = [${port[1]}]
[[destinations.allow]]
network = "127.0.0.1"
ports = [${port[6]}]
protocol = "udp"
[admin]
address = "127.0.0.1:${port[2]}"
$otlp
TOML
cat >"$work/client.toml" <<TOML
[tunnel]
servers = ["127.0.0.1:${port[5]}"]
server_name = "millrace-server"
ca = "ca.pem"
certificate = "edge.pem"
private_key = "edge.key"
mark = 0
[[listen]]
mode = "static"
address = "127.0.0.1:${port[3]}"
destination = "127.0.0.1:${port[1]}"
[[listen]]
mode = "udp"
address = "127.0.0.1:${port[7]}"
destination = "127.0.0.1:${port[6]}"
[admin]
address = "127.0.0.1:${port[4]}"
$otlp
TOML

start collector "$collector" --config "file:$work/collector.yaml"
wait_for 'Everything is ready' collector
"$programs/millrace-server" certificates --dir "$work" --server-name millrace-server --client edge >/dev/null
start origin python3 -m http.server --bind 127.0.0.1 --directory docs "${port[1]}"
start udp-origin python3 -c "
import socket
echo = socket.socket(type=socket.SOCK_DGRAM)
echo.bind(('127.0.0.1', ${port[6]}))
while True: echo.sendto(*echo.recvfrom(2000))"
start server "$programs/millrace-server" run --config "$work/server.toml"
start client "$programs/millrace-client" run --config "$work/client.toml"
get() { curl --silent --show-error --fail --output /dev/null "$@"; }
# It carries flows once its connection is there.
get --retry 20 --retry-delay 1 --retry-all-errors "http://127.0.0.1:${port[4]}/healthz" 2>/dev/null ||
    fail "the client is not healthy after 20 s"
get --retry 20 --retry-delay 1 --retry-all-errors "http://127.0.0.1:${port[1]}/README.md" 2>/dev/null ||
    fail "the origin does not answer after 20 s"
get "http://127.0.0.1:${port[3]}/README.md" || fail "no download through the tunnel"
python3 -c "
import socket
player = socket.socket(type=socket.SOCK_DGRAM)
player.settimeout(10)
player.sendto(b'hello', ('127.0.0.1', ${port[7]}))
assert player.recv(100) == b'hello'"

# A span of a flow's set-up names the destination's port.
for text in 'service.name: Str\(millrace-client\)' 'service.name: Str\(millrace-server\)' \
    'Name: millrace_flows_opened_total' 'Name +: flow set-up' 'Name +: dial' 'Name +: first byte' \
    "destination.port: Int\(${port[1]}\)" "destination.port: Int\(${port[6]}\)"; do
    wait_for "$text" collector
done
# One of each end for both flows. Each program exports at its own time.
set_ups() { grep -cE 'Name +: flow set-up' "$work/collector.log"; }
for _ in $(seq 200); do
    [ "$(set_ups)" -lt 4 ] || break
    sleep 0.1
done
[ "$(set_ups)" = 4 ] || fail "$(set_ups) spans of set-up, not one of each end for both flows"
# The server's trace is the client's.
ids=$(grep -A 4 -E '^Span #' "$work/collector.log" | sed -n 's/.*Trace ID *: //p' | sort -u | wc -l)
[ "$ids" = 2 ] || fail "$ids traces, not the two of both flows"
echo "a collector of $(go -C tests/collector list -m -f '{{.Version}}' go.opentelemetry.io/collector/otelcol) takes metrics and the traces of both flows"
