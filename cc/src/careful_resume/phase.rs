use std::time::Duration;

use super::SavedPath;
use crate::{CongestionEvent, LostPacket, SentPacket};

/// The jump is to this share of the saved window (RFC 9959, Unvalidated Phase).
const JUMP_FRACTION: u64 = 2;
/// The path is another one if its RTT is below the saved one divided by this, or at least [`MAX_RTT_RATIO`] times it
/// (RFC 9959, Reconnaissance Phase).
const MIN_RTT_DIVISOR: u32 = 2;
const MAX_RTT_RATIO: u32 = 10;
/// Share of the unvalidated packets whose loss may be random, and the least number of losses that is not. RFC 9959
/// retreats at the first loss; the paths that are worth a jump include those with random loss.
const MAX_RANDOM_LOSS: f64 = 0.05;
const MIN_LOSSES: u64 = 10;
/// Consecutive probe timeouts that count as loss. The first only tests whether the last packet was lost
/// (RFC 9002, Section 6.2).
const MAX_PROBE_TIMEOUTS: u32 = 2;

/// Phases of a connection that uses saved parameters (RFC 9959).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The initial window shows whether the path is still the saved one.
    Reconnaissance,
    /// The jump is being sent.
    Unvalidated,
    /// The jump has been sent, and its acknowledgements come.
    Validating,
    /// The path did not carry the jump.
    SafeRetreat,
    /// Saved parameters no longer matter.
    Normal,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Reconnaissance => "reconnaissance",
            Self::Unvalidated => "unvalidated",
            Self::Validating => "validating",
            Self::SafeRetreat => "safe_retreat",
            Self::Normal => "normal",
        }
    }
}

/// What a change of phase asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// Begin with this window.
    Jump { window_bytes: u64 },
    /// The path carried less than the jump: continue from what it delivered.
    Retreated,
}

/// Decides phases from what happens to packets.
#[derive(Debug)]
pub(super) struct Phases {
    phase: Phase,
    saved: SavedPath,
    initial_window_bytes: u64,
    jump_bytes: u64,
    next_number: u64,
    /// Packets of the jump: from this number on, and below the other.
    first: u64,
    end: u64,
    /// `PipeSize`: bytes that the path has held.
    pipe_bytes: u64,
    acked_bytes: u64,
    acked: u64,
    lost: u64,
    probe_timeouts: u32,
}

impl Phases {
    pub(super) fn new(saved: SavedPath, initial_window_bytes: u64) -> Self {
        Self {
            phase: Phase::Reconnaissance,
            saved,
            initial_window_bytes,
            jump_bytes: 0,
            next_number: 0,
            first: 0,
            end: u64::MAX,
            pipe_bytes: 0,
            acked_bytes: 0,
            acked: 0,
            lost: 0,
            probe_timeouts: 0,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Most bytes in flight in this phase; `None` where the algorithm alone decides.
    pub(super) fn window_bytes(&self) -> Option<u64> {
        match self.phase {
            Phase::Reconnaissance | Phase::Normal => None,
            Phase::Unvalidated | Phase::Validating => Some(self.jump_bytes),
            Phase::SafeRetreat => Some((self.pipe_bytes / 2).max(self.initial_window_bytes)),
        }
    }

    pub(super) fn on_sent(&mut self, packet: &SentPacket) {
        self.next_number = packet.number + 1;
    }

    /// Processes acknowledgements and losses; `window_bytes` is the algorithm's window.
    pub(super) fn on_event(
        &mut self,
        event: &CongestionEvent<'_>,
        window_bytes: u64,
    ) -> Option<Transition> {
        if !event.acked.is_empty() {
            self.probe_timeouts = 0;
        }
        match self.phase {
            Phase::Reconnaissance => self.reconnoitre(event, window_bytes),
            Phase::Unvalidated | Phase::Validating => self.validate(event),
            Phase::SafeRetreat => self.retreat(event),
            Phase::Normal => None,
        }
    }

    pub(super) fn on_probe_timeout(&mut self) {
        self.probe_timeouts = self.probe_timeouts.saturating_add(1);
        if self.probe_timeouts < MAX_PROBE_TIMEOUTS {
            return;
        }
        match self.phase {
            Phase::Reconnaissance => self.phase = Phase::Normal,
            Phase::Unvalidated | Phase::Validating => self.begin_retreat(),
            Phase::SafeRetreat | Phase::Normal => {}
        }
    }

    fn reconnoitre(&mut self, event: &CongestionEvent<'_>, window: u64) -> Option<Transition> {
        self.acked_bytes += event.acked.iter().map(|packet| packet.bytes).sum::<u64>();
        let jump_bytes = self.saved.window_bytes / JUMP_FRACTION;
        let differs = event.rtt.is_some_and(|rtt| !self.matches(rtt.min));
        if !event.lost.is_empty() || event.ecn_ce > 0 || differs || jump_bytes <= window {
            self.phase = Phase::Normal;
            return None;
        }
        if self.acked_bytes < self.initial_window_bytes {
            return None;
        }
        self.phase = Phase::Unvalidated;
        self.jump_bytes = jump_bytes;
        self.first = self.next_number;
        self.pipe_bytes = event.in_flight_bytes;
        Some(Transition::Jump { window_bytes: jump_bytes })
    }

    fn matches(&self, rtt: Duration) -> bool {
        rtt >= self.saved.rtt / MIN_RTT_DIVISOR && rtt < self.saved.rtt * MAX_RTT_RATIO
    }

    fn validate(&mut self, event: &CongestionEvent<'_>) -> Option<Transition> {
        self.count(event);
        if self.phase == Phase::Unvalidated && self.acked > 0 {
            self.phase = Phase::Validating;
            self.end = self.next_number;
        }
        let share = self.lost as f64 / (self.lost + self.acked).max(1) as f64;
        if event.ecn_ce > 0 || (self.lost >= MIN_LOSSES && share > MAX_RANDOM_LOSS) {
            self.begin_retreat();
        }
        self.finish(event)
    }

    fn begin_retreat(&mut self) {
        self.phase = Phase::SafeRetreat;
        self.end = self.end.min(self.next_number);
    }

    fn retreat(&mut self, event: &CongestionEvent<'_>) -> Option<Transition> {
        self.count(event);
        self.finish(event)
    }

    /// Ends the phase if the last packet of the jump is acknowledged or lost.
    fn finish(&mut self, event: &CongestionEvent<'_>) -> Option<Transition> {
        let acked = event.acked.last().map(|packet| packet.number);
        let lost = event.lost.last().map(|packet| packet.number);
        if acked.max(lost).is_none_or(|largest| largest + 1 < self.end) {
            return None;
        }
        let retreated = self.phase == Phase::SafeRetreat;
        self.phase = Phase::Normal;
        retreated.then_some(Transition::Retreated)
    }

    fn count(&mut self, event: &CongestionEvent<'_>) {
        self.pipe_bytes += event.acked.iter().map(|packet| packet.bytes).sum::<u64>();
        let acked = event.acked.iter().filter(|packet| packet.number >= self.first);
        self.acked += acked.count() as u64;
        let is_of_jump = |packet: &&LostPacket| packet.number >= self.first;
        self.lost += event.lost.iter().filter(is_of_jump).count() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckedPacket, RttSample, Time};

    const PACKET: u64 = 1000;
    const INITIAL: u64 = 10 * PACKET;
    const RTT: Duration = Duration::from_millis(100);
    const SAVED: SavedPath = SavedPath { window_bytes: 200 * PACKET, rtt: RTT };

    /// Sends and acknowledges packets of 1000 bytes.
    struct Driver {
        phases: Phases,
        sent: u64,
        in_flight: u64,
        rtt: Duration,
        window_bytes: u64,
    }

    impl Driver {
        fn new() -> Self {
            let phases = Phases::new(SAVED, INITIAL);
            Self { phases, sent: 0, in_flight: 0, rtt: RTT, window_bytes: INITIAL }
        }

        fn send(&mut self, packets: u64) {
            for _ in 0..packets {
                self.phases.on_sent(&SentPacket {
                    number: self.sent,
                    time: Time::ZERO,
                    bytes: PACKET,
                    prior_in_flight_bytes: self.in_flight * PACKET,
                    has_data: true,
                });
                self.sent += 1;
                self.in_flight += 1;
            }
        }

        fn event(
            &mut self,
            acked: std::ops::Range<u64>,
            lost: std::ops::Range<u64>,
        ) -> Option<Transition> {
            let prior_in_flight_bytes = self.in_flight * PACKET;
            self.in_flight -= (acked.end - acked.start) + (lost.end - lost.start);
            let acked: Vec<_> = acked
                .map(|number| AckedPacket { number, sent: Time::ZERO, bytes: PACKET })
                .collect();
            let lost: Vec<_> =
                lost.map(|number| LostPacket { number, sent: Time::ZERO, bytes: PACKET }).collect();
            let (latest, smoothed) = (self.rtt, self.rtt);
            let event = CongestionEvent {
                now: Time::ZERO,
                acked: &acked,
                lost: &lost,
                rtt: Some(RttSample { latest, smoothed, variation: smoothed / 2, min: latest }),
                ecn_ce: 0,
                prior_in_flight_bytes,
                in_flight_bytes: self.in_flight * PACKET,
                app_limited: false,
            };
            self.phases.on_event(&event, self.window_bytes)
        }

        /// After the initial window and a jump of 100 packets.
        fn after_jump() -> Self {
            let mut driver = Self::new();
            driver.send(10);
            driver.event(0..10, 0..0);
            driver.send(100);
            driver
        }
    }

    #[test]
    fn acknowledged_initial_window_leads_to_a_jump_to_half_of_the_saved_window() {
        let mut driver = Driver::new();
        driver.send(10);
        assert_eq!(driver.event(0..9, 0..0), None);
        assert_eq!(driver.phases.window_bytes(), None);
        let jump = Transition::Jump { window_bytes: 100 * PACKET };
        assert_eq!(driver.event(9..10, 0..0), Some(jump));
        assert_eq!(driver.phases.window_bytes(), Some(100 * PACKET));
    }

    #[test]
    fn path_with_another_rtt_is_another_path() {
        for (ms, jumps) in [(49, false), (50, true), (999, true), (1000, false)] {
            let mut driver = Driver::new();
            driver.rtt = Duration::from_millis(ms);
            driver.send(10);
            assert_eq!(driver.event(0..10, 0..0).is_some(), jumps, "{ms} ms");
        }
    }

    #[test]
    fn loss_in_the_initial_window_prevents_the_jump() {
        let mut driver = Driver::new();
        driver.send(11);
        assert_eq!(driver.event(1..3, 0..1), None);
        assert_eq!(driver.event(3..11, 0..0), None);
        assert_eq!(driver.phases.phase(), Phase::Normal);
    }

    #[test]
    fn window_that_is_as_large_already_needs_no_jump() {
        let mut driver = Driver::new();
        driver.window_bytes = 100 * PACKET;
        driver.send(10);
        assert_eq!(driver.event(0..10, 0..0), None);
        assert_eq!(driver.phases.phase(), Phase::Normal);
    }

    #[test]
    fn acknowledged_jump_is_normal() {
        let mut driver = Driver::after_jump();
        assert_eq!(driver.phases.phase(), Phase::Unvalidated);
        driver.event(10..11, 0..0);
        assert_eq!(driver.phases.phase(), Phase::Validating);
        driver.send(50);
        // Three random losses.
        driver.event(14..109, 11..14);
        assert_eq!(driver.phases.phase(), Phase::Validating);
        assert_eq!(driver.phases.window_bytes(), Some(100 * PACKET));
        driver.event(109..110, 0..0);
        assert_eq!(driver.phases.phase(), Phase::Normal);
    }

    #[test]
    fn heavy_loss_of_the_jump_retreats_to_half_of_what_arrived() {
        let mut driver = Driver::after_jump();
        driver.event(10..30, 0..0);
        assert_eq!(driver.event(40..60, 30..40), None);
        assert_eq!(driver.phases.phase(), Phase::SafeRetreat);
        assert_eq!(driver.phases.window_bytes(), Some(20 * PACKET));
        driver.send(5);
        assert_eq!(driver.event(60..100, 0..0), None);
        assert_eq!(driver.phases.window_bytes(), Some(40 * PACKET));
        assert_eq!(driver.event(100..110, 0..0), Some(Transition::Retreated));
        assert_eq!(driver.phases.phase(), Phase::Normal);
    }

    #[test]
    fn jump_without_any_acknowledgement_retreats_at_the_second_timeout() {
        let mut driver = Driver::after_jump();
        driver.phases.on_probe_timeout();
        assert_eq!(driver.phases.phase(), Phase::Unvalidated);
        driver.phases.on_probe_timeout();
        assert_eq!(driver.phases.phase(), Phase::SafeRetreat);
        assert_eq!(driver.phases.window_bytes(), Some(INITIAL));
    }
}
