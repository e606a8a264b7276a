#!/bin/sh
# Unit tests of the modules, in the LuaJIT that nginx uses; one file each in spec/. What they do in
# nginx is tested by tests/e2e/tests/nginx.
set -eu
cd "$(dirname "$0")"
exec busted --lua="$(command -v luajit)" --lpath='./?.lua' --output=plainTerminal spec
