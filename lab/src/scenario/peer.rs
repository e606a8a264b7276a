//! `[peer.NAME]`: a third-party pair of programs.

use std::collections::BTreeMap;

use super::programs::PeerPrograms;
use super::reader::{TableReader, words};
use super::tree::{ScenarioResult, ScenarioText};

/// All of them, by name.
pub(super) fn read(
    reader: &mut TableReader<'_>,
    text: &ScenarioText<'_>,
) -> ScenarioResult<BTreeMap<String, PeerPrograms>> {
    let mut peers = BTreeMap::new();
    for (name, node) in reader.entries("peer")? {
        let table = TableReader::new(text, &format!("peer.{name}"), node)?;
        peers.insert(name.to_owned(), peer(table)?);
    }
    Ok(peers)
}

fn peer(mut table: TableReader<'_>) -> ScenarioResult<PeerPrograms> {
    let files = match table.node("files").map(|node| node.to_json()) {
        None => serde_json::Map::new(),
        Some(serde_json::Value::Object(files)) if files.values().all(|it| it.is_string()) => files,
        Some(_) => return Err(table.error("files", "expected a table of texts by file name")),
    };
    // They are written into a directory of the flow's own and nowhere else.
    if files.keys().any(|name| name.contains('/') || name.starts_with('.')) {
        return Err(table.error("files", "a file's name has no / and does not begin with a dot"));
    }
    let peer = PeerPrograms {
        server: words(&mut table, "server")?,
        client: words(&mut table, "client")?,
        files,
    };
    if peer.client.is_empty() {
        return Err(table.error("client", "is missing: the program and its arguments, as a list"));
    }
    table.finish()?;
    Ok(peer)
}
