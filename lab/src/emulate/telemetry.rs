//! Telemetry of the ends of the flows while they run: from the admin listeners of the proxies, and from the
//! kernel's sockets.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::traffic::FlowProbe;
use super::tunnels::PolledProxy;
use crate::http;
use crate::results::series::InUse;
use crate::scenario::Ip;

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Header sizes of the network and the transport layer, which the link counts and the ends do not.
#[derive(Debug, Clone, Copy)]
pub struct Headers {
    /// The proxies count UDP payload.
    udp: u64,
    /// The kernel counts TCP payload; data segments have timestamps (RFC 7323).
    tcp: u64,
}

impl From<Ip> for Headers {
    fn from(ip: Ip) -> Self {
        let network = match ip {
            Ip::V4 => 20,
            Ip::V6 => 40,
        };
        Self { udp: network + 8, tcp: network + 32 }
    }
}

/// A reading of a connection at its sender. Counts are from the connection's start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SenderReading {
    /// When, since the beginning of the run.
    pub at_s: f64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Retransmissions among them.
    pub retransmitted_packets: u64,
    /// Smoothed round trip.
    pub rtt_ms: Option<f64>,
    /// Congestion window.
    pub window_bytes: Option<f64>,
    /// Pacing rate.
    pub pacing_mbps: Option<f64>,
}

/// A reading of a connection at its receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReceiverReading {
    /// When, since the beginning of the run.
    pub at_s: f64,
    /// Bytes of the network layer since the connection's start.
    pub bytes: u64,
}

/// The readings of one connection.
#[derive(Debug, Clone, Default)]
pub struct ConnectionTelemetry {
    /// By the sender.
    pub sender: Vec<SenderReading>,
    /// By the receiver.
    pub receiver: Vec<ReceiverReading>,
    /// The algorithms that the sender has used; empty unless it is a proxy.
    pub in_use: InUse,
}

impl ConnectionTelemetry {
    fn uses(&mut self, at_s: f64, algorithm: &str) {
        if self.in_use.last().is_none_or(|(_, last)| last != algorithm) {
            self.in_use.push((at_s, algorithm.to_owned()));
        }
    }
}

#[derive(Debug, Deserialize)]
struct FlowsAnswer {
    flows: Vec<FlowsEntry>,
}

#[derive(Debug, Deserialize)]
struct FlowsEntry {
    destination: String,
    connection: Option<String>,
    algorithm: Option<String>,
    rtt_ms: Option<f64>,
    cwnd_bytes: Option<u64>,
    pacing_mbps: Option<f64>,
    counts: Option<EntryCounts>,
}

#[derive(Debug, Deserialize)]
struct EntryCounts {
    sent_packets: u64,
    retransmitted_packets: u64,
    received_packets: u64,
    received_bytes: u64,
}

/// Polls `proxies` until the run is `over`; the calling thread is in their namespace. Answers by connection.
///
/// # Errors
/// When a proxy does not answer, or its answer is malformed.
pub fn poll(
    proxies: &[PolledProxy],
    headers: Headers,
    began: Instant,
    over: &AtomicBool,
) -> Result<HashMap<usize, ConnectionTelemetry>> {
    let mut all: HashMap<usize, ConnectionTelemetry> = HashMap::new();
    // Number of changes applied to each connection.
    let mut changed: HashMap<usize, usize> = HashMap::new();
    for tick in 1_u32.. {
        for proxy in proxies {
            let text = http::get_in_namespace(proxy.admin, "/flows")?;
            let at_s = began.elapsed().as_secs_f64();
            let text = text.with_context(|| format!("{} has gone", proxy.admin))?;
            let answer: FlowsAnswer = serde_json::from_str(&text).context("/flows")?;
            for (connection, origins) in &proxy.connections {
                let own = |entry: &&FlowsEntry| origins.contains(&entry.destination);
                let Some(entry) = answer.flows.iter().find(own) else { continue };
                let Some(counts) = &entry.counts else { continue };
                let changed = changed.entry(*connection).or_default();
                while let Some((_, query)) =
                    proxy.changes.get(*changed).filter(|(due_s, _)| *due_s <= at_s)
                {
                    change(proxy.admin, entry, query)?;
                    *changed += 1;
                }
                let telemetry = all.entry(*connection).or_default();
                if let Some(algorithm) = &entry.algorithm {
                    telemetry.uses(at_s, algorithm);
                }
                telemetry.sender.push(SenderReading {
                    at_s,
                    sent_packets: counts.sent_packets,
                    retransmitted_packets: counts.retransmitted_packets,
                    rtt_ms: entry.rtt_ms,
                    window_bytes: entry.cwnd_bytes.map(|bytes| bytes as f64),
                    pacing_mbps: entry.pacing_mbps,
                });
                let bytes = counts.received_bytes + headers.udp * counts.received_packets;
                telemetry.receiver.push(ReceiverReading { at_s, bytes });
            }
        }
        if !sleep_until(began + POLL_INTERVAL * tick, over) {
            break;
        }
    }
    Ok(all)
}

/// Replaces the algorithm of a connection, or changes a parameter of it.
fn change(proxy: SocketAddr, entry: &FlowsEntry, query: &str) -> Result<()> {
    let connection = entry.connection.as_deref().context("a flow that bypasses the tunnel")?;
    let path = format!("/congestion_control/{connection}?{query}");
    http::put_in_namespace(proxy, &path)
}

/// Payload that has arrived by some moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Payload {
    /// When, since the beginning of the run.
    pub at_s: f64,
    /// Since the flow's start.
    pub bytes: u64,
}

/// Reads the probes of all flows until the run is `over`: the payload that has arrived, and the kernel's
/// readings of flows that are its own TCP from end to end (`direct`).
pub fn read(
    probes: &[FlowProbe],
    direct: &[bool],
    headers: Headers,
    began: Instant,
    over: &AtomicBool,
) -> Vec<(Vec<Payload>, ConnectionTelemetry)> {
    let mut all = vec![(Vec::new(), ConnectionTelemetry::default()); probes.len()];
    for tick in 1_u32.. {
        for ((probe, direct), (payload, telemetry)) in probes.iter().zip(direct).zip(&mut all) {
            let at_s = began.elapsed().as_secs_f64();
            payload.push(Payload { at_s, bytes: probe.received_bytes() });
            let Some((sender, receiver)) = probe.tcp().filter(|_| *direct) else { continue };
            telemetry.sender.push(SenderReading {
                at_s,
                sent_packets: sender.data_segments_sent,
                retransmitted_packets: sender.retransmitted_segments,
                rtt_ms: Some(sender.rtt_ms),
                window_bytes: Some(sender.window_bytes as f64),
                pacing_mbps: sender.pacing_mbps,
            });
            // The kernel counts bytes in order only, which a loss holds back for a round trip. It counts
            // all segments, and all but a few are full.
            let each = receiver.segment_bytes + headers.tcp;
            telemetry
                .receiver
                .push(ReceiverReading { at_s, bytes: each * receiver.data_segments_received });
        }
        if !sleep_until(began + POLL_INTERVAL * tick, over) {
            break;
        }
    }
    all
}

/// `false` when the run is over.
fn sleep_until(at: Instant, over: &AtomicBool) -> bool {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
    !over.load(Ordering::Relaxed)
}
