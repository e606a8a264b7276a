//! Client, destination and class of a flow, for logs and `/flows`.

use std::net::SocketAddr;

use millrace_config::Class;

/// Client, destination and class of a flow, for logs and `/flows`.
#[derive(Clone, Debug)]
pub struct FlowLabel {
    /// The address that opened it, where that is known.
    pub client: Option<SocketAddr>,
    /// Where it goes.
    pub destination: String,
    /// Its class.
    pub class: Class,
}
