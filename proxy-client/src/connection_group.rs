//! Groups of flows that share connections: flows of one class and one congestion control.

use std::net::SocketAddr;

use millrace_cc::registry::{self, Algorithm};
use millrace_config::{Class, Listen, Transport};
use millrace_tunnel::algorithms::{Algorithms, CcPolicy};
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;
use millrace_wire::Destination;
use millrace_wire::h3_connect::{Carries, ConnectRequest};
use quiche::h3;

/// Flows that share connections: those of listeners with the same class and congestion control.
#[derive(Clone, Debug)]
pub struct ConnectionGroup {
    /// The class of the flows.
    pub class: Class,
    /// The congestion control of what this end sends.
    pub choice: CcPolicy,
    /// The congestion control requested from the server; `None` leaves it to the server.
    pub requested_cc: Option<&'static str>,
}

impl ConnectionGroup {
    /// Opens a stream on `conn` for a flow of this group and requests its destination. Returns the stream; the
    /// response carries `key`.
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
        core.select_cc(conn, None, &self.choice, self.class);
        let request = ConnectRequest {
            carries,
            destination: destination.clone(),
            class: Some(self.class.as_str().to_owned()),
            congestion_control: self.requested_cc.map(str::to_owned),
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

/// The connection groups of all listeners, and for each listener the number of its group. A managed congestion
/// control begins with `initial`.
///
/// # Errors
/// See [`registry::find`].
pub fn group_listeners(
    listens: &[Listen],
    transport: &Transport,
    initial: Option<&Algorithm>,
) -> Result<(Vec<ConnectionGroup>, Vec<usize>), registry::Error> {
    let algorithms = Algorithms::new(transport, initial)?;
    let (mut keys, mut groups, mut group_of) = (Vec::new(), Vec::new(), Vec::new());
    for listen in listens {
        let key = (listen.class, &listen.congestion_control);
        let known = keys.iter().position(|other| *other == key);
        group_of.push(known.unwrap_or(keys.len()));
        if known.is_none() {
            keys.push(key);
            let choose = |it| CcPolicy::new(it, initial);
            let own = listen.congestion_control.as_ref().map(choose).transpose()?;
            let requested_cc = own.as_ref().map(CcPolicy::name);
            let choice = own.unwrap_or_else(|| algorithms.of(listen.class).clone());
            groups.push(ConnectionGroup { class: listen.class, choice, requested_cc });
        }
    }
    Ok((groups, group_of))
}
