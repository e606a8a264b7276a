#!/bin/sh
# Runs every fuzz target for a bounded time and fails if one finds anything.
#
#     tests/fuzz/run.sh SECONDS [TARGET...]     the targets named, else all
#     tests/fuzz/run.sh SECONDS parsers         those of parsers and controllers, which build faster
#
# SECONDS is for each target. Seeds come from corpus/TARGET (for the configuration also from its
# own tests' files); what is found on the way stays in target/fuzz/corpus/TARGET, where the next
# run begins. An input that fails is written to target/fuzz/failures, and is to become a seed with
# the fix.
set -eu

seconds=${1:-}
case $seconds in
'' | *[!0-9]* | 0)
	echo "usage: $0 SECONDS [parsers | TARGET...]; SECONDS is a whole number above 0" >&2
	exit 64
	;;
esac
shift

cd "$(dirname "$0")"
work=$(cd ../.. && pwd)/target/fuzz
triple=$(rustc -vV | sed -n 's/^host: //p')
parsers='authority cmcd config connect_udp controller datagrams enrolment first_bytes h3_connect http_connect http_forward proxy_protocol rtp rtsp socks5'
connections='admin datagram_repair in_order quic_frames rtsp_follower send_queue'
features=connections
# shellcheck disable=SC2086 # Several targets.
case $* in
'') set -- $parsers $connections ;;
parsers)
	set -- $parsers
	features=
	;;
esac

unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
. ./boringssl.sh
use_built_boringssl ../..
CARGO_TARGET_DIR=$work cargo build --quiet --release --locked --features "$features" \
	--target "$triple"

passed=0
failed=0
for target; do
	seeds=corpus/$target
	case $target in
	config)
		max_bytes=8192
		seeds="$seeds ../../tunnel/config/tests/valid ../../tunnel/config/tests/invalid"
		;;
	controller) max_bytes=4096 ;;
	admin | cmcd | first_bytes | http_connect | http_forward | rtsp | rtsp_follower) max_bytes=17000 ;;
	quic_frames) max_bytes=2048 ;;
	enrolment) max_bytes=4200 ;;
	proxy_protocol) max_bytes=4500 ;;
	*) max_bytes=1024 ;;
	esac
	mkdir -p "$work/corpus/$target" "$work/failures"
	log=$work/$target.log
	code=0
	# shellcheck disable=SC2086 # Seeds are several directories.
	"$work/$triple/release/$target" "$work/corpus/$target" $seeds \
		-artifact_prefix="$work/failures/$target-" -max_total_time="$seconds" \
		-max_len="$max_bytes" -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
		>"$log" 2>&1 || code=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
	if [ "$code" -ne 0 ]; then
		tail -n 40 "$log"
		echo "$target: FAILED, exit code $code; log: $log"
		failed=$((failed + 1))
	elif [ "${runs:-0}" -eq 0 ] || [ "${covered:-0}" -eq 0 ]; then
		echo "$target: FAILED, it ran nothing or was built without instrumentation; log: $log"
		failed=$((failed + 1))
	else
		echo "$target: ok, $runs inputs, $covered edges covered"
		passed=$((passed + 1))
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
