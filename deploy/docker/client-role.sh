# What docker-entrypoint.sh does not know of millrace-client. Variables:
#   SERVERS             host:port of the servers, the preferred one first, with spaces between them
#   ORIGIN              host:port where flows go that come in on port 8080; on port 3128 the flow
#                       says where, by HTTP CONNECT, and the server judges it. Both recognise RTSP and
#                       HTTP of players on any port of ORIGIN; class is that of all else, such as TLS
#   CONGESTION_CONTROL  for what comes from the viewers; default cubic
# It is healthy while there is a connection to a server.
# shellcheck shell=sh disable=SC2034
role=client
admin_port=9464

write_config() {
    check_host_port ORIGIN "${ORIGIN:-}" 80
    servers=
    for server in ${SERVERS:-}; do
        check_host_port SERVERS "$server" 4433
        servers="$servers\"$server\", "
    done
    [ -n "$servers" ] || fail "SERVERS is empty; write SERVERS=server.example:4433"
    cat <<END
[tunnel]
servers = [$servers]
server_name = "millrace-server"
ca = "/certificates/ca.pem"
certificate = "/certificates/edge.pem"
private_key = "/certificates/edge.key"
congestion_control = "${CONGESTION_CONTROL:-cubic}"
# Nothing intercepts in here that the tunnel's own packets would have to be kept out of.
mark = 0

[[listen]]
mode = "static"
address = "0.0.0.0:8080"
destination = "$ORIGIN"
class = "dash"

[[listen]]
mode = "http_connect"
address = "0.0.0.0:3128"
class = "dash"
END
}
