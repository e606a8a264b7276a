//! Which flows share a connection: those of one class that want the same congestion control.

use std::net::SocketAddr;

use millrace_cc::registry::{self, Algorithm};
use millrace_config::{Class, Listen, Transport};
use millrace_tunnel::algorithms::{Algorithms, Choice};
use millrace_tunnel::conn::ConnId;
use millrace_tunnel::core::Core;
use millrace_wire::Destination;
use millrace_wire::h3_connect::{Carries, ConnectRequest};
use quiche::h3;

/// A kind of flows.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Their class.
    pub class: Class,
    /// What drives what this end sends.
    pub choice: Choice,
    /// What the server is asked for; `None` leaves it to the server.
    pub wish: Option<&'static str>,
}

impl Lane {
    /// Opens a stream on `conn` for a flow of this lane and asks there for its destination; the
    /// stream. The answer comes with `key`.
    ///
    /// # Errors
    /// See [`Core::request`].
    pub(crate) fn request(
        &self,
        core: &mut Core,
        conn: ConnId,
        carries: Carries,
        destination: &Destination,
        client: Option<SocketAddr>,
        key: u64,
    ) -> h3::Result<u64> {
        core.steer(conn, None, &self.choice, self.class);
        let request = ConnectRequest {
            carries,
            destination: destination.clone(),
            class: Some(self.class.as_str().to_owned()),
            congestion_control: self.wish.map(str::to_owned),
            client_address: client,
        };
        let fields: Vec<_> = request
            .fields()
            .iter()
            .map(|(name, value)| h3::Header::new(name.as_bytes(), value.as_bytes()))
            .collect();
        core.request(conn, &fields, key)
    }
}

/// The lanes of all listeners, and for each listener the number of its lane. What is selected begins
/// with `initial`.
///
/// # Errors
/// See [`registry::find`].
pub fn lanes(
    listens: &[Listen],
    transport: &Transport,
    initial: Option<&Algorithm>,
) -> Result<(Vec<Lane>, Vec<usize>), registry::Error> {
    let algorithms = Algorithms::new(transport, initial)?;
    let (mut kinds, mut lanes, mut of_listener) = (Vec::new(), Vec::new(), Vec::new());
    for listen in listens {
        let kind = (listen.class, &listen.congestion_control);
        let known = kinds.iter().position(|other| *other == kind);
        of_listener.push(known.unwrap_or(kinds.len()));
        if known.is_none() {
            kinds.push(kind);
            let choose = |it| Choice::new(it, initial);
            let own = listen.congestion_control.as_ref().map(choose).transpose()?;
            let wish = own.as_ref().map(Choice::name);
            let choice = own.unwrap_or_else(|| algorithms.of(listen.class).clone());
            lanes.push(Lane { class: listen.class, choice, wish });
        }
    }
    Ok((lanes, of_listener))
}
