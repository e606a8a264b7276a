//! Viewer, gateway, link, server and an origin that sends by TCP and by QUIC, in network namespaces of their own.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result};
use millrace_e2e::certificates::{Certificates, SERVER_NAME};
use millrace_e2e::origin::Origin;
use millrace_e2e::program::Program;
use millrace_e2e::quic::{self, Download, DownloadMeter, DownloadTimes, QuicOrigin};
use millrace_e2e::{proxy, tcp};
use millrace_lab::emulator::{Emulator, LinkConfig, PipeConfig};
use millrace_lab::netns::Namespace;
use millrace_lab::process::output_of;
use millrace_lab::run::Run;
use millrace_lab::topology::{KernelCc, ORIGIN, PLAYER, SERVER_EDGE, Topology};

use crate::{Goodput, Pass, TunnelPath};

const ADMIN_PORT: u16 = 9464;
const TUNNEL_PORT: u16 = 4433;
/// Of the origin, for TCP and for HTTP/3.
const ORIGIN_PORT: u16 = 443;
const CHUNK_BYTES: usize = 64 << 10;

/// Fields are dropped in this order: programs, then the link, then the namespaces.
pub struct Site {
    client: Program,
    server: Program,
    _tcp_origin: Origin,
    _quic_origin: QuicOrigin,
    _link: Emulator,
    topology: Topology,
    _run: Run,
}

impl Site {
    /// Everything up, the tunnel too.
    pub fn start(path: &TunnelPath, seed: u64) -> Result<Self> {
        let run = Run::start()?;
        let topology = Topology::build(&run, KernelCc::Cubic)?;
        let (rate_bps, rtt_ns) = (path.rate_mbps * 1_000_000, path.rtt_ms * 1_000_000);
        let buffer = PipeConfig::bdp_bytes(rate_bps, rtt_ns);
        let link = LinkConfig::new(rate_bps, rtt_ns, buffer, path.loss, path.loss, seed);
        let link = topology.start_link(link)?;
        let certificates = Certificates::make(run.scratch());
        intercept(&topology.client_edge)?;
        let scratch = run.scratch();
        std::fs::write(scratch.join("server.toml"), server_toml(path))?;
        std::fs::write(scratch.join("client.toml"), client_toml(path))?;
        let address = origin_address();
        let listener = topology.origin.inside(|| Ok(TcpListener::bind(address)?))?;
        let tcp_origin = Origin::serve(listener, |mut flow| {
            let chunk = vec![0x5a; CHUNK_BYTES];
            while flow.write_all(&chunk).is_ok() {}
        });
        let socket = topology.origin.inside(|| Ok(UdpSocket::bind(address)?))?;
        let quic_origin = QuicOrigin::start(socket, &certificates.server, &path.origin);
        let start = |edge, program, config: &str| {
            proxy::start(edge, program, &scratch.join(config), ADMIN_PORT)
        };
        let server = start(&topology.server_edge, "millrace-server", "server.toml");
        let client = start(&topology.client_edge, "millrace-client", "client.toml");
        proxy::wait_for_servers(&topology.client_edge, ADMIN_PORT, 1);
        Ok(Self {
            client,
            server,
            _tcp_origin: tcp_origin,
            _quic_origin: quic_origin,
            _link: link,
            topology,
            _run: run,
        })
    }

    /// Downloads by TCP, and then by QUIC.
    pub fn pass(&self, times: DownloadTimes) -> Result<Pass> {
        let by_tcp = self.download_by_tcp(times)?;
        let viewer = (PLAYER.parse::<IpAddr>()?, 0);
        let socket = self.topology.player.inside(|| Ok(UdpSocket::bind(viewer)?))?;
        let by_quic = quic::download(&socket, origin_address(), times);
        let repairs = |edge, event| {
            let metrics = proxy::metrics(edge, ADMIN_PORT).context("metrics can't be read")?;
            let events = metrics.sum("millrace_datagram_repairs_total", &[("event", event)]);
            anyhow::Ok(events as u64)
        };
        let Topology { client_edge, server_edge, .. } = &self.topology;
        let carried = proxy::metrics(client_edge, ADMIN_PORT).context("metrics can't be read")?;
        let quic_bytes = by_quic.whole_mbps * 1e6 / 8.0 * times.whole.as_secs_f64();
        let datagrams = carried.sum("millrace_flow_datagrams_total", &[("direction", "down")]);
        anyhow::ensure!(
            by_quic.whole_mbps > 0.0 && datagrams >= quic_bytes / 1500.0,
            "QUIC did not cross the tunnel:\n{}{}",
            self.client.log_text(),
            self.server.log_text()
        );
        Ok(Pass {
            tcp: goodput(by_tcp),
            quic: goodput(by_quic),
            retransmitted: repairs(server_edge, "retransmitted")?,
            held: repairs(client_edge, "held")?,
            skipped: repairs(client_edge, "skipped")?,
        })
    }

    fn download_by_tcp(&self, times: DownloadTimes) -> Result<Download> {
        let mut flow = self.topology.player.inside(|| Ok(tcp::connect(origin_address())?))?;
        let (mut meter, mut buffer) = (DownloadMeter::start(times), vec![0; CHUNK_BYTES]);
        while !meter.is_over() {
            meter.add(flow.read(&mut buffer)?);
        }
        Ok(meter.download())
    }
}

fn goodput(download: Download) -> Goodput {
    let Download { whole_mbps, steady_mbps, first_byte } = download;
    Goodput { whole_mbps, steady_mbps, first_byte_ms: first_byte.as_secs_f64() * 1e3 }
}

fn origin_address() -> SocketAddr {
    SocketAddr::new(ORIGIN.parse::<IpAddr>().expect("an address"), ORIGIN_PORT)
}

/// The shipped rules, with HTTP/3 carried.
fn intercept(edge: &Namespace) -> Result<()> {
    edge.ip("-4 rule add fwmark 0x4d54 lookup 4454")?;
    edge.ip("-4 route add local default dev lo table 4454")?;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nftables/tproxy.nft");
    output_of(edge.command("nft").arg("-f").arg(file))?;
    for rule in [
        "add element inet millrace_tproxy carried_udp_ports { 443 }",
        "add element inet millrace_tproxy client_interfaces { lan }",
    ] {
        output_of(edge.command("nft").arg(rule))?;
    }
    Ok(())
}

/// Keys of `[tunnel]` of both ends, and the sections after it.
fn common_toml(path: &TunnelPath) -> String {
    format!(
        "congestion_control = \"{}\"\nquic_repair = {}\n\
         [admin]\naddress = \"127.0.0.1:{ADMIN_PORT}\"\n[log]\nlevel = \"warn\"\n",
        path.congestion_control, !path.unrepaired
    )
}

fn server_toml(path: &TunnelPath) -> String {
    let mut text = format!(
        "[tunnel]\nlisten = [\"{SERVER_EDGE}:{TUNNEL_PORT}\"]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n{}",
        common_toml(path)
    );
    for protocol in ["tcp", "udp"] {
        text.push_str(&format!(
            "[[destinations.allow]]\nprotocol = \"{protocol}\"\nnetwork = \"{ORIGIN}\"\n\
             ports = [{ORIGIN_PORT}]\n"
        ));
    }
    text
}

fn client_toml(path: &TunnelPath) -> String {
    let mut text = format!(
        "[tunnel]\nservers = [\"{SERVER_EDGE}:{TUNNEL_PORT}\"]\nserver_name = \"{SERVER_NAME}\"\n\
         ca = \"ca.pem\"\ncertificate = \"client.pem\"\nprivate_key = \"client.key\"\n{}",
        common_toml(path)
    );
    for protocol in ["tcp", "udp"] {
        text.push_str(&format!(
            "[[listen]]\nmode = \"tproxy\"\nprotocol = \"{protocol}\"\n\
             address = \"127.0.0.1:15001\"\n"
        ));
    }
    text
}
