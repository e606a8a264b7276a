//! Somebody else's pair of programs: one for each flow that names it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::places::{Crossing, Places};
use super::tunnels::Workshop;
use crate::interrupt;
use crate::netns::Namespace;
use crate::process::{Running, tail};
use crate::proxies::{CLIENT_NAME, SERVER_NAME};
use crate::scenario::Scenario;
use crate::topology::Topology;

/// How long a peer's client may take until its door is open.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Starts those that `scenario` needs and waits until their doors are open. They end when the answer
/// is dropped.
///
/// # Errors
/// When a program is not there, ends at once, or does not open its door in time; with its log.
pub fn start(
    scenario: &Scenario,
    places: &Places,
    topology: &Topology,
    workshop: Workshop<'_>,
) -> Result<Vec<Running>> {
    let mut all = Vec::new();
    for (index, crossing) in places.crossings.iter().enumerate() {
        let group = &scenario.groups[crossing.group];
        let Some(peer) = group.peer().and_then(|name| scenario.peers.get(name)) else { continue };
        let keys = workshop.scratch.join("peer-keys");
        if !keys.exists() {
            workshop.binaries.certify(&keys)?;
        }
        let directory = workshop.scratch.join(format!("peer-{index}"));
        fs::create_dir_all(&directory)?;
        let words = Words::of(places, crossing, &directory, &keys)?;
        for (name, text) in &peer.files {
            let text = words.fill(text.as_str().unwrap_or_default());
            fs::write(directory.join(name), text).with_context(|| name.clone())?;
        }
        let begin = |side: &str, command: &[String], namespace: &Namespace| {
            let name = format!("{side} of {}", group.cc);
            let log = workshop.logs.join(format!("peer-{side}-{index}.log"));
            let command: Vec<String> = command.iter().map(|word| words.fill(word)).collect();
            let Some((program, arguments)) = command.split_first() else { return Ok(None) };
            let mut command = namespace.command(program);
            command.args(arguments);
            Running::start(&name, &mut command, &log).map(|running| Some((name, running, log)))
        };
        let server = begin("server", &peer.server, &topology.server_edge)?;
        let client = begin("client", &peer.client, &topology.client_edge)?;
        let mut started: Vec<_> = server.into_iter().chain(client).collect();
        let door = words.door;
        let open = interrupt::wait_for(READY_WITHIN, || {
            for (_, running, log) in &mut started {
                running.must_run(log)?;
            }
            Ok(topology.client_edge.listens(door)?.then_some(()))
        })?;
        open.with_context(|| {
            let logs: Vec<String> = started.iter().map(|(_, _, log)| tail(log)).collect();
            format!("{}: nothing listens at {door}\n{}", group.cc, logs.join("\n"))
        })?;
        all.extend(started.into_iter().map(|(_, running, _)| running));
    }
    Ok(all)
}

/// What the names in braces stand for.
struct Words {
    door: SocketAddr,
    values: Vec<(&'static str, String)>,
}

impl Words {
    fn of(places: &Places, crossing: &Crossing, directory: &Path, keys: &Path) -> Result<Self> {
        let server = crossing.tunnel.context("a peer's flow has a server's address")?;
        let flow = crossing.flows.first().context("somebody crosses")?;
        let place = &places.flows[*flow];
        let key = |name: &str| keys.join(name).display().to_string();
        let values = vec![
            ("directory", directory.display().to_string()),
            ("server", server.to_string()),
            ("server_host", server.ip().to_string()),
            ("server_port", server.port().to_string()),
            ("server_name", SERVER_NAME.to_owned()),
            ("door", place.door.to_string()),
            ("door_host", place.door.ip().to_string()),
            ("door_port", place.door.port().to_string()),
            ("origin", place.origin.to_string()),
            ("origin_host", place.origin.ip().to_string()),
            ("origin_port", place.origin.port().to_string()),
            ("ca", key("ca.pem")),
            ("certificate", key("server.pem")),
            ("private_key", key("server.key")),
            ("client_certificate", key(&format!("{CLIENT_NAME}.pem"))),
            ("client_private_key", key(&format!("{CLIENT_NAME}.key"))),
        ];
        Ok(Self { door: place.door, values })
    }

    /// `text` with the names in braces replaced; other braces stay.
    fn fill(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_replaced_and_other_braces_stay() {
        let values = vec![("door", "198.18.1.1:20000".to_owned()), ("door_port", "20000".into())];
        let words = Words { door: "198.18.1.1:20000".parse().unwrap(), values };
        assert_eq!(
            words.fill("{ listen: '{door}', port: {door_port}, {x} }"),
            "{ listen: '198.18.1.1:20000', port: 20000, {x} }"
        );
    }
}
