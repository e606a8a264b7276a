//! Settings that a reload changes for the workers.

use std::io;
use std::sync::Arc;

use millrace_config::{ClientLimits, Listen};

use crate::connection_group::{ConnectionGroup, ListenerClasses};
use crate::proxy_credentials::ProxyCredentials;

/// Settings of the workers that a reload replaces.
#[derive(Clone, Debug)]
pub struct Reloadable {
    /// Connection groups of the listeners.
    pub groups: Vec<ConnectionGroup>,
    /// How each listener classifies its flows, in the order of the configuration.
    pub classes: Vec<ListenerClasses>,
    /// What clients of each listener must show, in the order of the configuration.
    pub credentials: Vec<Option<Arc<ProxyCredentials>>>,
    /// Limits for new connections to the listeners.
    pub limits: ClientLimits,
}

/// Reads what clients of each listener must show.
///
/// # Errors
/// What is wrong with a file, and what would be right.
pub(crate) fn read_credentials(
    listens: &[Listen],
) -> io::Result<Vec<Option<Arc<ProxyCredentials>>>> {
    let of_listener = |listen: &Listen| {
        let users = listen.proxy_users()?;
        Ok(users.map(|users| Arc::new(ProxyCredentials::new(&users))))
    };
    listens.iter().map(of_listener).collect()
}
