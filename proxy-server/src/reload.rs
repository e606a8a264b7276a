//! SIGHUP: what can change while flows run, changes.

use std::sync::Arc;
use std::time::Duration;

use millrace_config::ServerConfig;
use millrace_tunnel::credentials::{self, End};
use millrace_tunnel::reload::{AtStart, Latest, needs_restart};
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::selection::{self, Selection};
use millrace_tunnel::shared::Shared;
use millrace_tunnel::worker::WorkerHandle;
use millrace_tunnel::{algorithms, limits};

use crate::run::{self, Trust};
use crate::shared::ServerShared;

/// See the module.
pub struct Reloader<'a> {
    /// What can't change is as it was at the start.
    pub started: &'a ServerConfig,
    /// For new flows.
    pub latest: Latest<ServerShared>,
    /// For what all workers count together.
    pub shared: Arc<Shared>,
    /// Goes on.
    pub resolver: Resolver,
    /// Gets its rules anew.
    pub selection: Option<Selection>,
    /// Goes on.
    pub(crate) trust: Trust,
}

impl Reloader<'_> {
    /// Takes the configuration file anew. Connections keep their certificates and windows, flows
    /// their destinations; what is new gets what the file says now.
    ///
    /// # Errors
    /// Whatever is wrong in it; nothing has changed then.
    pub fn reload(&mut self, handles: &[WorkerHandle]) -> anyhow::Result<Duration> {
        let config = millrace_config::load_server(self.started.source.file(), &algorithms::check)?;
        config.check_files()?;
        let selection = self.selection.as_ref();
        let replace_rules = Selection::reload(selection, config.mcc.as_ref(), &config.source)?;
        let initial = selection.map(Selection::initial);
        let tunnels = run::tunnels(&config, handles.len(), &self.trust, initial)?;
        let server = run::server_shared(&config, self.resolver.clone(), initial)?;
        // From here on nothing can fail.
        let started = self.started;
        needs_restart(
            at_start(started),
            at_start(&config),
            &[
                ("tunnel.listen", config.tunnel.listen != started.tunnel.listen),
                ("tunnel.state_dir", config.tunnel.state_dir != started.tunnel.state_dir),
                ("telemetry", config.telemetry != started.telemetry),
                ("mcc", selection::needs_restart(config.mcc.as_ref(), started.mcc.as_ref())),
            ],
        );
        replace_rules();
        limits::warn(config.limits.max_flows, &config.tunnel.credentials.private_key);
        credentials::warn(End::Server, &config.tunnel.credentials);
        self.shared.set_limits(
            config.tunnel.transport.memory_cap_bytes,
            run::flow_limits(&config.limits),
            run::peer_limits(&config.limits),
        );
        self.resolver.configure(&config.resolver);
        self.trust.ticket_keys.set(config.tunnel.session_tickets);
        self.latest.set(server);
        let settings = run::settings(&config, handles.len());
        for (handle, tunnel) in handles.iter().zip(tunnels) {
            handle.reload(tunnel, settings);
        }
        Ok(config.runtime.drain_timeout)
    }
}

fn at_start(config: &ServerConfig) -> AtStart<'_> {
    AtStart { runtime: &config.runtime, admin: &config.admin, log: &config.log }
}
