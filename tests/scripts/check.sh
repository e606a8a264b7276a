#!/bin/sh
# Format, lints, licences and sources of the dependencies, strict TypeScript.
set -eu
cd "$(dirname "$0")/../.."

cargo fmt --check
cargo clippy --release --workspace --all-targets -- -D warnings
tests/scripts/deny.sh
(cd player && npm run --silent lint)
(cd tests/lab/report && npm run --silent lint)
