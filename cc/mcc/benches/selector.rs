//! Cost of a Selector: ingesting a record, and evaluating the built-in rules for a connection, by the size of
//! a batch (compare MCC, Table 3).

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_cc::{PathModel, Time};
use millrace_mcc::rules::{MAX_BATCH, SelectionRules};
use millrace_mcc::{
    Class, Config, ConnectionRecord, PathUpdate, RuleInput, RulesText, Selector, resolve,
};

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

/// A state that the built-in rules do not answer at once.
fn input(connection: u64) -> RuleInput {
    let algorithms = ["bbr", "vivace-latency", "iris-min"];
    RuleInput {
        connection,
        class: [Class::Rtsp, Class::Dash, Class::Bulk][connection as usize % 3],
        algorithm: algorithms[connection as usize % 3].to_owned(),
        age_s: 60.0,
        path_age_s: 60.0,
        min_rtt_ms: 20.0 + connection as f64,
        smoothed_rtt_ms: 30.0 + connection as f64,
        recent_min_rtt_ms: 20.0 + connection as f64,
        recent_max_rtt_ms: 60.0 + connection as f64,
        mean_delivery_mbps: 20.0,
        max_delivery_mbps: 30.0,
        loss: connection as f64 % 7.0 / 100.0,
        delivered_bytes: 1e8,
        window_bytes: 1e5,
        ..RuleInput::default()
    }
}

/// Rules alone, by the number of connections of a batch.
fn batch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rules");
    let mut rules = RulesText::read(None).and_then(|text| text.load()).expect("built-in rules");
    let inputs: Vec<RuleInput> = (0..MAX_BATCH as u64).map(input).collect();
    for size in [1, 4, 16, 64, MAX_BATCH] {
        group.throughput(Throughput::Elements(size as u64));
        group.bench_function(format!("batch of {size}"), |bencher| {
            bencher.iter(|| rules.select_batch(&inputs[..size]));
        });
    }
    group.finish();
}

criterion_group!(benches, selector, batch);
criterion_main!(benches);
