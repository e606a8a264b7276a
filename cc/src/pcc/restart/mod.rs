//! Trains of packets that ask what the path carries by now.
//!
//! A video player asks for a segment, rests, asks for the next. Algorithms that learn from
//! intervals in which there was always something to send then learn from a part of the time only,
//! and climb by a few per cent a decision: over a link whose rate varies they send each segment at
//! what the path carried some segments ago. (RFC 7661, Section 4.4 bounds what a window may be
//! after a rest; nothing in the papers asks whether the path has become faster.) And on a slow
//! link a decision takes a second: one that has come back from 0.1 to 20 Mbit/s is 54 of them away.

mod comeback;

use std::time::Duration;

use comeback::Comeback;

use crate::{
    AckedPacket, Bandwidth, CongestionEvent, Controller, LostPacket, Metrics, PathModel,
    SentPacket, Time, Tuning,
};

/// How much faster than the rate in force a train goes: what start-up does, too.
const GAIN: f64 = 2.0;
/// Least packets of a train: half of them may come to wait at a link that carries the rate in
/// force, as after an initial window (RFC 9002, Section 7.2).
const MIN_PACKETS: u64 = 16;
/// Least duration of a train: over less, arrivals show schedulers and not the path.
const MIN_TIME: Duration = Duration::from_millis(10);
/// Most packets of a train: what is kept of it is of fixed size, what it may queue is not.
const MAX_PACKETS: u64 = 1024;
/// So many packets must have arrived after those of the first acknowledgement to tell a rate.
const LEAST_ACKED: u64 = 8;
/// Least time in which acknowledgements came, as a share of that in which the train was sent.
const LEAST_SPREAD: f64 = 0.5;
/// A train arrived as it was sent if so much of its rate did.
const ARRIVED: f64 = 0.9;
/// There is no train while more than this share of the window is in flight.
const MOST_IN_FLIGHT: f64 = 0.8;
/// There is a train only if there was this much to send since the last rest, or before it.
const BURST_PACKETS: u64 = 2 * MIN_PACKETS;
/// A difference that an algorithm finds by itself in one decision, and a train may be off by.
const TOLERANCE: f64 = 0.1;
/// Largest rate: only there to keep arithmetic finite.
const MAX_RATE: Bandwidth = Bandwidth::from_bits_per_s(100_000_000_000);
/// A train whose acknowledgements take longer than so many round trips tells nothing.
const GIVE_UP_ROUND_TRIPS: u32 = 4;
/// Least time until then: a last packet may wait for an acknowledgement delay and a probe.
const MIN_GIVE_UP: Duration = Duration::from_millis(200);

/// An algorithm that can go on from a rate.
pub(super) trait Resumable: Controller {
    /// The rate that is the mean of what [`Controller::pacing_rate`] says, where that spreads packets.
    fn rate(&self) -> Bandwidth;

    /// Whether it is still looking for its first rate. It is then left alone.
    fn is_starting(&self) -> bool;

    /// Whether the path seems to carry far more than the rate.
    fn is_far_below(&self) -> bool {
        false
    }

    /// The rate, 10^6 bit/s, before a sudden fall of the path's, once.
    fn take_fall(&mut self) -> Option<f64> {
        None
    }
}

/// `inner`, told after each rest of a round trip and more, and when it asks, what a train showed.
///
/// `inner` does not see the train's packets leave; those that it never saw it ignores later.
#[derive(Debug)]
pub(super) struct Restart<C> {
    inner: C,
    smoothed_rtt: Option<Duration>,
    /// There was nothing to send.
    ran_out: bool,
    /// When anything last left or arrived.
    last: Time,
    train: Option<Train>,
    /// The last train arrived as fast as it was sent: the next follows at once.
    again: bool,
    /// Packets since the last rest, and from the one before to that.
    burst: u64,
    burst_before: u64,
    comeback: Comeback,
}

/// Why there is a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Nothing was under way for a round trip, because there was nothing to send.
    Rest,
    /// The one before it arrived as it was sent.
    Again,
    /// The path had become slower some time ago.
    Fall,
    /// The algorithm climbs, and the path seems to carry far more.
    FarBelow,
}

#[derive(Clone, Copy, Debug)]
struct Train {
    cause: Cause,
    /// The rate of the algorithm.
    from: Bandwidth,
    /// What the train is a multiple of.
    base: Bandwidth,
    began: Time,
    last_sent: Time,
    first: u64,
    newest: u64,
    packets: u64,
    sent_bytes: u64,
    last_bytes: u64,
    /// More of it is to be sent.
    open: bool,
    unsettled: u64,
    first_ack: Option<Time>,
    last_ack: Time,
    acked_after_first: u64,
    bytes_after_first: u64,
}

impl Train {
    fn new(cause: Cause, from: Bandwidth, base: Bandwidth, packet: &SentPacket) -> Self {
        Self {
            cause,
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
        let long = self.packets > MIN_PACKETS && packet.time.since(self.began) >= MIN_TIME;
        if long || self.packets >= MAX_PACKETS {
            self.close();
        }
    }

    /// Nothing more belongs to it.
    fn close(&mut self) {
        self.open = false;
        // Its time ends with its last packet's beginning.
        self.sent_bytes -= self.last_bytes;
    }

    fn has(&self, number: u64) -> bool {
        (self.first..=self.newest).contains(&number)
    }

    /// Takes in an acknowledgement, with those packets that left after the train: where many are
    /// acknowledged at once the time is theirs, too.
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
            // What the first acknowledgement names had arrived before it: no time for them.
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

    /// What was sent, and what of it is what the path carries.
    fn sent_and_delivered(&self) -> Option<(Bandwidth, Bandwidth)> {
        let took = self.last_ack.since(self.first_ack?);
        let sent_time = self.last_sent.since(self.began);
        // Acknowledgements that came at once show nothing, and faster than sent nothing arrives.
        let compressed = took < sent_time.mul_f64(LEAST_SPREAD);
        if self.open || self.acked_after_first < LEAST_ACKED || took.is_zero() || compressed {
            return None;
        }
        let sent = Bandwidth::from_bytes_and_time(self.sent_bytes, sent_time);
        let delivered = Bandwidth::from_bytes_and_time(self.bytes_after_first, took);
        Some((sent, delivered.min(sent)))
    }
}

impl<C: Resumable> Restart<C> {
    pub(super) fn new(inner: C) -> Self {
        Self {
            inner,
            smoothed_rtt: None,
            ran_out: false,
            last: Time::default(),
            train: None,
            again: false,
            burst: 0,
            burst_before: 0,
            comeback: Comeback::default(),
        }
    }

    /// Why a train is to begin with this packet, if so.
    fn cause(&mut self, packet: &SentPacket) -> Option<Cause> {
        let rtt = self.smoothed_rtt?;
        if self.train.is_some() || !packet.has_data || self.inner.is_starting() {
            return None;
        }
        // Of those who send little at a time the algorithm would never see a packet.
        if self.burst.max(self.burst_before) <= BURST_PACKETS {
            return None;
        }
        // What the window holds back is not the rate's fault.
        if packet.prior_in_flight_bytes as f64 > MOST_IN_FLIGHT * self.inner.window_bytes() as f64 {
            return None;
        }
        if let Some(mbps) = self.inner.take_fall() {
            self.comeback.on_fall(packet.time, mbps);
        }
        let rate_mbps = self.inner.rate().mbps();
        if self.comeback.is_due(packet.time, rate_mbps) {
            return Some(Cause::Fall);
        }
        if self.again {
            return Some(Cause::Again);
        }
        if self.inner.is_far_below() {
            return Some(Cause::FarBelow);
        }
        let rested = self.ran_out
            && packet.prior_in_flight_bytes == 0
            && packet.time.since(self.last) >= rtt;
        rested.then_some(Cause::Rest)
    }

    fn conclude(&mut self, event: &CongestionEvent<'_>) {
        let (Some(train), Some(rtt)) = (self.train, self.smoothed_rtt) else { return };
        let limit = (rtt * GIVE_UP_ROUND_TRIPS).max(MIN_GIVE_UP);
        if train.is_over() || event.now.since(train.last_sent) > limit {
            self.end(event.now, &train, rtt);
        }
    }

    /// The algorithm goes on from what the train has shown.
    fn end(&mut self, now: Time, train: &Train, rtt: Duration) {
        self.train = None;
        let shown = train.sent_and_delivered();
        self.again = shown.is_some_and(|(sent, delivered)| delivered >= sent.scaled(ARRIVED));
        let more = shown.map(|(_, delivered)| delivered);
        let more = more.filter(|rate| rate.mbps() > train.base.mbps() * (1.0 + TOLERANCE));
        // One that the algorithm asked for is an answer in any case, or it would ask again.
        if self.inner.is_starting() || (more.is_none() && train.cause != Cause::FarBelow) {
            return;
        }
        // Less is left to the algorithm: on a link that falls to a fifth for seconds at a time, those
        // that were told so had half as much again to wait for a segment when it came back.
        let rate = more.unwrap_or(train.from);
        let mut path = PathModel::default();
        path.smoothed_rtt = rtt;
        path.max_delivery_rate = rate;
        // Not to bound what was delivered.
        path.window_bytes = rate.bytes_in(rtt).saturating_mul(2);
        self.inner.inherit(now, &path);
    }

    /// There is nothing more to send: a train ends with what it has.
    fn run_out(&mut self, now: Time) {
        self.ran_out = true;
        let Some(train) = self.train.as_mut().filter(|train| train.open) else { return };
        if train.packets > LEAST_ACKED {
            return train.close();
        }
        if train.cause == Cause::Fall {
            self.comeback.on_silence(now);
        }
        self.train = None;
    }
}

impl<C: Resumable> Controller for Restart<C> {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        if let Some(cause) = self.cause(packet) {
            // What it sent before has nothing to do with what it sends after.
            self.inner.on_app_limited(packet.time, packet.prior_in_flight_bytes);
            // After a long gap of who spreads packets it is a gentler one, of which less than the rate may arrive;
            // that it never goes by a short one is all that is needed. (By the mean each time: nothing then takes
            // the rate down, and a video over 20 Mbit/s loses 7 % in place of 0.4.)
            let from = self.inner.rate();
            let base = from.min(self.inner.pacing_rate());
            self.train = Some(Train::new(cause, from, base, packet));
            self.again = false;
        }
        if self.ran_out && packet.prior_in_flight_bytes == 0 {
            self.burst_before = std::mem::take(&mut self.burst);
        }
        self.burst = self.burst.saturating_add(1);
        self.ran_out = false;
        self.last = packet.time;
        match &mut self.train {
            Some(train) if train.open => train.on_sent(packet),
            _ => self.inner.on_packet_sent(packet),
        }
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        self.last = event.now;
        self.smoothed_rtt = event.rtt.map_or(self.smoothed_rtt, |rtt| Some(rtt.smoothed));
        if let Some(train) = &mut self.train {
            train.on_acked(event.now, event.acked);
            event.lost.iter().for_each(|packet| train.on_settled(packet.number));
        }
        if event.app_limited {
            self.run_out(event.now);
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
        self.run_out(now);
        self.inner.on_app_limited(now, in_flight_bytes);
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.inner.on_mtu(mtu_bytes);
    }

    fn inherit(&mut self, now: Time, path: &PathModel) {
        self.train = None;
        self.again = false;
        if !path.smoothed_rtt.is_zero() {
            self.smoothed_rtt = Some(path.smoothed_rtt);
        }
        self.inner.inherit(now, path);
    }

    fn window_bytes(&self) -> u64 {
        // A train comes on top of what the algorithm keeps in flight.
        self.inner.window_bytes() + self.train.map_or(0, |train| train.sent_bytes)
    }

    fn pacing_rate(&self) -> Bandwidth {
        match &self.train {
            Some(train) if train.open => train.base.scaled(GAIN).min(MAX_RATE),
            _ => self.inner.pacing_rate(),
        }
    }

    fn metrics(&self) -> Metrics {
        let mut metrics = self.inner.metrics();
        if self.train.is_some_and(|train| train.open) {
            metrics.state = "restart";
            metrics.pacing_rate = self.pacing_rate();
        }
        Metrics { window_bytes: self.window_bytes(), ..metrics }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
