//! Cost of a Selector: ingesting a record, and evaluating the built-in rules for a connection (compare MCC, Table 3).

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_cc::{PathModel, Time};
use millrace_mcc::{Config, ConnectionRecord, PathUpdate, RulesText, Selector, resolve};

const CONNECTIONS: u64 = 250;
const RTT: Duration = Duration::from_millis(20);

fn record(connection: u64, round: u64) -> ConnectionRecord {
    let now = Time::from_nanos(round * RTT.as_nanos() as u64);
    ConnectionRecord {
        min_rtt: RTT.into(),
        latest_rtt: RTT.into(),
        delivered_bytes: round * 10_000,
        ..ConnectionRecord::new(connection, now, &PathModel::default())
    }
}

fn selector(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("selector");
    group.throughput(Throughput::Elements(1));
    let (settings, _) = resolve(&Config::default()).expect("the default is valid");
    let rules = RulesText::read(None).expect("built-in rules");
    let make = || Selector::new(rules.load().expect("built-in rules load"), settings.clone());

    group.bench_function("record", |bencher| {
        let mut selector = make();
        let mut number = 0;
        bencher.iter(|| {
            number += 1;
            selector.ingest(PathUpdate::Acked(record(number % CONNECTIONS, number / CONNECTIONS)));
        });
    });

    group.bench_function("evaluation", |bencher| {
        let mut selector = make();
        let mut round = 0;
        bencher.iter_custom(|evaluations| {
            let (before, mut taken) = (selector.counts().evaluations, Duration::ZERO);
            while selector.counts().evaluations - before < evaluations {
                round += 1;
                for connection in 0..CONNECTIONS {
                    selector.ingest(PathUpdate::Acked(record(connection, round)));
                }
                let now = record(0, round).now;
                let began = Instant::now();
                selector.evaluate(now, |_| true, |problem| panic!("{problem}"));
                taken += began.elapsed();
            }
            // Whole rounds evaluate a few more connections than requested.
            let done = selector.counts().evaluations - before;
            taken.mul_f64(evaluations as f64 / done as f64)
        });
    });
    group.finish();
}

criterion_group!(benches, selector);
criterion_main!(benches);
