//! Recent delivery, and the bounds from losses outside of a probe until the next one: the short-term
//! model ("When not Probing for Bandwidth").

use super::Bbr3;
use super::model::{UNBOUNDED, UNBOUNDED_RATE, UndoState};
use crate::Bandwidth;
use crate::estimators::RateSample;

impl Bbr3 {
    /// UpdateLatestDeliverySignals().
    pub(super) fn update_latest(&mut self, sample: &RateSample) {
        self.bandwidth_latest = self.bandwidth_latest.max(sample.rate.unwrap_or_default());
        self.inflight_latest = self.inflight_latest.max(sample.delivered_bytes);
    }

    /// AdvanceLatestDeliverySignals().
    pub(super) fn advance_latest(&mut self, sample: &RateSample) {
        if self.loss_round_start {
            self.bandwidth_latest = sample.rate.unwrap_or_default();
            self.inflight_latest = sample.delivered_bytes;
        }
    }

    /// UpdateCongestionSignals(), after UpdateMaxBw().
    pub(super) fn adapt_short_term(&mut self) {
        if !self.loss_round_start {
            return;
        }
        if self.loss_in_round && !self.state.is_accelerating() {
            self.lower_bounds();
        }
        self.loss_in_round = false;
    }

    /// InitLowerBounds(), LossLowerBounds(): lowers the bounds to what was delivered, but not below beta.
    fn lower_bounds(&mut self) {
        let beta = self.config.beta();
        let bandwidth = match self.bandwidth_shortterm {
            UNBOUNDED_RATE => self.max_bandwidth(),
            bound => bound,
        };
        let inflight = match self.inflight_shortterm {
            UNBOUNDED => self.window_bytes,
            bound => bound,
        };
        self.bandwidth_shortterm = self.bandwidth_latest.max(beta.of_rate(bandwidth));
        self.inflight_shortterm = self.inflight_latest.max(beta.of_bytes(inflight));
    }

    /// ResetShortTermModel().
    pub(super) fn reset_short_term(&mut self) {
        self.bandwidth_shortterm = UNBOUNDED_RATE;
        self.inflight_shortterm = UNBOUNDED;
    }

    /// ResetCongestionSignals().
    pub(super) fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.bandwidth_latest = Bandwidth::ZERO;
        self.inflight_latest = 0;
    }

    /// NoteLoss(): the first loss of a round trip counts.
    pub(super) fn note_loss(&mut self) {
        if !self.loss_in_round {
            self.loss_rounds.restart();
        }
        self.loss_in_round = true;
    }

    /// SaveStateUponLoss(), when a recovery begins (OnEnterFastRecovery). The draft's NoteLoss() also saves
    /// at the first loss of each round trip. But a loss that ends a probe restarts the count of losses, so
    /// that the next loss of the same event would save the reduced state.
    pub(super) fn save_state(&mut self) {
        self.save_window();
        self.undo = UndoState {
            state: None,
            bandwidth_shortterm: self.bandwidth_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// HandleSpuriousLossDetection().
    pub(super) fn undo_losses(&mut self) {
        self.restore_window();
        self.loss_in_round = false;
        self.full_pipe.restart_at(Bandwidth::ZERO);
        let undo = self.undo;
        self.bandwidth_shortterm = self.bandwidth_shortterm.max(undo.bandwidth_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        self.undo.state = None;
        self.return_to_probe(undo.state);
    }
}
