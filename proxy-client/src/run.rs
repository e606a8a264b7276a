//! From a checked configuration to a running process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use caps::Capability;
use millrace_cc::registry::Algorithm;
use millrace_config::{
    ClientConfig, ConfigError, Host, HostPort, Interception, Listen, ListenAddress, OnFailure,
};
use millrace_tunnel::address_sharing::{AddressSharing, bind_advice};
use millrace_tunnel::admin::{self, Health};
use millrace_tunnel::affinity::OneProcessor;
use millrace_tunnel::credentials::{self, End};
use millrace_tunnel::flow_admission::FlowLimits;
use millrace_tunnel::metrics::Metrics;
use millrace_tunnel::privileges::{self, Account};
use millrace_tunnel::process::Process;
use millrace_tunnel::reload::Latest;
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::selection::{self, Selection};
use millrace_tunnel::shared::Shared;
use millrace_tunnel::transport::{Side, TunnelConfig};
use millrace_tunnel::worker::{Worker, WorkerHandle, WorkerSettings};
use millrace_tunnel::{limits, logging, peer_limits};
use millrace_wire::Destination;
use mio::net::{TcpListener, UnixListener};

use crate::direct::{self, Direct};
use crate::doors::{Door, Listening, SharedSocket};
use crate::intercept::{Mode, UnixSocket, listen_tcp};
use crate::lane;
use crate::pool::{ConnectedCount, Pool};
use crate::reload::{Reloadable, Reloader};
use crate::role::ClientRole;
use crate::server::Server;
use crate::udp::{UdpDoor, UdpFlows};

/// Checks what only the files that a configuration names can tell. Binds nothing.
///
/// # Errors
/// The first thing found wrong.
pub fn check(config: &ClientConfig) -> Result<(), ConfigError> {
    config.check_files()?;
    Account::find(&config.runtime, &config.source)?;
    let selection = select(config)?;
    let initial = selection.as_ref().map(Selection::initial);
    let tunnel = &config.tunnel;
    TunnelConfig::new(Side::Client, &tunnel.transport, &tunnel.credentials, initial)
        .map_err(|error| error.in_config(&config.source, "ca"))?;
    Ok(())
}

/// Runs until a signal ends it.
///
/// # Errors
/// Whatever keeps the client from starting.
pub fn run(config: &ClientConfig) -> anyhow::Result<ExitCode> {
    let metrics = Metrics::new("millrace-client", env!("CARGO_PKG_VERSION"))?;
    let mut process = Process::new(metrics.clone())?;
    // After the signals have been taken, for it has threads; it outlives everything that logs.
    let logging = logging::init(&config.log)?;
    metrics.watch_log(logging.counters())?;
    limits::warn(config.limits.max_flows, &config.tunnel.credentials.private_key);
    credentials::warn(End::Client, &config.tunnel.credentials);
    let transport = &config.tunnel.transport;
    let shared = Shared::new(
        metrics.clone(),
        transport.memory_cap_bytes,
        flow_limits(config),
        peer_limits(config),
    );
    let settings = settings(config);
    let connected = ConnectedCount::default();
    let workers = config.runtime.worker_count();
    let selection = select(config)?;
    let initial = selection.as_ref().map(Selection::initial).cloned();
    let initial = initial.as_ref();
    let (lanes, lane_of) = lane::lanes(&config.listen, transport, initial)?;
    let latest = Latest::new(Reloadable { lanes, limits: config.limits.clone() });
    let mut doors = open_doors(&config.listen, &lane_of, workers)?;
    let mut udp_doors = open_udp_doors(&config.listen, &lane_of, workers)?;
    let mut tunnel_settings = config.tunnel.clone();
    tunnel_settings.mark = usable_mark(config)?;
    let admin = admin::bind(&config.admin)?;
    let tunnels = tunnels(config, workers, initial)?;
    // Marks are set on sockets to come too. Threads have the privileges of the one that starts
    // them, so all of them come later.
    let keep = if tunnel_settings.mark.is_some() { &[Capability::CAP_NET_ADMIN][..] } else { &[] };
    privileges::drop_to(Account::find(&config.runtime, &config.source)?.as_ref(), keep)?;
    let names: Vec<_> = config.tunnel.servers.iter().map(ToString::to_string).collect();
    let server_metrics = metrics.servers(&names)?;
    let resolver = Resolver::start(&config.resolver).context("can't start the resolver")?;
    let direct = match config.listen.iter().any(|it| it.on_failure == OnFailure::Direct) {
        true => Some(direct::Policy::new(config, tunnel_settings.mark, resolver.clone())?),
        false => None,
    };
    // Outlives the Selectors, whose last words it waits for; as the user that the process runs as.
    let telemetry = selection::telemetry(config.telemetry.as_ref(), &config.source)?;
    let selection = selection.map(|it| it.with_telemetry(telemetry.as_ref()));
    for (index, mut tunnel) in tunnels.into_iter().enumerate() {
        let index = u8::try_from(index).context("at most 256 workers")?;
        let _one = config.runtime.pin.then(|| OneProcessor::of(index)).transpose()?;
        tunnel.agent = selection.as_ref().map(|it| it.start(index, &metrics)).transpose()?;
        let mine = doors.remove(0);
        let udp = UdpFlows::new(udp_doors.remove(0));
        let latest = latest.clone();
        let (worker, handle) = Worker::new(index, tunnel, settings, shared.clone(), |handle| {
            let lanes = latest.get().lanes.len();
            let settings = tunnel_settings.clone();
            let servers = std::iter::zip(&settings.servers, &server_metrics)
                .map(|(server, metrics)| Server::new(server.clone(), &settings, metrics.clone()))
                .collect();
            let direct =
                direct.clone().map(|it| Direct::new(it, config.limits.clone(), handle.clone()));
            let names = (handle, resolver.clone());
            let pool = Pool::new(settings, servers, lanes, names, connected.clone());
            ClientRole::new(mine, udp, pool, direct, config, latest)
        })
        .context("can't start the tunnel's sockets")?;
        process.spawn(worker, handle)?;
    }
    let connections = Arc::clone(&connected);
    let health = Box::new(move || {
        if connections.healthy.load(Ordering::Relaxed) > 0 {
            return Health::Healthy;
        }
        let reason = match connections.stuck.load(Ordering::Relaxed) {
            0 => "no connection to a server",
            _ => "full-size packets do not get through to a server: its probes have no answer",
        };
        Health::Unhealthy(reason.to_owned())
    });
    let explainer = selection.as_ref().map(Selection::explainer).unwrap_or_default();
    let _admin = process.serve_admin(admin, &config.admin, health, explainer)?;
    let mut reloader = Reloader { started: config, lane_of, latest, shared, resolver, selection };
    let mut reload = |workers: &[WorkerHandle]| reloader.reload(workers);
    let code = process.run(config.runtime.drain_timeout, &mut reload);
    Ok(code)
}

/// MCC, if it is configured.
fn select(config: &ClientConfig) -> Result<Option<Selection>, ConfigError> {
    config.mcc.as_ref().map(|mcc| Selection::new(mcc, &config.source)).transpose()
}

/// What new connections are made with, for each worker.
pub(crate) fn tunnels(
    config: &ClientConfig,
    workers: usize,
    initial: Option<&Algorithm>,
) -> anyhow::Result<Vec<TunnelConfig>> {
    let ends = &config.tunnel;
    let tunnel = |_| {
        TunnelConfig::new(Side::Client, &ends.transport, &ends.credentials, initial)
            .map_err(|error| error.in_config(&config.source, "ca").into())
    };
    (0..workers).map(tunnel).collect()
}

pub(crate) fn settings(config: &ClientConfig) -> WorkerSettings {
    WorkerSettings {
        flow_idle_timeout: config.limits.flow_idle_timeout,
        half_close_timeout: config.limits.half_close_timeout,
        udp_idle_timeout: config.limits.udp_idle_timeout,
        tcp_timeouts: config.limits.tcp_timeouts,
        handshake_timeout: None,
        keepalive: Some(config.tunnel.keepalive),
        max_connection_window_bytes: config.tunnel.transport.max_connection_window_bytes,
        max_connections: 0,
        max_unanswered_udp_flows: config
            .limits
            .max_unanswered_udp_flows
            .div_ceil(config.runtime.worker_count()),
    }
}

/// Flows, and how they are shared.
pub(crate) fn flow_limits(config: &ClientConfig) -> FlowLimits {
    let limits = &config.limits;
    FlowLimits {
        max_flows: limits.max_flows,
        share_per_viewer: limits.flow_share_per_viewer,
        share_per_listener: limits.flow_share_per_listener,
        max_rtsp_port_pairs: limits.max_rtsp_port_pairs,
        rtsp_share_per_viewer: limits.rtsp_share_per_viewer,
        ..FlowLimits::default()
    }
}

/// What one client address may take.
pub(crate) fn peer_limits(config: &ClientConfig) -> peer_limits::Limits {
    peer_limits::Limits {
        handshakes_per_address: config.limits.max_handshakes_per_address,
        ..peer_limits::Limits::default()
    }
}

/// The mark of the tunnel's sockets. Where nothing on this host intercepts, a process that may not
/// set one goes without.
fn usable_mark(config: &ClientConfig) -> anyhow::Result<Option<u32>> {
    let Some(mark) = config.tunnel.mark else { return Ok(None) };
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let Err(error) = socket2::SockRef::from(&probe).set_mark(mark) else { return Ok(Some(mark)) };
    let intercepts = |listen: &Listen| {
        matches!(listen.interception, Interception::Tproxy | Interception::Redirect)
    };
    if config.listen.iter().any(intercepts) {
        let problem = format!(
            "can't be set ({error}): it needs CAP_NET_ADMIN, as the interception does that it \
             keeps the tunnel's own packets out of"
        );
        return Err(config.source.error("tunnel.mark", problem).into());
    }
    tracing::warn!(%error, "tunnel.mark can't be set without CAP_NET_ADMIN; going without");
    Ok(None)
}

/// For each worker one listener at each address, closed still.
fn open_doors(
    listens: &[Listen],
    lane_of: &[usize],
    workers: usize,
) -> anyhow::Result<Vec<Vec<Door>>> {
    let mut doors: Vec<Vec<Door>> = (0..workers).map(|_| Vec::new()).collect();
    for (listen, lane) in listens.iter().zip(lane_of.iter().copied()) {
        let Some(mode) = mode_of(&listen.interception)? else { continue };
        let what = listen.interception.as_str();
        match &listen.address {
            ListenAddress::Tcp(address) => {
                let mut address = *address;
                for (index, mine) in doors.iter_mut().enumerate() {
                    let sharing = AddressSharing::of_worker(index, workers);
                    let listener = listen_tcp(address, mode == Mode::Tproxy, sharing)?;
                    // Port 0 is the same one for all workers.
                    address = listener.local_addr()?;
                    let listening = Listening::Tcp(TcpListener::from_std(listener));
                    let mode = mode.clone();
                    let door = Door::new(listening, mode, lane, Some(address), listen.on_failure);
                    mine.push(door.with_trusted_proxies(listen.trusted_proxies.clone()));
                }
                tracing::info!(%address, what, "listening");
            }
            ListenAddress::Unix(path) => {
                let socket = UnixSocket::listen(path, None)?;
                let listeners: io::Result<Vec<_>> =
                    doors.iter().map(|_| socket.try_clone_listener()).collect();
                let shared = Arc::new(SharedSocket::new(socket));
                for (mine, listener) in doors.iter_mut().zip(listeners?) {
                    let listener = UnixListener::from_std(listener);
                    let listening = Listening::Unix(listener, shared.clone());
                    mine.push(Door::new(listening, mode.clone(), lane, None, listen.on_failure));
                }
                tracing::info!(address = %listen.address, what, "listening");
            }
        }
    }
    Ok(doors)
}

/// The same for UDP, bound.
fn open_udp_doors(
    listens: &[Listen],
    lane_of: &[usize],
    workers: usize,
) -> anyhow::Result<Vec<Vec<UdpDoor>>> {
    let mut doors: Vec<Vec<UdpDoor>> = (0..workers).map(|_| Vec::new()).collect();
    for (listen, lane) in listens.iter().zip(lane_of.iter().copied()) {
        let (Interception::Udp { destination }, ListenAddress::Tcp(address)) =
            (&listen.interception, &listen.address)
        else {
            continue;
        };
        let destination = destination_of(destination)?;
        let mut address = *address;
        for (index, mine) in doors.iter_mut().enumerate() {
            let sharing = AddressSharing::of_worker(index, workers);
            let door = UdpDoor::bind(address, sharing, destination.clone(), lane);
            let door = door.map_err(|error| {
                let advice = bind_advice(&error);
                let context =
                    format!("can't bind the UDP address {address} of a [[listen]]{advice}");
                anyhow::Error::new(error).context(context)
            })?;
            // Port 0 is the same one for all workers.
            address = door.local();
            mine.push(door);
        }
        tracing::info!(%address, what = "udp", "listening");
    }
    Ok(doors)
}

fn destination_of(HostPort { host, port }: &HostPort) -> anyhow::Result<Destination> {
    Ok(match host {
        Host::Ip(ip) => Destination::from_address(SocketAddr::new(*ip, *port))?,
        Host::Name(name) => Destination::from_host_port(name, *port)?,
    })
}

/// How TCP connections say where they want to go; `None` for UDP.
fn mode_of(interception: &Interception) -> anyhow::Result<Option<Mode>> {
    Ok(Some(match interception {
        Interception::Tproxy => Mode::Tproxy,
        Interception::Redirect => Mode::Redirect,
        Interception::ProxyProtocol => Mode::ProxyProtocol,
        Interception::HttpConnect => Mode::HttpConnect,
        Interception::Socks5 => Mode::Socks5,
        Interception::Fixed { destination } => Mode::Fixed(destination_of(destination)?),
        Interception::Udp { .. } => return Ok(None),
    }))
}
