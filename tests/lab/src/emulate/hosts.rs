//! Origins in namespaces of their own: live555's server listens at all of a host's addresses and sends RTP
//! over UDP from whichever the way to the player has, so that it needs a host with one.

use std::collections::BTreeMap;

use anyhow::Result;

use super::places::Places;
use crate::netns::Namespace;
use crate::run::Run;
use crate::scenario::Scenario;
use crate::topology::Topology;

/// Those that there are, by flow.
#[derive(Debug, Default)]
pub struct Hosts(BTreeMap<usize, Namespace>);

impl Hosts {
    /// Makes those that a scenario needs. TCP from there uses its flow's congestion control if that is the
    /// kernel's.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn build(
        run: &Run,
        scenario: &Scenario,
        places: &Places,
        topology: &Topology,
    ) -> Result<Self> {
        let apart = places.flows.iter().enumerate().filter(|(_, place)| place.is_apart);
        let host = |(flow, place): (usize, &super::places::Place)| {
            let name = format!("host{flow}");
            let cc = scenario.groups[place.group].kernel_cc().unwrap_or("cubic");
            Ok((flow, topology.add_host(run, &name, place.origin.ip(), cc)?))
        };
        apart.map(host).collect::<Result<_>>().map(Self)
    }

    /// Where the origin of a flow runs.
    pub fn of<'a>(&'a self, flow: usize, topology: &'a Topology) -> &'a Namespace {
        self.0.get(&flow).unwrap_or(&topology.origin)
    }
}
