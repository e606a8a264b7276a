#!/bin/sh
# The start of the example's origin.
set -eu
if [ -n "${ORIGIN:-}" ]; then
    echo "origin.sh: ORIGIN is $ORIGIN, so this example is not needed"
    exit 0
fi
exec nginx -e stderr -g "daemon off;" -c /etc/millrace/nginx/origin/nginx.conf
