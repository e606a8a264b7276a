//! SIGHUP: what can change while flows run, changes.

use std::sync::Arc;
use std::time::Duration;

use millrace_config::{ClientConfig, ClientLimits};
use millrace_tunnel::credentials::{self, End};
use millrace_tunnel::reload::{AtStart, Latest, needs_restart};
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::selection::{self, Selection};
use millrace_tunnel::shared::Shared;
use millrace_tunnel::worker::WorkerHandle;
use millrace_tunnel::{algorithms, limits};

use crate::lane::{self, Lane};
use crate::run;

/// What the workers look up anew.
#[derive(Clone, Debug)]
pub struct Reloadable {
    /// Kinds of flows.
    pub lanes: Vec<Lane>,
    /// Of new connections to the listeners.
    pub limits: ClientLimits,
}

/// See the module.
pub struct Reloader<'a> {
    /// What can't change is as it was at the start.
    pub started: &'a ClientConfig,
    /// The listeners' lanes.
    pub lane_of: Vec<usize>,
    /// For new flows.
    pub latest: Latest<Reloadable>,
    /// For what all workers count together.
    pub shared: Arc<Shared>,
    /// Goes on, with the settings of the file.
    pub resolver: Resolver,
    /// Gets its rules anew.
    pub selection: Option<Selection>,
}

impl Reloader<'_> {
    /// Takes the configuration file anew. Connections to servers keep their certificates and
    /// windows; what is new gets what the file says now.
    ///
    /// # Errors
    /// Whatever is wrong in it; nothing has changed then.
    pub fn reload(&mut self, handles: &[WorkerHandle]) -> anyhow::Result<Duration> {
        let config = millrace_config::load_client(self.started.source.file(), &algorithms::check)?;
        config.check_files()?;
        let selection = self.selection.as_ref();
        let replace_rules = Selection::reload(selection, config.mcc.as_ref(), &config.source)?;
        let initial = selection.map(Selection::initial);
        let tunnels = run::tunnels(&config, handles.len(), initial)?;
        let (lanes, lane_of) = lane::lanes(&config.listen, &config.tunnel.transport, initial)?;
        // From here on nothing can fail.
        let started = self.started;
        let doors = |config: &ClientConfig| {
            let door = |it: &millrace_config::Listen| {
                let trusted = it.trusted_proxies.clone();
                (it.interception.clone(), it.address.clone(), it.on_failure, trusted)
            };
            config.listen.iter().map(door).collect::<Vec<_>>()
        };
        // Connections are kept for lanes: other flows may not share them.
        let same_listeners = doors(&config) == doors(started) && lane_of == self.lane_of;
        let tunnel = |config: &ClientConfig| {
            let it = &config.tunnel;
            (
                (it.servers.clone(), it.connections, it.mark),
                (it.connect_timeout, it.reconnect_min, it.reconnect_max),
                (it.health_interval, it.health_timeout),
            )
        };
        needs_restart(
            at_start(started),
            at_start(&config),
            &[
                ("listen", !same_listeners),
                ("tunnel", tunnel(&config) != tunnel(started)),
                ("direct", config.direct != started.direct),
                ("telemetry", config.telemetry != started.telemetry),
                ("mcc", selection::needs_restart(config.mcc.as_ref(), started.mcc.as_ref())),
            ],
        );
        replace_rules();
        self.resolver.configure(&config.resolver);
        limits::warn(config.limits.max_flows, &config.tunnel.credentials.private_key);
        credentials::warn(End::Client, &config.tunnel.credentials);
        self.shared.set_limits(
            config.tunnel.transport.memory_cap_bytes,
            run::flow_limits(&config),
            run::peer_limits(&config),
        );
        let lanes = if same_listeners { lanes } else { self.latest.get().lanes.clone() };
        self.latest.set(Reloadable { lanes, limits: config.limits.clone() });
        let settings = run::settings(&config);
        for (handle, tunnel) in handles.iter().zip(tunnels) {
            handle.reload(tunnel, settings);
        }
        Ok(config.runtime.drain_timeout)
    }
}

fn at_start(config: &ClientConfig) -> AtStart<'_> {
    AtStart { runtime: &config.runtime, admin: &config.admin, log: &config.log }
}
