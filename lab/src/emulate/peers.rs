//! Third-party pairs of programs: one for each flow that names it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::address_plan::{AddressPlan, LinkConnection};
use super::tunnels::ProxyLauncher;
use crate::interrupt;
use crate::netns::Namespace;
use crate::peer_setup::{self, PeerSetup};
use crate::process::{Running, tail};
use crate::proxies::{CLIENT_NAME, SERVER_NAME};
use crate::scenario::Scenario;
use crate::topology::Topology;

/// How long a peer's client may take until it listens.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts the peers that `scenario` needs and waits until they listen. They end when the answer is dropped.
///
/// # Errors
/// When a program is missing, ends at once, or does not listen in time; with its log.
pub fn start(
    scenario: &Scenario,
    address_plan: &AddressPlan,
    topology: &Topology,
    launcher: ProxyLauncher<'_>,
) -> Result<Vec<Running>> {
    let mut all = Vec::new();
    for (index, connection) in address_plan.connections.iter().enumerate() {
        let group = &scenario.groups[connection.group];
        let Some(peer) = group.peer().and_then(|name| scenario.peers.get(name)) else { continue };
        let keys = launcher.scratch.join("peer-keys");
        if !keys.exists() {
            launcher.binaries.certify(&keys)?;
        }
        let directory = launcher.scratch.join(format!("peer-{index}"));
        let setup = setup(address_plan, connection, &directory, &keys)?;
        setup.write_files(peer)?;
        let begin = |side: &str, words: &[String], namespace: &Namespace| {
            let name = format!("{side} of {}", group.cc);
            let log = launcher.logs.join(format!("peer-{side}-{index}.log"));
            let Some(mut command) = setup.command(namespace, words)? else { return Ok(None) };
            Running::start(&name, &mut command, &log).map(|running| Some((name, running, log)))
        };
        let server = begin("server", &peer.server, &topology.server_edge)?;
        let client = begin("client", &peer.client, &topology.client_edge)?;
        let mut started: Vec<_> = server.into_iter().chain(client).collect();
        let open = interrupt::wait_for(READY_TIMEOUT, || {
            for (_, running, log) in &mut started {
                running.must_run(log)?;
            }
            Ok(topology.client_edge.listens(setup.listener)?.then_some(()))
        })?;
        open.with_context(|| {
            let logs: Vec<String> = started.iter().map(|(_, _, log)| tail(log)).collect();
            format!("{}: nothing listens at {}\n{}", group.cc, setup.listener, logs.join("\n"))
        })?;
        all.extend(started.into_iter().map(|(_, running, _)| running));
    }
    Ok(all)
}

/// Whether the programs of all peers of a scenario are known.
///
/// # Errors
/// The variable of the environment that has to name a program.
pub fn are_known(scenario: &Scenario) -> Result<(), String> {
    let names = scenario.groups.iter().filter_map(|group| group.peer());
    for peer in names.filter_map(|name| scenario.peers.get(name)) {
        peer_setup::programs(peer).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn setup<'a>(
    address_plan: &AddressPlan,
    connection: &LinkConnection,
    directory: &'a Path,
    keys: &'a Path,
) -> Result<PeerSetup<'a>> {
    let server = connection.tunnel.context("a peer's flow has a server's address")?;
    let flow = connection.flows.first().context("a connection has a flow")?;
    let addresses = &address_plan.flows[*flow];
    Ok(PeerSetup {
        listener: addresses.entry,
        server,
        origin: addresses.origin,
        directory,
        keys,
        server_name: SERVER_NAME,
        client_name: CLIENT_NAME,
    })
}
