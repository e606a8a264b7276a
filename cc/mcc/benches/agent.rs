//! Cost of the agent per acknowledgement: a record is made of the path's state and put into the queue (compare MCC,
//! Table 2).

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_cc::{PathModel, Time};
use millrace_mcc::{ConnectionRecord, PathUpdate, queue};

/// Same value as in `ops/src/selection.rs`.
const UPDATE_QUEUE_LEN: usize = 8192;
/// Records between two batches of a Selector.
const BATCH_RECORDS: u64 = 1000;

fn agent(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("agent");
    group.throughput(Throughput::Elements(1));
    let path = PathModel::default();
    // The Selector reads on another thread and is not measured here.
    let send = |capacity: usize| {
        let path = &path;
        move |records: u64| {
            let (mut agent, mut selector) = queue::pair(capacity, 16);
            let (mut taken, mut left) = (Duration::ZERO, records);
            while left > 0 {
                let batch = left.min(BATCH_RECORDS);
                let began = Instant::now();
                for number in 0..batch {
                    let now = Time::from_nanos(std::hint::black_box(number));
                    let record = ConnectionRecord::new(7, now, std::hint::black_box(path));
                    agent.try_send(PathUpdate::Acked(record));
                }
                taken += began.elapsed();
                while selector.next_update().is_some() {}
                left -= batch;
            }
            taken
        }
    };
    group.bench_function("record", |bencher| bencher.iter_custom(send(UPDATE_QUEUE_LEN)));
    group.bench_function("record, queue full", |bencher| bencher.iter_custom(send(1)));
    group.finish();
}

criterion_group!(benches, agent);
criterion_main!(benches);
