use super::*;
use crate::{AckedPacket, RttSample};

const PACKET: u64 = 1250;
const RTT: Duration = Duration::from_millis(50);

/// A controller with a scripted rate.
#[derive(Debug, Default)]
struct Scripted {
    mbps: f64,
    /// Pacing rate, if it differs.
    spread_mbps: Option<f64>,
    starting: bool,
    below_capacity: bool,
    rate_before_drop: Option<f64>,
    seen: u64,
    initial_rates: Vec<f64>,
}

impl Resumable for Scripted {
    fn rate(&self) -> Bandwidth {
        Bandwidth::from_mbps(self.mbps)
    }

    fn is_starting(&self) -> bool {
        self.starting
    }

    fn is_below_capacity(&self) -> bool {
        self.below_capacity
    }

    fn take_rate_drop(&mut self) -> Option<f64> {
        self.rate_before_drop.take()
    }
}

impl Controller for Scripted {
    fn on_packet_sent(&mut self, _packet: &SentPacket) {
        self.seen += 1;
    }

    fn on_event(&mut self, _event: &CongestionEvent<'_>) {}

    fn init_from_path(&mut self, _now: Time, path: &PathModel) {
        self.mbps = path.max_delivery_rate.mbps();
        self.below_capacity = false;
        self.initial_rates.push(self.mbps);
    }

    fn window_bytes(&self) -> u64 {
        100 * PACKET
    }

    fn pacing_rate(&self) -> Bandwidth {
        Bandwidth::from_mbps(self.spread_mbps.unwrap_or(self.mbps))
    }

    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics::default()
    }
}

/// A sender that keeps to the pacing rate, and a link.
struct Path {
    control: BandwidthProbe<Scripted>,
    now: Time,
    number: u64,
    link_mbps: f64,
    /// When the link is free again.
    free: Time,
}

impl Path {
    fn new(scripted: Scripted, link_mbps: f64) -> Self {
        let mut control = BandwidthProbe::new(scripted);
        control.smoothed_rtt = Some(RTT);
        Self { control, now: Time::ZERO, number: 0, link_mbps, free: Time::ZERO }
    }

    /// Sends `packets` packets after a pause and delivers them. Returns the rates at which they left.
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

    fn scripted(&self) -> &Scripted {
        &self.control.inner
    }
}

fn time_of(mbps: f64) -> Duration {
    Bandwidth::from_mbps(mbps).time_for(PACKET)
}

fn at(mbps: f64) -> Scripted {
    Scripted { mbps, ..Scripted::default() }
}

#[test]
fn train_after_a_pause_finds_the_available_capacity() {
    let mut path = Path::new(at(2.0), 3.0);
    let first = path.segment(60);
    assert!(first.iter().all(|mbps| *mbps == 2.0), "the size of bursts is unknown");
    let second = path.segment(60);
    assert_eq!(second[..16], [4.0; 16]);
    assert_eq!(second[16], 2.0, "until the train's result");
    let [found] = path.scripted().initial_rates[..] else { panic!("{:?}", path.scripted()) };
    assert!((found - 3.0).abs() < 0.05, "{found}");
    assert_eq!(path.scripted().seen, 60 + 60 - 17, "the other packets are the algorithm's");
}

#[test]
fn fully_delivered_train_is_followed_by_another() {
    let mut path = Path::new(at(2.0), 100.0);
    path.segment(60);
    path.segment(200);
    let found = &path.scripted().initial_rates;
    assert!((found[0] - 4.0).abs() < 0.1 && (found[1] - 8.0).abs() < 0.2, "{found:?}");
}

#[test]
fn lower_rate_is_left_to_the_algorithm() {
    let mut path = Path::new(at(2.0), 1.0);
    path.segment(60);
    path.segment(60);
    assert_eq!(path.scripted().initial_rates, [] as [f64; 0]);
    path.control.inner.below_capacity = true;
    path.segment(60);
    assert_eq!(path.scripted().initial_rates, [2.0], "a result in any case");
}

#[test]
fn train_follows_a_long_gap_but_not_a_short_one() {
    for (spread_mbps, train_mbps) in [(1.5, 3.0), (8.0, 4.0)] {
        let mut path = Path::new(Scripted { spread_mbps: Some(spread_mbps), ..at(2.0) }, 1.0);
        path.segment(60);
        path.control.inner.below_capacity = true;
        assert_eq!(path.segment(60)[..16], [train_mbps; 16]);
        assert_eq!(path.scripted().initial_rates, [2.0], "the mean, without a result");
    }
}

#[test]
fn no_train_in_start_up_or_for_short_bursts() {
    let mut path = Path::new(Scripted { starting: true, ..at(2.0) }, 3.0);
    path.segment(60);
    assert_eq!(path.segment(60)[0], 2.0);
    let mut path = Path::new(at(2.0), 3.0);
    for _ in 0..5 {
        assert_eq!(path.segment(30), [2.0; 30]);
    }
    assert_eq!(path.scripted().seen, 150);
}

#[test]
fn short_train_counts_if_it_shows_a_rate() {
    for (packets, answers) in [(14, 1), (6, 0)] {
        let mut path = Path::new(at(2.0), 3.0);
        path.segment(60);
        path.segment(packets);
        assert_eq!(path.scripted().initial_rates.len(), answers, "{packets}");
        assert_eq!(path.control.pacing_rate(), path.scripted().pacing_rate());
    }
}

#[test]
fn compressed_acknowledgements_show_no_rate() {
    let mut path = Path::new(at(2.0), 3.0);
    path.segment(60);
    let mut train = PacketTrain::new(
        Trigger::AfterIdle,
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
fn probes_follow_a_rate_drop_until_the_rate_recovers() {
    let mut path = Path::new(Scripted { rate_before_drop: Some(8.0), ..at(1.0) }, 1.0);
    let rates = path.segment(400);
    let probes = rates.windows(2).filter(|pair| pair[0] < 1.5 && pair[1] >= 1.5).count();
    // At 1 and 3 s of the 4.
    assert_eq!(probes, 2, "{rates:?}");
    path.link_mbps = 8.0;
    path.segment(2000);
    assert!(path.scripted().mbps > 7.0, "{:?}", path.scripted());
}
