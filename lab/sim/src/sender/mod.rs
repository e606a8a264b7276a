//! A sender with the loss recovery of RFC 9002 and a pacer, around a controller.

mod capped_release;
mod frames;
mod pacer;
mod recovery;
mod responses;
mod rtt;
mod source;

use std::collections::VecDeque;
use std::time::Duration;

use capped_release::CappedRelease;
use frames::CapturedFrame;
use millrace_cc::rate_cap::PlayerNeeds;
use millrace_cc::{
    AckedPacket, Bandwidth, ControllerConfig, ControllerMetrics, LostPacket, PathController,
    PathModel, PathStart, SentPacket, Time, Tuning,
};
use pacer::Pacer;
use rtt::{INITIAL_RTT, Rtt};
use source::Feed;

use crate::{FlowSetup, HEADER_BYTES};

/// Packets that may overtake one before it counts as lost (RFC 9002, Section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Eighths of the RTT after which an overtaken packet counts as lost (RFC 9002, Section 6.1.2).
const TIME_THRESHOLD_EIGHTHS: u64 = 9;
/// Probes per timeout (RFC 9002, Section 6.2.4): one, then two.
const MAX_PROBES: u32 = 2;
/// Most doublings of the probe timeout: 2^10 is minutes.
const MAX_BACKOFF_DOUBLINGS: u32 = 10;

/// A packet on its way through the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub number: u64,
    /// The unit of data that it carries.
    pub unit: u64,
    pub payload_bytes: u64,
    pub at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketState {
    InFlight,
    Lost,
    Done,
}

#[derive(Clone, Copy, Debug)]
struct InFlightPacket {
    at: Time,
    unit: u64,
    bytes: u32,
    state: PacketState,
}

/// Counts of a sender since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SenderCounts {
    pub sent: u64,
    pub retransmitted: u64,
    pub declared_lost: u64,
    pub spurious: u64,
    pub probe_timeouts: u64,
    pub rtt_samples: u64,
    pub rtt_sum_ns: u64,
    pub skipped_frames: u64,
}

/// A segment whose data is on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentRequest {
    pub number: u64,
    pub due: Time,
    pub requested: Time,
    /// Units up to its end.
    pub end_units: u64,
}

#[derive(Debug)]
pub(crate) struct SimulatedSender {
    controller: PathController,
    /// Seed of the next controller.
    seed: u64,
    feed: Feed,
    capped: CappedRelease,
    mtu_bytes: u64,
    max_ack_delay_ns: u64,
    stopped: bool,
    /// Packets from number `base` on: an index instead of a search.
    ring: VecDeque<InFlightPacket>,
    base: u64,
    /// No packet below this is in flight.
    first_in_flight: u64,
    in_flight_bytes: u64,
    in_flight_packets: u64,
    largest_acked: Option<u64>,
    next_unit: u64,
    /// Units to send again.
    again: VecDeque<u64>,
    rtt: Rtt,
    packet_threshold: u64,
    time_threshold_eighths: u64,
    /// When the oldest overtaken packet counts as lost.
    loss_at: Option<Time>,
    last_sent: Time,
    timeouts: u32,
    probes: u32,
    pacer: Pacer,
    app_limited: bool,
    /// When the cap lets new data through, if it held some back at the last attempt.
    held_until: Option<Time>,
    acked: Vec<AckedPacket>,
    lost: Vec<LostPacket>,
    pub counts: SenderCounts,
    /// The segment that is under way.
    pub request: Option<SegmentRequest>,
}

impl SimulatedSender {
    pub(crate) fn new(flow: &FlowSetup, seed: u64) -> Self {
        let start = Time::ZERO + flow.start;
        let mtu_bytes = flow.packet_bytes - HEADER_BYTES;
        let path = PathStart {
            mtu_bytes,
            initial_window_bytes: flow.initial_window_packets * mtu_bytes,
            initial_rtt: INITIAL_RTT,
            seed,
        };
        Self {
            controller: PathController::new(&*flow.algorithm, start, path),
            seed: seed.wrapping_add(1),
            feed: Feed::new(flow.source.clone(), start, mtu_bytes),
            capped: CappedRelease::new(flow.caps_player_rate),
            mtu_bytes,
            max_ack_delay_ns: flow.ack.max_delay.as_nanos() as u64,
            stopped: false,
            ring: VecDeque::new(),
            base: 0,
            first_in_flight: 0,
            in_flight_bytes: 0,
            in_flight_packets: 0,
            largest_acked: None,
            next_unit: 0,
            again: VecDeque::new(),
            rtt: Rtt::new(),
            packet_threshold: PACKET_THRESHOLD,
            time_threshold_eighths: TIME_THRESHOLD_EIGHTHS,
            loss_at: None,
            last_sent: start,
            timeouts: 0,
            probes: 0,
            pacer: Pacer::new(start.as_nanos()),
            app_limited: false,
            held_until: None,
            acked: Vec::new(),
            lost: Vec::new(),
            counts: SenderCounts::default(),
            request: None,
        }
    }

    pub(crate) fn metrics(&self) -> ControllerMetrics {
        self.controller.metrics()
    }

    pub(crate) fn path(&self) -> &PathModel {
        self.controller.path()
    }

    pub(crate) fn tune(&mut self, tuning: Tuning) {
        self.controller.tune(tuning);
    }

    /// Hands the path off to a controller of another algorithm.
    pub(crate) fn migrate(&mut self, now: Time, to: &dyn ControllerConfig) {
        self.controller = self.controller.replace_with(to, now, self.seed);
        self.seed = self.seed.wrapping_add(1);
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Stops sending and ignores acknowledgements.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.feed.close();
        self.request = None;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Runs timers and the source up to `now`. Must be called before [`send`](Self::send).
    pub(crate) fn advance_to(&mut self, now: Time) {
        if self.loss_at.is_some_and(|at| at <= now) {
            self.acked.clear();
            let prior_in_flight_bytes = self.in_flight_bytes;
            self.detect_losses(now);
            self.report(now, None, prior_in_flight_bytes);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.timeouts += 1;
            self.probes = self.timeouts.min(MAX_PROBES);
            self.counts.probe_timeouts += 1;
            self.controller.on_probe_timeout(now);
            // The next timeout counts from now even if a probe has to wait.
            self.last_sent = now;
        }
        if self.feed.is_encoder() {
            let rate = self.allowed_rate();
            self.counts.skipped_frames += self.feed.capture(now, rate, self.next_unit);
        }
        if !self.feed.has(self.next_unit) {
            let made = self.feed.produce(now, self.is_idle());
            if let Some((number, due)) = made {
                let end_units = self.feed.segment_end(number);
                self.request = Some(SegmentRequest { number, due, requested: now, end_units });
            }
        }
    }

    /// A player with these needs asks for a response of `bytes`.
    pub(crate) fn respond(&mut self, now: Time, number: u64, bytes: u64, needs: &PlayerNeeds) {
        self.capped.on_request(now, needs);
        self.held_until = None;
        self.feed.respond(number, bytes);
    }

    /// A player wants no more of a response.
    pub(crate) fn cancel(&mut self, number: u64) {
        self.feed.cancel(number, self.next_unit);
    }

    /// The current response, and its bytes in the first `units` units.
    pub(crate) fn response_bytes(&self, units: u64) -> Option<(u64, u64)> {
        self.feed.response_bytes(units)
    }

    /// The rate that the controller allows over a round trip; zero before the first sample.
    fn allowed_rate(&self) -> Bandwidth {
        let Some(rtt) = self.rtt.smoothed() else { return Bandwidth::ZERO };
        let of_window = Bandwidth::from_bytes_and_time(self.controller.window_bytes(), rtt);
        of_window.min(self.controller.pacing_rate())
    }

    /// The oldest frame that has not arrived.
    pub(crate) fn oldest_frame(&self) -> Option<CapturedFrame> {
        self.feed.oldest_frame()
    }

    /// It has arrived.
    pub(crate) fn remove_oldest_frame(&mut self) {
        self.feed.remove_oldest_frame();
    }

    /// Whether all data has been sent and acknowledged.
    fn is_idle(&self) -> bool {
        self.in_flight_packets == 0 && self.again.is_empty() && !self.feed.has(self.next_unit)
    }

    fn has_room(&self) -> bool {
        self.in_flight_bytes + self.mtu_bytes <= self.controller.window_bytes()
    }

    /// Sends a packet if data, window and pacing allow it.
    pub(crate) fn send(&mut self, now: Time) -> Option<Departure> {
        if self.stopped {
            return None;
        }
        let probing = self.probes > 0;
        if !probing && (now.as_nanos() < self.pacer.release_ns() || !self.has_room()) {
            return None;
        }
        self.held_until = None;
        let (unit, is_new) = match self.next_data(now, probing) {
            Some(found) => found,
            None => {
                self.held_until = self.capped.ready();
                self.probes = 0;
                self.app_limited = true;
                self.controller.on_app_limited(now, self.in_flight_bytes);
                return None;
            }
        };
        self.probes = self.probes.saturating_sub(1);
        self.counts.retransmitted += u64::from(!is_new);
        Some(self.depart(now, unit))
    }

    /// The next unit and whether it is sent for the first time: lost data, then new data, then, for a probe,
    /// the oldest data in flight.
    fn next_data(&mut self, now: Time, probing: bool) -> Option<(u64, bool)> {
        if let Some(unit) = self.again.pop_front() {
            return Some((unit, false));
        }
        if self.feed.has(self.next_unit) && self.capped.allows(now) {
            self.capped.take(now, self.feed.bytes(self.next_unit));
            self.next_unit += 1;
            return Some((self.next_unit - 1, true));
        }
        let oldest = self.ring.get((self.first_in_flight - self.base) as usize)?;
        probing.then_some((oldest.unit, false))
    }

    fn depart(&mut self, now: Time, unit: u64) -> Departure {
        let bytes = self.feed.bytes(unit);
        let number = self.base + self.ring.len() as u64;
        self.app_limited = false;
        self.controller.on_packet_sent(&SentPacket {
            number,
            time: now,
            bytes,
            prior_in_flight_bytes: self.in_flight_bytes,
            has_data: true,
        });
        // No packet is larger than 65535 bytes.
        self.ring.push_back(InFlightPacket {
            at: now,
            unit,
            bytes: bytes as u32,
            state: PacketState::InFlight,
        });
        self.in_flight_bytes += bytes;
        self.in_flight_packets += 1;
        self.last_sent = now;
        self.counts.sent += 1;
        self.pacer.on_packet(now.as_nanos(), bytes, self.controller.pacing_rate());
        Departure { number, unit, payload_bytes: bytes, at: now }
    }

    /// When the sender has to run again, after it has done everything that was due.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        if self.stopped {
            return None;
        }
        let has_again = !self.again.is_empty();
        let next = if has_again || self.feed.has(self.next_unit) {
            let held = self.held_until.filter(|_| !has_again);
            let release = Time::from_nanos(self.pacer.release_ns());
            self.has_room().then(|| held.map_or(release, |at| release.max(at)))
        } else {
            self.feed.next(self.is_idle())
        };
        let frame = self.feed.next_frame();
        [next, frame, self.loss_at, self.probe_at()].into_iter().flatten().min()
    }

    /// RFC 9002, Section 6.2.1: not while a packet may be declared lost by time.
    fn probe_at(&self) -> Option<Time> {
        if self.in_flight_packets == 0 || self.loss_at.is_some() {
            return None;
        }
        let once_ns = self.rtt.probe_delay_ns(self.max_ack_delay_ns);
        let doublings = self.timeouts.min(MAX_BACKOFF_DOUBLINGS);
        Some(self.last_sent + Duration::from_nanos(once_ns << doublings))
    }
}
