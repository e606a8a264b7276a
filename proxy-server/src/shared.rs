//! What all workers of a server share.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use millrace_config::{Acl, Class, Dial};
use millrace_tunnel::algorithms::{Algorithms, CcPolicy, Selectable};
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::flow_label::FlowLabel;
use millrace_tunnel::own_addresses::InterfaceAddresses;
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::rtsp::MediaSources;
use millrace_wire::{Destination, proxy_protocol};

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
    /// How long RTP in an RTSP connection may wait for the tunnel.
    pub interleaved_queue: Option<Duration>,
    /// The congestion control of each class.
    pub algorithms: Algorithms,
    /// What flows may ask for instead.
    pub selectable: Selectable,
}

impl ServerShared {
    /// If the first of the addresses, all of them permitted, has an upstream proxy, its address
    /// replaces them, and `header` becomes a PROXY header with the client and the destination.
    pub(crate) fn forward(
        &self,
        name: Option<&str>,
        addresses: &mut Vec<SocketAddr>,
        header: &mut Vec<u8>,
        client: Option<SocketAddr>,
    ) {
        let forward_to =
            |address: &SocketAddr| self.acl.forward_to(name, address.ip(), address.port());
        let Some(&destination) = addresses.first() else { return };
        let Some(edge) = forward_to(&destination) else {
            addresses.retain(|address| forward_to(address).is_none());
            return;
        };
        // An unknown client is written as the unspecified address.
        let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        *header = proxy_protocol::encode_v2(client.unwrap_or(nobody), destination);
        *addresses = vec![edge];
    }

    /// From where an RTSP origin may send its media that is not its own address: hosts to which the viewer could have an
    /// RTSP flow too, and those that UDP flows may go to.
    pub(crate) fn media_sources(self: &Arc<Self>, rtsp: &FlowLabel) -> MediaSources {
        let shared = Arc::clone(self);
        let rtsp_port = rtsp.destination.parse::<Destination>().map_or(0, |it| it.port());
        MediaSources::new(move |source| {
            shared.acl.permits(source.ip(), rtsp_port).is_ok()
                || shared.udp_acl.permits(source.ip(), source.port()).is_ok()
        })
    }

    /// The congestion control that a flow requests, if it is selectable, otherwise that of its
    /// class.
    pub(crate) fn choose(&self, core: &Core, class: Class, requested: Option<String>) -> CcPolicy {
        let of_class = || self.algorithms.of(class).clone();
        let Some(name) = requested else { return of_class() };
        if let Some(choice) = self.selectable.get(&name) {
            return choice.clone();
        }
        let choice = of_class();
        core.shared.metrics.congestion_control_refused.inc();
        if self.selectable.is_first_refusal(&name) {
            tracing::warn!(
                asked = name,
                instead = choice.name(),
                "requested congestion control is not selectable; logged once"
            );
        }
        choice
    }
}
