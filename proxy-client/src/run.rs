//! Checks a configuration and runs the client.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use caps::Capability;
use millrace_config::{ClientConfig, ConfigError, Interception, Listen};
use millrace_enrolment::{OpenInvitations, RenewalTask, counted};
use millrace_ops::admin;
use millrace_ops::admin::{Health, ProgramInfo};
use millrace_ops::affinity::OneProcessor;
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
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::shared::Shared;
use millrace_tunnel::transport::{TransportSide, TunnelConfig};
use millrace_version::VERSION;

use crate::connection_group::{Grouping, ListenerClasses};
use crate::direct::{self, Direct};
use crate::listeners;
use crate::pool::{Pool, Server, WorkerHealthCounts};
use crate::reload::ClientReloader;
use crate::reloadable::{Reloadable, read_credentials};
use crate::role::ClientRole;
use crate::rtsp_check;
use crate::settings;
use crate::udp::UdpListeners;

/// Checks the files that a configuration names. Binds nothing.
///
/// # Errors
/// The first problem found.
pub fn check(config: &ClientConfig) -> Result<(), ConfigError> {
    config.check_files()?;
    if let Some(otlp) = &config.otlp {
        millrace_otlp::check_environment(otlp)
            .map_err(|error| config.source.error("otlp.endpoint", format!("{error:#}")))?;
    }
    Account::find(&config.runtime, &config.source)?;
    let selection = select(config)?;
    let initial = selection.as_ref().map(Selection::initial);
    let tunnel = &config.tunnel;
    TunnelConfig::new(TransportSide::Client, &tunnel.transport, &tunnel.credentials, initial)
        .map_err(|error| error.in_config(&config.source, "ca"))?;
    Ok(())
}

/// Runs until a signal ends it.
///
/// # Errors
/// The client can't start.
pub fn run(config: &ClientConfig) -> anyhow::Result<ExitCode> {
    let metrics = Metrics::new("millrace-client", env!("CARGO_PKG_VERSION"))?;
    let mut process = Process::new(metrics.clone())?;
    // Starts threads, so it comes after the signals are blocked. It outlives everything that logs.
    let logging = logging::init(&config.log)?;
    logging.show_in(&metrics)?;
    metrics.register(Box::new(OpenInvitations::new(None)?))?;
    system_limits::warn(config.limits.max_flows, &config.tunnel.credentials.private_key);
    credentials::warn(CertificateOwner::Client, &config.tunnel.credentials);
    credentials::show_expiry(&metrics, &config.tunnel.credentials);
    rtsp_check::warn(config);
    let transport = &config.tunnel.transport;
    let shared = Shared::new(
        metrics.clone(),
        transport.memory_cap_bytes,
        settings::flow_limits(config),
        settings::peer_limits(config),
    );
    let worker_settings = settings::worker(config);
    let connected = Arc::new(WorkerHealthCounts::default());
    let workers = config.runtime.worker_count();
    let selection = select(config)?;
    let initial = selection.as_ref().map(Selection::initial).cloned();
    let initial = initial.as_ref();
    let Grouping { groups, listeners: classes } =
        Grouping::new(&config.listen, transport, initial)?;
    let group_of: Vec<_> = classes.iter().map(ListenerClasses::default_group).collect();
    let groups_at_start = classes.iter().map(|it| it.groups).collect();
    let credentials = read_credentials(&config.listen)?;
    let limits = config.limits.clone();
    let latest = Published::new(Reloadable { groups, classes, credentials, limits });
    let mut listeners = listeners::bind_listeners(&config.listen, workers)?;
    let mut tunnel_settings = config.tunnel.clone();
    tunnel_settings.mark = usable_mark(config)?;
    let mut udp_listeners =
        listeners::bind_udp_listeners(&config.listen, &group_of, workers, tunnel_settings.mark)?;
    let admin = admin::bind(&config.admin)?;
    let tunnels = settings::tunnels(config, workers, initial)?;
    // Later sockets need the mark too. Threads inherit the privileges of the one that starts them, so
    // they start after this.
    let keep = kept_capabilities(config, tunnel_settings.mark);
    privileges::drop_to(Account::find(&config.runtime, &config.source)?.as_ref(), &keep)?;
    let names: Vec<_> = config.tunnel.servers.iter().map(ToString::to_string).collect();
    let server_metrics = metrics.servers(&names)?;
    let exporter = Exporter::start(config.otlp.as_ref(), "millrace-client", &metrics)?;
    if let Some(exporter) = &exporter {
        shared.trace_flows(exporter.tracer());
    }
    let resolver = Resolver::start(&config.resolver).context("can't start the resolver")?;
    let direct = match config.listen.iter().any(Listen::may_bypass) {
        true => Some(direct::Policy::new(config, tunnel_settings.mark, resolver.clone())?),
        false => None,
    };
    // Outlives the Selectors, whose last records it waits for. Runs as the user of the process.
    let telemetry = selection::telemetry(config.telemetry.as_ref(), &config.source)?;
    let selection = selection.map(|it| it.with_telemetry(telemetry.as_ref()));
    for (index, mut tunnel) in tunnels.into_iter().enumerate() {
        let index = u8::try_from(index).context("at most 256 workers")?;
        let _one = config.runtime.pin_workers.then(|| OneProcessor::of(index)).transpose()?;
        tunnel.agent = selection.as_ref().map(|it| it.start(index, &metrics)).transpose()?;
        let mine = listeners.remove(0);
        let udp = UdpListeners::new(udp_listeners.remove(0));
        let latest = latest.clone();
        let (worker, handle) =
            Worker::new(index, tunnel, worker_settings, shared.clone(), |handle| {
                let reloadable = latest.get();
                let settings = tunnel_settings.clone();
                let servers = std::iter::zip(&settings.servers, &server_metrics)
                    .map(|(server, metrics)| {
                        Server::new(server.clone(), &settings, metrics.clone())
                    })
                    .collect();
                let direct =
                    direct.clone().map(|it| Direct::new(it, config.limits.clone(), handle.clone()));
                let names = (handle, resolver.clone());
                let groups = &reloadable.groups;
                let pool = Pool::new(settings, servers, groups, names, connected.clone());
                ClientRole::new(mine, udp, pool, direct, config, latest)
            })
            .context("can't start the tunnel's sockets")?;
        process.spawn(worker, handle)?;
    }
    let health = Box::new(move || {
        if connected.healthy.load(Ordering::Relaxed) > 0 {
            return Health::Healthy;
        }
        let reason = match connected.stuck.load(Ordering::Relaxed) {
            0 => "no connection to a server",
            _ => "full-size packets do not get through to a server: its probes have no answer",
        };
        Health::Unhealthy(reason.to_owned())
    });
    let explainer = selection.as_ref().map(Selection::explainer).unwrap_or_default();
    let program = ProgramInfo { role: "client", version: VERSION };
    let ended = shared.ended_flows.clone();
    let _admin = process.serve_admin(admin, &config.admin, program, ended, health, explainer)?;
    let renewal = config
        .enrolment
        .is_some()
        .then(|| renewal(config, metrics.clone(), process.reload_trigger()));
    let _renewal = renewal.transpose()?;
    let mut reloader = ClientReloader {
        started: config,
        groups: groups_at_start,
        latest,
        shared,
        resolver,
        selection,
    };
    let mut reload = |workers: &[WorkerHandle]| reloader.reload(workers);
    let code = process.run(config.runtime.drain_timeout, &mut reload);
    Ok(code)
}

/// Renews the certificate at the server, which then takes effect by a reload.
fn renewal(
    config: &ClientConfig,
    metrics: Arc<Metrics>,
    reload: impl Fn() + Send + 'static,
) -> std::io::Result<RenewalTask> {
    let file = config.source.file().to_owned();
    let load = move || -> anyhow::Result<ClientConfig> {
        Ok(millrace_config::load_client(&file, &algorithms::check)?)
    };
    let load_again = load.clone();
    RenewalTask::start(
        move || load().map(|it| it.tunnel.credentials.certificate),
        counted(metrics, move || millrace_enrolment::renew(&load_again()?)),
        reload,
    )
}

/// MCC, if it is configured.
fn select(config: &ClientConfig) -> Result<Option<Selection>, ConfigError> {
    config.mcc.as_ref().map(|mcc| Selection::new(mcc, &config.source)).transpose()
}

/// What sockets need that are opened later.
fn kept_capabilities(config: &ClientConfig, mark: Option<u32>) -> Vec<Capability> {
    if config.listen.iter().any(|it| it.interception == Interception::TproxyUdp) {
        // Answers leave from the original destination's address and port.
        return vec![Capability::CAP_NET_ADMIN, Capability::CAP_NET_BIND_SERVICE];
    }
    mark.map(|_| Capability::CAP_NET_ADMIN).into_iter().collect()
}

/// The mark of the tunnel's sockets; `None` if the process may not set one and nothing on this host
/// intercepts.
fn usable_mark(config: &ClientConfig) -> anyhow::Result<Option<u32>> {
    let Some(mark) = config.tunnel.mark else { return Ok(None) };
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let Err(error) = socket2::SockRef::from(&probe).set_mark(mark) else { return Ok(Some(mark)) };
    if config.listen.iter().any(|listen| listen.interception.intercepts()) {
        let problem = format!(
            "can't be set ({error}): it needs CAP_NET_ADMIN, and interception needs the mark to let \
             the tunnel's own packets pass"
        );
        return Err(config.source.error("tunnel.mark", problem).into());
    }
    tracing::warn!(%error, "tunnel.mark can't be set without CAP_NET_ADMIN; sockets have no mark");
    Ok(None)
}
