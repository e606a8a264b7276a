//! Reload on SIGHUP: applies what can change while flows run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millrace_config::ServerConfig;
use millrace_enrolment::EnrolmentService;
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

use crate::settings;
use crate::shared::ServerShared;
use crate::trust::Trust;

/// Reloads the configuration of a running server.
pub struct ServerReloader<'a> {
    /// What can't change is as it was at the start.
    pub started: &'a ServerConfig,
    /// For new flows.
    pub latest: Published<ServerShared>,
    /// For what all workers count together.
    pub shared: Arc<Shared>,
    /// Goes on.
    pub resolver: Resolver,
    /// Reads its rules again.
    pub selection: Option<Selection>,
    /// Goes on.
    pub(crate) trust: Trust,
    /// Gets the authority, the certificate and the deny-list again.
    pub service: Option<Published<EnrolmentService>>,
}

impl ServerReloader<'_> {
    /// Reads the configuration file again. Connections keep their certificates and windows, flows
    /// their destinations; new ones get the new settings.
    ///
    /// # Errors
    /// Whatever is wrong in it; nothing has changed then.
    pub fn reload(&mut self, handles: &[WorkerHandle]) -> anyhow::Result<Duration> {
        let config = millrace_config::load_server(self.started.source.file(), &algorithms::check)?;
        config.check_files()?;
        let selection = self.selection.as_ref();
        let replace_rules = Selection::reload(selection, config.mcc.as_ref(), &config.source)?;
        let initial = selection.map(Selection::initial);
        let tunnels = settings::tunnels(&config, handles.len(), &self.trust, initial)?;
        let server = settings::server_shared(&config, self.resolver.clone(), initial)?;
        let enrolment = EnrolmentService::new(&config)?;
        // From here on nothing can fail.
        let started = self.started;
        needs_restart(
            at_start(started),
            at_start(&config),
            &[
                ("tunnel.listen", config.tunnel.listen != started.tunnel.listen),
                ("tunnel.state_dir", config.tunnel.state_dir != started.tunnel.state_dir),
                ("enrolment.listen", listeners(&config) != listeners(started)),
                ("telemetry", config.telemetry != started.telemetry),
                ("otlp", config.otlp != started.otlp),
                ("mcc", selection::needs_restart(config.mcc.as_ref(), started.mcc.as_ref())),
            ],
        );
        replace_rules();
        system_limits::warn(config.limits.max_flows, &config.tunnel.credentials.private_key);
        credentials::warn(CertificateOwner::Server, &config.tunnel.credentials);
        credentials::show_expiry(&self.shared.metrics, &config.tunnel.credentials);
        self.shared.set_limits(
            config.tunnel.transport.memory_cap_bytes,
            settings::flow_limits(&config.limits),
            settings::peer_limits(&config.limits),
        );
        self.resolver.configure(&config.resolver);
        self.trust.ticket_keys.set(config.tunnel.session_tickets);
        self.latest.set(server);
        if let (Some(service), Some(enrolment)) = (&self.service, enrolment) {
            service.set(enrolment);
        }
        let settings = settings::worker(&config, handles.len());
        for (handle, tunnel) in handles.iter().zip(tunnels) {
            handle.reload(tunnel, settings);
        }
        Ok(config.runtime.drain_timeout)
    }
}

fn listeners(config: &ServerConfig) -> &[SocketAddr] {
    config.enrolment.as_ref().map_or(&[], |it| &it.listen)
}

fn at_start(config: &ServerConfig) -> ImmutableConfig<'_> {
    ImmutableConfig { runtime: &config.runtime, admin: &config.admin, log: &config.log }
}
