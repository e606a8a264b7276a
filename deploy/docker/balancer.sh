#!/bin/sh
# Runs the balancer, and has it read its servers' addresses again when they have changed: nginx
# itself looks names up only when it starts or reloads.
set -eu

addresses() { getent ahostsv4 tunnel-server | awk '$2 == "DGRAM" { print $1 }' | sort -u; }

# Without any server nginx would not start.
until known=$(addresses) && [ -n "$known" ]; do
    sleep 1
done
nginx -e stderr &
nginx=$!
trap 'kill -QUIT "$nginx" 2>/dev/null || true' TERM QUIT INT
while kill -0 "$nginx" 2>/dev/null; do
    now=$(addresses) || now=
    if [ -n "$now" ] && [ "$now" != "$known" ]; then
        echo "balancer.sh: servers are now" $now
        known=$now
        kill -HUP "$nginx"
    fi
    # As a child, so that a signal ends the wait.
    sleep 2 &
    wait $! || true
done
wait "$nginx"
