//! Owners of flows, and why flows are refused.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millrace_wire::ConnectFailure;

use crate::peer_limits::network_of;

/// A viewer as one user of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Viewer {
    /// The client that named the viewer's address, at a server: it can't speak for the viewers of
    /// other clients.
    client: Option<Arc<str>>,
    network: Option<IpAddr>,
}

/// The viewer, listener and client that a flow counts for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowOwner {
    /// The viewer's address, if it is known.
    pub viewer: Option<IpAddr>,
    /// The listener, at a client with several.
    pub listener: Option<usize>,
    /// The client by the name in its certificate, at a server.
    pub client: Option<Arc<str>>,
}

impl FlowOwner {
    /// The viewer at `address` of `client`.
    pub fn of_client(client: Option<Arc<str>>, address: Option<SocketAddr>) -> Self {
        Self { viewer: address.map(|it| it.ip()), listener: None, client }
    }

    /// The user of the pools of viewers.
    pub fn viewer(&self) -> Viewer {
        Viewer { client: self.client.clone(), network: self.viewer.map(network_of) }
    }
}

/// Why a flow is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowRefusal {
    /// The process has as many flows as it may.
    Full,
    /// The client has as many as one client may.
    Client,
    /// The client has its share, and others need what is free.
    ClientShare,
    /// The viewer has its share, and others need what is free.
    ViewerShare,
    /// The listener has its share, and others need what is free.
    ListenerShare,
}

impl FlowRefusal {
    /// The failure that a server answers with.
    pub fn failure(self) -> ConnectFailure {
        match self {
            Self::Full => ConnectFailure::ServerFull,
            Self::Client | Self::ClientShare | Self::ViewerShare | Self::ListenerShare => {
                ConnectFailure::ClientLimitReached
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_do_not_speak_for_the_viewers_of_others() {
        let address: SocketAddr = "192.0.2.1:40000".parse().unwrap();
        let of = |client: &str| FlowOwner::of_client(Some(client.into()), Some(address));
        assert_eq!(of("north").viewer, Some(address.ip()));
        assert_eq!(of("north").client.as_deref(), Some("north"));
        assert_eq!(of("north").viewer(), of("north").viewer());
        assert_ne!(of("north").viewer(), of("south").viewer());
        assert_ne!(of("north").viewer(), FlowOwner::of_client(None, Some(address)).viewer());
    }
}
