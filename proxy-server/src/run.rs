//! From a checked configuration to a running process.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use millrace_config::{ConfigError, ServerConfig};
use millrace_enrolment::{
    EnrolmentListener, EnrolmentService, Invites, OpenInvitations, RenewalTask, counted,
    renew_server_certificate,
};
use millrace_ops::admin;
use millrace_ops::admin::{Health, ProgramInfo};
use millrace_ops::affinity::OneProcessor;
use millrace_ops::inherited_sockets::InheritedSockets;
use millrace_ops::privileges;
use millrace_ops::privileges::Account;
use millrace_ops::process::Process;
use millrace_ops::published::Published;
use millrace_ops::selection;
use millrace_ops::selection::Selection;
use millrace_ops::{logging, system_limits};
use millrace_otlp::Exporter;
use millrace_tunnel::algorithms;
use millrace_tunnel::credentials;
use millrace_tunnel::credentials::CertificateOwner;
use millrace_tunnel::event_loop::{Worker, WorkerHandle};
use millrace_tunnel::metrics::Metrics;
use millrace_tunnel::reset_secret;
use millrace_tunnel::reset_secret::ResetSecretError;
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::shared::Shared;
use millrace_version::VERSION;
use time::OffsetDateTime;

use crate::reload::ServerReloader;
use crate::role::ServerRole;
use crate::settings;
use crate::trust::Trust;
use crate::tunnel_ports;

/// Checks what only the files that a configuration names can tell. Binds nothing.
///
/// # Errors
/// The first thing found wrong.
pub fn check(config: &ServerConfig) -> Result<(), ConfigError> {
    config.check_files()?;
    if let Some(otlp) = &config.otlp {
        millrace_otlp::check_environment(otlp)
            .map_err(|error| config.source.error("otlp.endpoint", format!("{error:#}")))?;
    }
    Account::find(&config.runtime, &config.source)?;
    let selection = select(config)?;
    let initial = selection.as_ref().map(Selection::initial);
    let state_error =
        |error: ResetSecretError| config.source.error("tunnel.state_dir", error.to_string());
    let secret = config.tunnel.state_dir.as_deref().map(reset_secret::read).transpose();
    let secret = secret.map_err(state_error)?.flatten();
    let trust = Trust::with_secret(config, &secret.unwrap_or_else(reset_secret::random))?;
    settings::tunnels(config, 1, &trust, initial)?;
    EnrolmentService::new(config)?;
    Ok(())
}

/// Runs until a signal ends it.
///
/// # Errors
/// Whatever keeps the server from starting.
pub fn run(config: &ServerConfig) -> anyhow::Result<ExitCode> {
    // Before there are other threads, for it changes the environment.
    let inherited = InheritedSockets::from_environment()?;
    let metrics = Metrics::new("millrace-server", env!("CARGO_PKG_VERSION"))?;
    let mut process = Process::new(metrics.clone())?;
    // After the signals have been taken, for it has threads; it outlives everything that logs.
    let logging = logging::init(&config.log)?;
    logging.show_in(&metrics)?;
    let invites = config.enrolment.as_ref().map(|it| Invites::new(&it.authority_dir));
    metrics.register(Box::new(OpenInvitations::new(invites)?))?;
    system_limits::warn(config.limits.max_flows, &config.tunnel.credentials.private_key);
    credentials::warn(CertificateOwner::Server, &config.tunnel.credentials);
    credentials::show_expiry(&metrics, &config.tunnel.credentials);
    let transport = &config.tunnel.transport;
    let shared = Shared::new(
        metrics.clone(),
        transport.memory_cap_bytes,
        settings::flow_limits(&config.limits),
        settings::peer_limits(&config.limits),
    );
    let workers = config.runtime.worker_count();
    let ports = tunnel_ports::bind(&config.tunnel.listen, workers, inherited)?;
    let admin = admin::bind(&config.admin)?;
    let enrolment = millrace_enrolment::bind(config.enrolment.as_ref())?;
    let selection = select(config)?;
    let initial = selection.as_ref().map(Selection::initial).cloned();
    let initial = initial.as_ref();
    let trust = Trust::new(config)?;
    let tunnels = settings::tunnels(config, workers, &trust, initial)?;
    // Threads have the privileges of the one that starts them, so all of them come later.
    privileges::drop_to(Account::find(&config.runtime, &config.source)?.as_ref(), &[])?;
    let exporter = Exporter::start(config.otlp.as_ref(), "millrace-server", &metrics)?;
    if let Some(exporter) = &exporter {
        shared.trace_flows(exporter.tracer());
    }
    let resolver = Resolver::start(&config.resolver).context("can't start the resolver")?;
    let latest = Published::new(settings::server_shared(config, resolver.clone(), initial)?);
    let worker_settings = settings::worker(config, workers);
    // Outlives the Selectors, because it waits for their last records; started as the user that the
    // process runs as.
    let telemetry = selection::telemetry(config.telemetry.as_ref(), &config.source)?;
    let selection = selection.map(|it| it.with_telemetry(telemetry.as_ref()));
    let workers = ports.len();
    for (index, (mut tunnel, mine)) in tunnels.into_iter().zip(ports).enumerate() {
        let index = u8::try_from(index).context("at most 256 workers")?;
        let _one = config.runtime.pin_workers.then(|| OneProcessor::of(index)).transpose()?;
        tunnel.agent = selection.as_ref().map(|it| it.start(index, &metrics)).transpose()?;
        let (latest, shared) = (latest.clone(), shared.clone());
        let (worker, handle) = Worker::new(index, tunnel, worker_settings, shared, |handle| {
            ServerRole::new(latest, mine, workers, handle)
        })?;
        process.spawn(worker, handle)?;
    }
    let health = Box::new(|| Health::Healthy);
    let explainer = selection.as_ref().map(Selection::explainer).unwrap_or_default();
    let program = ProgramInfo { role: "server", version: VERSION };
    let ended = shared.ended_flows.clone();
    let _admin = process.serve_admin(admin, &config.admin, program, ended, health, explainer)?;
    let service = EnrolmentService::new(config)?.map(Published::new);
    let listen = |it| EnrolmentListener::start(enrolment, it, metrics.clone());
    let _enrolment = service.clone().map(listen).transpose()?;
    let renewal =
        service.is_some().then(|| renewal(config, metrics.clone(), process.reload_trigger()));
    let _renewal = renewal.transpose()?;
    let mut reloader =
        ServerReloader { started: config, latest, shared, resolver, selection, trust, service };
    let mut reload = |workers: &[WorkerHandle]| reloader.reload(workers);
    Ok(process.run(config.runtime.drain_timeout, &mut reload))
}

/// Renews the server's own certificate, which then takes effect by a reload.
fn renewal(
    config: &ServerConfig,
    metrics: Arc<Metrics>,
    reload: impl Fn() + Send + 'static,
) -> std::io::Result<RenewalTask> {
    let file = config.source.file().to_owned();
    let load = move || -> anyhow::Result<ServerConfig> {
        Ok(millrace_config::load_server(&file, &algorithms::check)?)
    };
    let load_again = load.clone();
    RenewalTask::start(
        move || load().map(|it| it.tunnel.credentials.certificate),
        counted(metrics, move || {
            renew_server_certificate(&load_again()?, OffsetDateTime::now_utc())
        }),
        reload,
    )
}

/// MCC, if it is configured.
fn select(config: &ServerConfig) -> Result<Option<Selection>, ConfigError> {
    config.mcc.as_ref().map(|mcc| Selection::new(mcc, &config.source)).transpose()
}
