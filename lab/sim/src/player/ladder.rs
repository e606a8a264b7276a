use std::time::Duration;

use super::recorded_sizes::{MANIFEST_BYTES, RUNGS};

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

    /// Whether it can be played: what is wrong with it.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let is_rising = self.rungs.is_sorted_by(|low, high| low.kbps < high.kbps);
        let has_size = |bytes: &u64| (1..=MAX_RESOURCE_BYTES).contains(bytes);
        let is_complete = |rung: &LadderRung| {
            let sizes = &rung.segment_bytes;
            has_size(&rung.init_bytes) && !sizes.is_empty() && sizes.iter().all(has_size)
        };
        match () {
            () if !(1..=MAX_RUNGS).contains(&self.rungs.len()) => {
                Some("a ladder has 1 to 64 rungs")
            }
            () if self.rungs[0].kbps == 0 || !is_rising => {
                Some("rates of the rungs must rise from above 0")
            }
            () if self.segment < Duration::from_millis(100) => Some("segments have 0.1 s and more"),
            () if !has_size(&self.manifest_bytes) || !self.rungs.iter().all(is_complete) => {
                Some("sizes are 1 byte to 1 GB, and each rung has segments")
            }
            () => None,
        }
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

const MAX_RUNGS: usize = 64;
const MAX_RESOURCE_BYTES: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_ladder_has_the_announced_rates() {
        let ladder = BitrateLadder::recorded();
        assert_eq!(ladder.problem(), None);
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
    fn ladders_that_can_not_be_played_are_found() {
        let good = BitrateLadder::recorded();
        let mut equal = good.clone();
        equal.rungs[1].kbps = equal.rungs[0].kbps;
        let mut empty = good.clone();
        empty.rungs[2].segment_bytes.clear();
        let none = BitrateLadder { rungs: Vec::new(), ..good };
        for bad in [equal, empty, none] {
            assert!(bad.problem().is_some(), "{bad:?}");
        }
    }
}
