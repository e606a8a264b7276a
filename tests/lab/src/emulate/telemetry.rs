//! What the ends of the flows say of themselves while they run: the proxies by their admin listeners,
//! the kernel by its sockets.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::traffic::Gauge;
use super::tunnels::Asked;
use crate::http;
use crate::results::series::InUse;
use crate::scenario::Ip;

/// How often they are asked.
const EVERY: Duration = Duration::from_millis(100);

/// What the link counts and the ends don't: headers of the network and the transport layer.
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

/// What crosses the link, as its sender had it at some moment. Counts are from the connection's start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SenderTold {
    /// When, since the beginning of the run.
    pub at_s: f64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Of these, again.
    pub retransmitted_packets: u64,
    /// Smoothed round trip.
    pub rtt_ms: Option<f64>,
    /// Congestion window.
    pub window_bytes: Option<f64>,
    /// Pacing rate.
    pub pacing_mbps: Option<f64>,
}

/// As its receiver had it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReceiverTold {
    /// When, since the beginning of the run.
    pub at_s: f64,
    /// Bytes of the network layer since the connection's start.
    pub bytes: u64,
}

/// Of one crossing.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// By the sender.
    pub sender: Vec<SenderTold>,
    /// By the receiver.
    pub receiver: Vec<ReceiverTold>,
    /// The algorithms that the sender has used; of the proxies only.
    pub in_use: InUse,
}

impl Told {
    fn uses(&mut self, at_s: f64, algorithm: &str) {
        if self.in_use.last().is_none_or(|(_, last)| last != algorithm) {
            self.in_use.push((at_s, algorithm.to_owned()));
        }
    }
}

#[derive(Debug, Deserialize)]
struct Answer {
    flows: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    destination: String,
    connection: Option<String>,
    algorithm: Option<String>,
    rtt_ms: Option<f64>,
    cwnd_bytes: Option<u64>,
    pacing_mbps: Option<f64>,
    counts: Option<Counts>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    sent_packets: u64,
    retransmitted_packets: u64,
    received_packets: u64,
    received_bytes: u64,
}

/// Asks `proxies` until it is `over`; the calling thread is in their namespace. Answers by crossing.
///
/// # Errors
/// When a proxy does not answer, or not as it should.
pub fn ask(
    proxies: &[Asked],
    headers: Headers,
    began: Instant,
    over: &AtomicBool,
) -> Result<HashMap<usize, Told>> {
    let mut all: HashMap<usize, Told> = HashMap::new();
    // How many of the changes each crossing has had.
    let mut changed: HashMap<usize, usize> = HashMap::new();
    for tick in 1_u32.. {
        for proxy in proxies {
            let text = http::get_here(proxy.admin, "/flows")?;
            let at_s = began.elapsed().as_secs_f64();
            let text = text.with_context(|| format!("{} has gone", proxy.admin))?;
            let answer: Answer = serde_json::from_str(&text).context("/flows")?;
            for (crossing, origins) in &proxy.crossings {
                let own = |entry: &&Entry| origins.contains(&entry.destination);
                let Some(entry) = answer.flows.iter().find(own) else { continue };
                let Some(counts) = &entry.counts else { continue };
                let changed = changed.entry(*crossing).or_default();
                while let Some((_, asked)) =
                    proxy.changes.get(*changed).filter(|(due_s, _)| *due_s <= at_s)
                {
                    change(proxy.admin, entry, asked)?;
                    *changed += 1;
                }
                let told = all.entry(*crossing).or_default();
                if let Some(algorithm) = &entry.algorithm {
                    told.uses(at_s, algorithm);
                }
                told.sender.push(SenderTold {
                    at_s,
                    sent_packets: counts.sent_packets,
                    retransmitted_packets: counts.retransmitted_packets,
                    rtt_ms: entry.rtt_ms,
                    window_bytes: entry.cwnd_bytes.map(|bytes| bytes as f64),
                    pacing_mbps: entry.pacing_mbps,
                });
                let bytes = counts.received_bytes + headers.udp * counts.received_packets;
                told.receiver.push(ReceiverTold { at_s, bytes });
            }
        }
        if !sleep_until(began + EVERY * tick, over) {
            break;
        }
    }
    Ok(all)
}

/// Lets another algorithm take over, or asks something of the one that there is.
fn change(proxy: SocketAddr, entry: &Entry, asked: &str) -> Result<()> {
    let connection = entry.connection.as_deref().context("a flow past the tunnel")?;
    let path = format!("/congestion_control/{connection}?{asked}");
    http::put_here(proxy, &path)
}

/// Payload that has arrived, at some moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Payload {
    /// When, since the beginning of the run.
    pub at_s: f64,
    /// Since the flow's start.
    pub bytes: u64,
}

/// Reads the gauges of all flows until it is `over`: what has arrived, and of those that are the
/// kernel's from end to end (`direct`) what it says.
pub fn read(
    gauges: &[Gauge],
    direct: &[bool],
    headers: Headers,
    began: Instant,
    over: &AtomicBool,
) -> Vec<(Vec<Payload>, Told)> {
    let mut all = vec![(Vec::new(), Told::default()); gauges.len()];
    for tick in 1_u32.. {
        for ((gauge, direct), (payload, told)) in gauges.iter().zip(direct).zip(&mut all) {
            let at_s = began.elapsed().as_secs_f64();
            payload.push(Payload { at_s, bytes: gauge.received_bytes() });
            let Some((sender, receiver)) = gauge.tcp().filter(|_| *direct) else { continue };
            told.sender.push(SenderTold {
                at_s,
                sent_packets: sender.data_segments_sent,
                retransmitted_packets: sender.retransmitted_segments,
                rtt_ms: Some(sender.rtt_ms),
                window_bytes: Some(sender.window_bytes as f64),
                pacing_mbps: sender.pacing_mbps,
            });
            // The bytes that the kernel counts are those in order, which a loss holds back for a round
            // trip; its segments are all there are, and all but a few are full.
            let each = receiver.segment_bytes + headers.tcp;
            told.receiver
                .push(ReceiverTold { at_s, bytes: each * receiver.data_segments_received });
        }
        if !sleep_until(began + EVERY * tick, over) {
            break;
        }
    }
    all
}

/// `false` when it is over.
fn sleep_until(at: Instant, over: &AtomicBool) -> bool {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
    !over.load(Ordering::Relaxed)
}
