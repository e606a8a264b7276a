#!/bin/sh
# Format, lints, licences, sources and advisories of the dependencies, pinned base images, strict TypeScript.
set -eu
cd "$(dirname "$0")/../.."

tests/scripts/images.sh
cargo fmt --check
cargo clippy --release --workspace --all-targets -- -D warnings
tests/scripts/deny.sh
(cd player && npm run --silent lint)
(cd tests/lab/report && npm run --silent lint)
tests/scripts/advisories.sh registries
