//! The proxies of a scenario: a server for each `[[flow]]`, a client for each tunnel connection, so
//! that each has the algorithm and the address that the scenario gives it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::places::{Crossing, ORIGIN_PORT, Places, origin_network};
use crate::process::Running;
use crate::proxies::{Binaries, CLIENT_NAME, Proxy, SERVER_NAME};
use crate::rtsp::live555;
use crate::scenario::{FlowChange, Group, Scenario, Via};
use crate::simulate::MCC;
use crate::topology::Topology;

/// The servers' first admin port; the clients have the same ones in another namespace.
const FIRST_ADMIN: u16 = 9500;

/// A proxy that can be asked about its flows.
#[derive(Debug)]
pub struct Asked {
    /// Where.
    pub admin: SocketAddr,
    /// Of what crosses the link through it, the origin's address of each flow.
    pub crossings: Vec<(usize, Vec<String>)>,
    /// What is asked of its congestion control, as the admin listener takes it, and when; in the order of
    /// time. Only of the end that sends.
    pub changes: Vec<(f64, String)>,
}

/// All of them, running. Dropping them stops them.
#[derive(Debug)]
pub struct Tunnels {
    /// In the server edge's namespace.
    pub servers: Vec<Asked>,
    /// In the client edge's namespace.
    pub clients: Vec<Asked>,
    running: Vec<Running>,
}

/// Where the parts of tunnels come from and go to.
#[derive(Debug, Clone, Copy)]
pub struct Workshop<'a> {
    /// The proxies.
    pub binaries: &'a Binaries,
    /// For keys and configurations.
    pub scratch: &'a Path,
    /// For logs.
    pub logs: &'a Path,
}

impl Tunnels {
    /// Starts all that `scenario` needs and waits until every tunnel is up.
    ///
    /// # Errors
    /// When a proxy refuses its configuration (an unknown algorithm) or is not ready in time; with its
    /// log.
    pub fn start(
        scenario: &Scenario,
        places: &Places,
        topology: &Topology,
        workshop: Workshop<'_>,
    ) -> Result<Self> {
        let is_ours = |it: &Crossing| scenario.groups[it.group].via == Via::Proxy;
        let crossings: Vec<(usize, &Crossing)> =
            places.crossings.iter().enumerate().filter(|(_, it)| is_ours(it)).collect();
        let mut tunnels = Self { servers: Vec::new(), clients: Vec::new(), running: Vec::new() };
        if crossings.is_empty() {
            return Ok(tunnels);
        }
        let keys = workshop.scratch.join("keys");
        workshop.binaries.certify(&keys)?;
        let asked = |admin, crossings: &[&(usize, &Crossing)], changes| Asked {
            admin,
            crossings: crossings.iter().map(|(index, it)| (*index, origins(places, it))).collect(),
            changes,
        };
        for (index, group) in scenario.groups.iter().enumerate() {
            let own: Vec<_> = crossings.iter().filter(|(_, it)| it.group == index).collect();
            if own.is_empty() {
                continue;
            }
            let name = format!("server-{index}");
            let admin = admin(tunnels.servers.len())?;
            let network = origin_network(places.ip);
            let mut config = server_config(group, &network, own.iter().map(|(_, it)| *it), admin);
            select(&mut config, group)?;
            let proxy = Proxy {
                name: &name,
                binary: &workshop.binaries.server,
                namespace: &topology.server_edge,
                config: &keys.join(format!("{name}.toml")),
                text: toml::to_string(&config).context("server configuration")?,
                admin,
                log: &workshop.logs.join(format!("{name}.log")),
            };
            let mut running = proxy.start()?;
            proxy.ready(&mut running)?;
            tunnels.running.push(running);
            let changes = if group.upwards { Vec::new() } else { changes(group) };
            tunnels.servers.push(asked(admin, &own, changes));
        }
        let configured: Vec<_> = crossings
            .iter()
            .enumerate()
            .map(|(number, (index, crossing))| {
                let admin = admin(number)?;
                let group = &scenario.groups[crossing.group];
                let mut config = client_config(group, crossing, places, admin);
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
                let log = workshop.logs.join(format!("{name}.log"));
                (name, config, log)
            })
            .collect();
        let proxies: Vec<Proxy<'_>> = configured
            .iter()
            .zip(&files)
            .map(|((_, admin, text), (name, config, log))| Proxy {
                name,
                binary: &workshop.binaries.client,
                namespace: &topology.client_edge,
                config,
                text: text.clone(),
                admin: *admin,
                log,
            })
            .collect();
        // All at once: over a long path each takes its while.
        let mut running: Vec<Running> = proxies.iter().map(Proxy::start).collect::<Result<_>>()?;
        for (proxy, running) in proxies.iter().zip(&mut running) {
            proxy.ready(running)?;
        }
        tunnels.running.extend(running);
        for (proxy, crossing) in proxies.iter().zip(&crossings) {
            let group = &scenario.groups[crossing.1.group];
            let changes = if group.upwards { changes(group) } else { Vec::new() };
            tunnels.clients.push(asked(proxy.admin, &[crossing], changes));
        }
        Ok(tunnels)
    }
}

impl Drop for Tunnels {
    fn drop(&mut self) {
        self.running.iter().for_each(Running::ask_to_end);
    }
}

fn origins(places: &Places, crossing: &Crossing) -> Vec<String> {
    crossing.flows.iter().map(|flow| places.flows[*flow].origin.to_string()).collect()
}

fn changes(group: &Group) -> Vec<(f64, String)> {
    let asked = |change: &FlowChange| {
        let to = change.cc.as_ref().map(|cc| format!("algorithm={cc}"));
        let share = change.share.map(|share| format!("share={share}"));
        let above = change.yield_above_mbps.map(|rate| format!("yield_above_mbps={rate}"));
        let at_s = change.at_s;
        [to, share, above].into_iter().flatten().map(move |asked| (at_s, asked))
    };
    let mut changes: Vec<_> = group.change.iter().flat_map(asked).collect();
    changes.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    changes
}

fn admin(number: usize) -> Result<SocketAddr> {
    let port = u16::try_from(number).ok().and_then(|number| FIRST_ADMIN.checked_add(number));
    Ok((Ipv4Addr::LOCALHOST, port.context("more proxies than ports")?).into())
}

/// A name, or a table with parameters.
fn congestion_control(group: &Group) -> Value {
    if group.parameters.is_empty() || group.cc == MCC {
        return json!(group.cc);
    }
    let mut table = group.parameters.clone();
    table.insert("name".to_owned(), json!(group.cc));
    Value::Object(table)
}

/// Gives a configuration the settings of MCC, which are a `[[flow]]`'s parameters.
fn select(config: &mut Value, group: &Group) -> Result<()> {
    if group.cc != MCC {
        return Ok(());
    }
    let mut settings = group.parameters.clone();
    if let Some(Value::String(rules)) = settings.get_mut("rules") {
        // The configuration lies elsewhere.
        *rules = fs::canonicalize(&*rules).with_context(|| rules.clone())?.display().to_string();
    }
    config["mcc"] = Value::Object(settings);
    Ok(())
}

fn server_config<'a>(
    group: &Group,
    network: &str,
    crossings: impl Iterator<Item = &'a Crossing>,
    admin: SocketAddr,
) -> Value {
    let listen: Vec<String> =
        crossings.filter_map(|crossing| Some(crossing.tunnel?.to_string())).collect();
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

fn client_config(group: &Group, crossing: &Crossing, places: &Places, admin: SocketAddr) -> Value {
    let door = |flow: &usize| {
        let place = &places.flows[*flow];
        json!({
            "mode": "fixed",
            "address": place.door,
            "destination": place.origin,
            "class": group.class().as_str(),
        })
    };
    let listen: Vec<Value> = crossing.flows.iter().map(door).collect();
    json!({
        "tunnel": {
            "servers": crossing.tunnel.iter().map(ToString::to_string).collect::<Vec<_>>(),
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
