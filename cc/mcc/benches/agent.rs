//! What the agent costs an event loop for each acknowledgement: a record made of what is known of the path,
//! and its place in the pipe (MCC, Table 2 has the paper's share).

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_cc::{PathModel, Time};
use millrace_mcc::{News, Record, pipe};

/// As `tunnel/src/selection.rs` has it.
const ROOM: usize = 8192;
/// Records between two turns of a Selector.
const TURN: u64 = 1000;

fn agent(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("agent");
    group.throughput(Throughput::Elements(1));
    let path = PathModel::default();
    // The Selector reads on another thread, and is not what is measured here.
    let told = |room: usize| {
        let path = &path;
        move |records: u64| {
            let (mut agent, mut selector) = pipe::pair(room, 16);
            let (mut taken, mut left) = (Duration::ZERO, records);
            while left > 0 {
                let turn = left.min(TURN);
                let began = Instant::now();
                for number in 0..turn {
                    let now = Time::from_nanos(std::hint::black_box(number));
                    agent.tell(News::Acked(Record::new(7, now, std::hint::black_box(path))));
                }
                taken += began.elapsed();
                while selector.news().is_some() {}
                left -= turn;
            }
            taken
        }
    };
    group.bench_function("record", |bencher| bencher.iter_custom(told(ROOM)));
    group.bench_function("record, pipe full", |bencher| bencher.iter_custom(told(1)));
    group.finish();
}

criterion_group!(benches, agent);
criterion_main!(benches);
