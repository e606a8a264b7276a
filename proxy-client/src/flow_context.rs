//! What TCP and UDP flows have in common: the tunnel connections, the settings that a reload changes, and their keys.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millrace_admission::flow_owner::FlowRefusal;
use millrace_config::ClientLimits;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::metrics::{self, Label};
use tracing::field;

use crate::connection_group::{ConnectionGroup, ListenerClasses};
use crate::listener::ListenerView;
use crate::pool::Pool;
use crate::proxy_credentials::ProxyCredentials;
use crate::reloadable::Reloadable;

/// Keys below are TCP listeners, from here on flows.
pub(crate) const FIRST_FLOW_KEY: u64 = 1 << 16;

/// What the flows of a worker use together.
pub struct FlowContext {
    pub(crate) pool: Pool,
    /// The connection groups of all listeners.
    pub(crate) groups: Vec<ConnectionGroup>,
    pub(crate) limits: ClientLimits,
    pub(crate) connect_timeout: Duration,
    /// Settings of the TCP listeners, for flows that outlive them.
    listeners: Vec<ListenerView>,
    /// How many listeners take datagrams.
    udp_listeners: usize,
    /// How each `[[listen]]` classifies its flows.
    classes: Vec<ListenerClasses>,
    /// What clients of each `[[listen]]` must show.
    credentials: Vec<Option<Arc<ProxyCredentials>>>,
    next_key: u64,
}

impl FlowContext {
    /// The flows of `listeners`, and of as many UDP listeners as `udp_listeners` says, use the connections of `pool`.
    pub(crate) fn new(
        pool: Pool,
        (listeners, udp_listeners): (Vec<ListenerView>, usize),
        connect_timeout: Duration,
        settings: Reloadable,
    ) -> Self {
        let Reloadable { groups, classes, credentials, limits } = settings;
        Self {
            pool,
            groups,
            limits,
            connect_timeout,
            listeners,
            udp_listeners,
            classes,
            credentials,
            next_key: FIRST_FLOW_KEY,
        }
    }

    /// Applies reloaded settings to new flows.
    pub(crate) fn reload(&mut self, settings: Reloadable) {
        Reloadable {
            groups: self.groups,
            classes: self.classes,
            credentials: self.credentials,
            limits: self.limits,
        } = settings;
        self.pool.set_kept_ready(&self.groups);
    }

    /// A key for a new flow.
    pub(crate) fn new_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key - 1
    }

    /// Settings of a TCP listener.
    pub(crate) fn listener(&self, listener: usize) -> &ListenerView {
        &self.listeners[listener]
    }

    /// How a TCP listener classifies its flows.
    pub(crate) fn classes(&self, listener: usize) -> &ListenerClasses {
        &self.classes[self.listeners[listener].number]
    }

    /// What clients of a TCP listener must show.
    pub(crate) fn credentials(&self, listener: usize) -> Option<Arc<ProxyCredentials>> {
        self.credentials[self.listeners[listener].number].clone()
    }

    /// The listener that a TCP flow counts for; `None` for a sole listener, which may have all flows.
    pub(crate) fn accounted_listener(&self, listener: usize) -> Option<usize> {
        (self.listeners.len() + self.udp_listeners > 1).then_some(listener)
    }

    /// The listener that a UDP flow counts for; `None` for a sole listener.
    pub(crate) fn accounted_udp_listener(&self, listener: usize) -> Option<usize> {
        self.accounted_listener(self.listeners.len() + listener)
    }
}

/// Logs that a flow has been refused, unless many have been.
pub(crate) fn log_refusal(core: &mut Core, client: Option<SocketAddr>, refusal: FlowRefusal) {
    if core.may_log_refusal() {
        let reason = metrics::Drop::from(refusal).as_str();
        let client = client.map(field::display);
        tracing::warn!(client, reason, "flow refused; others like it may not be logged");
    }
}
