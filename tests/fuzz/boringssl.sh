# Sourced by tests/fuzz/run.sh and tests/scripts/mutants.sh.

# Reuses BoringSSL from `make build` in the repository at $1, if it is built: it is the same in every profile.
use_built_boringssl() {
	library=$(ls -t "$1"/target/release/build/boring-sys-*/out/build/libssl.a 2>/dev/null | head -n 1)
	if [ -n "$library" ]; then
		built=$(cd "$(dirname "$library")" && pwd)
		export BORING_BSSL_PATH="$built" BORING_BSSL_INCLUDE_PATH="${built%/build}/boringssl/include"
	fi
}
