use super::*;
use crate::{AckedPacket, RttSample};

const PACKET: u64 = 1250;
const RTT: Duration = Duration::from_millis(50);

/// Goes at a rate that others tell it.
#[derive(Debug, Default)]
struct Told {
    mbps: f64,
    /// What its packets leave at, where that is something else.
    spread_mbps: Option<f64>,
    starting: bool,
    far_below: bool,
    fell_from: Option<f64>,
    seen: u64,
    inherited: Vec<f64>,
}

impl Resumable for Told {
    fn rate(&self) -> Bandwidth {
        Bandwidth::from_mbps(self.mbps)
    }

    fn is_starting(&self) -> bool {
        self.starting
    }

    fn is_far_below(&self) -> bool {
        self.far_below
    }

    fn take_fall(&mut self) -> Option<f64> {
        self.fell_from.take()
    }
}

impl Controller for Told {
    fn on_packet_sent(&mut self, _packet: &SentPacket) {
        self.seen += 1;
    }

    fn on_event(&mut self, _event: &CongestionEvent<'_>) {}

    fn inherit(&mut self, _now: Time, path: &PathModel) {
        self.mbps = path.max_delivery_rate.mbps();
        self.far_below = false;
        self.inherited.push(self.mbps);
    }

    fn window_bytes(&self) -> u64 {
        100 * PACKET
    }

    fn pacing_rate(&self) -> Bandwidth {
        Bandwidth::from_mbps(self.spread_mbps.unwrap_or(self.mbps))
    }

    fn metrics(&self) -> Metrics {
        Metrics::default()
    }
}

/// A sender that keeps to the pacing rate, and a link.
struct Path {
    control: Restart<Told>,
    now: Time,
    number: u64,
    link_mbps: f64,
    /// When the link is free again.
    free: Time,
}

impl Path {
    fn new(told: Told, link_mbps: f64) -> Self {
        let mut control = Restart::new(told);
        control.smoothed_rtt = Some(RTT);
        Self { control, now: Time::ZERO, number: 0, link_mbps, free: Time::ZERO }
    }

    /// Sends so many packets after a rest, and lets them arrive; the rates at which they left.
    fn segment(&mut self, packets: usize) -> Vec<f64> {
        self.control.on_app_limited(self.now, 0);
        self.now += 2 * RTT;
        let (mut rates, mut acks): (Vec<f64>, Vec<(Time, AckedPacket)>) = Default::default();
        for sent in 0..packets {
            while acks.first().is_some_and(|(at, _)| *at <= self.now) {
                let (at, packet) = acks.remove(0);
                self.acknowledge(at, packet, acks.len() as u64);
            }
            let packet = SentPacket {
                number: self.number,
                time: self.now,
                bytes: PACKET,
                prior_in_flight_bytes: acks.len() as u64 * PACKET,
                has_data: true,
            };
            self.control.on_packet_sent(&packet);
            self.free = self.free.max(self.now) + time_of(self.link_mbps);
            let acked = AckedPacket { number: self.number, sent: self.now, bytes: PACKET };
            acks.push((self.free + RTT, acked));
            self.number += 1;
            let rate = self.control.pacing_rate();
            rates.push(rate.mbps());
            if sent + 1 == packets {
                self.control.on_app_limited(self.now, acks.len() as u64 * PACKET);
            }
            self.now += rate.time_for(PACKET);
        }
        let left = acks.len() as u64;
        for (count, (at, packet)) in (1..).zip(acks) {
            self.acknowledge(at, packet, left - count);
            self.now = self.now.max(at);
        }
        rates
    }

    fn acknowledge(&mut self, now: Time, packet: AckedPacket, in_flight: u64) {
        let rtt = RttSample { latest: RTT, smoothed: RTT, variation: Duration::ZERO, min: RTT };
        self.control.on_event(&CongestionEvent {
            now,
            acked: &[packet],
            lost: &[],
            rtt: Some(rtt),
            ecn_ce: 0,
            prior_in_flight_bytes: (in_flight + 1) * PACKET,
            in_flight_bytes: in_flight * PACKET,
            app_limited: false,
        });
    }

    fn told(&self) -> &Told {
        &self.control.inner
    }
}

fn time_of(mbps: f64) -> Duration {
    Bandwidth::from_mbps(mbps).time_for(PACKET)
}

fn at(mbps: f64) -> Told {
    Told { mbps, ..Told::default() }
}

#[test]
fn after_a_rest_a_train_finds_what_the_path_carries_by_now() {
    let mut path = Path::new(at(2.0), 3.0);
    let first = path.segment(60);
    assert!(first.iter().all(|mbps| *mbps == 2.0), "nothing is known of what there is to send");
    let second = path.segment(60);
    assert_eq!(second[..16], [4.0; 16]);
    assert_eq!(second[16], 2.0, "until the answer");
    let [found] = path.told().inherited[..] else { panic!("{:?}", path.told()) };
    assert!((found - 3.0).abs() < 0.05, "{found}");
    assert_eq!(path.told().seen, 60 + 60 - 17, "the rest of the packets are the algorithm's");
}

#[test]
fn what_arrives_as_it_was_sent_is_followed_by_the_next() {
    let mut path = Path::new(at(2.0), 100.0);
    path.segment(60);
    path.segment(200);
    let found = &path.told().inherited;
    assert!((found[0] - 4.0).abs() < 0.1 && (found[1] - 8.0).abs() < 0.2, "{found:?}");
}

#[test]
fn a_slower_path_is_left_to_the_algorithm() {
    let mut path = Path::new(at(2.0), 1.0);
    path.segment(60);
    path.segment(60);
    assert_eq!(path.told().inherited, [] as [f64; 0]);
    path.control.inner.far_below = true;
    path.segment(60);
    assert_eq!(path.told().inherited, [2.0], "an answer, for it to go on");
}

#[test]
fn where_packets_are_spread_a_train_goes_by_a_long_gap_but_not_by_a_short_one() {
    for (spread_mbps, train_mbps) in [(1.5, 3.0), (8.0, 4.0)] {
        let mut path = Path::new(Told { spread_mbps: Some(spread_mbps), ..at(2.0) }, 1.0);
        path.segment(60);
        path.control.inner.far_below = true;
        assert_eq!(path.segment(60)[..16], [train_mbps; 16]);
        assert_eq!(path.told().inherited, [2.0], "the mean, where the train has shown nothing");
    }
}

#[test]
fn there_is_none_in_start_up_nor_for_those_who_send_little_at_a_time() {
    let mut path = Path::new(Told { starting: true, ..at(2.0) }, 3.0);
    path.segment(60);
    assert_eq!(path.segment(60)[0], 2.0);
    let mut path = Path::new(at(2.0), 3.0);
    for _ in 0..5 {
        assert_eq!(path.segment(30), [2.0; 30]);
    }
    assert_eq!(path.told().seen, 150);
}

#[test]
fn a_train_that_runs_out_counts_if_it_can_and_is_forgotten_if_not() {
    for (packets, answers) in [(14, 1), (6, 0)] {
        let mut path = Path::new(at(2.0), 3.0);
        path.segment(60);
        path.segment(packets);
        assert_eq!(path.told().inherited.len(), answers, "{packets}");
        assert_eq!(path.control.pacing_rate(), path.told().pacing_rate());
    }
}

#[test]
fn acknowledgements_that_come_at_once_show_nothing() {
    let mut path = Path::new(at(2.0), 3.0);
    path.segment(60);
    let mut train = Train::new(
        Cause::Rest,
        Bandwidth::from_mbps(2.0),
        Bandwidth::from_mbps(2.0),
        &SentPacket {
            number: 0,
            time: Time::ZERO,
            bytes: PACKET,
            prior_in_flight_bytes: 0,
            has_data: true,
        },
    );
    let after = |ms| Time::ZERO + Duration::from_millis(ms);
    for number in 0..17 {
        let packet = SentPacket {
            number,
            time: after(2 * number),
            bytes: PACKET,
            prior_in_flight_bytes: 0,
            has_data: true,
        };
        train.on_sent(&packet);
    }
    let mut spread = train;
    for number in 0..17 {
        let packet = [AckedPacket { number, sent: after(2 * number), bytes: PACKET }];
        train.on_acked(after(100 + u64::from(number > 0)), &packet);
        spread.on_acked(after(100 + 3 * number), &packet);
    }
    assert_eq!(train.sent_and_delivered(), None);
    let (sent, delivered) = spread.sent_and_delivered().expect("16 packets in 48 ms");
    assert!((sent.mbps() - 5.0).abs() < 1e-3 && (delivered.mbps() - 10.0 / 3.0).abs() < 1e-3);
}

#[test]
fn after_a_fall_it_asks_until_the_path_is_back() {
    let mut path = Path::new(Told { fell_from: Some(8.0), ..at(1.0) }, 1.0);
    let rates = path.segment(400);
    let asked = rates.windows(2).filter(|pair| pair[0] < 1.5 && pair[1] >= 1.5).count();
    // At 1 and 3 s of the 4.
    assert_eq!(asked, 2, "{rates:?}");
    path.link_mbps = 8.0;
    path.segment(2000);
    assert!(path.told().mbps > 7.0, "{:?}", path.told());
}
