#!/bin/sh
# Documentation links, format, structure (import cycles, crate layers, sizes of types), features of dependencies, the image's workspace, lints, licences,
# sources and advisories of the dependencies, pinned base images, strict TypeScript.
set -eu
cd "$(dirname "$0")/../.."

tests/scripts/images.sh
tests/scripts/products-alone.sh
tests/scripts/fuzz-targets.sh
node tests/scripts/links.mjs
cargo fmt --check
tests/scripts/features.sh
cargo build --quiet --release --workspace --bin millrace-structure
target/release/millrace-structure >/dev/null
# With all fuzz targets, which tests/fuzz builds to run them.
cargo clippy --release --workspace --all-targets --features millrace-fuzz-check/targets -- -D warnings
tests/scripts/deny.sh
(cd player && npm run --silent lint)
(cd lab/web && npm run --silent lint)
tests/scripts/advisories.sh registries
