//! Third-party pairs of programs, from a file with the tables `[peer.NAME]` of scenario files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use millrace_lab::emulate::peers::{Placeholders, program};
use millrace_lab::process::require;
use millrace_lab::scenario::PeerPrograms;
use serde::Deserialize;

use crate::arena::Arena;
use crate::certificates::Certificates;
use crate::origin::Origin;
use crate::tunnel_config::{SERVER_NAME, TUNNEL, listener};
use crate::variant::{VariantProgram, Way};

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeersFile {
    #[serde(default)]
    peer: BTreeMap<String, PeerPrograms>,
}

impl PeersFile {
    /// Reads it.
    ///
    /// # Errors
    /// When it can't be read, or has something else in it.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let file: Self = toml::from_str(text)?;
        for (name, peer) in &file.peer {
            ensure!(!peer.client.is_empty(), "peer.{name}.client is missing");
            let mut files = peer.files.iter();
            let wrong = files.find(|(name, text)| {
                !text.is_string() || name.contains('/') || name.starts_with('.')
            });
            ensure!(wrong.is_none(), "peer.{name}.files: expected texts by file name");
        }
        Ok(file)
    }

    /// Names of the peers whose programs are there, and why each of the others is left out.
    pub fn present(&self) -> (Vec<String>, BTreeMap<String, String>) {
        let (mut present, mut missing) = (Vec::new(), BTreeMap::new());
        for (name, peer) in &self.peer {
            match find(peer) {
                Ok(()) => present.push(name.clone()),
                Err(error) => drop(missing.insert(name.clone(), format!("{error:#}"))),
            }
        }
        (present, missing)
    }

    /// Starts the peer `name` between the hosts of `arena`.
    ///
    /// # Errors
    /// When a program can't be started, or lets no byte through in time.
    pub fn start(&self, name: &str, arena: &Arena, origin: &Origin) -> Result<Way> {
        let peer = self.peer.get(name).with_context(|| format!("no peer {name}"))?;
        let scratch = arena.run.scratch();
        Certificates::make(SERVER_NAME)?.write(scratch)?;
        let directory = scratch.join(format!("peer-{name}"));
        fs::create_dir_all(&directory)?;
        let listener = listener(0).into();
        let mut placeholders =
            Placeholders::of_addresses(listener, TUNNEL.into(), origin.address(), &directory);
        let file = |name: &str| scratch.join(name).display().to_string();
        placeholders.add_credentials([
            SERVER_NAME.to_owned(),
            file("ca.pem"),
            file("server.pem"),
            file("server.key"),
            file("client.pem"),
            file("client.key"),
        ]);
        for (name, text) in &peer.files {
            let text = placeholders.fill(text.as_str().unwrap_or_default());
            fs::write(directory.join(name), text).with_context(|| name.clone())?;
        }
        let mut parts = Vec::new();
        let sides =
            [("server", &peer.server, &arena.server), ("client", &peer.client, &arena.client)];
        for (role, command, host) in sides {
            let Some((word, arguments)) = command.split_first() else { continue };
            let program = resolve(word)?;
            let mut command = host.command(&program);
            command.args(arguments.iter().map(|word| placeholders.fill(word)));
            parts.push(VariantProgram::start(
                role,
                &mut command,
                directory.join(format!("{role}.log")),
            )?);
        }
        let mut way = Way::through(listener, parts);
        way.await_first_byte(arena, listener).with_context(|| format!("peer {name}"))?;
        Ok(way)
    }
}

fn find(peer: &PeerPrograms) -> Result<()> {
    for word in peer.server.first().into_iter().chain(peer.client.first()) {
        let program = resolve(word)?;
        let path = Path::new(&program);
        if path.components().count() > 1 {
            ensure!(path.is_file(), "{program} is not there");
        } else {
            require(&[(program.as_str(), "the package that has it")])?;
        }
    }
    Ok(())
}

/// The program that a word names, `$NAME` by the environment.
fn resolve(word: &str) -> Result<String> {
    program(word, |name| std::env::var(name).ok()).map_err(|reason| anyhow!(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_program_is_left_out_with_its_reason() {
        let file = PeersFile::parse(
            "[peer.shell]\nclient = [\"sh\"]\n\
             [peer.absent]\nserver = [\"/nonexistent/server\"]\nclient = [\"sh\"]\n\
             [peer.variable]\nclient = [\"$MILLRACE_BENCH_UNSET\"]\n",
        )
        .unwrap();
        let (present, missing) = file.present();
        assert_eq!(present, ["shell"]);
        assert_eq!(missing["absent"], "/nonexistent/server is not there");
        assert!(missing["variable"].contains("MILLRACE_BENCH_UNSET"), "{missing:?}");
    }

    #[test]
    fn file_with_other_keys_is_refused() {
        assert!(PeersFile::parse("[peer.a]\nserver = [\"sh\"]\n").is_err());
        assert!(PeersFile::parse("[peer.a]\nclient = [\"sh\"]\nport = 1\n").is_err());
        assert!(PeersFile::parse("[peers.a]\nclient = [\"sh\"]\n").is_err());
        let outside = "[peer.a]\nclient = [\"sh\"]\nfiles = { \"../x\" = \"\" }\n";
        assert!(PeersFile::parse(outside).is_err());
    }
}
