//! Origins in namespaces of their own. live555's server listens at all of a host's addresses and sends RTP
//! over UDP from the address of the route to the player, so it needs a host with one address.

use std::collections::BTreeMap;

use anyhow::Result;

use super::address_plan::{AddressPlan, FlowAddresses};
use crate::netns::Namespace;
use crate::run::Run;
use crate::scenario::Scenario;
use crate::topology::Topology;

/// The origins with a namespace of their own, by flow.
#[derive(Debug, Default)]
pub struct Hosts(BTreeMap<usize, Namespace>);

impl Hosts {
    /// Creates the hosts that a scenario needs. TCP from there uses its flow's congestion control if that is
    /// the kernel's.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn build(
        run: &Run,
        scenario: &Scenario,
        address_plan: &AddressPlan,
        topology: &Topology,
    ) -> Result<Self> {
        let flows = address_plan.flows.iter().enumerate();
        let host = |(flow, addresses): (usize, &FlowAddresses)| {
            let name = format!("host{flow}");
            let cc = scenario.groups[addresses.group].kernel_cc().unwrap_or("cubic");
            Ok((flow, topology.add_host(run, &name, addresses.origin.ip(), cc)?))
        };
        flows.filter(|(_, flow)| flow.has_own_host).map(host).collect::<Result<_>>().map(Self)
    }

    /// The namespace of the origin of a flow.
    pub fn of<'a>(&'a self, flow: usize, topology: &'a Topology) -> &'a Namespace {
        self.0.get(&flow).unwrap_or(&topology.origin)
    }
}
