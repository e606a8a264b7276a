//! Any sequence of calls leaves a controller with a sane rate and window.

use std::time::Duration;

use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_cc::{
    AckedPacket, Bandwidth, CongestionEvent, Controller, LostPacket, PathModel, PathStart,
    RttSample, SentPacket, Time,
};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

struct Driver {
    rng: Pcg64Mcg,
    now: Time,
    number: u64,
    mtu_bytes: u64,
    in_flight: Vec<(u64, Time)>,
    rtt: RttSample,
}

impl Driver {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    /// From a nanosecond to seconds, evenly in magnitude.
    fn span(&mut self) -> Duration {
        let magnitude = self.below(32) as u32;
        Duration::from_nanos(self.below(2_u64.pow(magnitude)) + 1)
    }

    fn step(&mut self, controller: &mut dyn Controller) {
        if self.below(4) == 0 {
            let later = self.span();
            self.now += later;
        }
        match self.below(100) {
            0..55 => self.send(controller),
            55..88 => self.event(controller),
            88..91 => controller.on_app_limited(self.now, self.in_flight.len() as u64 * 1350),
            91..93 => controller.on_probe_timeout(self.now),
            93..96 => {
                let number = self.below(self.number + 10);
                self.in_flight.retain(|(other, _)| *other != number);
                controller.on_packet_discarded(number);
            }
            96..98 => {
                self.mtu_bytes = 500 + self.below(9000);
                controller.on_mtu(self.mtu_bytes);
            }
            98 => self.number += 1 << self.below(24),
            _ => {
                let mut path = PathModel::default();
                path.smoothed_rtt = self.span();
                let shift = self.below(64);
                path.window_bytes = self.rng.next_u64() >> shift;
                path.max_delivery_rate = Bandwidth::from_bits_per_s(self.rng.next_u64() >> shift);
                controller.inherit(self.now, &path);
            }
        }
    }

    fn send(&mut self, controller: &mut dyn Controller) {
        for _ in 0..=self.below(20) {
            self.number += 1 + u64::from(self.below(10) == 0);
            let gap_ns = self.below(1_000_000);
            self.now += Duration::from_nanos(gap_ns);
            controller.on_packet_sent(&SentPacket {
                number: self.number,
                time: self.now,
                bytes: self.mtu_bytes,
                prior_in_flight_bytes: self.in_flight.len() as u64 * self.mtu_bytes,
                has_data: true,
            });
            self.in_flight.push((self.number, self.now));
        }
    }

    fn event(&mut self, controller: &mut dyn Controller) {
        let (mut acked, mut lost) = (Vec::new(), Vec::new());
        let (ack, lose, bytes) = (self.below(11), self.below(11), self.mtu_bytes);
        for (number, sent) in std::mem::take(&mut self.in_flight) {
            if self.below(10) < ack {
                acked.push(AckedPacket { number, sent, bytes });
            } else if self.below(10) < lose {
                lost.push(LostPacket { number, sent, bytes });
            } else {
                self.in_flight.push((number, sent));
            }
        }
        // Packets that were never reported, as those that carry only acknowledgements.
        acked.push(AckedPacket { number: self.number + 1, sent: self.now, bytes });
        let latest = self.span();
        let rtt = (self.below(2) == 0).then_some(RttSample {
            latest,
            smoothed: (self.rtt.smoothed * 7 + latest) / 8,
            variation: latest / 2,
            min: self.rtt.min.min(latest),
        });
        self.rtt = rtt.unwrap_or(self.rtt);
        controller.on_event(&CongestionEvent {
            now: self.now,
            acked: &acked,
            lost: &lost,
            rtt,
            ecn_ce: 0,
            prior_in_flight_bytes: 0,
            in_flight_bytes: 0,
            app_limited: self.below(5) == 0,
        });
    }
}

#[test]
fn no_sequence_of_calls_breaks_a_controller() {
    for name in registry::names() {
        let spec = match name {
            "constant" => Spec::named(name).with("rate_mbps", 10.0),
            _ => Spec::named(name),
        };
        let Ok(Algorithm::Controller(config)) = registry::find(&spec) else { continue };
        for seed in 0..100 {
            check(name, &*config.build(Time::ZERO, &start(seed)), seed);
            let mut controller = config.build(Time::ZERO, &start(seed));
            operate(name, &mut *controller, seed);
        }
    }
}

fn start(seed: u64) -> PathStart {
    PathStart {
        mtu_bytes: 1350,
        initial_window_bytes: 13_500,
        initial_rtt: Duration::from_millis(333),
        seed,
    }
}

fn operate(name: &str, controller: &mut dyn Controller, seed: u64) {
    let span = Duration::from_millis(333);
    let mut driver = Driver {
        rng: Pcg64Mcg::seed_from_u64(seed),
        now: Time::ZERO,
        number: 0,
        mtu_bytes: 1350,
        in_flight: Vec::new(),
        rtt: RttSample { latest: span, smoothed: span, variation: span, min: span },
    };
    for _ in 0..2000 {
        driver.step(controller);
        check(name, controller, seed);
        // Less could wait for an acknowledgement that is held back.
        assert!(controller.window_bytes() >= 2 * driver.mtu_bytes, "{name} {seed}");
    }
}

fn check(name: &str, controller: &dyn Controller, seed: u64) {
    let (metrics, mbps) = (controller.metrics(), controller.pacing_rate().mbps());
    assert!((0.1..=100_000.0).contains(&mbps), "{name} {seed}: {mbps} Mbit/s");
    assert!(
        metrics.figures.iter().all(|(_, value)| value.is_finite()),
        "{name} {seed}: {metrics:?}"
    );
}
