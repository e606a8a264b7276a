//! Packets of a run, by the counters of the programs and of the kernel.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use anyhow::Result;

use super::kernel_counts::KernelCounts;
use super::metrics::MetricValues;
use super::plan::{SweepPoint, SweepWay};
use super::record::{CounterReading, PacketFigures};
use super::viewers::Viewers;
use crate::arena::Arena;
use crate::tunnel_config::{SERVER_ADMIN, client_admin};

/// Metric of packets that carry nothing but acknowledgements; programs may lack it.
const ACK_ONLY: &str = "millrace_ack_only_packets_sent_total";
const SENT: &str = "millrace_packets_sent_total";
/// A program that sends fewer messages for 10^9 bytes carries them by TCP.
const MIN_UDP_MESSAGES_PER_GB: f64 = 1000.0;

/// Metrics of the two ends; those of several clients are added up.
#[derive(Debug, Clone)]
struct TunnelMetrics {
    server: MetricValues,
    client: MetricValues,
}

/// All counters at one moment, with the bytes until then.
///
/// Clients are asked one after the other, in the same order each time. So the counters of each are of an interval as long
/// as that of the bytes.
#[derive(Debug)]
pub struct CounterSnapshot {
    bytes: u64,
    kernel: KernelCounts,
    /// `None` where the programs are not ours.
    metrics: Option<TunnelMetrics>,
}

impl CounterSnapshot {
    /// # Errors
    /// When a program does not answer.
    pub fn take(point: &SweepPoint, arena: &Arena, viewers: &Viewers) -> Result<Self> {
        let bytes = viewers.received().iter().sum();
        let kernel = KernelCounts::read(&arena.client)?.with(KernelCounts::read(&arena.server)?);
        let metrics = point.way.is_millrace().then(|| scrape(point, arena)).transpose()?;
        Ok(Self { bytes, kernel, metrics })
    }

    /// What server and clients have refused or reset so far.
    pub fn refusals(&self) -> BTreeMap<String, u64> {
        let sides =
            self.metrics.iter().flat_map(|it| [("server", &it.server), ("client", &it.client)]);
        let named = sides.flat_map(|(side, values)| {
            values
                .refusals()
                .into_iter()
                .map(move |(what, count)| (format!("{side}: {what}"), count))
        });
        named.collect()
    }

    /// What was sent since `before`.
    pub fn since(&self, before: &Self, way: &SweepWay) -> PacketFigures {
        let gigabytes = (self.bytes - before.bytes) as f64 * 1e-9;
        let kernel = self.kernel.since(before.kernel);
        match (&self.metrics, &before.metrics) {
            (Some(now), Some(then)) => of_tunnel(now, then, kernel, gigabytes),
            _ => PacketFigures { packets_per_gb: of_kernel(kernel, way, gigabytes), ..uncounted() },
        }
    }
}

fn scrape(point: &SweepPoint, arena: &Arena) -> Result<TunnelMetrics> {
    let edges = if point.way == SweepWay::Edges { point.connections } else { 1 };
    let clients: Vec<SocketAddrV4> = (0..u16::try_from(edges)?).map(client_admin).collect();
    Ok(TunnelMetrics {
        server: MetricValues::scrape(&arena.server, &[SERVER_ADMIN])?,
        client: MetricValues::scrape(&arena.client, &clients)?,
    })
}

fn uncounted() -> PacketFigures {
    let missing = || CounterReading::missing("the programs do not count packets");
    PacketFigures {
        packets_per_gb: missing(),
        packets_per_message: missing(),
        acks_per_data_packet: missing(),
    }
}

fn of_kernel(kernel: KernelCounts, way: &SweepWay, gigabytes: f64) -> CounterReading {
    match way {
        SweepWay::Direct | SweepWay::NginxStream => CounterReading::new(
            kernel.tcp_segments / gigabytes,
            "TCP segments that both hosts sent (/proc/net/snmp)",
        ),
        SweepWay::Peer(_) if kernel.udp_messages > MIN_UDP_MESSAGES_PER_GB * gigabytes => {
            CounterReading::new(
                kernel.udp_messages / gigabytes,
                "UDP messages (/proc/net/snmp); with segmentation offload one has several packets",
            )
        }
        _ => CounterReading::missing("not counted"),
    }
}

fn of_tunnel(
    now: &TunnelMetrics,
    then: &TunnelMetrics,
    kernel: KernelCounts,
    gigabytes: f64,
) -> PacketFigures {
    let server = now.server.growth(&then.server, SENT);
    let client = now.client.growth(&then.client, SENT);
    let (Some(server), Some(client)) = (server, client) else { return uncounted() };
    let packets = server + client;
    let packets_per_message = if kernel.udp_messages > 0.0 {
        let source = format!("{SENT} over OutDatagrams (/proc/net/snmp)");
        CounterReading::new(packets / kernel.udp_messages, source)
    } else {
        CounterReading::missing("no UDP message was sent")
    };
    PacketFigures {
        packets_per_gb: CounterReading::new(packets / gigabytes, SENT),
        packets_per_message,
        acks_per_data_packet: acks_per_data_packet(now, then, [server, client]),
    }
}

/// Data flow from the server to the clients.
fn acks_per_data_packet(
    now: &TunnelMetrics,
    then: &TunnelMetrics,
    [server, client]: [f64; 2],
) -> CounterReading {
    let client_acks = now.client.growth(&then.client, ACK_ONLY);
    let server_acks = now.server.growth(&then.server, ACK_ONLY);
    let data_packets = server - server_acks.unwrap_or_default();
    if data_packets <= 0.0 {
        return CounterReading::missing("the server sent no packet with data");
    }
    match client_acks {
        Some(acks) => CounterReading::new(acks / data_packets, ACK_ONLY),
        None => CounterReading::new(
            client / data_packets,
            "upper bound: all packets of the client, since the programs do not count those with \
             acknowledgements only",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(bytes: u64, udp_messages: f64, server: &str, client: &str) -> CounterSnapshot {
        let values = |text: &str| {
            let mut values = MetricValues::default();
            values.add(text);
            values
        };
        CounterSnapshot {
            bytes,
            kernel: KernelCounts { tcp_segments: 10.0 * udp_messages, udp_messages },
            metrics: Some(TunnelMetrics { server: values(server), client: values(client) }),
        }
    }

    fn sent(packets: u32, acks: Option<u32>) -> String {
        let acks = acks.map_or_else(String::new, |acks| format!("{ACK_ONLY} {acks}\n"));
        format!("{SENT} {packets}\n{acks}")
    }

    #[test]
    fn packets_are_those_of_the_bytes_between_the_same_readings() {
        let before = snapshot(1_000_000, 5.0, &sent(100, None), &sent(10, None));
        let after = snapshot(3_000_000, 165.0, &sent(1100, None), &sent(610, None));
        let figures = after.since(&before, &SweepWay::PerFlow);
        assert_eq!(figures.packets_per_gb.value, Some(800_000.0));
        assert_eq!(figures.packets_per_message.value, Some(10.0));
    }

    #[test]
    fn acknowledgements_are_counted_where_the_programs_do_and_bounded_otherwise() {
        let before = snapshot(0, 0.0, &sent(0, None), &sent(0, None));
        let after = snapshot(2_000_000, 160.0, &sent(1000, None), &sent(600, None));
        let bounded = after.since(&before, &SweepWay::PerFlow).acks_per_data_packet;
        assert_eq!(bounded.value, Some(0.6));
        assert!(bounded.source.starts_with("upper bound"), "{bounded:?}");
        let before = snapshot(0, 0.0, &sent(0, Some(0)), &sent(0, Some(0)));
        let after = snapshot(2_000_000, 160.0, &sent(1100, Some(100)), &sent(600, Some(100)));
        let counted = after.since(&before, &SweepWay::PerFlow).acks_per_data_packet;
        assert_eq!(counted, CounterReading::new(0.1, ACK_ONLY));
    }

    #[test]
    fn ways_without_our_programs_have_what_the_kernel_counts() {
        let without = |bytes, messages| CounterSnapshot {
            metrics: None,
            ..snapshot(bytes, messages, "", "")
        };
        let (before, after) = (without(0, 0.0), without(2_000_000, 160.0));
        let direct = after.since(&before, &SweepWay::Direct);
        assert_eq!(direct.packets_per_gb.value, Some(800_000.0));
        assert_eq!(direct.acks_per_data_packet.value, None);
        let peer = SweepWay::Peer("x".to_owned());
        assert_eq!(after.since(&before, &peer).packets_per_gb.value, Some(80_000.0));
        let tcp_only = without(2_000_000, 1.0).since(&before, &peer);
        assert_eq!(tcp_only.packets_per_gb.value, None);
    }

    #[test]
    fn refusals_name_the_side() {
        let drops = "millrace_drops_total{reason=\"memory_cap\"} 7\n";
        let refusals = snapshot(0, 0.0, drops, "").refusals();
        assert_eq!(refusals, BTreeMap::from([("server: drops, memory_cap".to_owned(), 7)]));
    }
}
