//! What all workers of a server share.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use millrace_config::{Acl, Class, Dial};
use millrace_tunnel::algorithms::{Algorithms, Choice, Selectable};
use millrace_tunnel::core::Core;
use millrace_tunnel::own_addresses::InterfaceAddresses;
use millrace_tunnel::resolve::Resolver;
use millrace_wire::proxy_protocol;

/// What all workers of a server use, until the next reload.
pub struct ServerShared {
    /// This host's addresses, which both lists refuse.
    pub own: InterfaceAddresses,
    /// Where TCP flows may go.
    pub acl: Acl,
    /// Where UDP flows may go.
    pub udp_acl: Acl,
    /// How destinations are connected to.
    pub dial: Dial,
    /// For destinations with a name.
    pub resolver: Resolver,
    /// Time for one of them, its wait in the queue included.
    pub resolve_timeout: Duration,
    /// The congestion control of each class.
    pub algorithms: Algorithms,
    /// What flows may ask for instead.
    pub selectable: Selectable,
}

impl ServerShared {
    /// Where the first of the addresses, all of them permitted, is handed to somebody else: that
    /// one's address takes their place, and `header` says who is meant.
    pub(crate) fn hand_over(
        &self,
        name: Option<&str>,
        addresses: &mut Vec<SocketAddr>,
        header: &mut Vec<u8>,
        client: Option<SocketAddr>,
    ) {
        let hand_to = |address: &SocketAddr| self.acl.hand_to(name, address.ip(), address.port());
        let Some(&destination) = addresses.first() else { return };
        let Some(edge) = hand_to(&destination) else {
            addresses.retain(|address| hand_to(address).is_none());
            return;
        };
        // A client that nobody named is written as no address at all.
        let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        *header = proxy_protocol::encode_v2(client.unwrap_or(nobody), destination);
        *addresses = vec![edge];
    }

    /// What a flow asks for, if it may have it, else what its class has.
    pub(crate) fn choose(&self, core: &Core, class: Class, wish: Option<String>) -> Choice {
        let of_class = || self.algorithms.of(class).clone();
        let Some(name) = wish else { return of_class() };
        if let Some(choice) = self.selectable.get(&name) {
            return choice.clone();
        }
        let choice = of_class();
        core.shared.metrics.congestion_control_refused.inc();
        if self.selectable.is_first_refusal(&name) {
            tracing::warn!(
                asked = name,
                instead = choice.name(),
                "a flow may not choose this congestion control; logged once"
            );
        }
        choice
    }
}
