use std::time::Duration;

use millrace_cc::Bandwidth;
use millrace_cc::rate_cap::PlayerNeeds;

use super::ladder::BitrateLadder;

/// What dash.js asks for over what it needs at least (5.2.1, `rtpSafetyFactor` in `CmcdModel.js`).
const REQUESTED_GAIN: f64 = 5.0;
/// Level that an empty buffer counts as (`_calculateRtp` there).
const EMPTY_LEVEL_S: f64 = 0.5;

/// What dash.js 5.2.1 says of itself (CMCD) with a request for a segment of `rung`.
pub(super) fn reported_needs(
    ladder: &BitrateLadder,
    rung: usize,
    level: Duration,
    is_urgent: bool,
) -> PlayerNeeds {
    let level_s = if level.is_zero() { EMPTY_LEVEL_S } else { level.as_secs_f64() };
    let requested_kbps = REQUESTED_GAIN * ladder.kbps(rung) as f64 * ladder.segment_s() / level_s;
    // The next multiple of 100.
    let requested_kbps = ((requested_kbps / 100.0).floor() + 1.0) * 100.0;
    PlayerNeeds {
        buffer: Some(level),
        rate: Some(Bandwidth::from_bits_per_s(1000 * ladder.rungs[rung].kbps)),
        top_rate: ladder.rungs.last().map(|rung| Bandwidth::from_bits_per_s(1000 * rung.kbps)),
        requested_rate: Some(Bandwidth::from_mbps(requested_kbps / 1e3)),
        is_urgent,
        is_live: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_the_level_the_top_rung_and_five_times_what_the_segment_needs() {
        let ladder = BitrateLadder::recorded();
        let top = ladder.rungs.len() - 1;
        let needs = reported_needs(&ladder, top, Duration::from_secs(10), false);
        let top_kbps = ladder.rungs[top].kbps;
        assert_eq!(needs.buffer, Some(Duration::from_secs(10)));
        assert_eq!(needs.top_rate, Some(Bandwidth::from_bits_per_s(1000 * top_kbps)));
        // A segment of a second: half of the rung's rate, to the next hundred.
        let requested = Bandwidth::from_bits_per_s((top_kbps / 2 / 100 + 1) * 100_000);
        assert_eq!(needs.requested_rate, Some(requested));
        let empty = reported_needs(&ladder, 0, Duration::ZERO, true);
        let kbps = ladder.rungs[0].kbps;
        let requested = Bandwidth::from_bits_per_s((10 * kbps / 100 + 1) * 100_000);
        assert_eq!((empty.requested_rate, empty.is_urgent), (Some(requested), true));
    }
}
