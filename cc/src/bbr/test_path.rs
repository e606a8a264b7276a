//! A deterministic path for tests of the states: one acknowledgement per packet.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{
    AckedPacket, Bandwidth, CongestionEvent, Controller, LostPacket, PathStart, RttSample,
    SentPacket, Time,
};

pub(super) const PACKET_BYTES: u64 = 1000;
const START: Time = Time::from_nanos(1_000_000_000);

pub(super) fn start(seed: u64) -> PathStart {
    PathStart {
        mtu_bytes: PACKET_BYTES,
        initial_window_bytes: 10 * PACKET_BYTES,
        initial_rtt: Duration::from_millis(333),
        seed,
    }
}

pub(super) struct TestPath<C> {
    pub(super) controller: C,
    pub(super) now: Time,
    pub(super) rate: Bandwidth,
    pub(super) rtt: Duration,
    /// Packets that the queue holds.
    pub(super) buffer_packets: u64,
    /// Number of the next packets that are lost.
    pub(super) lose: u64,
    /// One in this many packets is lost; 0 for no losses.
    pub(super) lose_every: u64,
    free_at: Time,
    release_at: Time,
    next_number: u64,
    /// Number, when it left, when it is acknowledged.
    in_flight: VecDeque<(u64, Time, Time)>,
    lost: VecDeque<(u64, Time)>,
    min_rtt: Duration,
}

impl<C: Controller> TestPath<C> {
    /// 8 Mbit/s, a packet each millisecond; 40 ms, so 40 packets; an unlimited queue.
    pub(super) fn new(make: impl FnOnce(Time) -> C) -> Self {
        Self {
            controller: make(START),
            now: START,
            rate: Bandwidth::from_mbps(8.0),
            rtt: Duration::from_millis(40),
            buffer_packets: u64::MAX,
            lose: 0,
            lose_every: 0,
            free_at: START,
            release_at: START,
            next_number: 0,
            in_flight: VecDeque::new(),
            lost: VecDeque::new(),
            min_rtt: Duration::MAX,
        }
    }

    pub(super) fn in_flight_packets(&self) -> u64 {
        (self.in_flight.len() + self.lost.len()) as u64
    }

    fn in_flight_bytes(&self) -> u64 {
        self.in_flight_packets() * PACKET_BYTES
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now - START
    }

    /// Sends and acknowledges until `done`.
    pub(super) fn run_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..10_000_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("never: {:?}", self.controller.metrics());
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        self.run_until(|path| path.now >= until);
    }

    pub(super) fn run_until_state(&mut self, state: &str) {
        self.run_until(|path| path.controller.metrics().state == state);
    }

    fn step(&mut self) {
        let room = self.in_flight_bytes() + PACKET_BYTES <= self.controller.window_bytes();
        let back = self.in_flight.front().map(|(_, _, back)| *back);
        let leaves = self.release_at.max(self.now);
        match back {
            Some(back) if !room || back <= leaves => self.acknowledge(),
            None if !room => panic!("no room and nothing on its way"),
            _ => self.send(leaves),
        }
    }

    pub(super) fn send(&mut self, at: Time) {
        self.now = at;
        let number = self.next_number;
        self.next_number += 1;
        self.controller.on_packet_sent(&SentPacket {
            number,
            time: at,
            bytes: PACKET_BYTES,
            prior_in_flight_bytes: self.in_flight_bytes(),
            has_data: true,
        });
        let is_lost = self.lose_every > 0 && number.is_multiple_of(self.lose_every);
        let packet_time = self.rate.time_for(PACKET_BYTES);
        let queued = self.free_at.since(at).as_nanos() / packet_time.as_nanos();
        if self.lose > 0 || is_lost || queued > u128::from(self.buffer_packets) {
            self.lose = self.lose.saturating_sub(1);
            self.lost.push_back((number, at));
        } else {
            self.free_at = self.free_at.max(at) + packet_time;
            self.in_flight.push_back((number, at, self.free_at + self.rtt));
        }
        self.release_at = at + self.controller.pacing_rate().time_for(PACKET_BYTES);
    }

    /// The next acknowledgement, and the losses that it shows (RFC 9002, Section 6.1.1).
    pub(super) fn acknowledge(&mut self) {
        let prior_in_flight_bytes = self.in_flight_bytes();
        let (number, sent, back) = self.in_flight.pop_front().expect("something is in flight");
        self.now = self.now.max(back);
        let overtaken = self.lost.iter().take_while(|(lost, _)| lost + 3 <= number).count();
        let lost: Vec<_> = self
            .lost
            .drain(..overtaken)
            .map(|(number, sent)| LostPacket { number, sent, bytes: PACKET_BYTES })
            .collect();
        let latest = self.now - sent;
        self.min_rtt = self.min_rtt.min(latest);
        let event = CongestionEvent {
            now: self.now,
            acked: &[AckedPacket { number, sent, bytes: PACKET_BYTES }],
            lost: &lost,
            rtt: Some(RttSample { latest, smoothed: latest, variation: latest, min: self.min_rtt }),
            ecn_ce: 0,
            prior_in_flight_bytes,
            in_flight_bytes: self.in_flight_bytes(),
            app_limited: false,
        };
        self.controller.on_event(&event);
    }

    /// The application pauses until everything is acknowledged, and for `time` more.
    pub(super) fn pause(&mut self, time: Duration) {
        self.controller.on_app_limited(self.now, self.in_flight_bytes());
        while !self.in_flight.is_empty() {
            self.acknowledge();
        }
        self.lost.clear();
        self.now += time;
        self.release_at = self.now;
    }
}
