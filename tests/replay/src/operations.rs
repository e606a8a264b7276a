use std::time::Duration;

use millrace_cc::{
    AckedPacket, Bandwidth, CongestionEvent, Controller, LostPacket, PathModel, RttSample,
    SentPacket, Time, Tuning,
};

/// Source of choices: a random generator, or the bytes of a fuzzer.
pub trait Choices {
    /// Any 64 bits; `None` when there are no more.
    fn next(&mut self) -> Option<u64>;
}

/// Valid pacing rates of a controller: 10 kbit/s to 100 Gbit/s.
const RATE_BOUNDS_MBPS: std::ops::RangeInclusive<f64> = 0.01..=100_000.0;
/// Most packets in flight: bounds memory.
const MAX_IN_FLIGHT_PACKETS: usize = 500;

/// Calls a controller in ways that a transport could, and checks after each call that its rate and window are valid.
#[derive(Debug)]
pub struct Operations<C> {
    choices: C,
    now: Time,
    number: u64,
    mtu_bytes: u64,
    in_flight: Vec<(u64, Time, u64)>,
    /// Packets declared lost that may only be late.
    lost: Vec<LostPacket>,
    rtt: RttSample,
}

impl<C: Choices> Operations<C> {
    /// Starts at time zero with packets of `mtu_bytes`.
    pub fn new(choices: C, mtu_bytes: u64) -> Self {
        let span = Duration::from_millis(333);
        Self {
            choices,
            now: Time::ZERO,
            number: 0,
            mtu_bytes,
            in_flight: Vec::new(),
            lost: Vec::new(),
            rtt: RttSample { latest: span, smoothed: span, variation: span, min: span },
        }
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The next packet number.
    pub fn next_number(&self) -> u64 {
        self.number + 1
    }

    /// Size of a full packet.
    pub fn mtu_bytes(&self) -> u64 {
        self.mtu_bytes
    }

    fn below(&mut self, bound: u64) -> Option<u64> {
        Some(self.choices.next()? % bound)
    }

    /// A duration from a nanosecond to seconds, evenly distributed in magnitude.
    fn span(&mut self) -> Option<Duration> {
        let magnitude = self.below(32)? as u32;
        Some(Duration::from_nanos(self.below(2_u64.pow(magnitude))? + 1))
    }

    fn in_flight_bytes(&self) -> u64 {
        self.in_flight.iter().map(|(_, _, bytes)| bytes).sum()
    }

    /// One operation; `None` when the choices have run out.
    ///
    /// # Panics
    /// When the controller's rate or window is invalid after it.
    pub fn step(&mut self, controller: &mut dyn Controller) -> Option<()> {
        // Three of four times the clock does not move at all.
        if self.below(4)? == 0 {
            let later = self.span()?;
            self.now += later;
        }
        match self.below(100)? {
            0..55 => self.send(controller)?,
            55..86 => self.event(controller)?,
            86..89 => controller.on_app_limited(self.now, self.in_flight_bytes()),
            89..91 => controller.on_probe_timeout(self.now),
            91..94 => self.discard(controller)?,
            94..96 => {
                self.mtu_bytes = 500 + self.below(9000)?;
                controller.on_mtu(self.mtu_bytes);
            }
            96 => self.acknowledge_lost(controller)?,
            97 => {
                let share = (1 + self.below(100)?) as f64 / 100.0;
                controller.tune(Tuning::Share(share));
                let above = Bandwidth::from_bits_per_s(self.below(1 << 40)?);
                controller.tune(Tuning::YieldAbove(above));
            }
            98 => self.number += 1 << self.below(24)?,
            _ => self.init_from_path(controller)?,
        }
        self.check(controller);
        Some(())
    }

    fn send(&mut self, controller: &mut dyn Controller) -> Option<()> {
        for _ in 0..=self.below(20)? {
            if self.in_flight.len() >= MAX_IN_FLIGHT_PACKETS {
                break;
            }
            // Numbers of packets that carry only acknowledgements are never reported.
            self.number += 1 + u64::from(self.below(10)? == 0);
            let gap_ns = self.below(1_000_000)? * u64::from(self.below(2)? == 0);
            self.now += Duration::from_nanos(gap_ns);
            let bytes = if self.below(8)? == 0 { 40 } else { self.mtu_bytes };
            controller.on_packet_sent(&SentPacket {
                number: self.number,
                time: self.now,
                bytes,
                prior_in_flight_bytes: self.in_flight_bytes(),
                has_data: bytes > 40,
            });
            self.in_flight.push((self.number, self.now, bytes));
        }
        Some(())
    }

    fn event(&mut self, controller: &mut dyn Controller) -> Option<()> {
        let prior_in_flight_bytes = self.in_flight_bytes();
        let (mut acked, mut lost) = (Vec::new(), Vec::new());
        let (ack, lose) = (self.below(11)?, self.below(11)?);
        for (number, sent, bytes) in std::mem::take(&mut self.in_flight) {
            if self.below(10)? < ack {
                acked.push(AckedPacket { number, sent, bytes });
            } else if self.below(10)? < lose {
                lost.push(LostPacket { number, sent, bytes });
            } else {
                self.in_flight.push((number, sent, bytes));
            }
        }
        let latest = self.span()?;
        let sampled = self.below(2)? == 0 && !acked.is_empty();
        let rtt = sampled.then_some(RttSample {
            latest,
            smoothed: (self.rtt.smoothed * 7 + latest) / 8,
            variation: latest / 2,
            min: self.rtt.min.min(latest),
        });
        self.rtt = rtt.unwrap_or(self.rtt);
        let ecn_ce = if self.below(16)? == 0 { acked.len() as u64 } else { 0 };
        controller.on_event(&CongestionEvent {
            now: self.now,
            acked: &acked,
            lost: &lost,
            rtt,
            ecn_ce,
            prior_in_flight_bytes,
            in_flight_bytes: self.in_flight_bytes(),
            app_limited: self.below(5)? == 0,
        });
        self.lost = lost;
        Some(())
    }

    fn discard(&mut self, controller: &mut dyn Controller) -> Option<()> {
        let number = self.below(self.number + 10)?;
        self.in_flight.retain(|(other, ..)| *other != number);
        controller.on_packet_discarded(number);
        Some(())
    }

    /// A packet that was declared lost is acknowledged.
    fn acknowledge_lost(&mut self, controller: &mut dyn Controller) -> Option<()> {
        if !self.lost.is_empty() {
            let at = self.below(self.lost.len() as u64)? as usize;
            let late = self.lost.swap_remove(at);
            controller.on_spurious_loss(self.now, &late);
        }
        Some(())
    }

    fn init_from_path(&mut self, controller: &mut dyn Controller) -> Option<()> {
        let mut path = PathModel::default();
        path.smoothed_rtt = self.span()?;
        path.min_rtt = (self.below(4)? > 0).then_some(path.smoothed_rtt / 2);
        let shift = self.below(64)?;
        path.window_bytes = self.choices.next()? >> shift;
        path.max_delivery_rate = Bandwidth::from_bits_per_s(self.choices.next()? >> shift);
        controller.init_from_path(self.now, &path);
        Some(())
    }

    /// A window of less than two packets could wait for a delayed acknowledgement.
    fn check(&self, controller: &dyn Controller) {
        let (metrics, window) = (controller.metrics(), controller.window_bytes());
        let mbps = controller.pacing_rate().mbps();
        assert!(RATE_BOUNDS_MBPS.contains(&mbps), "{mbps} Mbit/s: {metrics:?}");
        assert!(window >= 2 * self.mtu_bytes, "{window} B of {}: {metrics:?}", self.mtu_bytes);
        assert!(metrics.figures.iter().all(|(_, value)| value.is_finite()), "{metrics:?}");
        assert!(!metrics.state.is_empty());
    }
}
