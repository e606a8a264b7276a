//! `[spread]`: what differs between repeats beside the seed of random events.
//!
//! Where nothing on the path is random, repeats would otherwise be the same run again, and their interval would say
//! nothing.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::model::{RepeatSpread, Scenario};
use super::reader::TableReader;
use super::tree::ScenarioResult;

/// Default of [`RepeatSpread::rtt`].
const RTT: f64 = 0.02;
/// Default of [`RepeatSpread::start_s`].
const START_S: f64 = 0.2;
/// Starts are late by at most this share of the run: a short run must not lose its beginning.
const MAX_START_FRACTION: f64 = 0.01;
/// Keeps these draws apart from those of losses.
const SPREAD_SEED: u64 = 0x7370_7265_6164;

impl Default for RepeatSpread {
    fn default() -> Self {
        Self { rtt: RTT, start_s: START_S }
    }
}

/// The table, or the defaults.
pub(super) fn read(reader: Option<TableReader<'_>>) -> ScenarioResult<RepeatSpread> {
    let mut spread = RepeatSpread::default();
    let Some(mut reader) = reader else { return Ok(spread) };
    spread.rtt = reader.number("rtt", 0.0..=0.5, spread.rtt)?;
    spread.start_s = reader.number("start_s", 0.0..=10.0, spread.start_s)?;
    reader.finish()?;
    Ok(spread)
}

impl Scenario {
    /// This scenario with the round trip and the starts of the run with `seed`. Sessions of players keep their start,
    /// because their length is their media's.
    #[must_use]
    pub fn drawn(&self, seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ SPREAD_SEED);
        // 32 random bits, evenly between 0 and 1.
        let mut share = || f64::from(rng.next_u32()) / f64::from(u32::MAX);
        let mut drawn = self.clone();
        let factor = 1.0 + self.spread.rtt * (2.0 * share() - 1.0);
        drawn.link.rtt_ms *= factor;
        for rtt_ms in drawn.link.change.iter_mut().filter_map(|change| change.rtt_ms.as_mut()) {
            *rtt_ms *= factor;
        }
        let latest_s = self.spread.start_s.min(MAX_START_FRACTION * self.duration_s);
        for group in drawn.groups.iter_mut().filter(|group| !group.is_watched()) {
            let starts = (0..group.count).map(|number| group.start_of_s(number));
            let room = starts.map(|start_s| latest_s.min((group.stop_s - start_s) / 2.0));
            group.late_s = room.map(|room_s| room_s * share()).collect();
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::scenario::ScenarioFile;

    use super::*;

    fn scenario(more: &str) -> Scenario {
        let text = format!(
            "name = \"a\"\ntitle = \"A\"\nduration_s = 100\n{more}[link]\nrate_mbps = 10\nrtt_ms = 50\n\
             buffer_bytes = 25000\n[[link.change]]\nat_s = 5\nrtt_ms = 100\n[[flow]]\ncc = \"cubic\"\ncount = 3\n\
             start_every_s = 10\n"
        );
        let file = ScenarioFile::parse(&text, Path::new("a.toml")).unwrap();
        file.cells.into_iter().next().unwrap().scenario
    }

    #[test]
    fn runs_with_other_seeds_have_other_round_trips_and_starts() {
        let scenario = scenario("");
        let drawn: Vec<Scenario> = (1..=20).map(|seed| scenario.drawn(seed)).collect();
        assert_eq!(drawn[0], scenario.drawn(1), "by the seed alone");
        for (index, run) in drawn.iter().enumerate() {
            assert!((49.0..=51.0).contains(&run.link.rtt_ms), "{}", run.link.rtt_ms);
            let later = run.link.change[0].rtt_ms.unwrap();
            assert!((later / run.link.rtt_ms - 2.0).abs() < 1e-9, "the same factor: {later}");
            assert!(drawn[..index].iter().all(|other| other.link.rtt_ms != run.link.rtt_ms));
            for number in 0..3 {
                let late_s = run.groups[0].start_of_s(number) - 10.0 * number as f64;
                assert!((0.0..=0.2).contains(&late_s), "{late_s}");
            }
            assert_eq!(run.groups[0].scheduled_start_of_s(1), 10.0);
        }
        let starts = |run: &Scenario| run.groups[0].start_of_s(0);
        assert!(drawn.iter().map(starts).reduce(f64::max) > Some(0.1));
    }

    #[test]
    fn without_spread_all_runs_are_as_the_scenario_says() {
        let scenario = scenario("spread = { rtt = 0, start_s = 0 }\n");
        let drawn = scenario.drawn(7);
        assert_eq!(drawn.link, scenario.link);
        assert_eq!((drawn.groups[0].start_of_s(0), drawn.groups[0].start_of_s(2)), (0.0, 20.0));
    }
}
