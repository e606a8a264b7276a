//! The rate that a controller asks for is the rate on the wire, evenly.
//!
//! A relay between the two programs keeps the kernel's receive time of each datagram from the server.
//! On loopback that is when the server released it: the kernel delivers in the sender's own call.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Read;
use std::time::{Duration, Instant};

use millrace_e2e::data;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::program::own_run_delay;
use millrace_e2e::relay::{Record, RelayOptions};

/// What is measured, after the start.
const MEASURED: Duration = Duration::from_secs(5);
/// Handshake, slow path discovery, first round trips.
const START: Duration = Duration::from_millis(500);
/// By how much the rate may be off.
const RATE_TOLERANCE: f64 = 0.03;
/// What a burst may carry, as time of the rate ...
const BURST: Duration = Duration::from_millis(1);
/// ... or in packets, where that is more.
const BURST_PACKETS: f64 = 2.0;

/// Part of the time for which any of those that the bytes pass may be kept waiting in a run that
/// counts: a slow reader holds the sender back as well as a slow sender does.
const WAITING: f64 = 0.02;
/// Runs in search of one that counts.
const RUNS: usize = 4;

/// Bytes on the wire are UDP payload.
#[derive(Debug)]
struct Wire {
    rate_mbps: f64,
    /// The most that arrived beyond what a bucket had let through that fills at the wanted rate and
    /// by what it may be off: acknowledgements are not paced (RFC 9002, Section 7.7), and the few
    /// bytes a second of them are no burst.
    burst_bytes: f64,
    largest_bytes: f64,
    /// Part of the time in which the kernel kept the server, the client or the tests' own threads
    /// from running although they had to.
    kept_waiting: f64,
}

/// What one download puts on the wire with the server's `algorithm`, held against `rate_mbps`.
fn measure(algorithm: &str, rate_mbps: f64) -> Wire {
    let origin = Origin::start(|stream| {
        data::send(&stream, 20, 1 << 40).ok();
    });
    let pair = Pair::builder()
        .server("tunnel.congestion_control", algorithm)
        // One connection: those of further workers are idle, but what they send to say so would be
        // counted with the flow's.
        .client("runtime.workers", "1")
        .relay(RelayOptions { record: true, ..RelayOptions::default() })
        .measured()
        .start();
    let relay = pair.relay.as_ref().unwrap();
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    flow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut buffer = vec![0; 1 << 18];
    flow.read_exact(&mut buffer[..1000]).unwrap();
    let mut download = |time: Duration| {
        let end = Instant::now() + time;
        while Instant::now() < end {
            assert!(flow.read(&mut buffer).unwrap() > 0, "the download ended");
        }
    };
    download(START);
    let delays = || [pair.server.run_delay(), pair.client.run_delay(), own_run_delay()];
    let before = delays();
    download(MEASURED);
    let waited =
        delays().into_iter().zip(before).map(|(after, before)| after.saturating_sub(before));
    let waited = waited.max().unwrap_or_default().as_secs_f64();
    let records = relay.take_records();
    let end = records.last().expect("datagrams came").at_ns;
    let since = end - MEASURED.as_nanos() as u64;
    let mut wire = wire(records.iter().filter(|record| record.at_ns > since), rate_mbps);
    wire.kept_waiting = waited / MEASURED.as_secs_f64();
    println!("wanted {rate_mbps} Mbit/s: {wire:?}");
    wire
}

fn wire<'a>(records: impl Iterator<Item = &'a Record>, rate_mbps: f64) -> Wire {
    let bytes_per_ns = rate_mbps * (1.0 + RATE_TOLERANCE) / 8e3;
    let (mut bytes, mut level, mut burst, mut largest) = (0.0, 0.0_f64, 0.0_f64, 0.0_f64);
    let mut last_ns = None;
    for record in records {
        let size = f64::from(record.bytes);
        let since = record.at_ns.saturating_sub(last_ns.unwrap_or(record.at_ns));
        level = (level - since as f64 * bytes_per_ns).max(0.0) + size;
        burst = burst.max(level);
        largest = largest.max(size);
        bytes += size;
        last_ns = Some(record.at_ns);
    }
    Wire {
        rate_mbps: bytes * 8e-6 / MEASURED.as_secs_f64(),
        burst_bytes: burst,
        largest_bytes: largest,
        kept_waiting: 0.0,
    }
}

/// What is wrong with it, if anything, when the rate may fall short by the part `excused` of it.
fn fault(wire: &Wire, rate_mbps: f64, excused: f64) -> Option<String> {
    let off = wire.rate_mbps / rate_mbps - 1.0;
    if off > RATE_TOLERANCE || off < -RATE_TOLERANCE - excused {
        return Some(format!("{:.2} Mbit/s instead of {rate_mbps}", wire.rate_mbps));
    }
    let most = (BURST.as_secs_f64() * rate_mbps / 8e-6).max(BURST_PACKETS * wire.largest_bytes);
    (wire.burst_bytes > most)
        .then(|| format!("a burst of {:.0} bytes, allowed are {most:.0}", wire.burst_bytes))
}

/// One rate. A run in which a program waited for a processor says little about the pacer and is
/// repeated, a bounded number of times. On a machine that is always busy the last run counts, and its
/// rate may be lower by the share of waiting time: the server still never exceeds the rate or bursts.
fn paced_at(rate_mbps: f64) {
    let algorithm = format!("{{ name = \"constant\", rate_mbps = {rate_mbps} }}");
    for run in 1..=RUNS {
        let wire = measure(&algorithm, rate_mbps);
        let Some(mut fault_found) = fault(&wire, rate_mbps, 0.0) else { return };
        if wire.kept_waiting > WAITING {
            if run < RUNS {
                continue;
            }
            println!("kept waiting in each of {RUNS} runs");
            match fault(&wire, rate_mbps, wire.kept_waiting) {
                None => return,
                Some(fault) => fault_found = fault,
            }
        }
        panic!("{fault_found}: {wire:?}");
    }
}

#[test]
fn one_mbps_is_kept() {
    paced_at(1.0);
}

#[test]
fn ten_mbps_are_kept() {
    paced_at(10.0);
}

#[test]
fn a_hundred_mbps_are_kept() {
    paced_at(100.0);
}

#[test]
fn five_hundred_mbps_are_kept() {
    paced_at(500.0);
}

/// With the adapter bypassed, that is with an algorithm of the QUIC library, the same check fails.
#[test]
fn without_the_adapter_the_check_fails() {
    for (algorithm, rate_mbps) in [("\"cubic\"", 10.0), ("\"bbr2\"", 100.0)] {
        let wire = measure(algorithm, rate_mbps);
        assert!(fault(&wire, rate_mbps, 0.0).is_some(), "{algorithm} passes as {rate_mbps} Mbit/s");
    }
}

/// The check itself, on made-up datagrams.
#[test]
fn the_check_tells_even_from_uneven() {
    // 1250 bytes each millisecond are 10 Mbit/s.
    let datagrams = |each: u64, every_ms: u64| -> Vec<Record> {
        let of = |i: u64| Record { at_ns: (i / each) * every_ms * 1_000_000, bytes: 1250 };
        (0..5000).map(of).collect()
    };
    let check = |records: Vec<Record>| fault(&wire(records.iter(), 10.0), 10.0, 0.0);
    assert_eq!(check(datagrams(1, 1)), None);
    assert_eq!(check(datagrams(2, 2)), None);
    assert!(check(datagrams(4, 4)).is_some_and(|fault| fault.contains("burst")));
    let slow = datagrams(1, 1).into_iter().step_by(2).collect();
    assert!(check(slow).is_some_and(|fault| fault.contains("instead of")));
    let mut pause = datagrams(1, 1);
    for record in &mut pause[2500..2510] {
        record.at_ns = 2_510_000_000;
    }
    assert!(check(pause).is_some_and(|fault| fault.contains("burst")));
}
