//! Third-party pairs of programs, from a file with the tables `[peer.NAME]` of scenario files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use millrace_lab::peer_setup::{self, PeerSetup};
use millrace_lab::process::require;
use millrace_lab::scenario::{PeerPrograms, load_peers};
use serde::Serialize;

use crate::arena::Arena;
use crate::certificates::Certificates;
use crate::origin::Origin;
use crate::tunnel_config::{SERVER_NAME, TUNNEL, listener};
use crate::variant::{VariantProgram, Way};

/// The pairs of the file, by name.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct SweepPeers {
    peers: BTreeMap<String, PeerPrograms>,
}

impl SweepPeers {
    /// Reads them.
    ///
    /// # Errors
    /// When the file can't be read, or has something else in it.
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Self { peers: load_peers(path)? })
    }

    /// Names of the peers whose programs are there, and why each of the others is left out.
    pub fn present(&self) -> (Vec<String>, BTreeMap<String, String>) {
        let (mut present, mut missing) = (Vec::new(), BTreeMap::new());
        for (name, peer) in &self.peers {
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
        let peer = self.peers.get(name).with_context(|| format!("no peer {name}"))?;
        let scratch = arena.run.scratch();
        Certificates::make(SERVER_NAME)?.write(scratch)?;
        let directory = scratch.join(format!("peer-{name}"));
        let setup = PeerSetup {
            listener: listener(0).into(),
            server: TUNNEL.into(),
            origin: origin.address(),
            directory: &directory,
            keys: scratch,
            server_name: SERVER_NAME,
            client_name: "client",
        };
        setup.write_files(peer)?;
        let mut parts = Vec::new();
        let sides =
            [("server", &peer.server, &arena.server), ("client", &peer.client, &arena.client)];
        for (role, words, host) in sides {
            let Some(mut command) = setup.command(host, words)? else { continue };
            let log = directory.join(format!("{role}.log"));
            parts.push(VariantProgram::start(role, &mut command, log)?);
        }
        let mut way = Way::through(setup.listener, parts);
        way.await_first_byte(arena, setup.listener).with_context(|| format!("peer {name}"))?;
        Ok(way)
    }
}

/// # Errors
/// When a program of `peer` is not there.
fn find(peer: &PeerPrograms) -> Result<()> {
    for program in peer_setup::programs(peer)? {
        let path = Path::new(&program);
        if path.components().count() > 1 {
            ensure!(path.is_file(), "{program} is not there");
        } else {
            require(&[(program.as_str(), "the package that has it")])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_program_is_left_out_with_its_reason() {
        let path = std::env::temp_dir().join(format!("bench-peers-{}.toml", std::process::id()));
        let text = "[peer.shell]\nclient = [\"sh\"]\n\
             [peer.absent]\nserver = [\"/nonexistent/server\"]\nclient = [\"sh\"]\n\
             [peer.variable]\nclient = [\"$MILLRACE_BENCH_UNSET\"]\n";
        std::fs::write(&path, text).unwrap();
        let (present, missing) = SweepPeers::read(&path).unwrap().present();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(present, ["shell"]);
        assert_eq!(missing["absent"], "/nonexistent/server is not there");
        assert!(missing["variable"].contains("MILLRACE_BENCH_UNSET"), "{missing:?}");
    }
}
