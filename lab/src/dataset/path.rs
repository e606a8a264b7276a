use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use clap::ValueEnum;
use millrace_cc::Bandwidth;
use millrace_sim::{LinkRate, LinkSetup, RandomLinkChange};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::runner::NotDone;
use crate::scenario::TraceFormat;
use crate::traces::Traces;

/// Range of the drawn rates. The ranges cover the paths of deployed proxies.
const RATE_MBPS: [f64; 2] = [0.5, 500.0];
/// Range of the round trips.
const RTT_MS: [f64; 2] = [5.0, 900.0];
/// Range of the buffers, in bandwidth-delay products.
const BUFFER_BDP: [f64; 2] = [0.05, 8.0];
/// Range of the random loss rates.
const LOSS: [f64; 2] = [0.0001, 0.06];
/// Share of the paths without random loss.
const LOSSLESS_SHARE: f64 = 0.4;
/// Share of the paths without jitter.
const NO_JITTER_SHARE: f64 = 0.7;
/// Share of the paths without competing flows.
const NO_RIVALS_SHARE: f64 = 0.75;
/// Share of the paths over a recorded link, unless an option sets another one.
pub(super) const RECORDED_SHARE: f64 = 0.15;
/// Share of the other paths whose round trip changes repeatedly, as in Vivace's Figure 12.
const CHANGING_RTT_SHARE: f64 = 0.15;
/// Range of the intervals between these changes.
const RTT_CHANGE_INTERVAL_S: [f64; 2] = [4.0, 15.0];
/// Smallest round trip of such a path as a fraction of its largest.
const MIN_RTT_FRACTION: f64 = 0.1;
/// Maximum jitter as a fraction of the round trip.
const MAX_JITTER_RTT_FRACTION: f64 = 0.1;
/// Maximum number of competing flows.
const MAX_RIVALS: u64 = 3;
/// Minimum size of a buffer: two packets.
const MIN_BUFFER_BYTES: u64 = 3000;

/// A path of the data set. Its JSON form is the `path` of its episodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DatasetPath {
    /// Number of the path, from 0.
    pub number: u64,
    /// Rate of the bottleneck; the mean of a recorded link.
    pub rate_mbps: f64,
    /// Two-way propagation delay.
    pub rtt_ms: f64,
    /// Buffer of the bottleneck, in bandwidth-delay products.
    pub buffer_bdp: f64,
    /// Random loss rate.
    pub loss: f64,
    /// Maximum jitter.
    pub jitter_ms: f64,
    /// Number of competing CUBIC flows.
    pub rivals: u64,
    /// Interval at which the round trip changes, to a value between a tenth of `rtt_ms` and `rtt_ms`; 0 means never.
    pub moves_every_s: f64,
    /// Path of the recorded link below the directory of traces.
    pub trace: Option<String>,
}

/// Lists the recorded links below a directory, sorted.
///
/// # Errors
/// The directory can't be listed.
pub fn recorded(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for kind in ["mahimahi", "throughput"] {
        let below = directory.join(kind);
        if !below.is_dir() {
            continue;
        }
        for entry in fs::read_dir(below)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // Recordings of the uplink carry only acknowledgements.
            if !name.ends_with(".up") {
                names.push(format!("{kind}/{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// Part of the recorded links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceSplit {
    /// All links
    All,
    /// The links to learn from
    Training,
    /// The links held out from training
    HeldOut,
}

/// Selects the links of a part. `seed` draws the third that is held out.
pub(super) fn split(mut names: Vec<String>, part: TraceSplit, seed: u64) -> Vec<String> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    // Fisher-Yates shuffle; the bias of the remainder is negligible.
    for last in (1..names.len()).rev() {
        let other = (random.next_u64() % (last as u64 + 1)) as usize;
        names.swap(last, other);
    }
    let training = names.split_off(names.len().div_ceil(3));
    let mut chosen = match part {
        TraceSplit::All => [names, training].concat(),
        TraceSplit::Training => training,
        TraceSplit::HeldOut => names,
    };
    chosen.sort();
    chosen
}

/// Recorded links to draw from, and the share of the paths that use one.
#[derive(Debug, Clone)]
pub struct RecordedLinks {
    /// Names of the links.
    pub names: Vec<String>,
    /// Share, 0 to 1.
    pub share: f64,
}

/// Draws a path. The same seed and number always give the same path.
#[must_use]
pub fn draw(seed: u64, number: u64, recorded: &RecordedLinks) -> DatasetPath {
    let traces = &recorded.names;
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // 53 bits, the precision of an f64.
    let mut even = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut wide = |[low, high]: [f64; 2]| (low.ln() + even() * (high / low).ln()).exp();
    // Each path takes the same number of draws.
    let [rate_mbps, rtt_ms, buffer_bdp, loss] =
        [RATE_MBPS, RTT_MS, BUFFER_BDP, LOSS].map(&mut wide);
    let [is_lossless, is_steady, is_alone, is_recorded, jitter, rivals, trace, is_moving] =
        std::array::from_fn(|_| even());
    let moves_every_s =
        RTT_CHANGE_INTERVAL_S[0] + even() * (RTT_CHANGE_INTERVAL_S[1] - RTT_CHANGE_INTERVAL_S[0]);
    let trace = (is_recorded < recorded.share && !traces.is_empty())
        .then(|| traces[(trace * traces.len() as f64) as usize].clone());
    let is_moving = is_moving < CHANGING_RTT_SHARE && trace.is_none();
    DatasetPath {
        number,
        rate_mbps,
        rtt_ms,
        buffer_bdp,
        moves_every_s: if is_moving { moves_every_s } else { 0.0 },
        loss: if is_lossless < LOSSLESS_SHARE { 0.0 } else { loss },
        jitter_ms: if is_steady < NO_JITTER_SHARE {
            0.0
        } else {
            jitter * MAX_JITTER_RTT_FRACTION * rtt_ms
        },
        rivals: if is_alone < NO_RIVALS_SHARE {
            0
        } else {
            1 + (rivals * MAX_RIVALS as f64) as u64
        },
        trace,
    }
}

impl DatasetPath {
    /// The repeated changes of the round trip, if any.
    #[must_use]
    pub fn rtt_changes(&self) -> Option<RandomLinkChange> {
        let seconds = |s: f64| Duration::from_secs_f64(s);
        let rtt = seconds(self.rtt_ms * MIN_RTT_FRACTION / 1e3)..=seconds(self.rtt_ms / 1e3);
        let change = |every| RandomLinkChange { every, rate: None, rtt: Some(rtt), loss: None };
        (self.moves_every_s > 0.0).then(|| change(seconds(self.moves_every_s)))
    }

    /// The bottleneck in the simulator. A recorded link sets the rate of the path.
    ///
    /// # Errors
    /// The recording is missing or invalid.
    pub fn link(&mut self, traces: &Traces) -> Result<LinkSetup, NotDone> {
        let rate = match &self.trace {
            None => LinkRate::Constant(Bandwidth::from_mbps(self.rate_mbps)),
            Some(name) => {
                let is_mahimahi = name.starts_with("mahimahi/");
                let format =
                    if is_mahimahi { TraceFormat::Mahimahi } else { TraceFormat::Throughput };
                let trace = traces.get(name, format, None)?;
                self.rate_mbps = trace.mean_rate().mbps();
                LinkRate::Trace(trace)
            }
        };
        let rtt = Duration::from_secs_f64(self.rtt_ms / 1e3);
        let bdp_bytes = self.rate_mbps * 1e6 / 8.0 * rtt.as_secs_f64();
        let buffer_bytes = ((self.buffer_bdp * bdp_bytes) as u64).max(MIN_BUFFER_BYTES);
        let jitter = Duration::from_secs_f64(self.jitter_ms / 1e3);
        let plain = LinkSetup::new(Bandwidth::from_mbps(self.rate_mbps), rtt, buffer_bytes);
        Ok(LinkSetup { rate, loss: self.loss, jitter, ..plain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_separates_training_from_held_out_links() {
        let all: Vec<String> = (0..14).map(|number| format!("{number:02}")).collect();
        let of = |part, seed| split(all.clone(), part, seed);
        assert_eq!(of(TraceSplit::All, 1), all);
        let (training, held_out) = (of(TraceSplit::Training, 1), of(TraceSplit::HeldOut, 1));
        assert_eq!((training.len(), held_out.len()), (9, 5));
        assert!(training.iter().all(|name| !held_out.contains(name)));
        assert_eq!(held_out, of(TraceSplit::HeldOut, 1));
        assert_ne!(held_out, of(TraceSplit::HeldOut, 2));
        assert!(split(Vec::new(), TraceSplit::HeldOut, 1).is_empty());
    }

    fn recorded(share: f64) -> RecordedLinks {
        let names = vec!["throughput/a".to_owned(), "throughput/b".to_owned()];
        RecordedLinks { names, share }
    }

    #[test]
    fn more_recorded_links_leave_the_other_paths_as_they_are() {
        let (few, more) = (recorded(0.15), recorded(0.2));
        let mut counts = (0, 0);
        for number in 0..2000 {
            let (a, b) = (draw(7, number, &few), draw(7, number, &more));
            counts.0 += u32::from(a.trace.is_some());
            counts.1 += u32::from(b.trace.is_some());
            assert!(a == b || a.trace.is_none() && b.trace.is_some(), "{number}");
        }
        assert!((250..350).contains(&counts.0) && (360..440).contains(&counts.1), "{counts:?}");
        assert!(draw(7, 0, &recorded(1.0)).trace.is_some());
    }

    #[test]
    fn drawn_paths_cover_ranges_and_are_reproducible() {
        let traces = recorded(RECORDED_SHARE);
        let paths: Vec<DatasetPath> = (0..2000).map(|number| draw(7, number, &traces)).collect();
        assert_eq!(paths[1234], draw(7, 1234, &traces));
        assert_ne!(paths[0].rate_mbps, draw(8, 0, &traces).rate_mbps);
        let share = |is: &dyn Fn(&DatasetPath) -> bool| {
            paths.iter().filter(|path| is(path)).count() as f64 / paths.len() as f64
        };
        let assert_close =
            |share: f64, wanted: f64| assert!((share - wanted).abs() < 0.04, "{share}");
        assert_close(share(&|path| path.loss == 0.0), LOSSLESS_SHARE);
        assert_close(share(&|path| path.jitter_ms == 0.0), NO_JITTER_SHARE);
        assert_close(share(&|path| path.rivals == 0), NO_RIVALS_SHARE);
        assert_close(share(&|path| path.trace.is_some()), RECORDED_SHARE);
        assert_close(
            share(&|path| path.rtt_changes().is_some()),
            CHANGING_RTT_SHARE * (1.0 - RECORDED_SHARE),
        );
        // Half of the paths lie below the geometric mean.
        assert_close(share(&|path| path.rate_mbps < 15.8), 0.5);
        assert_close(share(&|path| path.rtt_ms < 67.1), 0.5);
        for path in &paths {
            assert!((RATE_MBPS[0]..=RATE_MBPS[1]).contains(&path.rate_mbps), "{path:?}");
            assert!(path.loss <= LOSS[1] && path.rivals <= MAX_RIVALS, "{path:?}");
            assert!(path.jitter_ms <= MAX_JITTER_RTT_FRACTION * path.rtt_ms, "{path:?}");
        }
    }
}
