//! Settings that a reload changes for the workers.

use millrace_config::ClientLimits;

use crate::connection_group::{ConnectionGroup, ListenerClasses};

/// Settings of the workers that a reload replaces.
#[derive(Clone, Debug)]
pub struct Reloadable {
    /// Connection groups of the listeners.
    pub groups: Vec<ConnectionGroup>,
    /// How each listener classifies its flows, in the order of the configuration.
    pub classes: Vec<ListenerClasses>,
    /// Limits for new connections to the listeners.
    pub limits: ClientLimits,
}
