#!/bin/sh
# Makes target/learner/venv with the Rules Learner and what its lock file has; does nothing when it is there.
set -eu
cd "$(dirname "$0")/../.."

venv=target/learner/venv
lock=learner/requirements.txt
cmp -s $lock $venv/requirements.txt && exit 0
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "learner: Python 3.11 or newer is needed, this is $(python3 --version)" >&2
    exit 1
}
echo "learner: installing its Python packages" >&2
python3 -m venv --clear $venv
$venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $lock
$venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable learner
cp $lock $venv/requirements.txt
