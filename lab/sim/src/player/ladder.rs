use std::time::Duration;

use super::recorded_sizes::{MANIFEST_BYTES, RUNGS};
use crate::setup_checks::{SetupError, check};

/// Bits of the player's set of initialised rungs.
const MAX_RUNGS: usize = 64;
const MIN_SEGMENT: Duration = Duration::from_millis(100);
const MAX_SEGMENT: Duration = Duration::from_secs(60);
const MAX_RESOURCE_BYTES: u64 = 1_000_000_000;

/// What a player can fetch: a manifest, and the same segments at several rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitrateLadder {
    /// Size of the manifest.
    pub manifest_bytes: u64,
    /// Length of each segment.
    pub segment: Duration,
    /// The rungs, with rising rates.
    pub rungs: Vec<LadderRung>,
}

/// One rate of a presentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderRung {
    /// The announced rate.
    pub kbps: u64,
    /// Size of the initialisation segment.
    pub init_bytes: u64,
    /// Sizes of the segments. The presentation repeats them without end.
    pub segment_bytes: Vec<u64>,
}

impl BitrateLadder {
    /// The presentation that the browsers of the lab play, with the sizes that its encoder wrote.
    #[must_use]
    pub fn recorded() -> Self {
        let rung = |(kbps, init_bytes, sizes): &(u64, u64, [u64; 30])| LadderRung {
            kbps: *kbps,
            init_bytes: *init_bytes,
            segment_bytes: sizes.to_vec(),
        };
        Self {
            manifest_bytes: MANIFEST_BYTES,
            segment: Duration::from_secs(1),
            rungs: RUNGS.iter().map(rung).collect(),
        }
    }

    pub(super) fn validate(&self, what: &str) -> Result<(), SetupError> {
        check((1..=MAX_RUNGS).contains(&self.rungs.len()), || {
            format!("{what}: {} rungs; allowed are 1 to {MAX_RUNGS}", self.rungs.len())
        })?;
        check((MIN_SEGMENT..=MAX_SEGMENT).contains(&self.segment), || {
            format!("{what}: segments of {:?}; allowed are 0.1 to 60 s", self.segment)
        })?;
        let rates: Vec<u64> = self.rungs.iter().map(|rung| rung.kbps).collect();
        check(rates[0] > 0 && rates.is_sorted_by(|low, high| low < high), || {
            format!(
                "{what}: rungs of {rates:?} kbit/s; each rate must be above the one before, the first \
                 above 0"
            )
        })?;
        check_size(&format!("{what}: manifest"), self.manifest_bytes)?;
        self.rungs.iter().try_for_each(|rung| rung.validate(what))
    }

    pub(super) fn segment_bytes(&self, rung: usize, index: u64) -> u64 {
        let sizes = &self.rungs[rung].segment_bytes;
        sizes[(index % sizes.len() as u64) as usize]
    }

    pub(super) fn segment_s(&self) -> f64 {
        self.segment.as_secs_f64()
    }

    pub(super) fn kbps(&self, rung: usize) -> u64 {
        self.rungs[rung].kbps
    }

    /// The highest rung of at most `kbps`, or the lowest.
    pub(super) fn best_within(&self, kbps: f64) -> usize {
        self.rungs.iter().rposition(|rung| rung.kbps as f64 <= kbps).unwrap_or(0)
    }
}

impl LadderRung {
    fn validate(&self, what: &str) -> Result<(), SetupError> {
        let what = format!("{what}: rung of {} kbit/s", self.kbps);
        check(!self.segment_bytes.is_empty(), || format!("{what}: no segments; it needs one"))?;
        check_size(&format!("{what}: initialisation segment"), self.init_bytes)?;
        self.segment_bytes
            .iter()
            .enumerate()
            .try_for_each(|(index, bytes)| check_size(&format!("{what}: segment {index}"), *bytes))
    }
}

fn check_size(what: &str, bytes: u64) -> Result<(), SetupError> {
    check((1..=MAX_RESOURCE_BYTES).contains(&bytes), || {
        format!("{what} of {bytes} bytes; allowed are 1 byte to 1 GB")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_ladder_has_the_announced_rates() {
        let ladder = BitrateLadder::recorded();
        assert_eq!(ladder.validate("ladder"), Ok(()));
        assert_eq!(
            ladder.rungs.iter().map(|rung| rung.kbps).collect::<Vec<_>>(),
            [350, 620, 1570, 2540, 3600]
        );
        for rung in &ladder.rungs {
            let bytes: u64 = rung.segment_bytes.iter().sum();
            let mean_kbps = bytes as f64 * 8.0 / 1000.0 / rung.segment_bytes.len() as f64;
            assert!(
                (mean_kbps / rung.kbps as f64 - 1.0).abs() < 0.05,
                "{}: {mean_kbps}",
                rung.kbps
            );
        }
    }

    #[test]
    fn the_best_rung_is_the_highest_that_fits_and_else_the_lowest() {
        let ladder = BitrateLadder::recorded();
        let rungs =
            [0.0, 349.0, 619.9, 620.0, 2000.0, 3600.0, 1e9].map(|kbps| ladder.best_within(kbps));
        assert_eq!(rungs, [0, 0, 0, 1, 2, 4, 4]);
    }

    #[test]
    fn ladder_that_cannot_be_played_is_rejected_with_the_value_and_the_range() {
        let good = BitrateLadder::recorded();
        let mut equal = good.clone();
        equal.rungs[1].kbps = equal.rungs[0].kbps;
        let mut empty = good.clone();
        empty.rungs[2].segment_bytes.clear();
        let mut zero = good.clone();
        zero.rungs[4].segment_bytes[7] = 0;
        let none = BitrateLadder { rungs: Vec::new(), ..good.clone() };
        let short = BitrateLadder { segment: Duration::from_millis(99), ..good };
        for (bad, problem) in [
            (
                equal,
                "flow 0: rungs of [350, 350, 1570, 2540, 3600] kbit/s; each rate must be above the one before, \
                 the first above 0",
            ),
            (empty, "flow 0: rung of 1570 kbit/s: no segments; it needs one"),
            (zero, "flow 0: rung of 3600 kbit/s: segment 7 of 0 bytes; allowed are 1 byte to 1 GB"),
            (none, "flow 0: 0 rungs; allowed are 1 to 64"),
            (short, "flow 0: segments of 99ms; allowed are 0.1 to 60 s"),
        ] {
            assert_eq!(bad.validate("flow 0").unwrap_err().to_string(), problem);
        }
    }
}
