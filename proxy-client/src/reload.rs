//! Reload of the configuration on SIGHUP.

use std::sync::Arc;
use std::time::Duration;

use millrace_config::{ClientConfig, ImmutableListen, Listen};
use millrace_ops::published::Published;
use millrace_ops::reload::{ImmutableConfig, needs_restart};
use millrace_ops::selection;
use millrace_ops::selection::Selection;
use millrace_ops::system_limits;
use millrace_tunnel::algorithms;
use millrace_tunnel::credentials;
use millrace_tunnel::credentials::CertificateOwner;
use millrace_tunnel::event_loop::WorkerHandle;
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::shared::Shared;

use crate::connection_group::{Grouping, ListenerGroups};
use crate::reloadable::{Reloadable, read_credentials};
use crate::rtsp_check;
use crate::settings;

/// Applies a reloaded configuration to a running client.
pub struct ClientReloader<'a> {
    /// The configuration at the start, for what can't change.
    pub started: &'a ClientConfig,
    /// The connection groups of each listener.
    pub groups: Vec<ListenerGroups>,
    /// Settings for new flows.
    pub latest: Published<Reloadable>,
    /// Limits that all workers share.
    pub shared: Arc<Shared>,
    /// Gets the settings of the new configuration.
    pub resolver: Resolver,
    /// Reloads its rules.
    pub selection: Option<Selection>,
}

impl ClientReloader<'_> {
    /// Reads the configuration file again and applies it. Existing tunnel connections keep their certificates and
    /// windows; new ones use the new settings.
    ///
    /// # Errors
    /// The file is not valid; nothing has changed then.
    pub fn reload(&mut self, handles: &[WorkerHandle]) -> anyhow::Result<Duration> {
        let config = millrace_config::load_client(self.started.source.file(), &algorithms::check)?;
        config.check_files()?;
        let selection = self.selection.as_ref();
        let replace_rules = Selection::reload(selection, config.mcc.as_ref(), &config.source)?;
        let initial = selection.map(Selection::initial);
        let tunnels = settings::tunnels(&config, handles.len(), initial)?;
        let Grouping { groups, listeners: classes } =
            Grouping::new(&config.listen, &config.tunnel.transport, initial)?;
        let credentials = read_credentials(&config.listen)?;
        // From here on nothing can fail.
        let started = self.started;
        // Tunnel connections belong to connection groups: other flows may not share them.
        let same_listeners = immutable_listeners(&config) == immutable_listeners(started)
            && classes.iter().map(|it| &it.groups).eq(&self.groups);
        let tunnel = |config: &ClientConfig| {
            let it = &config.tunnel;
            (
                (it.servers.clone(), it.connections, it.mark),
                (it.connect_timeout, it.reconnect_min, it.reconnect_max),
                (it.health_interval, it.health_timeout, it.probe_interval),
            )
        };
        needs_restart(
            at_start(started),
            at_start(&config),
            &[
                ("listen", !same_listeners),
                ("tunnel", tunnel(&config) != tunnel(started)),
                ("direct", config.direct != started.direct),
                ("enrolment", config.enrolment.is_some() != started.enrolment.is_some()),
                ("telemetry", config.telemetry != started.telemetry),
                ("otlp", config.otlp != started.otlp),
                ("mcc", selection::needs_restart(config.mcc.as_ref(), started.mcc.as_ref())),
            ],
        );
        replace_rules();
        self.resolver.configure(&config.resolver);
        system_limits::warn(config.limits.max_flows, &config.tunnel.credentials.private_key);
        credentials::warn(CertificateOwner::Client, &config.tunnel.credentials);
        credentials::show_expiry(&self.shared.metrics, &config.tunnel.credentials);
        rtsp_check::warn(&config);
        self.shared.set_limits(
            config.tunnel.transport.memory_cap_bytes,
            settings::flow_limits(&config),
            settings::peer_limits(&config),
        );
        let limits = config.limits.clone();
        self.latest.set(match same_listeners {
            true => Reloadable { groups, classes, credentials, limits },
            false => Reloadable { limits, ..(*self.latest.get()).clone() },
        });
        let settings = settings::worker(&config);
        for (handle, tunnel) in handles.iter().zip(tunnels) {
            handle.reload(tunnel, settings);
        }
        Ok(config.runtime.drain_timeout)
    }
}

fn at_start(config: &ClientConfig) -> ImmutableConfig<'_> {
    ImmutableConfig { runtime: &config.runtime, admin: &config.admin, log: &config.log }
}

fn immutable_listeners(config: &ClientConfig) -> Vec<ImmutableListen<'_>> {
    config.listen.iter().map(Listen::immutable).collect()
}
