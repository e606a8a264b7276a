//! A lot of data arrives as it was sent.

use std::net::Shutdown;
use std::time::Instant;

use millrace_e2e::origin::{Origin, answer_with_hash, source};
use millrace_e2e::pair::Pair;
use millrace_e2e::{data, tcp, wait};

const GIBIBYTE: u64 = 1 << 30;

#[test]
fn one_gibibyte_down_is_identical() {
    let origin = Origin::start(source(1, GIBIBYTE));
    let pair = Pair::builder().alone().start();
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    let started = Instant::now();
    let received = data::receive(&flow).unwrap();
    report("down", started);
    assert_eq!(received, data::send(std::io::sink(), 1, GIBIBYTE).unwrap());
}

#[test]
fn one_gibibyte_up_is_identical() {
    let origin = Origin::start(answer_with_hash);
    let pair = Pair::builder().alone().start();
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    let started = Instant::now();
    let sent = data::send(&flow, 2, GIBIBYTE).unwrap();
    flow.shutdown(Shutdown::Write).unwrap();
    let (answer, end) = tcp::drain(&flow);
    report("up", started);
    assert_eq!((String::from_utf8(answer).unwrap(), end), (sent.to_string(), tcp::End::Eof));
}

/// Both directions of one flow at once.
#[test]
fn both_directions_of_one_flow_are_identical() {
    const BYTES: u64 = 64 << 20;
    let (tell, told) = std::sync::mpsc::channel();
    let origin = Origin::start(move |stream| {
        let tell = tell.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| tell.send(data::receive(&stream)).unwrap());
            data::send(&stream, 3, BYTES).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
    });
    let pair = Pair::builder().start();
    for listener in &pair.listeners[1..] {
        let flow = listener.open(&origin.address().to_string()).unwrap();
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| {
                let sent = data::send(&flow, 4, BYTES).unwrap();
                flow.shutdown(Shutdown::Write).unwrap();
                sent
            });
            let received = data::receive(&flow).unwrap();
            assert_eq!(received, data::send(std::io::sink(), 3, BYTES).unwrap(), "{listener:?}");
            let told = told.recv_timeout(wait::DEFAULT_TIMEOUT).unwrap();
            assert_eq!(told.unwrap(), sent.join().unwrap(), "{listener:?}");
        });
    }
}

fn report(direction: &str, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    println!("1 GiB {direction}: {seconds:.1} s, {:.2} Gbit/s", GIBIBYTE as f64 * 8e-9 / seconds);
}
