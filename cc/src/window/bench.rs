//! A controller under a hand-driven path, for tests of formulas.

use std::time::Duration;

use crate::{
    AckedPacket, CongestionEvent, Controller, ControllerConfig, LostPacket, PathStart, RttSample,
    SentPacket, Time,
};

/// Size of every packet: a round number, so that packets are easily counted.
pub(crate) const PACKET: u64 = 1000;

/// Sends whole windows and acknowledges them packet by packet, one round trip later.
pub(crate) struct Bench {
    pub(crate) controller: Box<dyn Controller>,
    pub(crate) now: Time,
    number: u64,
    rtt: Option<RttSample>,
    pub(crate) lost: Vec<LostPacket>,
}

impl Bench {
    pub(crate) fn new(config: &dyn ControllerConfig, initial_packets: u64) -> Self {
        let start = PathStart {
            mtu_bytes: PACKET,
            initial_window_bytes: initial_packets * PACKET,
            initial_rtt: Duration::from_millis(333),
            seed: 1,
        };
        let now = Time::from_nanos(1_000_000_000);
        let controller = config.build(now, &start);
        Self { controller, now, number: 0, rtt: None, lost: Vec::new() }
    }

    pub(crate) fn packets(&self) -> f64 {
        self.controller.window_bytes() as f64 / PACKET as f64
    }

    pub(crate) fn state(&self) -> &'static str {
        self.controller.metrics().state
    }

    pub(crate) fn figure(&self, name: &str) -> f64 {
        let figures = self.controller.metrics().figures;
        let found = figures.iter().find(|(other, _)| *other == name);
        found.unwrap_or_else(|| panic!("{name} of {figures:?}")).1
    }

    fn sample(&mut self, rtt: Duration) -> RttSample {
        let min = self.rtt.map_or(rtt, |before| before.min.min(rtt));
        let sample = RttSample { latest: rtt, smoothed: rtt, variation: rtt / 10, min };
        self.rtt = Some(sample);
        sample
    }

    /// A full window with an RTT of `rtt_ms`, of which the first `lose` packets are lost.
    pub(crate) fn round(&mut self, rtt_ms: u64, lose: usize) {
        self.round_us(rtt_ms * 1000, lose);
    }

    /// A full window with an RTT of `rtt_us`, of which the first `lose` packets are lost.
    pub(crate) fn round_us(&mut self, rtt_us: u64, lose: usize) {
        self.send_and_acknowledge(Duration::from_micros(rtt_us), lose, u64::MAX);
    }

    /// A round of at most `most` packets, after which the sender is out of data.
    pub(crate) fn partial_round(&mut self, rtt_ms: u64, lose: usize, most: u64) {
        self.send_and_acknowledge(Duration::from_millis(rtt_ms), lose, most);
    }

    fn send_and_acknowledge(&mut self, rtt: Duration, lose: usize, most: u64) {
        let packets = (self.controller.window_bytes() / PACKET).min(most);
        let sent: Vec<_> = (0..packets).map(|n| self.send(n * PACKET)).collect();
        if packets == most {
            self.controller.on_app_limited(self.now, packets * PACKET);
        }
        let sent_at = self.now;
        // Acknowledgements are spread over a thousandth of the round trip.
        for (index, number) in sent.into_iter().enumerate() {
            self.now = sent_at + rtt + rtt / 1000 * index as u32 / packets as u32;
            let in_flight = (packets - index as u64) * PACKET;
            match index < lose {
                true => {
                    let packet = LostPacket { number, sent: sent_at, bytes: PACKET };
                    self.lost.push(packet);
                    self.event(in_flight, &[], &[packet], None);
                }
                false => {
                    let sample = self.sample(rtt);
                    let packet = AckedPacket { number, sent: sent_at, bytes: PACKET };
                    self.event(in_flight, &[packet], &[], Some(sample));
                }
            }
        }
    }

    fn send(&mut self, prior_in_flight_bytes: u64) -> u64 {
        self.number += 1;
        self.controller.on_packet_sent(&SentPacket {
            number: self.number,
            time: self.now + Duration::from_nanos(1),
            bytes: PACKET,
            prior_in_flight_bytes,
            has_data: true,
        });
        self.number
    }

    fn event(
        &mut self,
        in_flight: u64,
        acked: &[AckedPacket],
        lost: &[LostPacket],
        rtt: Option<RttSample>,
    ) {
        self.controller.on_event(&CongestionEvent {
            now: self.now,
            acked,
            lost,
            rtt,
            ecn_ce: 0,
            prior_in_flight_bytes: in_flight,
            in_flight_bytes: in_flight.saturating_sub(PACKET),
            app_limited: false,
        });
    }
}
