use std::collections::VecDeque;
use std::time::Duration;

use crate::estimators::{Regression, SentRing};
use crate::{AckedPacket, Bandwidth, LostPacket, SentPacket, Time};

/// Most epochs that wait for feedback: more than six seconds of 50 ms. The oldest is given
/// up for a newer one.
const MAX_WAITING_EPOCHS: usize = 128;
/// Share of its rate that an epoch must reach to count although data ran out, as in a relay that often
/// refills its buffer.
/// Chosen by `epoch_is_partial_only_if_missing_data_lowered_its_rate`.
const MIN_REACHED_FRACTION: f64 = 0.97;
/// Share of its length that an epoch cut short by a new rate must reach to count.
/// Chosen by `epoch_has_two_packets_at_least_and_ends_with_its_decision`.
const MIN_LENGTH_FRACTION: f64 = 0.5;
/// Least time between two RTT samples for a rate between them, as a share of the epoch.
const MIN_SAMPLE_SPREAD: f64 = 0.25;
/// Samples that a regression needs. With fewer, the rate is measured from the last sample of the previous epoch.
/// Chosen by `one_late_sample_hardly_moves_the_stretch`.
const MIN_REGRESSION_SAMPLES: u64 = 16;
/// Bounds of an epoch's ratio of receiving to sending rate: beyond them acknowledgements were delayed.
const STRETCH_BOUNDS: std::ops::RangeInclusive<f64> = 0.125..=4.0;

/// Least extent of an epoch: it ends after `duration` and `packets` packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochExtent {
    pub(super) duration: Duration,
    pub(super) packets: u64,
}

/// An RTT sample: when its packet left and when the acknowledgement came.
#[derive(Clone, Copy, Debug)]
struct Mark {
    sent: Time,
    acked: Time,
}

impl Mark {
    /// Ratio of receiving to sending rate between two samples: the packets sent within `sent` were
    /// acknowledged within `acked`.
    fn ratio_since(self, earlier: Self, least: Duration) -> Option<f64> {
        let (sent, acked) = (self.sent.since(earlier.sent), self.acked.since(earlier.acked));
        if sent < least || sent.is_zero() {
            return None;
        }
        let ratio = sent.as_secs_f64() / acked.as_secs_f64().max(1e-9);
        Some(ratio.clamp(*STRETCH_BOUNDS.start(), *STRETCH_BOUNDS.end()))
    }
}

/// Regressions of the times of sending and acknowledgement over the bytes that the epoch had sent by then.
///
/// The paper measures from the first to the last sample, including the jitter of both. The regressions are over bytes
/// and not over the times of sending: a short pause of the sender would weight the samples differently.
#[derive(Clone, Copy, Debug, Default)]
struct Regressions {
    sent: Regression,
    acked: Regression,
}

impl Regressions {
    fn add(&mut self, megabytes: f64, since: Mark, mark: Mark) {
        self.sent.add_point(megabytes, mark.sent.since(since.sent).as_secs_f64());
        self.acked.add_point(megabytes, mark.acked.since(since.acked).as_secs_f64());
    }

    /// Ratio of receiving to sending rate.
    fn ratio(&self) -> f64 {
        let ratio = self.sent.slope().value / self.acked.slope().value.max(1e-9);
        ratio.clamp(*STRETCH_BOUNDS.start(), *STRETCH_BOUNDS.end())
    }
}

/// Measurements of one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochOutcome {
    /// The decision whose rate it was sent at.
    pub(super) decision: u64,
    /// When its last packet left.
    pub(super) closed: Time,
    /// Its length.
    pub(super) duration: Duration,
    /// Rate that was sent, 10^6 bit/s: x_i.
    pub(super) sent_mbps: f64,
    /// Ratio of receiving to sending rate by the times of packets and acknowledgements, without lost
    /// packets: r^_i / x_i. `None` with too few samples.
    pub(super) stretch: Option<f64>,
    /// Mean RTT: rtt_i. `None` without a sample.
    pub(super) rtt: Option<Duration>,
    /// Packets that were acknowledged or lost.
    pub(super) packets: u64,
    /// Packets that were lost.
    pub(super) lost: u64,
    /// Whether its measurements are incomplete: data ran out, or a new rate cut it short.
    pub(super) partial: bool,
}

#[derive(Debug)]
struct Epoch {
    decision: u64,
    target: Bandwidth,
    opened: Time,
    closed: Option<Time>,
    extent: EpochExtent,
    unsettled: u64,
    sent_packets: u64,
    sent_bytes: u64,
    acked: u64,
    lost: u64,
    rtt_sum_s: f64,
    rtt_samples: u64,
    first_mark: Option<Mark>,
    last_mark: Option<Mark>,
    regressions: Regressions,
    limited: bool,
    /// Whether data ran out before it: it is not measured from the previous epoch.
    after_gap: bool,
}

impl Epoch {
    fn is_due(&self, now: Time) -> bool {
        self.sent_packets >= self.extent.packets && now.since(self.opened) >= self.extent.duration
    }

    fn outcome(&self, closed: Time, before: Option<Mark>) -> EpochOutcome {
        let duration = closed.since(self.opened);
        let sent = Bandwidth::from_bytes_and_time(self.sent_bytes, duration);
        let least = self.extent.duration.mul_f64(MIN_SAMPLE_SPREAD);
        let before = before.filter(|_| !self.after_gap).or(self.first_mark);
        let stretch = before.zip(self.last_mark).and_then(|(from, to)| to.ratio_since(from, least));
        let stretch = match self.rtt_samples >= MIN_REGRESSION_SAMPLES {
            true => stretch.map(|_| self.regressions.ratio()),
            false => stretch,
        };
        let samples = self.rtt_samples as f64;
        let short = duration < self.extent.duration.mul_f64(MIN_LENGTH_FRACTION);
        let limited = self.limited && sent < self.target.scaled(MIN_REACHED_FRACTION);
        EpochOutcome {
            decision: self.decision,
            closed,
            duration,
            sent_mbps: sent.mbps(),
            stretch,
            rtt: (samples > 0.0).then(|| Duration::from_secs_f64(self.rtt_sum_s / samples)),
            packets: self.acked + self.lost,
            lost: self.lost,
            partial: short || limited,
        }
    }
}

/// The epoch of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct PacketEpoch {
    /// Number of the epoch since the start.
    epoch: u64,
    /// Bytes that the epoch had sent with this packet.
    sent_bytes: u64,
}

/// The epochs whose packets are outstanding, oldest first.
///
/// A packet belongs to the epoch in which it was sent, by number. An epoch is complete when
/// each of its packets is acknowledged, lost or discarded, never because a later packet was
/// acknowledged: reordering is not loss.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    waiting: VecDeque<Epoch>,
    packets: SentRing<PacketEpoch>,
    /// Number of the oldest waiting epoch.
    oldest: u64,
    /// The last sample of the epoch before it.
    before: Option<Mark>,
    gap: bool,
}

impl Epochs {
    /// A packet leaves at the rate `target` of `decision`. Closes the open epoch if it is over or of
    /// another decision, and opens the next.
    pub(super) fn on_sent(
        &mut self,
        packet: &SentPacket,
        decision: u64,
        target: Bandwidth,
        extent: EpochExtent,
    ) {
        if let Some(last) = self.waiting.back_mut()
            && last.closed.is_none()
            && (last.decision != decision || last.is_due(packet.time))
        {
            last.closed = Some(packet.time);
        }
        if self.waiting.back().is_none_or(|last| last.closed.is_some()) {
            self.open(packet, decision, target, extent);
        }
        let newest = self.oldest + self.waiting.len() as u64 - 1;
        if let Some(last) = self.waiting.back_mut() {
            last.unsettled += 1;
            last.sent_packets += 1;
            last.sent_bytes += packet.bytes;
            let place = PacketEpoch { epoch: newest, sent_bytes: last.sent_bytes };
            self.packets.push(packet.number, place);
        }
    }

    fn open(&mut self, packet: &SentPacket, decision: u64, target: Bandwidth, extent: EpochExtent) {
        if self.waiting.len() >= MAX_WAITING_EPOCHS {
            self.give_up_oldest();
        }
        self.waiting.push_back(Epoch {
            decision,
            target,
            opened: packet.time,
            closed: None,
            extent,
            unsettled: 0,
            sent_packets: 0,
            sent_bytes: 0,
            acked: 0,
            lost: 0,
            rtt_sum_s: 0.0,
            rtt_samples: 0,
            first_mark: None,
            last_mark: None,
            regressions: Regressions::default(),
            limited: false,
            after_gap: std::mem::take(&mut self.gap),
        });
    }

    /// Marks a packet as acknowledged, lost or discarded. Returns its epoch if it was outstanding, and the bytes that
    /// the epoch had sent with it.
    fn settle(&mut self, number: u64) -> Option<(&mut Epoch, u64)> {
        let PacketEpoch { epoch, sent_bytes } = self.packets.take(number)?;
        let epoch = self.waiting.get_mut(usize::try_from(epoch.checked_sub(self.oldest)?).ok()?)?;
        epoch.unsettled -= 1;
        Some((epoch, sent_bytes))
    }

    /// `sampled` tells whether the packet is an RTT sample.
    pub(super) fn on_acked(&mut self, now: Time, packet: &AckedPacket, sampled: bool) {
        let Some((epoch, sent_bytes)) = self.settle(packet.number) else { return };
        epoch.acked += 1;
        if sampled {
            let mark = Mark { sent: packet.sent, acked: now };
            let first = *epoch.first_mark.get_or_insert(mark);
            epoch.regressions.add(sent_bytes as f64 / 1e6, first, mark);
            epoch.last_mark = Some(mark);
            epoch.rtt_sum_s += now.since(packet.sent).as_secs_f64();
            epoch.rtt_samples += 1;
        }
    }

    pub(super) fn on_lost(&mut self, packet: &LostPacket) {
        if let Some((epoch, _)) = self.settle(packet.number) {
            epoch.lost += 1;
        }
    }

    pub(super) fn on_discarded(&mut self, number: u64) {
        self.settle(number);
    }

    /// The application is out of data for the open epoch; a pause follows.
    pub(super) fn on_app_limited(&mut self) {
        self.gap = true;
        if let Some(last) = self.waiting.back_mut()
            && last.closed.is_none()
        {
            last.limited = true;
        }
    }

    /// Removes the oldest epoch if all of its packets were acknowledged, lost or discarded. In order, because each
    /// epoch is measured from the previous one.
    pub(super) fn pop_complete(&mut self) -> Option<EpochOutcome> {
        let oldest = self.waiting.front()?;
        let closed = oldest.closed?;
        if oldest.unsettled > 0 {
            return None;
        }
        let outcome = oldest.outcome(closed, self.before);
        self.before = oldest.last_mark.or(self.before);
        self.pop();
        Some(outcome)
    }

    /// Gives up closed epochs that have waited for longer than `limit`.
    pub(super) fn give_up_overdue(&mut self, now: Time, limit: Duration) {
        while let Some(oldest) = self.waiting.front()
            && oldest.closed.is_some_and(|closed| now.since(closed) > limit)
        {
            self.give_up_oldest();
        }
    }

    fn give_up_oldest(&mut self) {
        self.before = None;
        self.pop();
    }

    fn pop(&mut self) {
        if self.waiting.pop_front().is_some() {
            self.oldest += 1;
        }
    }

    /// Removes all epochs: their measurements are obsolete.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
#[path = "epoch_tests.rs"]
mod tests;
