//! Startup: doubles the rate each round trip until the delivery rate stops growing, or packets are lost.

use super::Bbr3;
use super::model::Undo;
use super::state::Bbr3State;
use crate::bbr::gain::Gain;
use crate::estimators::RateSample;

impl Bbr3 {
    /// CheckFullBWReached().
    pub(super) fn check_full_pipe(&mut self, sample: &RateSample) {
        if self.full_pipe.is_full() || !self.round_start || sample.app_limited {
            return;
        }
        self.full_pipe.on_round(sample.rate.unwrap_or_default());
        self.filled |= self.full_pipe.is_full();
    }

    /// CheckStartupDone().
    pub(super) fn check_startup_done(&mut self, sample: &RateSample) {
        if !matches!(self.state, Bbr3State::Startup) {
            self.loss_ranges = 0;
            return;
        }
        self.check_startup_losses(sample);
        if self.filled {
            self.enter_drain();
        }
    }

    /// CheckStartupHighLoss(): a round trip after the first loss, so that a short burst of losses does not
    /// end startup.
    fn check_startup_losses(&mut self, sample: &RateSample) {
        if !self.loss_round_start {
            return;
        }
        let many = self.loss_ranges >= self.config.startup_loss_ranges;
        self.loss_ranges = 0;
        if self.filled || !many || !self.is_too_high(sample.lost_bytes, sample) {
            return;
        }
        self.undo.state = Some(Undo::Startup);
        self.filled = true;
        self.inflight_longterm = self.bdp_bytes(Gain::ONE).max(self.inflight_latest);
    }
}
