/// Half-lives of the two averages, in weight: dash.js 5.2.1, `core/Settings.js`,
/// `abr.throughput.ewma.throughputFastHalfLifeSeconds` and `throughputSlowHalfLifeSeconds`.
const FAST_HALF_LIFE: f64 = 3.0;
const SLOW_HALF_LIFE: f64 = 8.0;
/// Weight of a millisecond of download (`weightDownloadTimeMultiplicationFactor` there).
const WEIGHT_PER_MS: f64 = 0.0015;
/// Share of the average that a rung may need (`abr.throughput.bandwidthSafetyFactor` there).
const SAFETY_FACTOR: f64 = 0.9;

/// The throughput that a player believes in: the smaller of two moving averages over the time of its downloads
/// (dash.js 5.2.1, `ThroughputModel.js` and `ThroughputController.js`, mode EWMA).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThroughputEstimate {
    fast: f64,
    slow: f64,
    weight: f64,
}

impl ThroughputEstimate {
    /// Takes a download of `bytes` in `download_ms`.
    pub(super) fn add(&mut self, bytes: u64, download_ms: u64) {
        let download_ms = download_ms.max(1) as f64;
        let kbps = (8.0 * bytes as f64 / download_ms).round();
        let weight = WEIGHT_PER_MS * download_ms;
        for (average, half_life) in
            [(&mut self.fast, FAST_HALF_LIFE), (&mut self.slow, SLOW_HALF_LIFE)]
        {
            let kept = 0.5_f64.powf(weight / half_life);
            *average = (1.0 - kept) * kbps + kept * *average;
        }
        self.weight += weight;
    }

    /// The average in kbit/s; `None` before the first download.
    pub(super) fn average_kbps(&self) -> Option<f64> {
        // Both began at zero, which is taken out.
        let corrected =
            |average: f64, half_life: f64| average / (1.0 - 0.5_f64.powf(self.weight / half_life));
        let value = corrected(self.fast, FAST_HALF_LIFE).min(corrected(self.slow, SLOW_HALF_LIFE));
        (self.weight > 0.0).then(|| value.round())
    }

    /// What a rung may need.
    pub(super) fn safe_kbps(&self) -> Option<f64> {
        self.average_kbps().map(|kbps| kbps * SAFETY_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_download_is_the_average_whatever_its_weight() {
        let mut estimate = ThroughputEstimate::default();
        assert_eq!(estimate.average_kbps(), None);
        // 125,000 bytes in half a second.
        estimate.add(125_000, 500);
        assert_eq!(estimate.average_kbps(), Some(2000.0));
        assert_eq!(estimate.safe_kbps(), Some(1800.0));
    }

    #[test]
    fn the_smaller_of_both_averages_counts() {
        // 2 s of download weigh 3, a half-life of the fast average: by hand, fast 1000/2, then 500 + 4000/2 - 500/2...
        let mut estimate = ThroughputEstimate::default();
        estimate.add(250_000, 2000);
        estimate.add(1_000_000, 2000);
        // Fast: (0.5 x 4000 + 0.25 x 1000) / 0.75 = 3000.
        // Slow, with a = 2^(-3/8) = 0.7711: ((1 - a) x 4000 + a (1 - a) x 1000) / (1 - a^2) = (4000 + 1000 a) / (1 + a) = 2693.9.
        assert_eq!(estimate.average_kbps(), Some(2694.0));
        // The fast one falls first.
        estimate.add(25_000, 2000);
        // Fast: (0.5 x 100 + 0.25 x 4000 + 0.125 x 1000) / 0.875 = 1342.9; slow: (100 + 4000 a + 1000 a^2) / (1 + a + a^2) = 1598.6.
        assert_eq!(estimate.average_kbps(), Some(1343.0));
    }
}
