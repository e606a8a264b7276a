//! Third-party pairs of programs: one for each flow that names it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::address_plan::{AddressPlan, LinkConnection};
use super::tunnels::ProxyLauncher;
use crate::interrupt;
use crate::netns::Namespace;
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
        fs::create_dir_all(&directory)?;
        let placeholders = Placeholders::of(address_plan, connection, &directory, &keys)?;
        for (name, text) in &peer.files {
            let text = placeholders.fill(text.as_str().unwrap_or_default());
            fs::write(directory.join(name), text).with_context(|| name.clone())?;
        }
        let begin = |side: &str, command: &[String], namespace: &Namespace| {
            let name = format!("{side} of {}", group.cc);
            let log = launcher.logs.join(format!("peer-{side}-{index}.log"));
            let command: Vec<String> = command.iter().map(|word| placeholders.fill(word)).collect();
            let Some((word, arguments)) = command.split_first() else { return Ok(None) };
            let program = program(word, |name| std::env::var(name).ok());
            let program = program.map_err(anyhow::Error::msg)?;
            let mut command = namespace.command(&program);
            command.args(arguments);
            Running::start(&name, &mut command, &log).map(|running| Some((name, running, log)))
        };
        let server = begin("server", &peer.server, &topology.server_edge)?;
        let client = begin("client", &peer.client, &topology.client_edge)?;
        let mut started: Vec<_> = server.into_iter().chain(client).collect();
        let listener = placeholders.listener;
        let open = interrupt::wait_for(READY_TIMEOUT, || {
            for (_, running, log) in &mut started {
                running.must_run(log)?;
            }
            Ok(topology.client_edge.listens(listener)?.then_some(()))
        })?;
        open.with_context(|| {
            let logs: Vec<String> = started.iter().map(|(_, _, log)| tail(log)).collect();
            format!("{}: nothing listens at {listener}\n{}", group.cc, logs.join("\n"))
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
        for word in peer.server.first().into_iter().chain(peer.client.first()) {
            program(word, |name| std::env::var(name).ok())?;
        }
    }
    Ok(())
}

/// The program that the first word of a command names: `$NAME` is the value of a variable of the environment.
///
/// # Errors
/// When the variable is not set or empty.
pub fn program(word: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let Some(name) = word.strip_prefix('$') else { return Ok(word.to_owned()) };
    let found = variable(name).filter(|path| !path.is_empty());
    found.ok_or_else(|| format!("the variable {name} names no program: set it to run this peer"))
}

/// The values of the names in braces.
#[derive(Debug)]
pub struct Placeholders {
    listener: SocketAddr,
    values: Vec<(&'static str, String)>,
}

impl Placeholders {
    fn of(
        address_plan: &AddressPlan,
        connection: &LinkConnection,
        directory: &Path,
        keys: &Path,
    ) -> Result<Self> {
        let server = connection.tunnel.context("a peer's flow has a server's address")?;
        let flow = connection.flows.first().context("a connection has a flow")?;
        let addresses = &address_plan.flows[*flow];
        let mut placeholders =
            Self::of_addresses(addresses.entry, server, addresses.origin, directory);
        let key = |name: &str| keys.join(name).display().to_string();
        placeholders.add_credentials([
            SERVER_NAME.to_owned(),
            key("ca.pem"),
            key("server.pem"),
            key("server.key"),
            key(&format!("{CLIENT_NAME}.pem")),
            key(&format!("{CLIENT_NAME}.key")),
        ]);
        Ok(placeholders)
    }

    /// The names for addresses and for the directory with the files of the peer.
    #[must_use]
    pub fn of_addresses(
        listener: SocketAddr,
        server: SocketAddr,
        origin: SocketAddr,
        directory: &Path,
    ) -> Self {
        let values = vec![
            ("directory", directory.display().to_string()),
            ("server", server.to_string()),
            ("server_host", server.ip().to_string()),
            ("server_port", server.port().to_string()),
            ("listener", listener.to_string()),
            ("listener_host", listener.ip().to_string()),
            ("listener_port", listener.port().to_string()),
            ("origin", origin.to_string()),
            ("origin_host", origin.ip().to_string()),
            ("origin_port", origin.port().to_string()),
        ];
        Self { listener, values }
    }

    /// Name of the server, authority, its certificate and key, the client's certificate and key; all but the first are
    /// paths.
    pub fn add_credentials(&mut self, credentials: [String; 6]) {
        let names = [
            "server_name",
            "ca",
            "certificate",
            "private_key",
            "client_certificate",
            "client_private_key",
        ];
        self.values.extend(names.into_iter().zip(credentials));
    }

    /// `text` with the names in braces replaced; other braces stay.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_can_be_named_by_the_environment() {
        let variable = |name: &str| (name == "PEER_SENDER").then(|| "/opt/peer/sender".to_owned());
        assert_eq!(program("socat", variable).unwrap(), "socat");
        assert_eq!(program("$PEER_SENDER", variable).unwrap(), "/opt/peer/sender");
        let missing = program("$PEER_RECEIVER", variable).unwrap_err();
        assert!(missing.starts_with("the variable PEER_RECEIVER names no program"), "{missing}");
        assert!(program("$PEER_SENDER", |_| Some(String::new())).is_err());
    }

    #[test]
    fn names_in_braces_are_replaced_and_other_braces_stay() {
        let listener = "198.18.1.1:20000";
        let values = vec![("listener", listener.to_owned()), ("listener_port", "20000".to_owned())];
        let placeholders = Placeholders { listener: listener.parse().unwrap(), values };
        assert_eq!(
            placeholders.fill("{ listen: '{listener}', port: {listener_port}, {x} }"),
            "{ listen: '198.18.1.1:20000', port: 20000, {x} }"
        );
    }
}
