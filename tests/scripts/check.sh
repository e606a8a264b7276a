#!/bin/sh
# Documentation links, format, structure (import cycles, crate layers, sizes of types), features of dependencies, the image's workspace, lints, licences,
# sources and advisories of the dependencies, pinned base images, strict TypeScript.
set -eu
cd "$(dirname "$0")/../.."

tests/scripts/images.sh
tests/scripts/products-alone.sh
node tests/scripts/links.mjs
cargo fmt --check
tests/scripts/features.sh
cargo build --quiet --release --workspace --bin millrace-structure
target/release/millrace-structure >/dev/null
cargo clippy --release --workspace --all-targets -- -D warnings
# All fuzz targets compile, those with whole connections too; `make test-full` runs them. A target is named so that the
# flag, which their build has in tests/fuzz/.cargo/config.toml, does not apply to build scripts.
(
	. tests/fuzz/boringssl.sh
	use_built_boringssl .
	export RUSTFLAGS=--cfg=fuzzing
	cargo check --quiet --release --locked --features connections --manifest-path tests/fuzz/Cargo.toml \
		--target-dir target/fuzz-check --target "$(rustc -vV | sed -n 's/^host: //p')"
)
tests/scripts/deny.sh
(cd player && npm run --silent lint)
(cd lab/web && npm run --silent lint)
tests/scripts/advisories.sh registries
