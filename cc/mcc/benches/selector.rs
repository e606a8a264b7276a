//! What a Selector costs its thread: taking in a record, and asking the built-in rules about a connection
//! (MCC, Table 3 has the paper's share of both).

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_cc::{PathModel, Time};
use millrace_mcc::{Config, News, Record, RulesText, Selector, resolve};

const CONNECTIONS: u64 = 250;
const RTT: Duration = Duration::from_millis(20);

fn record(connection: u64, round: u64) -> Record {
    let now = Time::from_nanos(round * RTT.as_nanos() as u64);
    Record {
        min_rtt: RTT.into(),
        latest_rtt: RTT.into(),
        delivered_bytes: round * 10_000,
        ..Record::new(connection, now, &PathModel::default())
    }
}

fn selector(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("selector");
    group.throughput(Throughput::Elements(1));
    let (settings, _) = resolve(&Config::default()).expect("the default can be used");
    let rules = RulesText::read(None).expect("there are built-in rules");
    let make = || Selector::new(rules.load().expect("they load"), settings.clone());

    group.bench_function("record", |bencher| {
        let mut selector = make();
        let mut number = 0;
        bencher.iter(|| {
            number += 1;
            selector.hear(News::Acked(record(number % CONNECTIONS, number / CONNECTIONS)));
        });
    });

    group.bench_function("question", |bencher| {
        let mut selector = make();
        let mut round = 0;
        bencher.iter_custom(|questions| {
            let (before, mut taken) = (selector.counts().asked, Duration::ZERO);
            while selector.counts().asked - before < questions {
                round += 1;
                (0..CONNECTIONS)
                    .for_each(|connection| selector.hear(News::Acked(record(connection, round))));
                let now = record(0, round).now;
                let began = Instant::now();
                selector.decide(now, |_| true, |problem| panic!("{problem}"));
                taken += began.elapsed();
            }
            // Whole turns only, so that a few more are asked than wanted.
            let asked = selector.counts().asked - before;
            taken.mul_f64(questions as f64 / asked as f64)
        });
    });
    group.finish();
}

criterion_group!(benches, selector);
criterion_main!(benches);
