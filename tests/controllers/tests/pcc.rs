//! The other members of the PCC family over simulated paths.

mod simulated;

use std::time::Duration;

use millrace_cc::pcc::{
    ALLEGRO, ALLEGRO_LATENCY, NoiseFilter, PROTEUS_H, PROTEUS_P, PROTEUS_S, PccConfig, Utility,
    VIVACE_LATENCY, VIVACE_LOSS, VIVACE_LTE, VIVACE_WEIGHTED,
};
use millrace_cc::{Bandwidth, ConstantConfig};
use simulated::{DataSource, Link, Path, Run};

const ALL: [PccConfig; 9] = [
    VIVACE_LATENCY,
    VIVACE_LOSS,
    VIVACE_LTE,
    VIVACE_WEIGHTED,
    PROTEUS_P,
    PROTEUS_S,
    PROTEUS_H,
    ALLEGRO,
    ALLEGRO_LATENCY,
];

fn bulk(link: Link, config: PccConfig, seed: u64, duration_s: f64) -> Run {
    Path::new(link, seed).flow(&config, DataSource::Bulk, 0.0).run(duration_s)
}

#[test]
fn each_member_fills_a_link_of_its_own() {
    for config in ALL {
        let run = bulk(Link::new(20.0, 40.0, 100_000, 0.0), config, 1, 40.0);
        let goodput = run.flows[0].mbps(20.0, 40.0);
        assert!(goodput > 16.0, "{}: {goodput:.1} of 20 Mbit/s", config.name);
    }
}

#[test]
fn each_member_keeps_its_rate_through_the_pauses_of_a_video() {
    let video = DataSource::Segments { bytes: 450_000, period: Duration::from_secs(1) };
    for config in ALL {
        let path = Path::new(Link::new(20.0, 40.0, 100_000, 0.0), 1);
        let run = path.flow(&config, video.clone(), 0.0).run(40.0);
        let flow = &run.flows[0];
        let slowest = flow.segment_s.iter().skip(5).copied().fold(0.0, f64::max);
        assert!(flow.segment_s.len() >= 38, "{}: {}", config.name, flow.segment_s.len());
        assert!(slowest < 1.0, "{}: {slowest:.2} s for 0.2 s of the link", config.name);
    }
}

#[test]
fn each_member_survives_an_outage_and_a_slower_path() {
    let link = Link::new(20.0, 40.0, 100_000, 0.0);
    let dead = Link { loss: 1.0, ..link };
    let slow = Link { rate: Bandwidth::from_mbps(3.0), ..link };
    for config in ALL {
        let path = Path::new(link, 1).change(15.0, dead).change(18.0, link).change(40.0, slow);
        let run = path.flow(&config, DataSource::Bulk, 0.0).run(60.0);
        let mbps = |from, to| run.flows[0].mbps(from, to);
        assert!(mbps(30.0, 40.0) > 14.0, "{}: {:.1}", config.name, mbps(30.0, 40.0));
        assert!(mbps(50.0, 60.0) > 2.2, "{}: {:.1}", config.name, mbps(50.0, 60.0));
    }
}

#[test]
fn jitter_stops_vivace_as_published_and_not_with_the_noise_filter() {
    let jitter = |mbps, rtt_ms| Link {
        jitter: Duration::from_millis(2),
        ..Link::new(mbps, rtt_ms, 125_000, 0.0)
    };
    let goodput = |config| bulk(jitter(100.0, 10.0), config, 1, 30.0).flows[0].mbps(10.0, 30.0);
    let published = VIVACE_LATENCY.as_published();
    let filtered = PccConfig { noise_filter: NoiseFilter::Proteus, ..VIVACE_LATENCY };
    let (bare, with) = (goodput(published), goodput(filtered));
    println!("{bare:.1} as published, {with:.1} Mbit/s with the filter");
    assert!(with >= 80.0, "{with:.1} Mbit/s with the filter");
    assert!(bare < 60.0, "{bare:.1} Mbit/s as published");
}

#[test]
fn a_buffer_of_seconds_does_not_become_a_queue_of_seconds() {
    // The link slows down and has room for 40 s of it.
    let link = Link::new(12.0, 40.0, 20_000_000, 0.0);
    let slow = Link { rate: Bandwidth::from_mbps(4.0), ..link };
    for config in ALL {
        let path = Path::new(link, 1).change(10.0, slow).change(20.0, link).change(30.0, slow);
        let run = path.flow(&config, DataSource::Bulk, 0.0).run(40.0);
        let longest = run.queueing.iter().map(|(_, delay)| *delay).max().expect("packets");
        assert!(longest < Duration::from_millis(1000), "{}: {longest:?}", config.name);
    }
}

#[test]
fn a_link_that_falls_to_a_tenth_again_and_again_drops_little() {
    let fast = Link::new(20.0, 40.0, 100_000, 0.0);
    let slow = Link { rate: Bandwidth::from_mbps(2.0), ..fast };
    let run = |config: PccConfig| {
        let changes =
            (1..12_u32).map(|n| (5.0 * f64::from(n), if n % 2 == 1 { slow } else { fast }));
        let path = changes.fold(Path::new(fast, 1), |path, (at_s, link)| path.change(at_s, link));
        path.flow(&config, DataSource::Bulk, 0.0).run(60.0)
    };
    for config in ALL {
        let (now, published) = (run(config), run(config.as_published()));
        let (loss, before) = (now.flows[0].loss(), published.flows[0].loss());
        let mbps = now.flows[0].mbps(5.0, 60.0);
        println!(
            "{}: {:.2} % ({:.2} % as published), {mbps:.1} Mbit/s",
            config.name,
            loss * 100.0,
            before * 100.0
        );
        assert!(loss < 0.02, "{}: {loss:.4}", config.name);
        assert!(mbps > 5.0, "{}: {mbps:.1} of 11 Mbit/s", config.name);
    }
}

#[test]
fn a_scavenger_takes_less_beside_a_primary_flow_and_all_when_alone() {
    let path = Path::new(Link::new(20.0, 40.0, 100_000, 0.0), 1);
    let run = path
        .flow(&PROTEUS_P, DataSource::Bulk, 0.0)
        .flow(&PROTEUS_S, DataSource::Bulk, 5.0)
        .run(60.0);
    let [primary, scavenger] = [0, 1].map(|flow: usize| run.flows[flow].mbps(20.0, 60.0));
    println!("{primary:.1} and {scavenger:.1} Mbit/s");
    assert!(primary > scavenger, "{primary:.1} and {scavenger:.1} Mbit/s");
    let alone = bulk(Link::new(20.0, 40.0, 100_000, 0.0), PROTEUS_S, 1, 40.0);
    assert!(alone.flows[0].mbps(20.0, 40.0) > 16.0);
}

#[test]
fn shares_are_those_asked_for() {
    let with = |share| PccConfig { utility: Utility::Weighted { share }, ..VIVACE_WEIGHTED };
    let path = Path::new(Link::new(100.0, 30.0, 75_000, 0.0), 1);
    let run = path
        .flow(&with(0.7), DataSource::Bulk, 0.0)
        .flow(&with(0.3), DataSource::Bulk, 0.0)
        .run(80.0);
    let [most, least] = [0, 1].map(|flow: usize| run.flows[flow].mbps(20.0, 80.0));
    println!("{most:.1} and {least:.1} Mbit/s");
    assert!((60.0..80.0).contains(&most) && (20.0..40.0).contains(&least), "{most:.1} {least:.1}");
}

#[test]
fn rate_drop_lowers_the_rate_at_once_where_the_paper_takes_a_second() {
    let fast = Link::new(100.0, 55.0, 75_000, 0.0);
    let slow = Link { rate: Bandwidth::from_mbps(10.0), ..fast };
    let loss = |config| {
        let path = Path::new(fast, 1).change(10.0, slow);
        path.flow(&config, DataSource::Bulk, 0.0).run(15.0).flows[0].loss()
    };
    // The bound of what is in flight would hide it.
    let rates = PccConfig { loss_window_s: 0.0, base_rtt_window: false, ..VIVACE_LOSS };
    let without = PccConfig { fall_at_loss: None, ..rates };
    let (now, before) = (loss(rates), loss(without));
    println!("{:.2} % instead of {:.2} %", now * 100.0, before * 100.0);
    assert!(now < 0.6 * before, "{now:.4} and {before:.4}");
}

#[test]
fn constant_rate_above_the_link_builds_a_queue_on_the_test_path() {
    let constant = ConstantConfig::new(Bandwidth::from_mbps(30.0));
    let link = Link::new(12.0, 40.0, 20_000_000, 0.0);
    let run = Path::new(link, 1).flow(&constant, DataSource::Bulk, 0.0).run(10.0);
    let longest = run.queueing.iter().map(|(_, delay)| *delay).max().expect("packets");
    assert!(longest > Duration::from_millis(50), "{longest:?}");
}
