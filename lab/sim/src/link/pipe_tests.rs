//! The engine's arithmetic, exact in virtual time.

use super::*;

const MS: u64 = 1_000_000;

/// 12 Mbit/s: 1500 bytes take exactly 1 ms.
fn demo() -> PipeConfig {
    PipeConfig {
        rate_bps: 12_000_000,
        delay_ns: 50 * MS,
        buffer_bytes: 150_000,
        loss: 0.0,
        jitter_ns: 0,
        reorder: false,
    }
}

fn drain(pipe: &mut Pipe<u64>) -> Vec<Released<u64>> {
    std::iter::from_fn(|| pipe.pop_due(u64::MAX / 2)).collect()
}

fn assert_conserved(pipe: &Pipe<u64>) {
    let count = pipe.counters();
    assert_eq!(
        count.arrived_packets,
        count.lost_packets
            + count.dropped_packets
            + count.delivered_packets
            + pipe.inside_packets()
    );
}

#[test]
fn one_packet_takes_serialisation_plus_propagation() {
    let mut pipe = Pipe::new(demo(), 1);
    assert_eq!(pipe.next_due_ns(), None);
    assert_eq!(pipe.arrive(7 * MS, 1500), ArrivalOutcome::Accepted);
    assert_eq!(pipe.next_due_ns(), Some(58 * MS));
    assert_eq!(pipe.pop_due(58 * MS - 1), None);
    let due = Released { packet: 1500, due_ns: 58 * MS, waited_ns: 0 };
    assert_eq!(pipe.pop_due(58 * MS), Some(due));
    assert_eq!(pipe.next_due_ns(), None);
}

#[test]
fn a_burst_leaves_at_the_rate_and_waits_its_turn() {
    let mut pipe = Pipe::new(demo(), 1);
    for _ in 0..100 {
        pipe.arrive(0, 1500);
    }
    for (index, released) in (0_u64..).zip(drain(&mut pipe)) {
        assert_eq!(released.due_ns, (51 + index) * MS);
        assert_eq!(released.waited_ns, index * MS);
    }
}

#[test]
fn fractions_of_a_nanosecond_do_not_add_up() {
    // 700 bytes at 7 Gbit/s are 800 ns exactly; 3 bytes are 3.428571... ns.
    let config = PipeConfig { rate_bps: 7_000_000_000, delay_ns: 0, ..demo() };
    let mut pipe = Pipe::new(PipeConfig { buffer_bytes: 30_000_000, ..config }, 1);
    for _ in 0..7_000_000 {
        pipe.arrive(0, 3);
    }
    let last = drain(&mut pipe).pop().unwrap();
    assert_eq!(last.due_ns, 24_000_000);
}

#[test]
fn a_busy_line_serves_from_when_it_is_free_an_idle_one_from_the_arrival() {
    let mut pipe = Pipe::new(demo(), 1);
    pipe.arrive(0, 1500);
    pipe.arrive(MS / 2, 1500);
    pipe.arrive(10 * MS, 1500);
    let due: Vec<_> = drain(&mut pipe).iter().map(|packet| packet.due_ns).collect();
    assert_eq!(due, [51 * MS, 52 * MS, 61 * MS]);
}

#[test]
fn late_calls_shift_nothing() {
    let arrivals: Vec<u64> = (0..200).map(|index| index * 700_000).collect();
    let mut punctual = Pipe::new(demo(), 1);
    let mut prompt = Vec::new();
    for &at in &arrivals {
        prompt.extend(std::iter::from_fn(|| punctual.pop_due(at)));
        punctual.arrive(at, 1500);
    }
    prompt.extend(drain(&mut punctual));

    // Releases asked for 30 ms late, arrivals read 30 ms after their stamps.
    let mut late = Pipe::new(demo(), 1);
    let mut tardy = Vec::new();
    for &at in &arrivals {
        tardy.extend(std::iter::from_fn(|| late.pop_due(at + 30 * MS)));
        late.arrive(at, 1500);
    }
    tardy.extend(drain(&mut late));
    assert_eq!(prompt, tardy);
}

#[test]
fn drop_tail_keeps_the_buffer_and_one_on_the_line() {
    let mut pipe = Pipe::new(PipeConfig { buffer_bytes: 7_500, ..demo() }, 1);
    let verdicts: Vec<_> = (0..10).map(|_| pipe.arrive(0, 1500)).collect();
    assert!(verdicts[..6].iter().all(|verdict| *verdict == ArrivalOutcome::Accepted));
    assert!(verdicts[6..].iter().all(|verdict| *verdict == ArrivalOutcome::Dropped(1500)));
    // At 1 ms exactly the first packet has gone and room for one more is there.
    assert_eq!(pipe.arrive(MS - 1, 1500), ArrivalOutcome::Dropped(1500));
    assert_eq!(pipe.arrive(MS, 1500), ArrivalOutcome::Accepted);
    assert_eq!(pipe.arrive(MS, 1500), ArrivalOutcome::Dropped(1500));
    assert_eq!(pipe.counters().queue_max_bytes, 7_500);
    assert_conserved(&pipe);
}

#[test]
fn without_a_buffer_only_an_idle_line_takes_a_packet() {
    let mut pipe = Pipe::new(PipeConfig { buffer_bytes: 0, ..demo() }, 1);
    assert_eq!(pipe.arrive(0, 1500), ArrivalOutcome::Accepted);
    assert_eq!(pipe.arrive(0, 1), ArrivalOutcome::Dropped(1));
    assert_eq!(pipe.arrive(MS, 1500), ArrivalOutcome::Accepted);
}

#[test]
fn loss_has_its_probability_and_its_seed() {
    let config = PipeConfig { loss: 0.01, ..demo() };
    let lost = |seed| {
        let mut pipe = Pipe::new(config, seed);
        let lost: Vec<u64> = (0..1_000_000)
            .filter(|index| pipe.arrive(index * MS, 1500) == ArrivalOutcome::Lost(1500))
            .collect();
        assert_conserved(&pipe);
        assert_eq!(pipe.counters().lost_packets, lost.len() as u64);
        lost
    };
    let first = lost(1);
    // Standard deviation of 10,000 expected losses is 99.5; four of them.
    assert!(first.len().abs_diff(10_000) < 398, "{} lost", first.len());
    assert_eq!(first, lost(1));
    assert_ne!(first, lost(2));
}

#[test]
fn losses_scatter_as_independent_ones_do_over_the_seeds() {
    let (packets, probability, seeds) = (20_000_u32, 0.03, 300_u32);
    let expected = f64::from(packets) * probability;
    let variance = expected * (1.0 - probability);
    let squares = (0..seeds).map(|seed| {
        let mut draw = LossDraw::new(probability, u64::from(seed));
        let lost = (0..packets).filter(|_| draw.next()).count() as f64;
        (lost - expected).powi(2) / variance
    });
    // Chi-squared with 300 degrees of freedom: mean 1, standard deviation 0.082; four of them.
    let mean = squares.sum::<f64>() / f64::from(seeds);
    assert!((mean - 1.0).abs() < 0.33, "{mean}");
}

#[test]
fn loss_comes_before_the_buffer_and_the_extremes_are_exact() {
    let mut never = Pipe::new(demo(), 3);
    assert!((0..10_000).all(|index| never.arrive(index * MS, 1500) != ArrivalOutcome::Lost(1500)));
    let mut always = Pipe::new(PipeConfig { loss: 1.0, ..demo() }, 3);
    assert!((0..10_000).all(|_| always.arrive(0, 1500) == ArrivalOutcome::Lost(1500)));
    assert_eq!(always.inside_packets(), 0);
}

#[test]
fn half_a_packet_finishes_at_the_new_rate() {
    let mut pipe = Pipe::new(demo(), 1);
    pipe.arrive(0, 1500);
    pipe.arrive(0, 1500);
    pipe.reconfigure(MS / 2, PipeConfig { rate_bps: 1_200_000, ..demo() });
    let due: Vec<_> = drain(&mut pipe).iter().map(|packet| packet.due_ns).collect();
    assert_eq!(due, [50 * MS + MS / 2 + 5 * MS, 50 * MS + MS / 2 + 15 * MS]);
}

#[test]
fn a_shorter_path_lets_nothing_overtake() {
    let mut pipe = Pipe::new(demo(), 1);
    pipe.arrive(0, 1500);
    pipe.reconfigure(2 * MS, PipeConfig { delay_ns: MS, ..demo() });
    pipe.arrive(2 * MS, 1500);
    let due: Vec<_> = drain(&mut pipe).iter().map(|packet| packet.due_ns).collect();
    assert_eq!(due, [51 * MS, 51 * MS]);
}

#[test]
fn a_stamp_out_of_order_counts_as_simultaneous() {
    let mut pipe = Pipe::new(demo(), 1);
    pipe.arrive(10 * MS, 1500);
    pipe.arrive(9 * MS, 1500);
    let due: Vec<_> = drain(&mut pipe).iter().map(|packet| packet.due_ns).collect();
    assert_eq!(due, [61 * MS, 62 * MS]);
}

#[test]
fn random_operations_conserve_packets_and_order() {
    let mut rng = Pcg64Mcg::seed_from_u64(99);
    for seed in 0..50 {
        let mut pipe = Pipe::new(PipeConfig { loss: 0.1, buffer_bytes: 20_000, ..demo() }, seed);
        let (mut now_ns, mut last_due_ns) = (0, 0);
        for _ in 0..2_000 {
            now_ns += rng.next_u64() % (2 * MS);
            match rng.next_u64() % 8 {
                0 => pipe.reconfigure(
                    now_ns,
                    PipeConfig {
                        rate_bps: 1_000_000 + rng.next_u64() % 100_000_000,
                        delay_ns: rng.next_u64() % (100 * MS),
                        buffer_bytes: rng.next_u64() % 100_000,
                        loss: 0.05,
                        jitter_ns: rng.next_u64() % (3 * MS),
                        reorder: false,
                    },
                ),
                1..=4 => {
                    pipe.arrive(now_ns, 40 + rng.next_u64() % 1461);
                }
                _ => {
                    while let Some(released) = pipe.pop_due(now_ns) {
                        assert!(released.due_ns >= last_due_ns && released.due_ns <= now_ns);
                        last_due_ns = released.due_ns;
                    }
                }
            }
            assert_conserved(&pipe);
        }
        drain(&mut pipe);
        assert_eq!(pipe.inside_packets(), 0);
        assert_conserved(&pipe);
    }
}
