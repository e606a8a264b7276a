#!/bin/sh
# The start of a container of millrace-client or millrace-server.
#
#   run       runs /etc/millrace/client.toml or server.toml if that is mounted, otherwise a configuration
#             made from variables: docker-role.sh, which the image has of its role, says which, and
#               ADMIN_NETWORK       beginning of the address that the admin listener takes, such as
#                                   "198.18.4."; loopback if no address of this container has it
#                                   or there is no token
#               ADMIN_TOKEN_FILE    the token that it asks for off loopback; /admin/token
#   check     checks what `run` would run, in a container of its own, as before a change of the variables:
#               CONGESTION_CONTROL=NAME docker compose run --rm --no-deps proxy-server check
#   healthy   asks /healthz; ends with an error if that is not well
#   anything else is handed to the program
set -eu

fail() {
    echo "docker-entrypoint.sh: $*" >&2
    exit 64
}

# $1: name of a variable, $2: its value, $3: the usual port. Both ends check what this lets through.
check_host_port() {
    case $2 in
    *[!A-Za-z0-9._:-]* | *:*:* | '' | :* | *:)
        fail "$1=\"$2\" is not host:port, as in $1=host.example:$3"
        ;;
    *:*) ;;
    *) fail "$1=\"$2\" has no port; write $1=$2:$3" ;;
    esac
}

# role, admin_port, and write_config, which prints a configuration without its admin section.
. /usr/local/lib/millrace/docker-role.sh
program=millrace-$role
mounted=/etc/millrace/$role.toml
token_file=${ADMIN_TOKEN_FILE:-/admin/token}
made=/run/millrace/$role.toml

# The IPv4 addresses of this container; busybox has no `hostname -I`.
own_addresses() {
    awk '$1 == "|--" { address = $2 } /32 host LOCAL/ { print address }' /proc/net/fib_trie | sort -u
}

# The address of this container in ADMIN_NETWORK. A mounted configuration must have its admin
# listener on loopback too, or on all addresses.
admin_address() {
    for address in $(own_addresses); do
        [ ! -e "$mounted" ] && [ -r "$token_file" ] || break
        case $address in
        "${ADMIN_NETWORK:-none}"*)
            echo "$address"
            return
            ;;
        esac
    done
    echo 127.0.0.1
}

case ${1:-} in
run | check)
    [ $# = 1 ] || exec "$program" "$@"
    if [ -e "$mounted" ]; then
        exec "$program" "$1" --config "$mounted"
    fi
    write_config >"$made"
    cat >>"$made" <<END

[admin]
address = "$(admin_address):$admin_port"
END
    if [ "$(admin_address)" != 127.0.0.1 ]; then
        cat >>"$made" <<END
allow_remote = true
allowed_hosts = ["proxy-$role"]
token_file = "$token_file"
END
    fi
    exec "$program" "$1" --config "$made"
    ;;
healthy)
    url=http://$(admin_address):$admin_port/healthz
    # Released images have busybox's wget, those of proxies.Dockerfile curl.
    if command -v curl >/dev/null; then
        exec curl --fail --silent --show-error --max-time 2 --output /dev/null "$url"
    fi
    exec timeout 2 wget -q -O /dev/null "$url"
    ;;
*) exec "$program" "$@" ;;
esac
