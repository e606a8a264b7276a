use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use clap::ValueEnum;
use millrace_cc::Bandwidth;
use millrace_sim::{Link, RandomChange, Rate};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::runner::NotDone;
use crate::scenario::TraceFormat;
use crate::traces::Traces;

/// Sizes of paths that are drawn: wide enough for all that a proxy meets.
const RATE_MBPS: [f64; 2] = [0.5, 500.0];
const RTT_MS: [f64; 2] = [5.0, 900.0];
const BUFFER_BDP: [f64; 2] = [0.05, 8.0];
const LOSS: [f64; 2] = [0.0001, 0.06];
/// Of the paths: without chance losses, without jitter, without rivals, over a recorded link.
const LOSSLESS: f64 = 0.4;
const STEADY: f64 = 0.7;
const ALONE: f64 = 0.75;
const RECORDED: f64 = 0.15;
/// And with a round trip that changes again and again, as in Vivace's Figure 12: so much of the others.
const MOVING: f64 = 0.15;
/// Its changes are so far apart...
const MOVES_EVERY_S: [f64; 2] = [4.0, 15.0];
/// ...and the shortest round trip is this part of the longest.
const LEAST_OF_RTT: f64 = 0.1;
/// Jitter of the others, of the round trip.
const MOST_JITTER: f64 = 0.1;
const MOST_RIVALS: u64 = 3;
/// A buffer holds two packets at least.
const LEAST_BUFFER_BYTES: u64 = 3000;

/// A path of the grid. As JSON it is the `path` of its episodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GridPath {
    /// From 0 on.
    pub number: u64,
    /// Of the bottleneck; of a recorded one its mean.
    pub rate_mbps: f64,
    /// Propagation, both ways.
    pub rtt_ms: f64,
    /// Of the bottleneck, in bandwidth-delay products.
    pub buffer_bdp: f64,
    /// By chance.
    pub loss: f64,
    /// The most of it.
    pub jitter_ms: f64,
    /// CUBIC flows beside.
    pub rivals: u64,
    /// How often the round trip is drawn anew, from a tenth of `rtt_ms` up to it; never where it is 0.
    pub moves_every_s: f64,
    /// The recorded link, below the directory of traces.
    pub trace: Option<String>,
}

/// The recorded links below a directory, in order.
///
/// # Errors
/// It can't be listed.
pub fn recorded(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for kind in ["mahimahi", "throughput"] {
        let below = directory.join(kind);
        if !below.is_dir() {
            continue;
        }
        for entry in fs::read_dir(below)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // Data go down.
            if !name.ends_with(".up") {
                names.push(format!("{kind}/{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// Some of the recorded links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// All of them.
    All,
    /// Those to learn from.
    Training,
    /// The others.
    HeldOut,
}

/// A third is held out, drawn by `seed`.
pub(super) fn part_of(mut names: Vec<String>, part: Part, seed: u64) -> Vec<String> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    // Fisher and Yates; what the remainder favours among a dozen of 2^64 is nothing.
    for last in (1..names.len()).rev() {
        let other = (random.next_u64() % (last as u64 + 1)) as usize;
        names.swap(last, other);
    }
    let training = names.split_off(names.len().div_ceil(3));
    let mut chosen = match part {
        Part::All => [names, training].concat(),
        Part::Training => training,
        Part::HeldOut => names,
    };
    chosen.sort();
    chosen
}

/// Draws a path. The same seed and number give the same one, whatever others are drawn.
#[must_use]
pub fn draw(seed: u64, number: u64, traces: &[String]) -> GridPath {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // 53 bits, as many as the fraction of an f64 has.
    let mut even = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut wide = |[low, high]: [f64; 2]| (low.ln() + even() * (high / low).ln()).exp();
    // What has sense on paper, and the same number of draws for each path.
    let [rate_mbps, rtt_ms, buffer_bdp, loss] =
        [RATE_MBPS, RTT_MS, BUFFER_BDP, LOSS].map(&mut wide);
    let [is_lossless, is_steady, is_alone, is_recorded, jitter, rivals, trace, is_moving] =
        std::array::from_fn(|_| even());
    let moves_every_s = MOVES_EVERY_S[0] + even() * (MOVES_EVERY_S[1] - MOVES_EVERY_S[0]);
    let trace = (is_recorded < RECORDED && !traces.is_empty())
        .then(|| traces[(trace * traces.len() as f64) as usize].clone());
    let is_moving = is_moving < MOVING && trace.is_none();
    GridPath {
        number,
        rate_mbps,
        rtt_ms,
        buffer_bdp,
        moves_every_s: if is_moving { moves_every_s } else { 0.0 },
        loss: if is_lossless < LOSSLESS { 0.0 } else { loss },
        jitter_ms: if is_steady < STEADY { 0.0 } else { jitter * MOST_JITTER * rtt_ms },
        rivals: if is_alone < ALONE { 0 } else { 1 + (rivals * MOST_RIVALS as f64) as u64 },
        trace,
    }
}

impl GridPath {
    /// What becomes of its round trip.
    #[must_use]
    pub fn moves(&self) -> Option<RandomChange> {
        let seconds = |s: f64| Duration::from_secs_f64(s);
        let rtt = seconds(self.rtt_ms * LEAST_OF_RTT / 1e3)..=seconds(self.rtt_ms / 1e3);
        let change = |every| RandomChange { every, rate: None, rtt: Some(rtt), loss: None };
        (self.moves_every_s > 0.0).then(|| change(seconds(self.moves_every_s)))
    }

    /// The bottleneck in the simulator; a recorded one sets the path's rate.
    ///
    /// # Errors
    /// The recording is not there, or is none.
    pub fn link(&mut self, traces: &Traces) -> Result<Link, NotDone> {
        let rate = match &self.trace {
            None => Rate::Constant(Bandwidth::from_mbps(self.rate_mbps)),
            Some(name) => {
                let is_mahimahi = name.starts_with("mahimahi/");
                let format =
                    if is_mahimahi { TraceFormat::Mahimahi } else { TraceFormat::Throughput };
                let trace = traces.get(name, format)?;
                self.rate_mbps = trace.mean_rate().mbps();
                Rate::Trace(trace)
            }
        };
        let rtt = Duration::from_secs_f64(self.rtt_ms / 1e3);
        let bdp_bytes = self.rate_mbps * 1e6 / 8.0 * rtt.as_secs_f64();
        let buffer_bytes = ((self.buffer_bdp * bdp_bytes) as u64).max(LEAST_BUFFER_BYTES);
        let jitter = Duration::from_secs_f64(self.jitter_ms / 1e3);
        let plain = Link::new(Bandwidth::from_mbps(self.rate_mbps), rtt, buffer_bytes);
        Ok(Link { rate, loss: self.loss, jitter, ..plain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_either_learnt_from_or_held_out() {
        let all: Vec<String> = (0..14).map(|number| format!("{number:02}")).collect();
        let of = |part, seed| part_of(all.clone(), part, seed);
        assert_eq!(of(Part::All, 1), all);
        let (training, held_out) = (of(Part::Training, 1), of(Part::HeldOut, 1));
        assert_eq!((training.len(), held_out.len()), (9, 5));
        assert!(training.iter().all(|name| !held_out.contains(name)));
        assert_eq!(held_out, of(Part::HeldOut, 1));
        assert_ne!(held_out, of(Part::HeldOut, 2));
        assert!(part_of(Vec::new(), Part::HeldOut, 1).is_empty());
    }

    #[test]
    fn paths_are_wide_and_always_the_same() {
        let traces = ["throughput/a".to_owned(), "throughput/b".to_owned()];
        let paths: Vec<GridPath> = (0..2000).map(|number| draw(7, number, &traces)).collect();
        assert_eq!(paths[1234], draw(7, 1234, &traces));
        assert_ne!(paths[0].rate_mbps, draw(8, 0, &traces).rate_mbps);
        let share = |is: &dyn Fn(&GridPath) -> bool| {
            paths.iter().filter(|path| is(path)).count() as f64 / paths.len() as f64
        };
        let near = |share: f64, wanted: f64| assert!((share - wanted).abs() < 0.04, "{share}");
        near(share(&|path| path.loss == 0.0), LOSSLESS);
        near(share(&|path| path.jitter_ms == 0.0), STEADY);
        near(share(&|path| path.rivals == 0), ALONE);
        near(share(&|path| path.trace.is_some()), RECORDED);
        near(share(&|path| path.moves().is_some()), MOVING * (1.0 - RECORDED));
        // Half of the decades below the geometric mean.
        near(share(&|path| path.rate_mbps < 15.8), 0.5);
        near(share(&|path| path.rtt_ms < 67.1), 0.5);
        for path in &paths {
            assert!((RATE_MBPS[0]..=RATE_MBPS[1]).contains(&path.rate_mbps), "{path:?}");
            assert!(path.loss <= LOSS[1] && path.rivals <= MOST_RIVALS, "{path:?}");
            assert!(path.jitter_ms <= MOST_JITTER * path.rtt_ms, "{path:?}");
        }
    }
}
