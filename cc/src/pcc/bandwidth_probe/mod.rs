//! Packet trains that probe the available capacity.
//!
//! A video player requests a segment, pauses, and requests the next. Algorithms that learn only from
//! intervals with data then learn part of the time, and raise the rate by a few per cent a decision: on a
//! link whose rate varies, segments are sent at the rate of several segments ago. RFC 7661, Section 4.4
//! bounds the window after a pause; the papers do not probe for a faster path. On a slow link, where a
//! decision takes a second, a recovered rate is many decisions away.

mod recovery_probe;

use std::time::Duration;

use recovery_probe::RecoveryProbe;

use crate::{
    AckedPacket, Bandwidth, CongestionEvent, Controller, ControllerMetrics, LostPacket, PathModel,
    SentPacket, Time, Tuning,
};

// No paper has these thresholds. The trains are measured in docs/research/cc/pcc.md (`bandwidth_probe`).

/// Rate of a train, as a multiple of the rate in force. As in start-up.
const TRAIN_GAIN: f64 = 2.0;
/// A train is longer than this many packets. Half of them may queue at a link that carries the rate in force, about
/// as many as after an initial window (RFC 9002, Section 7.2).
const MIN_TRAIN_PACKETS: u64 = 16;
/// Least duration of a train: shorter ones measure scheduling delays and not the path.
const MIN_TRAIN_DURATION: Duration = Duration::from_millis(10);
/// Most packets of a train: bounds the queue that it may build.
const MAX_TRAIN_PACKETS: u64 = 1024;
/// Packets acknowledged after the first acknowledgement that a delivery rate needs, at least.
/// Chosen by `short_train_counts_if_it_shows_a_rate`.
const MIN_ACKED_PACKETS: u64 = 8;
/// Least time over which acknowledgements must arrive, as a share of the train's duration.
/// Chosen by `compressed_acknowledgements_show_no_rate`.
const MIN_ACK_SPREAD_FRACTION: f64 = 0.5;
/// A train that was delivered at this share of its rate or more is followed by another one.
/// Chosen by `fully_delivered_train_is_followed_by_another`.
const DELIVERED_FRACTION: f64 = 0.9;
/// No train starts while more than this share of the window is in flight.
const MAX_IN_FLIGHT_WINDOW_FRACTION: f64 = 0.8;
/// A train needs more than this many packets since the last pause, or between the two pauses before.
/// Chosen by `no_train_in_start_up_or_for_short_bursts`.
const MIN_BURST_PACKETS: u64 = 2 * MIN_TRAIN_PACKETS;
/// Least increase over the rate in force that changes it, as a share of it: an algorithm finds less in one decision,
/// and a train's result may be off by that much.
const MIN_RATE_GAIN: f64 = 0.1;
/// Largest rate: only there to keep arithmetic finite.
const MAX_RATE: Bandwidth = Bandwidth::from_bits_per_s(100_000_000_000);
/// A train is given up if its acknowledgements take longer than this many RTTs, and [`MIN_GIVE_UP_TIME`].
const GIVE_UP_RTTS: u32 = 4;
/// Allows for an acknowledgement delay and a probe of the last packet.
const MIN_GIVE_UP_TIME: Duration = Duration::from_millis(200);

/// An algorithm that can continue from a given rate.
pub(super) trait Resumable: Controller {
    /// The mean rate. [`Controller::pacing_rate`] varies around it where gaps are spread.
    fn rate(&self) -> Bandwidth;

    /// Whether start-up is running: no trains then.
    fn is_starting(&self) -> bool;

    /// Whether the path seems to carry far more than the rate.
    fn is_below_capacity(&self) -> bool {
        false
    }

    /// Whether a buffer has overflowed lately: no trains then.
    fn has_overflowed(&self, _now: Time) -> bool {
        false
    }

    /// The rate before a sudden drop of the path's rate, 10^6 bit/s. Returned once.
    fn take_rate_drop(&mut self) -> Option<f64> {
        None
    }
}

/// Probes the available capacity for `inner` with packet trains: after each pause of a round trip or more, after a
/// rate drop, and when `inner` rises again and again.
///
/// `inner` does not see the train's packets leave, and ignores their acknowledgements.
#[derive(Debug)]
pub(super) struct BandwidthProbe<C> {
    inner: C,
    smoothed_rtt: Option<Duration>,
    is_out_of_data: bool,
    /// When anything last left or arrived.
    last_activity: Time,
    train: Option<PacketTrain>,
    /// The last train was delivered as fast as it was sent: the next follows immediately.
    chain_next: bool,
    /// Packets since the last pause.
    burst: u64,
    /// Packets between the two pauses before that.
    previous_burst: u64,
    recovery_probe: RecoveryProbe,
}

/// Why a train was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    /// Nothing was in flight for a round trip, because there was nothing to send.
    AfterIdle,
    /// The train before it was delivered as fast as it was sent.
    Chained,
    /// The path's rate had dropped, and may have recovered.
    AfterDrop,
    /// The algorithm keeps rising: the path seems to carry far more.
    BelowCapacity,
}

#[derive(Clone, Copy, Debug)]
struct PacketTrain {
    trigger: Trigger,
    /// Mean rate of the algorithm.
    from: Bandwidth,
    /// Rate of which the train's rate is a multiple.
    base: Bandwidth,
    began: Time,
    last_sent: Time,
    first: u64,
    newest: u64,
    packets: u64,
    sent_bytes: u64,
    last_bytes: u64,
    /// Whether more of its packets are to be sent.
    open: bool,
    unsettled: u64,
    first_ack: Option<Time>,
    last_ack: Time,
    acked_after_first: u64,
    bytes_after_first: u64,
}

impl PacketTrain {
    fn new(trigger: Trigger, from: Bandwidth, base: Bandwidth, packet: &SentPacket) -> Self {
        Self {
            trigger,
            from,
            base,
            began: packet.time,
            last_sent: packet.time,
            first: packet.number,
            newest: packet.number,
            packets: 0,
            sent_bytes: 0,
            last_bytes: 0,
            open: true,
            unsettled: 0,
            first_ack: None,
            last_ack: packet.time,
            acked_after_first: 0,
            bytes_after_first: 0,
        }
    }

    fn on_sent(&mut self, packet: &SentPacket) {
        self.newest = packet.number;
        self.last_sent = packet.time;
        self.last_bytes = packet.bytes;
        self.packets += 1;
        self.unsettled += 1;
        self.sent_bytes += packet.bytes;
        let long =
            self.packets > MIN_TRAIN_PACKETS && packet.time.since(self.began) >= MIN_TRAIN_DURATION;
        if long || self.packets >= MAX_TRAIN_PACKETS {
            self.close();
        }
    }

    /// No more packets belong to the train.
    fn close(&mut self) {
        self.open = false;
        // The train's duration ends when its last packet leaves.
        self.sent_bytes -= self.last_bytes;
    }

    fn has(&self, number: u64) -> bool {
        (self.first..=self.newest).contains(&number)
    }

    /// Counts an acknowledgement, including packets that left after the train: an acknowledgement for
    /// many packets covers the time of all of them.
    fn on_acked(&mut self, now: Time, acked: &[AckedPacket]) {
        let mine = acked.iter().filter(|packet| self.has(packet.number)).count() as u64;
        self.unsettled = self.unsettled.saturating_sub(mine);
        let since = acked.iter().filter(|packet| packet.number >= self.first);
        let (packets, bytes) =
            since.fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + packet.bytes));
        if packets == 0 {
            return;
        }
        match self.first_ack {
            // The packets of the first acknowledgement had arrived before it: their time is unknown.
            None => self.first_ack = Some(now),
            Some(_) => {
                self.acked_after_first += packets;
                self.bytes_after_first += bytes;
            }
        }
        self.last_ack = now;
    }

    fn on_settled(&mut self, number: u64) {
        if self.has(number) {
            self.unsettled = self.unsettled.saturating_sub(1);
        }
    }

    fn is_over(&self) -> bool {
        !self.open && self.unsettled == 0
    }

    /// Rate at which the train was sent, and the rate at which the path delivered it.
    fn sent_and_delivered(&self) -> Option<(Bandwidth, Bandwidth)> {
        let took = self.last_ack.since(self.first_ack?);
        let sent_time = self.last_sent.since(self.began);
        // Compressed acknowledgements show no rate. Delivery is not faster than sending.
        let compressed = took < sent_time.mul_f64(MIN_ACK_SPREAD_FRACTION);
        if self.open || self.acked_after_first < MIN_ACKED_PACKETS || took.is_zero() || compressed {
            return None;
        }
        let sent = Bandwidth::from_bytes_and_time(self.sent_bytes, sent_time);
        let delivered = Bandwidth::from_bytes_and_time(self.bytes_after_first, took);
        Some((sent, delivered.min(sent)))
    }
}

impl<C: Resumable> BandwidthProbe<C> {
    pub(super) fn new(inner: C) -> Self {
        Self {
            inner,
            smoothed_rtt: None,
            is_out_of_data: false,
            last_activity: Time::default(),
            train: None,
            chain_next: false,
            burst: 0,
            previous_burst: 0,
            recovery_probe: RecoveryProbe::default(),
        }
    }

    /// The reason to start a train with this packet, if any.
    fn trigger(&mut self, packet: &SentPacket) -> Option<Trigger> {
        let rtt = self.smoothed_rtt?;
        if self.train.is_some() || !packet.has_data || self.inner.is_starting() {
            return None;
        }
        if self.inner.has_overflowed(packet.time) {
            return None;
        }
        // With short bursts all packets would be in trains, and the algorithm would see none.
        if self.burst.max(self.previous_burst) <= MIN_BURST_PACKETS {
            return None;
        }
        // The window limits the sender, not the rate.
        let most_bytes = MAX_IN_FLIGHT_WINDOW_FRACTION * self.inner.window_bytes() as f64;
        if packet.prior_in_flight_bytes as f64 > most_bytes {
            return None;
        }
        if let Some(mbps) = self.inner.take_rate_drop() {
            self.recovery_probe.on_rate_drop(packet.time, mbps);
        }
        let rate_mbps = self.inner.rate().mbps();
        if self.recovery_probe.is_due(packet.time, rate_mbps) {
            return Some(Trigger::AfterDrop);
        }
        if self.chain_next {
            return Some(Trigger::Chained);
        }
        if self.inner.is_below_capacity() {
            return Some(Trigger::BelowCapacity);
        }
        let was_idle = self.is_out_of_data
            && packet.prior_in_flight_bytes == 0
            && packet.time.since(self.last_activity) >= rtt;
        was_idle.then_some(Trigger::AfterIdle)
    }

    fn conclude(&mut self, event: &CongestionEvent<'_>) {
        let (Some(train), Some(rtt)) = (self.train, self.smoothed_rtt) else { return };
        let limit = (rtt * GIVE_UP_RTTS).max(MIN_GIVE_UP_TIME);
        if train.is_over() || event.now.since(train.last_sent) > limit {
            self.end(event.now, &train, rtt);
        }
    }

    /// Ends the train. The algorithm continues from the rate that it showed.
    fn end(&mut self, now: Time, train: &PacketTrain, rtt: Duration) {
        self.train = None;
        let shown = train.sent_and_delivered();
        self.chain_next =
            shown.is_some_and(|(sent, delivered)| delivered >= sent.scaled(DELIVERED_FRACTION));
        let more = shown.map(|(_, delivered)| delivered);
        let more = more.filter(|rate| rate.mbps() > train.base.mbps() * (1.0 + MIN_RATE_GAIN));
        // A train of this trigger always gets a result; otherwise the algorithm would trigger it again.
        if self.inner.is_starting() || (more.is_none() && train.trigger != Trigger::BelowCapacity) {
            return;
        }
        // A lower rate is left to the algorithm: on a varying link, lowering it here delays later segments.
        let rate = more.unwrap_or(train.from);
        let mut path = PathModel::default();
        path.smoothed_rtt = rtt;
        path.max_delivery_rate = rate;
        // Large enough not to limit the delivered rate.
        path.window_bytes = rate.bytes_in(rtt).saturating_mul(2);
        self.inner.init_from_path(now, &path);
    }

    /// The sender is out of data: a train ends with the packets that it has.
    fn end_of_data(&mut self, now: Time) {
        self.is_out_of_data = true;
        let Some(train) = self.train.as_mut().filter(|train| train.open) else { return };
        if train.packets > MIN_ACKED_PACKETS {
            return train.close();
        }
        if train.trigger == Trigger::AfterDrop {
            self.recovery_probe.on_aborted(now);
        }
        self.train = None;
    }
}

impl<C: Resumable> Controller for BandwidthProbe<C> {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        if let Some(trigger) = self.trigger(packet) {
            // Separates the packets before the train from those after it.
            self.inner.on_app_limited(packet.time, packet.prior_in_flight_bytes);
            // Where gaps are spread, a long gap makes the train slower. The mean bounds it after a short gap.
            let from = self.inner.rate();
            let base = from.min(self.inner.pacing_rate());
            self.train = Some(PacketTrain::new(trigger, from, base, packet));
            self.chain_next = false;
        }
        if self.is_out_of_data && packet.prior_in_flight_bytes == 0 {
            self.previous_burst = std::mem::take(&mut self.burst);
        }
        self.burst = self.burst.saturating_add(1);
        self.is_out_of_data = false;
        self.last_activity = packet.time;
        match &mut self.train {
            Some(train) if train.open => train.on_sent(packet),
            _ => self.inner.on_packet_sent(packet),
        }
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        self.last_activity = event.now;
        self.smoothed_rtt = event.rtt.map_or(self.smoothed_rtt, |rtt| Some(rtt.smoothed));
        if let Some(train) = &mut self.train {
            train.on_acked(event.now, event.acked);
            event.lost.iter().for_each(|packet| train.on_settled(packet.number));
        }
        if event.app_limited {
            self.end_of_data(event.now);
        }
        self.inner.on_event(event);
        self.conclude(event);
    }

    fn on_packet_discarded(&mut self, number: u64) {
        if let Some(train) = &mut self.train {
            train.on_settled(number);
        }
        self.inner.on_packet_discarded(number);
    }

    fn on_spurious_loss(&mut self, now: Time, packet: &LostPacket) {
        self.inner.on_spurious_loss(now, packet);
    }

    fn tune(&mut self, tuning: Tuning) -> bool {
        self.inner.tune(tuning)
    }

    fn on_probe_timeout(&mut self, now: Time) {
        self.inner.on_probe_timeout(now);
    }

    fn on_app_limited(&mut self, now: Time, in_flight_bytes: u64) {
        self.end_of_data(now);
        self.inner.on_app_limited(now, in_flight_bytes);
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.inner.on_mtu(mtu_bytes);
    }

    fn init_from_path(&mut self, now: Time, path: &PathModel) {
        self.train = None;
        self.chain_next = false;
        if !path.smoothed_rtt.is_zero() {
            self.smoothed_rtt = Some(path.smoothed_rtt);
        }
        self.inner.init_from_path(now, path);
    }

    fn window_bytes(&self) -> u64 {
        // A train is sent in addition to what the algorithm keeps in flight.
        self.inner.window_bytes() + self.train.map_or(0, |train| train.sent_bytes)
    }

    fn steady_state_window_bytes(&self) -> u64 {
        self.inner.steady_state_window_bytes()
    }

    fn pacing_rate(&self) -> Bandwidth {
        match &self.train {
            Some(train) if train.open => train.base.scaled(TRAIN_GAIN).min(MAX_RATE),
            _ => self.inner.pacing_rate(),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        if self.train.is_some_and(|train| train.open) {
            metrics.state = "bandwidth-probe";
            metrics.pacing_rate = self.pacing_rate();
        }
        ControllerMetrics { window_bytes: self.window_bytes(), ..metrics }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
