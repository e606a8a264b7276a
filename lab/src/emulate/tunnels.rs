//! The proxies of a scenario: a server for each `[[flow]]` and a client for each tunnel connection, with the
//! algorithms and the addresses of the scenario.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::address_plan::{AddressPlan, LinkConnection, ORIGIN_PORT, origin_network};
use crate::checkout;
use crate::process::Running;
use crate::proxies::{Binaries, CLIENT_NAME, Proxy, SERVER_NAME};
use crate::rtsp::live555;
use crate::scenario::{FlowChange, FlowGroup, Scenario, Via};
use crate::simulate::MCC;
use crate::topology::Topology;

/// The servers' first admin port; the clients have the same ones in another namespace.
const FIRST_ADMIN: u16 = 9500;

/// A proxy whose admin listener is polled.
#[derive(Debug)]
pub struct PolledProxy {
    /// Its admin listener.
    pub admin: SocketAddr,
    /// Its connections across the link, with the origin's address of each flow.
    pub connections: Vec<(usize, Vec<String>)>,
    /// Changes of its congestion control, as queries of the admin listener, with their times in ascending
    /// order. Empty for the end that receives.
    pub changes: Vec<(f64, String)>,
}

/// The running proxies of a scenario. Dropping them stops them.
#[derive(Debug)]
pub struct Tunnels {
    /// In the server edge's namespace.
    pub servers: Vec<PolledProxy>,
    /// In the client edge's namespace.
    pub clients: Vec<PolledProxy>,
    running: Vec<Running>,
}

/// What proxies are started from and write to.
#[derive(Debug, Clone, Copy)]
pub struct ProxyLauncher<'a> {
    /// The proxies.
    pub binaries: &'a Binaries,
    /// Directory for keys and configurations.
    pub scratch: &'a Path,
    /// Directory for logs.
    pub logs: &'a Path,
}

impl Tunnels {
    /// Starts the proxies that `scenario` needs and waits until every tunnel is up.
    ///
    /// # Errors
    /// When a proxy refuses its configuration (an unknown algorithm) or is not ready in time; with its
    /// log.
    pub fn start(
        scenario: &Scenario,
        address_plan: &AddressPlan,
        topology: &Topology,
        launcher: ProxyLauncher<'_>,
    ) -> Result<Self> {
        let is_ours = |it: &LinkConnection| scenario.groups[it.group].via == Via::Proxy;
        let connections: Vec<(usize, &LinkConnection)> =
            address_plan.connections.iter().enumerate().filter(|(_, it)| is_ours(it)).collect();
        let mut tunnels = Self { servers: Vec::new(), clients: Vec::new(), running: Vec::new() };
        if connections.is_empty() {
            return Ok(tunnels);
        }
        let keys = launcher.scratch.join("keys");
        launcher.binaries.certify(&keys)?;
        let with_origins =
            |(index, it): &&(usize, &LinkConnection)| (*index, origins(address_plan, it));
        let polled = |admin, connections: &[&(usize, &LinkConnection)], changes| PolledProxy {
            admin,
            connections: connections.iter().map(with_origins).collect(),
            changes,
        };
        for (index, group) in scenario.groups.iter().enumerate() {
            let own: Vec<_> = connections.iter().filter(|(_, it)| it.group == index).collect();
            if own.is_empty() {
                continue;
            }
            let name = format!("server-{index}");
            let admin = admin(tunnels.servers.len())?;
            let network = origin_network(address_plan.ip);
            let mut config = server_config(group, &network, own.iter().map(|(_, it)| *it), admin);
            select(&mut config, group)?;
            let proxy = Proxy {
                name: &name,
                binary: &launcher.binaries.server,
                namespace: &topology.server_edge,
                config: &keys.join(format!("{name}.toml")),
                text: toml::to_string(&config).context("server configuration")?,
                admin,
                log: &launcher.logs.join(format!("{name}.log")),
            };
            let mut running = proxy.start()?;
            proxy.ready(&mut running)?;
            tunnels.running.push(running);
            let changes = if group.upwards { Vec::new() } else { changes(group) };
            tunnels.servers.push(polled(admin, &own, changes));
        }
        let configured: Vec<_> = connections
            .iter()
            .enumerate()
            .map(|(number, (index, connection))| {
                let admin = admin(number)?;
                let group = &scenario.groups[connection.group];
                let mut config = client_config(group, connection, address_plan, admin);
                select(&mut config, group)?;
                let text = toml::to_string(&config).context("client configuration")?;
                Ok((*index, admin, text))
            })
            .collect::<Result<_>>()?;
        let files: Vec<_> = configured
            .iter()
            .map(|(index, ..)| {
                let name = format!("client-{index}");
                let config = keys.join(format!("{name}.toml"));
                let log = launcher.logs.join(format!("{name}.log"));
                (name, config, log)
            })
            .collect();
        let proxies: Vec<Proxy<'_>> = configured
            .iter()
            .zip(&files)
            .map(|((_, admin, text), (name, config, log))| Proxy {
                name,
                binary: &launcher.binaries.client,
                namespace: &topology.client_edge,
                config,
                text: text.clone(),
                admin: *admin,
                log,
            })
            .collect();
        // All before the first wait: over a long path each takes its time.
        let mut running: Vec<Running> = proxies.iter().map(Proxy::start).collect::<Result<_>>()?;
        for (proxy, running) in proxies.iter().zip(&mut running) {
            proxy.ready(running)?;
        }
        tunnels.running.extend(running);
        for (proxy, connection) in proxies.iter().zip(&connections) {
            let group = &scenario.groups[connection.1.group];
            let changes = if group.upwards { changes(group) } else { Vec::new() };
            tunnels.clients.push(polled(proxy.admin, &[connection], changes));
        }
        Ok(tunnels)
    }
}

impl Drop for Tunnels {
    fn drop(&mut self) {
        self.running.iter().for_each(Running::ask_to_end);
    }
}

fn origins(address_plan: &AddressPlan, connection: &LinkConnection) -> Vec<String> {
    connection.flows.iter().map(|flow| address_plan.flows[*flow].origin.to_string()).collect()
}

fn changes(group: &FlowGroup) -> Vec<(f64, String)> {
    let queries = |change: &FlowChange| {
        let to = change.cc.as_ref().map(|cc| format!("algorithm={cc}"));
        let share = change.share.map(|share| format!("share={share}"));
        let above = change.yield_above_mbps.map(|rate| format!("yield_above_mbps={rate}"));
        let at_s = change.at_s;
        [to, share, above].into_iter().flatten().map(move |query| (at_s, query))
    };
    let mut changes: Vec<_> = group.change.iter().flat_map(queries).collect();
    changes.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    changes
}

fn admin(number: usize) -> Result<SocketAddr> {
    let port = u16::try_from(number).ok().and_then(|number| FIRST_ADMIN.checked_add(number));
    Ok((Ipv4Addr::LOCALHOST, port.context("more proxies than ports")?).into())
}

/// A name, or a table with parameters.
fn congestion_control(group: &FlowGroup) -> Value {
    if group.parameters.is_empty() || group.cc == MCC {
        return json!(group.cc);
    }
    let mut table = group.parameters.clone();
    table.insert("name".to_owned(), json!(group.cc));
    Value::Object(table)
}

/// Gives a configuration the settings of MCC, which are a `[[flow]]`'s parameters.
fn select(config: &mut Value, group: &FlowGroup) -> Result<()> {
    if group.cc != MCC {
        return Ok(());
    }
    let mut settings = group.parameters.clone();
    if let Some(Value::String(rules)) = settings.get_mut("rules") {
        // The configuration is in another directory.
        let found = checkout::existing(Path::new(&*rules));
        *rules = fs::canonicalize(found).with_context(|| rules.clone())?.display().to_string();
    }
    config["mcc"] = Value::Object(settings);
    Ok(())
}

fn server_config<'a>(
    group: &FlowGroup,
    network: &str,
    connections: impl Iterator<Item = &'a LinkConnection>,
    admin: SocketAddr,
) -> Value {
    let listen: Vec<String> =
        connections.filter_map(|connection| Some(connection.tunnel?.to_string())).collect();
    json!({
        "tunnel": {
            "listen": listen,
            "client_ca": "ca.pem",
            "certificate": "server.pem",
            "private_key": "server.key",
            "congestion_control": congestion_control(group),
        },
        // The flows' origins and nothing else.
        "destinations": { "allow": [{ "network": network, "ports": [ORIGIN_PORT, live555::PORT] }] },
        "admin": { "address": admin },
    })
}

fn client_config(
    group: &FlowGroup,
    connection: &LinkConnection,
    address_plan: &AddressPlan,
    admin: SocketAddr,
) -> Value {
    let listener = |flow: &usize| {
        let addresses = &address_plan.flows[*flow];
        json!({
            "mode": "static",
            "address": addresses.entry,
            "destination": addresses.origin,
            "class": group.class().as_str(),
            // The class that the scenario measures, on one connection.
            "recognise_class": false,
        })
    };
    let listen: Vec<Value> = connection.flows.iter().map(listener).collect();
    json!({
        "tunnel": {
            "servers": connection.tunnel.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "server_name": SERVER_NAME,
            "ca": "ca.pem",
            "certificate": format!("{CLIENT_NAME}.pem"),
            "private_key": format!("{CLIENT_NAME}.key"),
            "congestion_control": congestion_control(group),
        },
        "listen": listen,
        "admin": { "address": admin },
        // One connection, and no more threads than a flow can use.
        "runtime": { "workers": 1 },
    })
}
