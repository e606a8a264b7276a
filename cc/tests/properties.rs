//! Properties of the units that hold for any value.

use std::time::Duration;

use millrace_cc::Bandwidth;
use proptest::prelude::*;

proptest! {
    #[test]
    fn bytes_take_at_least_their_time(bytes in 0_u64..1 << 40, bits_per_s in 1_u64..1 << 40) {
        let rate = Bandwidth::from_bits_per_s(bits_per_s);
        let time = rate.time_for(bytes);
        prop_assume!(time < Duration::MAX);
        // Times are rounded up, bytes down.
        prop_assert!(rate.bytes_in(time) >= bytes.saturating_sub(1));
    }

    #[test]
    fn more_time_is_never_fewer_bytes(bits_per_s: u64, a in 0_u64..1 << 50, b in 0_u64..1 << 50) {
        let rate = Bandwidth::from_bits_per_s(bits_per_s);
        let (short, long) = (Duration::from_nanos(a.min(b)), Duration::from_nanos(a.max(b)));
        prop_assert!(rate.bytes_in(short) <= rate.bytes_in(long));
    }
}
