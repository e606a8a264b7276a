//! Viewer, gateway, link, server and an origin that speaks HTTP/3, in network namespaces of their own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use boring::x509::X509;
use millrace_e2e::program::Program;
use millrace_e2e::{binaries, proxy, wait};
use millrace_lab::emulator::{Emulator, LinkConfig};
use millrace_lab::netns::Namespace;
use millrace_lab::process::output_of;
use millrace_lab::run::Run;
use millrace_lab::topology::{KernelCc, ORIGIN, ORIGIN_6, SERVER_EDGE, Topology};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::variant::Variant;

/// The name of the origin, which is that of its certificate.
pub const ORIGIN_NAME: &str = "video.test";
const SERVER_NAME: &str = "millrace.test";
const ADMIN_PORT: u16 = 9464;
const TUNNEL_PORT: u16 = 4433;
const RATE_BPS: u64 = 50_000_000;
const RTT_NS: u64 = 40_000_000;
const BUFFER_BYTES: u64 = 500_000;

/// What has passed the gateway.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Carried {
    /// Payload of flows towards the viewer.
    pub tunnel_bytes: u64,
    /// Datagrams of UDP flows towards the viewer.
    pub tunnel_datagrams: u64,
    /// In packets that the gateway forwarded to the viewer.
    pub bypassed_bytes: u64,
    /// Datagrams of HTTP/3 from the viewer that were to be forwarded.
    pub forwarded_http3: u64,
}

impl Carried {
    pub fn since(self, before: Self) -> Self {
        Self {
            tunnel_bytes: self.tunnel_bytes - before.tunnel_bytes,
            tunnel_datagrams: self.tunnel_datagrams - before.tunnel_datagrams,
            bypassed_bytes: self.bypassed_bytes - before.bypassed_bytes,
            forwarded_http3: self.forwarded_http3 - before.forwarded_http3,
        }
    }
}

/// Fields are dropped in this order: programs, then the link, then the namespaces.
pub struct Site {
    client: Program,
    server: Program,
    origin: Program,
    _link: Emulator,
    topology: Topology,
    public_key_hash: String,
    run: Run,
}

impl Site {
    /// Everything up, the tunnel too.
    pub fn start(origin: &Path) -> Result<Self> {
        let run = Run::start()?;
        let topology = Topology::build(&run, KernelCc::Cubic)?;
        topology.add_ipv6(KernelCc::Cubic)?;
        let link = LinkConfig::new(RATE_BPS, RTT_NS, BUFFER_BYTES, 0.0, 0.0, 1);
        let link = topology.start_link(link)?;
        let scratch = run.scratch();
        certificates(scratch, SERVER_NAME, "client")?;
        let of_origin = scratch.join("origin");
        certificates(&of_origin, ORIGIN_NAME, "unused")?;
        prepare_gateway(&topology.client_edge)?;
        std::fs::write(scratch.join("server.toml"), server_toml())?;
        std::fs::write(scratch.join("client.toml"), client_toml())?;
        let origin = start_origin(&topology.origin, origin, &of_origin)?;
        let start = |edge, program, config: &str| {
            proxy::start(edge, program, &scratch.join(config), ADMIN_PORT)
        };
        let server = start(&topology.server_edge, "millrace-server", "server.toml");
        let client = start(&topology.client_edge, "millrace-client", "client.toml");
        let public_key_hash = public_key_hash(&of_origin.join("server.pem"))?;
        proxy::wait_for_servers(&topology.client_edge, ADMIN_PORT, 1);
        Ok(Self { client, server, origin, _link: link, topology, public_key_hash, run })
    }

    /// Changes how the gateway handles HTTP/3.
    pub fn set(&self, variant: Variant) -> Result<()> {
        self.nft("flush set inet millrace_tproxy client_interfaces")?;
        self.nft("flush set inet millrace_tproxy carried_udp_ports")?;
        self.nft("flush set inet millrace_tproxy rejected_udp_ports")?;
        self.nft("flush chain inet millrace_test drop_http3")?;
        match variant {
            Variant::Direct => return Ok(()),
            Variant::TcpOnly | Variant::Rejected => {
                self.nft("add element inet millrace_tproxy rejected_udp_ports { 443 }")?;
            }
            Variant::Dropped => {
                self.nft("add rule inet millrace_test drop_http3 iifname lan udp dport 443 drop")?;
            }
            Variant::Carried => {
                self.nft("add element inet millrace_tproxy carried_udp_ports { 443 }")?;
            }
        }
        self.nft("add element inet millrace_tproxy client_interfaces { lan }")
    }

    /// What has passed so far.
    pub fn carried(&self) -> Result<Carried> {
        let edge = &self.topology.client_edge;
        let of_tunnel = proxy::metrics(edge, ADMIN_PORT);
        let of_tunnel = of_tunnel.context("the client's metrics can't be read")?;
        let down = |name| of_tunnel.sum(name, &[("direction", "down")]) as u64;
        Ok(Carried {
            tunnel_bytes: down("millrace_flow_bytes_total"),
            tunnel_datagrams: down("millrace_flow_datagrams_total"),
            bypassed_bytes: self.counter("to_viewer", "bytes")?,
            forwarded_http3: self.counter("http3", "packets")?,
        })
    }

    fn counter(&self, name: &str, of: &str) -> Result<u64> {
        let mut command = self.topology.client_edge.command("nft");
        command.args(["-j", "list", "counter", "inet", "millrace_test", name]);
        let listed: Value = serde_json::from_str(&output_of(&mut command)?)?;
        let objects = listed["nftables"].as_array().into_iter().flatten();
        let value = objects.filter_map(|it| it["counter"][of].as_u64()).next();
        value.with_context(|| format!("the counter {name} can't be read: {listed}"))
    }

    /// A program beside the viewer.
    pub fn at_player(&self, program: &str) -> Command {
        self.topology.player.command(program)
    }

    /// The directory of its files.
    pub fn scratch(&self) -> &Path {
        self.run.scratch()
    }

    /// The origin's public key, by which a browser can be told to trust it.
    pub fn public_key_hash(&self) -> &str {
        &self.public_key_hash
    }

    /// What the programs have logged, for a result that is wrong.
    pub fn logs(&self) -> String {
        let log = |program: &Program| {
            let text = program.log_text();
            let lines: Vec<_> = text.lines().rev().take(10).collect();
            lines.into_iter().rev().map(|line| format!("    {line}\n")).collect::<String>()
        };
        [&self.client, &self.server, &self.origin].map(log).concat()
    }

    fn nft(&self, rule: &str) -> Result<()> {
        output_of(self.topology.client_edge.command("nft").arg(rule)).map(drop)
    }
}

fn certificates(dir: &Path, server_name: &str, client: &str) -> Result<()> {
    let mut command = binaries::server();
    command.args(["certificates", "--dir"]).arg(dir);
    command.args(["--server-name", server_name, "--client", client]);
    output_of(&mut command).map(drop)
}

/// The shipped rules, counters, and a chain for rules that drop.
fn prepare_gateway(edge: &Namespace) -> Result<()> {
    for family in ["-4", "-6"] {
        edge.ip(&format!("{family} rule add fwmark 0x4d54 lookup 4454"))?;
        edge.ip(&format!("{family} route add local default dev lo table 4454"))?;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nftables/tproxy.nft");
    output_of(edge.command("nft").arg("-f").arg(file))?;
    for command in [
        "add table inet millrace_test",
        "add counter inet millrace_test to_viewer",
        "add chain inet millrace_test forwarded { type filter hook forward priority 10; }",
        "add rule inet millrace_test forwarded oifname lan counter name to_viewer",
        "add counter inet millrace_test http3",
        "add chain inet millrace_test arriving { type filter hook forward priority -20; }",
        "add rule inet millrace_test arriving iifname lan udp dport 443 counter name http3",
        "add chain inet millrace_test drop_http3 { type filter hook forward priority -10; }",
    ] {
        output_of(edge.command("nft").arg(command))?;
    }
    Ok(())
}

/// SHA-256 of the certificate's public key, in Base64.
fn public_key_hash(certificate: &Path) -> Result<String> {
    let pem = std::fs::read(certificate).with_context(|| certificate.display().to_string())?;
    let key = X509::from_pem(&pem)?.public_key()?.public_key_to_der()?;
    Ok(boring::base64::encode_block(&Sha256::digest(key)))
}

fn start_origin(host: &Namespace, program: &Path, certificates: &Path) -> Result<Program> {
    let program = program.canonicalize().with_context(|| program.display().to_string())?;
    let mut command = host.command(program.to_str().context("a path that is not UTF-8")?);
    command.arg("origin").arg("-dir").arg(certificates);
    command.args(["-certificate", "server", "-listen"]);
    command.arg(format!("{ORIGIN}:443,[{ORIGIN_6}]:443"));
    let mut origin = Program::start("origin", command);
    wait::for_true("the origin listens", proxy::START_TIMEOUT, || {
        assert!(origin.is_running(), "the origin has ended: {}", origin.log_text());
        origin.log_text().matches("listening").count() == 2
    });
    Ok(origin)
}

fn server_toml() -> String {
    let mut text = format!(
        "[tunnel]\nlisten = [\"{SERVER_EDGE}:{TUNNEL_PORT}\"]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n\
         [admin]\naddress = \"127.0.0.1:{ADMIN_PORT}\"\n[log]\nlevel = \"warn\"\n"
    );
    for network in [ORIGIN, ORIGIN_6] {
        for protocol in ["tcp", "udp"] {
            text.push_str(&format!(
                "[[destinations.allow]]\nprotocol = \"{protocol}\"\nnetwork = \"{network}\"\n\
                 ports = [443]\n"
            ));
        }
    }
    text
}

fn client_toml() -> String {
    let mut text = format!(
        "[tunnel]\nservers = [\"{SERVER_EDGE}:{TUNNEL_PORT}\"]\nserver_name = \"{SERVER_NAME}\"\n\
         ca = \"ca.pem\"\ncertificate = \"client.pem\"\nprivate_key = \"client.key\"\n\
         [admin]\naddress = \"127.0.0.1:{ADMIN_PORT}\"\n[log]\nlevel = \"warn\"\n"
    );
    for address in ["127.0.0.1:15001", "[::1]:15001"] {
        for protocol in ["tcp", "udp"] {
            text.push_str(&format!(
                "[[listen]]\nmode = \"tproxy\"\nprotocol = \"{protocol}\"\n\
                 address = \"{address}\"\nclass = \"dash\"\n"
            ));
        }
    }
    text
}
