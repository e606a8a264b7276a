# What docker-entrypoint.sh does not know of millrace-server. Variables:
#   ORIGIN              host:port, the only destination that flows may have
#   CONGESTION_CONTROL  for what goes to the viewers; default vivace-latency
#   BALANCERS           a network that a balancer sends from; each of its ports counts as an address
# shellcheck shell=sh disable=SC2034
role=server
admin_port=9465

write_config() {
    check_host_port ORIGIN "${ORIGIN:-}" 80
    case ${ORIGIN%:*} in
    localhost) fail "ORIGIN=\"$ORIGIN\" is this container itself, not its host: docs/operate/origin-on-host.md" ;;
    *[!0-9.]*) allowed="name = \"${ORIGIN%:*}\"" ;;
    *) allowed="network = \"${ORIGIN%:*}\"" ;;
    esac
    balancers=${BALANCERS:+"\"$BALANCERS\""}
    state=
    # Not with `docker run --read-only` without a volume there.
    [ -w /var/lib/millrace-server ] && state='state_dir = "/var/lib/millrace-server"'
    cat <<END
[tunnel]
listen = ["0.0.0.0:4433"]
client_ca = "/certificates/ca.pem"
certificate = "/certificates/server.pem"
private_key = "/certificates/server.key"
$state
congestion_control = "${CONGESTION_CONTROL:-vivace-latency}"

[[destinations.allow]]
$allowed
ports = [${ORIGIN##*:}]

[limits]
balancers = [$balancers]
END
}
