//! Which flows share a connection: those of one class that want the same congestion control.

use millrace_cc::registry::{self, Algorithm};
use millrace_config::{Class, Listen, Transport};
use millrace_tunnel::algorithms::{Algorithms, algorithm};

/// A kind of flows.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Their class.
    pub class: Class,
    /// What drives what this end sends.
    pub algorithm: Algorithm,
    /// What the server is asked for; `None` leaves it to the server.
    pub wish: Option<&'static str>,
}

/// The lanes of all listeners, and for each listener the number of its lane.
///
/// # Errors
/// See [`registry::find`].
pub fn lanes(
    listens: &[Listen],
    transport: &Transport,
) -> Result<(Vec<Lane>, Vec<usize>), registry::Error> {
    let algorithms = Algorithms::new(transport)?;
    let (mut kinds, mut lanes, mut of_listener) = (Vec::new(), Vec::new(), Vec::new());
    for listen in listens {
        let kind = (listen.class, &listen.congestion_control);
        let known = kinds.iter().position(|other| *other == kind);
        of_listener.push(known.unwrap_or(kinds.len()));
        if known.is_none() {
            kinds.push(kind);
            let own = listen.congestion_control.as_ref().map(algorithm).transpose()?;
            let wish = own.as_ref().map(Algorithm::name);
            let algorithm = own.unwrap_or_else(|| algorithms.of(listen.class).clone());
            lanes.push(Lane { class: listen.class, algorithm, wish });
        }
    }
    Ok((lanes, of_listener))
}
