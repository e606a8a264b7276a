//! Memory that connections hold in the programs.

use std::collections::BTreeMap;

use anyhow::Result;

use super::record::ConnectionMemory;
use crate::usage::RoleUse;
use crate::variant::{PROBE, Way};

/// Resident bytes of the programs by role.
///
/// # Errors
/// When a program has ended.
pub fn resident_bytes(way: &Way) -> Result<BTreeMap<String, f64>> {
    Ok(RoleUse::read(way)?.resident_bytes)
}

/// What each of so many connections added since `before`: when they were open and idle, and under load.
pub fn by_connection(
    before: &BTreeMap<String, f64>,
    [opened, loaded]: [&BTreeMap<String, f64>; 2],
    connections: usize,
) -> BTreeMap<String, ConnectionMemory> {
    let roles = before.iter().filter(|(role, _)| *role != PROBE);
    let all = roles.map(|(role, before)| {
        let added = |then: &BTreeMap<String, f64>| {
            (then.get(role).copied().unwrap_or(*before) - before) / connections as f64
        };
        let memory = ConnectionMemory { opened_bytes: added(opened), loaded_bytes: added(loaded) };
        (role.clone(), memory)
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_each_connection_added_without_the_paced_flow() {
        let of = |server: f64| {
            BTreeMap::from([("server".to_owned(), server), (PROBE.to_owned(), server)])
        };
        let memory = by_connection(&of(1000.0), [&of(1400.0), &of(3000.0)], 4);
        let expected = ConnectionMemory { opened_bytes: 100.0, loaded_bytes: 500.0 };
        assert_eq!(memory, BTreeMap::from([("server".to_owned(), expected)]));
    }
}
