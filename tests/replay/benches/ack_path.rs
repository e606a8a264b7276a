//! What an algorithm costs for each packet that is sent and acknowledged.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_cc::Time;
use millrace_replay::{ClosedLoop, Path, algorithms, unknown_path};

const PACKET_BYTES: u64 = 1350;
/// Packets until the steady state, about ten seconds.
const WARM_UP_PACKETS: u64 = 100_000;
const PACKETS: u64 = 1000;

fn ack_path(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("acknowledged packet");
    group.throughput(Throughput::Elements(PACKETS));
    for config in algorithms() {
        let mut controller = config.build(Time::ZERO, &unknown_path(PACKET_BYTES, 1));
        let mut path = ClosedLoop::new(Path::ORDINARY, PACKET_BYTES, Time::ZERO, 0);
        path.run_packets(&mut *controller, WARM_UP_PACKETS);
        group.bench_function(config.name(), |bencher| {
            bencher.iter(|| path.run_packets(&mut *controller, PACKETS));
        });
    }
    group.finish();
}

criterion_group!(benches, ack_path);
criterion_main!(benches);
