#!/bin/sh
# The Rules Learner: lint, and its tests, with DuckDB and with Spark on this machine. Needs `make build`.
set -eu
cd "$(dirname "$0")/../.."

tests/scripts/learner-venv.sh
cd learner
bin=../target/learner/venv/bin
$bin/ruff check .
$bin/ruff format --check .
# Spark binds to the address of the host's name otherwise, which need not be there.
SPARK_LOCAL_IP=127.0.0.1 $bin/pytest -q -p no:cacheprovider
