//! Third-party pairs of programs with the addresses and files of a flow put into their commands.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use crate::netns::Namespace;
use crate::scenario::PeerPrograms;

/// What stands for the names in braces of a pair's commands and files: `docs/research/scenarios.md`.
#[derive(Debug, Clone, Copy)]
pub struct PeerSetup<'a> {
    /// Where the client takes connections.
    pub listener: SocketAddr,
    /// Where the client reaches the server.
    pub server: SocketAddr,
    /// Where the server connects to.
    pub origin: SocketAddr,
    /// Directory of the pair's files.
    pub directory: &'a Path,
    /// Directory with `ca.pem`, `server.pem` and `server.key`, and both of the client.
    pub keys: &'a Path,
    /// Name in the server's certificate.
    pub server_name: &'a str,
    /// Name of the client's files in `keys`, without `.pem` and `.key`.
    pub client_name: &'a str,
}

impl PeerSetup<'_> {
    /// Writes the files of `peer` into the pair's directory, which is made.
    ///
    /// # Errors
    /// When one can't be written.
    pub fn write_files(&self, peer: &PeerPrograms) -> Result<()> {
        fs::create_dir_all(self.directory).with_context(|| self.directory.display().to_string())?;
        for (name, text) in &peer.files {
            let text = self.fill(text.as_str().unwrap_or_default());
            fs::write(self.directory.join(name), text).with_context(|| name.clone())?;
        }
        Ok(())
    }

    /// The program and arguments of `words`, to be started in `host`; `None` of no words.
    ///
    /// # Errors
    /// When the variable that names the program is not set.
    pub fn command(&self, host: &Namespace, words: &[String]) -> Result<Option<Command>> {
        let words: Vec<String> = words.iter().map(|word| self.fill(word)).collect();
        let Some((word, arguments)) = words.split_first() else { return Ok(None) };
        let mut command = host.command(&program(word)?);
        command.args(arguments);
        Ok(Some(command))
    }

    /// `text` with the names in braces replaced; other braces stay.
    fn fill(&self, text: &str) -> String {
        self.values().iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        })
    }

    fn values(&self) -> [(&'static str, String); 16] {
        let Self { listener, server, origin, .. } = self;
        let key = |name: &str| self.keys.join(name).display().to_string();
        [
            ("directory", self.directory.display().to_string()),
            ("server", server.to_string()),
            ("server_host", server.ip().to_string()),
            ("server_port", server.port().to_string()),
            ("server_name", self.server_name.to_owned()),
            ("listener", listener.to_string()),
            ("listener_host", listener.ip().to_string()),
            ("listener_port", listener.port().to_string()),
            ("origin", origin.to_string()),
            ("origin_host", origin.ip().to_string()),
            ("origin_port", origin.port().to_string()),
            ("ca", key("ca.pem")),
            ("certificate", key("server.pem")),
            ("private_key", key("server.key")),
            ("client_certificate", key(&format!("{}.pem", self.client_name))),
            ("client_private_key", key(&format!("{}.key", self.client_name))),
        ]
    }
}

/// The programs of `peer`, the server's first.
///
/// # Errors
/// When the variable that names one is not set.
pub fn programs(peer: &PeerPrograms) -> Result<Vec<String>> {
    peer.server.first().into_iter().chain(peer.client.first()).map(|word| program(word)).collect()
}

/// The program that the first word of a command names: `$NAME` is the value of a variable of the environment.
fn program(word: &str) -> Result<String> {
    named(word, |name| std::env::var(name).ok())
}

fn named(word: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String> {
    let Some(name) = word.strip_prefix('$') else { return Ok(word.to_owned()) };
    let found = variable(name).filter(|path| !path.is_empty());
    found.ok_or_else(|| anyhow!("the variable {name} names no program: set it to run this peer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_can_be_named_by_the_environment() {
        let variable = |name: &str| (name == "PEER_SENDER").then(|| "/opt/peer/sender".to_owned());
        assert_eq!(named("socat", variable).unwrap(), "socat");
        assert_eq!(named("$PEER_SENDER", variable).unwrap(), "/opt/peer/sender");
        let missing = named("$PEER_RECEIVER", variable).unwrap_err().to_string();
        assert!(missing.starts_with("the variable PEER_RECEIVER names no program"), "{missing}");
        assert!(named("$PEER_SENDER", |_| Some(String::new())).is_err());
    }

    #[test]
    fn names_in_braces_are_replaced_and_other_braces_stay() {
        let setup = PeerSetup {
            listener: "198.18.1.1:20000".parse().unwrap(),
            server: "198.18.1.2:4433".parse().unwrap(),
            origin: "198.18.1.2:80".parse().unwrap(),
            directory: Path::new("/run/peer"),
            keys: Path::new("/run/keys"),
            server_name: "server.invalid",
            client_name: "edge",
        };
        assert_eq!(
            setup.fill("{ listen: '{listener}', port: {listener_port}, {x} }"),
            "{ listen: '198.18.1.1:20000', port: 20000, {x} }"
        );
        assert_eq!(setup.fill("{ca} {client_private_key}"), "/run/keys/ca.pem /run/keys/edge.key");
    }
}
