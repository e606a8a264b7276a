//! The two proxies at the edges, and the interception in front of the first.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::http;
use crate::netns::Namespace;
use crate::process::{Running, output_of};
use crate::proxies::{Binaries, CLIENT_NAME, Proxy, SERVER_NAME};
use crate::topology::{ORIGIN, SERVER_EDGE, Topology};

/// The algorithm that the demo shows.
const CONGESTION_CONTROL: &str = "vivace-latency";

/// The admin listener of either proxy, in its own namespace.
const ADMIN: &str = "127.0.0.1:9464";

/// Where the server listens.
const TUNNEL_PORT: u16 = 4433;

/// Mark of the tunnel's own packets, which the interception lets pass.
const TUNNEL_MARK: u32 = 0x4d52;

/// Both proxies, running. Dropping them stops them.
#[derive(Debug)]
pub struct DemoTunnel {
    _client: Running,
    _server: Running,
}

/// The listener to which `tproxy.nft` redirects connections.
const TPROXY_LISTENER: &str = "127.0.0.1:15001";

/// The mark and the routing table of `tproxy.nft`.
const DELIVER_MARK: &str = "0x4d54";
const DELIVER_TABLE: &str = "4454";

/// What the proxies are started from and write to.
#[derive(Debug, Clone, Copy)]
pub struct TunnelSetup<'a> {
    /// The proxies.
    pub binaries: &'a Binaries,
    /// The interception rules that are shipped with millrace-client.
    pub rules: &'a Path,
    /// Directory for keys and configurations.
    pub scratch: &'a Path,
    /// Directory for logs.
    pub logs: &'a Path,
}

impl DemoTunnel {
    /// Starts the server, then the client, then the interception, and waits until each is ready.
    ///
    /// # Errors
    /// When a proxy refuses its configuration or is not ready in time; with its log.
    pub fn start(topology: &Topology, setup: TunnelSetup<'_>) -> Result<Self> {
        let directory = setup.scratch.join("tunnel");
        setup.binaries.certify(&directory)?;
        let admin: SocketAddr = ADMIN.parse()?;
        let server = start(&Proxy {
            name: "millrace-server",
            binary: &setup.binaries.server,
            namespace: &topology.server_edge,
            config: &directory.join("server.toml"),
            text: server_config()?,
            admin,
            log: &setup.logs.join("server.log"),
        })?;
        let client = start(&Proxy {
            name: "millrace-client",
            binary: &setup.binaries.client,
            namespace: &topology.client_edge,
            config: &directory.join("client.toml"),
            text: client_config()?,
            admin,
            log: &setup.logs.join("client.log"),
        })?;
        intercept(&topology.client_edge, setup.rules)?;
        Ok(Self { _client: client, _server: server })
    }

    /// Writes the flows and the metrics of both proxies to `logs`, and answers the congestion control of the
    /// server's flows.
    ///
    /// # Errors
    /// When a proxy does not answer, or no flow goes through the tunnel.
    pub fn look(&self, topology: &Topology, logs: &Path) -> Result<String> {
        let admin: SocketAddr = ADMIN.parse()?;
        let mut used = None;
        for (edge, side) in [(&topology.client_edge, "client"), (&topology.server_edge, "server")] {
            for (path, file) in [("/flows", "flows.json"), ("/metrics", "metrics.txt")] {
                let text = http::get(edge, admin, path)?
                    .with_context(|| format!("millrace-{side} does not answer {path}"))?;
                fs::write(logs.join(format!("{side}-{file}")), &text)?;
                if (side, path) == ("server", "/flows") {
                    used = algorithm(&text)?;
                }
            }
        }
        used.context("no flow goes through the tunnel")
    }
}

/// The congestion control of the first flow in the answer to `/flows`.
fn algorithm(text: &str) -> Result<Option<String>> {
    let answer: serde_json::Value = serde_json::from_str(text).context("/flows")?;
    Ok(answer["flows"][0]["algorithm"].as_str().map(str::to_owned))
}

fn server_config() -> Result<String> {
    let config = json!({
        "tunnel": {
            "listen": [format!("{SERVER_EDGE}:{TUNNEL_PORT}")],
            "client_ca": "ca.pem",
            "certificate": "server.pem",
            "private_key": "server.key",
            "congestion_control": CONGESTION_CONTROL,
        },
        // The origin and nothing else.
        "destinations": { "allow": [{ "network": ORIGIN, "ports": [80] }] },
        "admin": { "address": ADMIN },
    });
    toml::to_string(&config).context("server configuration")
}

fn client_config() -> Result<String> {
    let config = json!({
        "tunnel": {
            "servers": [format!("{SERVER_EDGE}:{TUNNEL_PORT}")],
            "server_name": SERVER_NAME,
            "ca": "ca.pem",
            "certificate": format!("{CLIENT_NAME}.pem"),
            "private_key": format!("{CLIENT_NAME}.key"),
            "congestion_control": CONGESTION_CONTROL,
            "mark": TUNNEL_MARK,
        },
        "listen": [{ "mode": "tproxy", "address": TPROXY_LISTENER, "class": "dash" }],
        "admin": { "address": ADMIN },
    });
    toml::to_string(&config).context("client configuration")
}

fn start(proxy: &Proxy<'_>) -> Result<Running> {
    let mut running = proxy.start()?;
    proxy.ready(&mut running)?;
    Ok(running)
}

/// Hands the player's connections to millrace-client, by the rules that are shipped with it.
fn intercept(edge: &Namespace, rules: &Path) -> Result<()> {
    edge.ip(&format!("rule add fwmark {DELIVER_MARK} lookup {DELIVER_TABLE}"))?;
    edge.ip(&format!("route add local default dev lo table {DELIVER_TABLE}"))?;
    output_of(edge.command("nft").arg("-f").arg(rules))?;
    let element = "add element inet millrace_tproxy client_interfaces { \"lan\" }";
    output_of(edge.command("nft").arg(element))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_flow_names_the_congestion_control() {
        let text = r#"{"flows":[{"id":1,"algorithm":"bbr2"},{"id":2,"algorithm":"cubic"}]}"#;
        assert_eq!(algorithm(text).unwrap().as_deref(), Some("bbr2"));
        assert_eq!(algorithm(r#"{"flows":[]}"#).unwrap(), None);
        assert!(algorithm("<html>").is_err());
    }

    #[test]
    fn only_the_origin_may_be_dialled() {
        let config: toml::Table = server_config().unwrap().parse().unwrap();
        let allowed = config["destinations"]["allow"].as_array().unwrap();
        assert_eq!(allowed.len(), 1);
        assert_eq!(allowed[0]["network"].as_str(), Some(ORIGIN));
    }
}
