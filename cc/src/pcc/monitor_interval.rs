use std::collections::VecDeque;
use std::time::Duration;

use super::rtt_floors::RttFloors;
use crate::estimators::{Regression, Slope};
use crate::{AckedPacket, Bandwidth, LostPacket, SentPacket, Time};

/// Words of 64 packets that an interval has room for at once: 1,024 packets are 12 ms of 1 Gbit/s. Longer ones grow.
const USUAL_WORDS: usize = 16;
/// Most packet numbers that one interval may span: bounds its memory to 128 KiB. At 10
/// Gbit/s that is more than one second.
const MAX_SPAN_PACKETS: u64 = 1 << 20;
/// Most intervals that wait for feedback. One round has two probes, so more only
/// accumulate without feedback; the oldest is then given up.
const MAX_WAITING_INTERVALS: usize = 16;

/// Losses above a limit by this many standard errors are not random (a confidence of 95 %).
const SIGNIFICANT_ERRORS: f64 = 2.0;

/// Least extent of an interval: it ends after `duration` and `packets` packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntervalExtent {
    pub(super) duration: Duration,
    pub(super) packets: u64,
}

/// Measurements of one monitor interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntervalOutcome {
    /// Intended rate, 10^6 bit/s.
    pub(super) target_mbps: f64,
    /// Rate that was sent, 10^6 bit/s.
    pub(super) sent_mbps: f64,
    /// Delivery rate according to acknowledgements, 10^6 bit/s; zero if unknown.
    pub(super) delivered_mbps: f64,
    /// RTT gradient, s/s.
    pub(super) slope: Slope,
    /// Change of the least RTT between the halves of the interval, s/s; `None` if a half has no sample.
    pub(super) floor_slope: Option<f64>,
    /// Mean RTT, s; zero without samples.
    pub(super) rtt_s: f64,
    /// Standard deviation of the RTT, s.
    pub(super) deviation_s: f64,
    /// Root mean square of the RTT's residuals from the gradient, s.
    pub(super) residual_s: f64,
    /// Duration, s.
    pub(super) duration_s: f64,
    /// Packets that were acknowledged or lost.
    pub(super) packets: u64,
    /// Packets that were lost.
    pub(super) lost: u64,
    /// Whether the application ran out of data during the interval.
    pub(super) app_limited: bool,
}

impl IntervalOutcome {
    /// Lower bound of the loss rate when `loss` of its packets were lost.
    pub(super) fn significant_loss(&self, loss: f64) -> f64 {
        let packets = self.packets.max(1) as f64;
        loss - SIGNIFICANT_ERRORS * (loss * (1.0 - loss) / packets).sqrt()
    }
}

/// The packets from one change of rate to the next.
///
/// A packet belongs to the interval in which it was sent, by number: acknowledgements never move a
/// boundary, and reordering is not loss.
#[derive(Debug)]
struct Interval {
    id: u64,
    target: Bandwidth,
    opened: Time,
    closed: Option<Time>,
    extent: IntervalExtent,
    first: u64,
    /// Bit `n` is set while packet `first + n` was sent and is neither acknowledged nor lost. Numbers that
    /// were never reported as sent (packets that carry only acknowledgements) have no bit.
    unsettled: Vec<u64>,
    unsettled_packets: u64,
    sent_packets: u64,
    sent_bytes: u64,
    acked: u64,
    lost: u64,
    first_ack: Option<Time>,
    last_ack: Time,
    bytes_after_first_ack: u64,
    rtt: Regression,
    floors: RttFloors,
    app_limited: bool,
}

impl Interval {
    fn is_due(&self, now: Time, number: u64) -> bool {
        let full = self.sent_packets >= self.extent.packets;
        full && now.since(self.opened) >= self.extent.duration
            || number - self.first >= MAX_SPAN_PACKETS
    }

    fn on_sent(&mut self, packet: &SentPacket) {
        let at = (packet.number - self.first) as usize;
        if self.unsettled.len() <= at / 64 {
            self.unsettled.resize(at / 64 + 1, 0);
        }
        self.unsettled[at / 64] |= 1 << (at % 64);
        self.unsettled_packets += 1;
        self.sent_packets += 1;
        self.sent_bytes += packet.bytes;
    }

    /// Marks packet `number` as acknowledged, lost or discarded. Returns whether it was outstanding.
    fn settle(&mut self, number: u64) -> bool {
        let Some(at) = number.checked_sub(self.first) else { return false };
        let (word, bit) = ((at / 64) as usize, 1 << (at % 64));
        let Some(word) = self.unsettled.get_mut(word) else { return false };
        let open = *word & bit != 0;
        *word &= !bit;
        self.unsettled_packets -= u64::from(open);
        open
    }

    fn on_acked(&mut self, now: Time, bytes: u64) {
        self.acked += 1;
        match self.first_ack {
            None => self.first_ack = Some(now),
            // The packets of the first acknowledgement arrived before it: their time is unknown.
            Some(first) if first < now => self.bytes_after_first_ack += bytes,
            Some(_) => {}
        }
        self.last_ack = now;
    }

    fn outcome(&self, closed: Time) -> IntervalOutcome {
        let time = closed.since(self.opened);
        let sent = Bandwidth::from_bytes_and_time(self.sent_bytes, time);
        let ack_time = self.first_ack.map_or(Duration::ZERO, |first| self.last_ack.since(first));
        let delivered = Bandwidth::from_bytes_and_time(self.bytes_after_first_ack, ack_time);
        IntervalOutcome {
            target_mbps: self.target.mbps(),
            sent_mbps: sent.mbps(),
            delivered_mbps: if ack_time * 2 < time { 0.0 } else { delivered.mbps() },
            slope: self.rtt.slope(),
            floor_slope: self.floors.slope(),
            rtt_s: self.rtt.mean_s(),
            deviation_s: self.rtt.deviation_s(),
            residual_s: self.rtt.residual_s(),
            duration_s: time.as_secs_f64(),
            packets: self.acked + self.lost,
            lost: self.lost,
            app_limited: self.app_limited,
        }
    }
}

/// The intervals whose packets are outstanding, oldest first.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    waiting: VecDeque<Interval>,
    /// Whether an interval may have become complete: avoids a search for each packet.
    may_be_complete: bool,
    /// Memory of completed intervals.
    spare: Vec<Vec<u64>>,
}

impl Intervals {
    /// Opens an interval that starts with the next packet. Returns the interval that was given up for it, if any.
    pub(super) fn open(
        &mut self,
        id: u64,
        target: Bandwidth,
        extent: IntervalExtent,
        packet: &SentPacket,
    ) -> Option<u64> {
        self.waiting.push_back(Interval {
            id,
            target,
            opened: packet.time,
            closed: None,
            extent,
            first: packet.number,
            unsettled: self.spare.pop().unwrap_or_else(|| Vec::with_capacity(USUAL_WORDS)),
            unsettled_packets: 0,
            sent_packets: 0,
            sent_bytes: 0,
            acked: 0,
            lost: 0,
            first_ack: None,
            last_ack: Time::ZERO,
            bytes_after_first_ack: 0,
            rtt: Regression::default(),
            floors: RttFloors::new(extent.duration),
            app_limited: false,
        });
        if self.waiting.len() <= MAX_WAITING_INTERVALS {
            return None;
        }
        self.waiting.pop_front().map(|interval| self.recycle(interval).id)
    }

    fn recycle(&mut self, mut interval: Interval) -> Interval {
        let mut memory = std::mem::take(&mut interval.unsettled);
        memory.clear();
        self.spare.push(memory);
        interval
    }

    /// Whether an interval is open.
    pub(super) fn is_open(&self) -> bool {
        self.waiting.back().is_some_and(|interval| interval.closed.is_none())
    }

    /// Closes the open interval if `packet`, which leaves now, is beyond it. The packet that
    /// opens an interval belongs to it, so the boundary is the time when it leaves.
    pub(super) fn close_if_due(&mut self, packet: &SentPacket) {
        if let Some(last) = self.waiting.back_mut()
            && last.closed.is_none()
            && last.is_due(packet.time, packet.number)
        {
            last.closed = Some(packet.time);
            self.may_be_complete = true;
        }
    }

    pub(super) fn on_sent(&mut self, packet: &SentPacket) {
        if let Some(last) = self.waiting.back_mut()
            && last.closed.is_none()
        {
            last.on_sent(packet);
        }
    }
}

/// The interval in which packet `number` was sent, if any.
fn owner(waiting: &mut VecDeque<Interval>, number: u64) -> Option<&mut Interval> {
    let after = waiting.partition_point(|interval| interval.first <= number);
    waiting.get_mut(after.checked_sub(1)?)
}

impl Intervals {
    pub(super) fn on_acked(&mut self, now: Time, packet: &AckedPacket) {
        if let Some(interval) = owner(&mut self.waiting, packet.number)
            && interval.settle(packet.number)
        {
            interval.on_acked(now, packet.bytes);
            self.may_be_complete |= interval.unsettled_packets == 0;
        }
    }

    /// Adds an RTT sample; [`super::controller::Pcc`] selects them.
    pub(super) fn on_rtt(&mut self, packet: &AckedPacket, rtt: Duration) {
        if let Some(interval) = owner(&mut self.waiting, packet.number)
            && interval.closed.is_none_or(|closed| packet.sent < closed)
            && packet.sent >= interval.opened
        {
            let at = packet.sent.since(interval.opened);
            interval.rtt.add(at, rtt);
            interval.floors.add(at, rtt);
        }
    }

    pub(super) fn on_lost(&mut self, packet: &LostPacket) {
        if let Some(interval) = owner(&mut self.waiting, packet.number)
            && interval.settle(packet.number)
        {
            interval.lost += 1;
            self.may_be_complete |= interval.unsettled_packets == 0;
        }
    }

    /// A packet that had counted as lost was only late. The outcome of a completed interval is not corrected.
    pub(super) fn on_spurious_loss(&mut self, number: u64) {
        if let Some(interval) = owner(&mut self.waiting, number)
            && interval.lost > 0
            && number - interval.first < 64 * interval.unsettled.len() as u64
        {
            interval.lost -= 1;
            interval.acked += 1;
        }
    }

    pub(super) fn on_discarded(&mut self, number: u64) {
        if let Some(interval) = owner(&mut self.waiting, number) {
            interval.settle(number);
            self.may_be_complete |= interval.unsettled_packets == 0;
        }
    }

    /// The application has no data for the open interval.
    pub(super) fn on_app_limited(&mut self) {
        if let Some(last) = self.waiting.back_mut()
            && last.closed.is_none()
        {
            last.app_limited = true;
        }
    }

    /// Removes the oldest interval all of whose packets were acknowledged, lost or discarded.
    pub(super) fn pop_complete(&mut self) -> Option<(u64, IntervalOutcome)> {
        if !self.may_be_complete {
            return None;
        }
        let complete =
            |interval: &Interval| interval.closed.is_some() && interval.unsettled_packets == 0;
        let found = self.waiting.iter().position(complete);
        self.may_be_complete = found.is_some();
        let at = found?;
        let interval = self.waiting.remove(at)?;
        let interval = self.recycle(interval);
        Some((interval.id, interval.outcome(interval.closed?)))
    }

    /// How long the oldest interval has waited for feedback since it was closed; zero if it is open.
    pub(super) fn longest_wait(&self, now: Time) -> Duration {
        let closed = self.waiting.front().and_then(|oldest| oldest.closed);
        closed.map_or(Duration::ZERO, |closed| now.since(closed))
    }

    /// Removes all intervals: their measurements are obsolete.
    pub(super) fn clear(&mut self) {
        while let Some(interval) = self.waiting.pop_front() {
            self.recycle(interval);
        }
    }
}

#[cfg(test)]
#[path = "monitor_interval_tests.rs"]
mod tests;
