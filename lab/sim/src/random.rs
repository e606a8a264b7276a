use std::ops::RangeInclusive;
use std::time::Duration;

use millrace_cc::Bandwidth;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{LinkChange, LinkRate, RandomLinkChange};

/// Purpose of a seed. Each purpose (and each flow) has its own generator, so that a draw for one does
/// not shift the draws for another.
#[derive(Clone, Copy)]
pub(crate) enum SeedPurpose {
    Link = 1,
    Changes = 2,
    Reverse = 3,
    Controller = 4,
}

/// Mixes the bits of seed, purpose and index (the finaliser of SplitMix64, Steele et al. 2014).
pub(crate) fn seed(run: u64, purpose: SeedPurpose, index: usize) -> u64 {
    let place = (purpose as u64) << 32 | index as u64;
    let mut bits = run ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Draws a link's random values.
#[derive(Debug)]
pub(crate) struct Redraw {
    ranges: RandomLinkChange,
    rng: Pcg64Mcg,
}

impl Redraw {
    pub(crate) fn new(ranges: RandomLinkChange, run_seed: u64) -> Self {
        Self { ranges, rng: Pcg64Mcg::seed_from_u64(seed(run_seed, SeedPurpose::Changes, 0)) }
    }

    /// Always three draws: whether one range is present does not change the others' values.
    pub(crate) fn draw(&mut self) -> LinkChange {
        let [rate, rtt, loss] = [(); 3].map(|()| self.rng.next_u64());
        let rates = self.ranges.rate.as_ref();
        let bps = rates.map(|range| {
            let ends = range.start().bits_per_s()..=range.end().bits_per_s();
            LinkRate::Constant(Bandwidth::from_bits_per_s(between(&ends, rate)))
        });
        let rtts = self.ranges.rtt.as_ref();
        let rtt = rtts.map(|range| {
            let ends = range.start().as_nanos() as u64..=range.end().as_nanos() as u64;
            Duration::from_nanos(between(&ends, rtt))
        });
        let share = (loss >> 11) as f64 / (1_u64 << 53) as f64;
        let losses = self.ranges.loss.as_ref();
        let loss = losses.map(|range| range.start() + (range.end() - range.start()) * share);
        LinkChange { rate: bps, rtt, loss, ..LinkChange::default() }
    }
}

/// A value between both ends, inclusive, evenly distributed.
fn between(ends: &RangeInclusive<u64>, draw: u64) -> u64 {
    let width = u128::from(ends.end() - ends.start()) + 1;
    ends.start() + ((u128::from(draw) * width) >> 64) as u64
}
