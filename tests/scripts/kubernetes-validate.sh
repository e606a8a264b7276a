#!/bin/bash
# kubernetes-validate.sh [OPTION...] FILE...: checks Kubernetes objects against the schemas of Kubernetes itself, with a
# tool from PyPI that brings them along, in target/tools. `--python ARGUMENT...` runs its Python, which has PyYAML.
set -euo pipefail
validator=kubernetes-validate==1.37.0
venv=$(dirname "$(readlink -f "$0")")/../../target/tools/kubernetes-validate
if ! [ -x "$venv/bin/kubernetes-validate" ] || [ "$(cat "$venv/version" 2>/dev/null)" != "$validator" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$validator"
    echo "$validator" >"$venv/version"
fi
if [ "${1:-}" = --python ]; then
    exec "$venv/bin/python" "${@:2}"
fi
exec "$venv/bin/kubernetes-validate" --strict "$@"
