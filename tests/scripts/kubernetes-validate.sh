#!/bin/bash
# kubernetes-validate.sh [OPTION...] FILE...: checks Kubernetes objects against the schemas of Kubernetes itself, with a
# tool from PyPI that brings them along, in target/tools. `--python ARGUMENT...` runs its Python, which has PyYAML.
set -euo pipefail
validator=kubernetes-validate==1.37.0
tools=$(dirname "$(readlink -f "$0")")/../../target/tools
venv=$tools/kubernetes-validate
mkdir -p "$tools"
# Two scripts that run at once install it once.
exec 9>"$venv.lock"
flock 9
if ! [ -x "$venv/bin/kubernetes-validate" ] || [ "$(cat "$venv/version" 2>/dev/null)" != "$validator" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$validator"
    echo "$validator" >"$venv/version"
fi
exec 9>&-
if [ "${1:-}" = --python ]; then
    exec "$venv/bin/python" "${@:2}"
fi
exec "$venv/bin/kubernetes-validate" --strict "$@"
