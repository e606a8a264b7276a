use std::time::Duration;

use crate::Bandwidth;

/// Cap over the highest bitrate: a player whose throughput rule takes 0.9 of what it measures still sees enough for its
/// top rung (0.9 x 1.5 = 1.35; dash.js 5.2.1, `bandwidthSafetyFactor`). Sammy paces at a multiple of the highest bitrate
/// for the same reason.
const TOP_RATE_GAIN: f64 = 1.5;
/// A player with less media in its buffer is not capped.
pub const MIN_BUFFER: Duration = Duration::from_secs(10);
/// Lowest cap: figures in a wrong unit must not starve a player. The lowest audio bitrates are below.
const MIN_RATE: Bandwidth = Bandwidth::from_bits_per_s(100_000);

/// What a player says of itself with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlayerNeeds {
    /// Media in its buffer (CMCD `bl`).
    pub buffer: Option<Duration>,
    /// The bitrate of what it asks for (CMCD `br`).
    pub rate: Option<Bandwidth>,
    /// The highest bitrate that it may ask for (CMCD `tb`).
    pub top_rate: Option<Bandwidth>,
    /// The most throughput that it asks for (CMCD `rtp`).
    pub requested_rate: Option<Bandwidth>,
    /// It starts, seeks or recovers (CMCD `su`).
    pub is_urgent: bool,
    /// It plays a live stream (CMCD `st`).
    pub is_live: bool,
}

/// A cap for the answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateCap {
    /// The highest rate.
    pub rate: Bandwidth,
    /// How long it applies: the buffer drains while the answer is under way, and has [`MIN_BUFFER`] at the end of this.
    pub lasts: Duration,
}

/// Why an answer is not capped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Uncapped {
    /// The stream is live.
    Live,
    /// The request is urgent.
    Urgent,
    /// The highest bitrate is not known.
    UnknownTopRate,
    /// It asks for less than the highest bitrate: with a cap it would measure less of a path that has become faster.
    BelowTopRate,
    /// The buffer has less than [`MIN_BUFFER`], or its level is not known.
    LowBuffer,
}

impl RateCap {
    /// The cap for the answer to a request of a player with these needs.
    ///
    /// # Errors
    /// The answer is not capped.
    pub fn of(needs: &PlayerNeeds) -> Result<Self, Uncapped> {
        if needs.is_live {
            return Err(Uncapped::Live);
        }
        if needs.is_urgent {
            return Err(Uncapped::Urgent);
        }
        let top_rate = needs.top_rate.filter(|rate| *rate > Bandwidth::ZERO);
        let top_rate = top_rate.ok_or(Uncapped::UnknownTopRate)?;
        if needs.rate.is_some_and(|rate| rate < top_rate) {
            return Err(Uncapped::BelowTopRate);
        }
        let lasts = needs.buffer.and_then(|buffer| buffer.checked_sub(MIN_BUFFER));
        let lasts = lasts.ok_or(Uncapped::LowBuffer)?;
        let requested_rate = needs.requested_rate.unwrap_or(Bandwidth::ZERO);
        let rate = top_rate.scaled(TOP_RATE_GAIN).max(requested_rate).max(MIN_RATE);
        Ok(Self { rate, lasts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kbps(kbps: u64) -> Bandwidth {
        Bandwidth::from_bits_per_s(1000 * kbps)
    }

    fn needs() -> PlayerNeeds {
        PlayerNeeds {
            buffer: Some(Duration::from_millis(13_500)),
            rate: Some(kbps(3500)),
            top_rate: Some(kbps(3500)),
            requested_rate: Some(kbps(1300)),
            ..PlayerNeeds::default()
        }
    }

    fn rate(needs: &PlayerNeeds) -> Bandwidth {
        RateCap::of(needs).unwrap().rate
    }

    #[test]
    fn cap_is_one_and_a_half_times_the_top_rate_or_what_the_player_asks_for() {
        assert_eq!(rate(&needs()), kbps(5250));
        assert_eq!(rate(&PlayerNeeds { requested_rate: None, ..needs() }), kbps(5250));
        assert_eq!(rate(&PlayerNeeds { requested_rate: Some(kbps(5251)), ..needs() }), kbps(5251));
    }

    #[test]
    fn live_and_urgent_requests_and_players_without_top_rate_or_buffer_are_not_capped() {
        for (needs, reason) in [
            (PlayerNeeds { is_live: true, ..needs() }, Uncapped::Live),
            (PlayerNeeds { is_urgent: true, ..needs() }, Uncapped::Urgent),
            (PlayerNeeds { top_rate: None, ..needs() }, Uncapped::UnknownTopRate),
            (PlayerNeeds { top_rate: Some(kbps(0)), ..needs() }, Uncapped::UnknownTopRate),
            (PlayerNeeds { rate: Some(kbps(3499)), ..needs() }, Uncapped::BelowTopRate),
            (PlayerNeeds { buffer: None, ..needs() }, Uncapped::LowBuffer),
            (
                PlayerNeeds { buffer: Some(Duration::from_millis(9999)), ..needs() },
                Uncapped::LowBuffer,
            ),
            (PlayerNeeds::default(), Uncapped::UnknownTopRate),
        ] {
            assert_eq!(RateCap::of(&needs), Err(reason), "{needs:?}");
        }
    }

    #[test]
    fn cap_lasts_while_the_buffer_has_ten_seconds() {
        assert_eq!(RateCap::of(&needs()).unwrap().lasts, Duration::from_millis(3500));
        let at_limit = PlayerNeeds { buffer: Some(MIN_BUFFER), ..needs() };
        assert_eq!(RateCap::of(&at_limit).unwrap().lasts, Duration::ZERO);
    }

    #[test]
    fn cap_never_starves_a_player() {
        let tiny =
            PlayerNeeds { rate: None, top_rate: Some(kbps(1)), requested_rate: None, ..needs() };
        assert_eq!(rate(&tiny), MIN_RATE);
        let most = Some(Bandwidth::from_bits_per_s(u64::MAX));
        let huge = PlayerNeeds { rate: most, top_rate: most, ..needs() };
        assert_eq!(rate(&huge), Bandwidth::from_bits_per_s(u64::MAX));
    }
}
