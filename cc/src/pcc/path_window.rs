use std::time::Duration;

use super::base_rtt::{BaseRtt, RttContext, TrialFinding};
use super::config::PccConfig;
use crate::estimators::{LossWindow, LossWindowConfig};
use crate::{CongestionEvent, Time};

/// The bound in flight after an overflow, as a share of what was in flight and not lost.
const OVERFLOW_DECREASE: f64 = 0.7;
/// An overflow that loses more than this share of what was in flight is severe. Flows that share a buffer cause each other
/// smaller ones.
const SEVERE_LOSS: f64 = 0.2;

/// Bounds the bytes in flight by the path's RTT without a queue, and by what its buffer has held.
#[derive(Debug)]
pub(super) struct PathWindow {
    /// Latency-sensitive members, and those with `base_rtt_window`.
    base_rtt: Option<BaseRtt>,
    /// Present with `loss_window_s`.
    loss_window: Option<LossWindow>,
}

impl PathWindow {
    pub(super) fn new(config: &PccConfig) -> Self {
        let is_latency_sensitive = config.utility.is_latency_sensitive();
        let loss_window = (config.loss_window_s > 0.0).then(|| {
            LossWindow::new(LossWindowConfig {
                memory: Duration::from_secs_f64(config.loss_window_s),
                growth_packets: config.loss_window_growth,
                decrease: OVERFLOW_DECREASE,
                severe_loss: SEVERE_LOSS,
                // Without a regard for latency a queue grows until the buffer overflows.
                from_first_queue: !is_latency_sensitive,
            })
        });
        Self {
            base_rtt: (is_latency_sensitive || config.base_rtt_window)
                .then(|| BaseRtt::new(config.queue_headroom())),
            loss_window,
        }
    }

    /// Processes the RTT sample of an event, with the rate in force. If it shows that the path has become longer,
    /// returns the rate before, which the window may have limited since.
    pub(super) fn on_rtt(&mut self, event: &CongestionEvent<'_>, rate_mbps: f64) -> Option<f64> {
        let (base, rtt) = (self.base_rtt.as_mut()?, event.rtt?);
        let found = base.add(&RttContext {
            now: event.now,
            latest: rtt.latest,
            smoothed: rtt.smoothed,
            rate_mbps,
            in_flight_bytes: event.prior_in_flight_bytes,
        })?;
        match (found, &mut self.loss_window) {
            (TrialFinding::LongerPath { rate_mbps }, window) => {
                // What counted as overflows since were random losses.
                window.iter_mut().for_each(LossWindow::forget);
                return Some(rate_mbps);
            }
            (TrialFinding::Queue, Some(window)) => window.on_drained(event.now),
            (TrialFinding::Queue, None) => {}
        }
        None
    }

    /// Processes acknowledgements and losses; `window_bytes` is the window without the bound after an overflow.
    pub(super) fn on_event(
        &mut self,
        event: &CongestionEvent<'_>,
        window_bytes: u64,
        mtu_bytes: u64,
    ) {
        let base = self.base_rtt.as_ref().and_then(BaseRtt::queue_free);
        if let (Some(window), Some(base)) = (&mut self.loss_window, base) {
            window.on_event(event, base, window_bytes, mtu_bytes);
        }
    }

    /// Timeouts: losses of what was sent before show no overflow.
    pub(super) fn on_timeout(&mut self, now: Time) {
        if let Some(window) = &mut self.loss_window {
            window.on_timeout(now);
        }
    }

    /// The smallest RTT of the path at a warm start, whose queue may stand.
    pub(super) fn begin_with(&mut self, now: Time, min_rtt: Duration) {
        if let Some(base) = &mut self.base_rtt {
            base.begin_with(now, min_rtt);
        }
    }

    /// RTT from which on a queue stands; `None` while the base RTT is unknown.
    pub(super) fn standing_queue_rtt_s(&self) -> Option<f64> {
        Some(self.base_rtt.as_ref()?.standing_queue_rtt()?.as_secs_f64())
    }

    /// The time that the window covers by the base RTT, s.
    pub(super) fn horizon_s(&self) -> Option<f64> {
        self.base_rtt.as_ref().and_then(BaseRtt::window_horizon_s)
    }

    /// `window_bytes`, bounded.
    pub(super) fn bounded(&self, window_bytes: u64) -> u64 {
        let window = self.loss_window.as_ref().map_or(window_bytes, |it| it.bound(window_bytes));
        let trial = self.base_rtt.as_ref().and_then(BaseRtt::trial_window_bytes);
        window.min(trial.unwrap_or(u64::MAX))
    }

    /// Whether less is in flight on trial, and not what the rate asks for.
    pub(super) fn is_trying(&self) -> bool {
        self.base_rtt.as_ref().and_then(BaseRtt::trial_window_bytes).is_some()
    }

    /// Whether an overflow is remembered.
    pub(super) fn has_overflowed(&self, now: Time) -> bool {
        self.loss_window.is_some_and(|window| window.has_overflowed(now))
    }
}
