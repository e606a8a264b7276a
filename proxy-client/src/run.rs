//! From a checked configuration to a running process.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use millrace_config::{
    ClientConfig, ConfigError, Host, HostPort, Interception, Listen, ListenAddress,
};
use millrace_tunnel::admin::{AdminServer, Health};
use millrace_tunnel::metrics::Metrics;
use millrace_tunnel::process::Process;
use millrace_tunnel::shared::Shared;
use millrace_tunnel::transport::{Side, TunnelConfig};
use millrace_tunnel::worker::{Worker, WorkerSettings};
use millrace_tunnel::{limits, logging};
use millrace_wire::Destination;
use mio::net::{TcpListener, UnixListener};

use crate::intercept::{Mode, UnixSocket, listen_tcp};
use crate::lane;
use crate::pool::{ConnectedCount, Pool};
use crate::role::{ClientRole, Door, Listening};

/// Checks what only the files that a configuration names can tell. Binds nothing.
///
/// # Errors
/// The first thing found wrong.
pub fn check(config: &ClientConfig) -> Result<(), ConfigError> {
    config.check_files()?;
    TunnelConfig::new(Side::Client, &config.tunnel.transport, &config.tunnel.credentials)
        .map_err(|error| error.in_config(&config.source, "ca"))?;
    Ok(())
}

/// Runs until a signal ends it.
///
/// # Errors
/// Whatever keeps the client from starting.
pub fn run(config: &ClientConfig) -> anyhow::Result<ExitCode> {
    logging::init(&config.log)?;
    let mut process = Process::new()?;
    for warning in limits::check(config.limits.max_flows, &config.tunnel.credentials.private_key) {
        tracing::warn!("{warning}");
    }
    let metrics = Metrics::new("millrace-client", env!("CARGO_PKG_VERSION"))?;
    let transport = &config.tunnel.transport;
    let shared = Shared::new(metrics.clone(), transport.memory_cap_bytes, config.limits.max_flows);
    let settings = WorkerSettings {
        flow_idle_timeout: config.limits.flow_idle_timeout,
        half_close_timeout: config.limits.half_close_timeout,
        handshake_timeout: None,
        keepalive: Some(config.tunnel.keepalive),
        max_connection_window_bytes: transport.max_connection_window_bytes,
        max_connections: 0,
    };
    let connected = ConnectedCount::default();
    let workers = config.runtime.worker_count();
    let (lanes, lane_of) = lane::lanes(&config.listen, transport)?;
    let (mut doors, unix_sockets) = open_doors(&config.listen, &lane_of, workers)?;
    let mut tunnel_settings = config.tunnel.clone();
    tunnel_settings.mark = usable_mark(config)?;
    for index in 0..workers {
        let tunnel = TunnelConfig::new(Side::Client, transport, &config.tunnel.credentials)?;
        let index = u8::try_from(index).context("at most 256 workers")?;
        let mine = doors.remove(0);
        let lanes = lanes.clone();
        let (worker, handle) = Worker::new(index, tunnel, settings, shared.clone(), |handle| {
            let pool = Pool::new(tunnel_settings.clone(), lanes.len(), handle, connected.clone());
            ClientRole::new(mine, lanes, pool, config.limits.clone(), config.tunnel.connect_timeout)
        })
        .context("can't start the tunnel's sockets")?;
        process.spawn(worker, handle)?;
    }
    let _admin = match config.admin.address {
        Some(address) => {
            let connected = Arc::clone(&connected);
            let health = Box::new(move || match connected.load(Ordering::Relaxed) {
                0 => Health::Unhealthy("no connection to a server".to_owned()),
                _ => Health::Healthy,
            });
            let admin = AdminServer::start(address, metrics, process.flow_source(), health)
                .with_context(|| format!("can't bind admin.address {address}"))?;
            tracing::info!(address = %admin.address(), what = "admin", "listening");
            Some(admin)
        }
        None => None,
    };
    let code = process.run(config.runtime.drain_timeout);
    drop(unix_sockets);
    Ok(code)
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

/// For each worker one listener at each address. The Unix sockets' files live as long as the
/// second value.
fn open_doors(
    listens: &[Listen],
    lane_of: &[usize],
    workers: usize,
) -> anyhow::Result<(Vec<Vec<Door>>, Vec<UnixSocket>)> {
    let mut doors: Vec<Vec<Door>> = (0..workers).map(|_| Vec::new()).collect();
    let mut unix_sockets = Vec::new();
    for (listen, lane) in listens.iter().zip(lane_of.iter().copied()) {
        let mode = mode_of(&listen.interception)?;
        let what = listen.interception.as_str();
        match &listen.address {
            ListenAddress::Tcp(address) => {
                let mut address = *address;
                for mine in &mut doors {
                    let listener = listen_tcp(address, mode == Mode::Tproxy)?;
                    // Port 0 is the same one for all workers.
                    address = listener.local_addr()?;
                    let listening = Listening::Tcp(TcpListener::from_std(listener));
                    let mode = mode.clone();
                    mine.push(Door { listening, mode, lane, address: Some(address) });
                }
                tracing::info!(%address, what, "listening");
            }
            ListenAddress::Unix(path) => {
                let socket = UnixSocket::listen(path, None)?;
                for mine in &mut doors {
                    let listener = UnixListener::from_std(socket.try_clone_listener()?);
                    let listening = Listening::Unix(listener);
                    let mode = mode.clone();
                    mine.push(Door { listening, mode, lane, address: None });
                }
                tracing::info!(address = %listen.address, what, "listening");
                unix_sockets.push(socket);
            }
        }
    }
    Ok((doors, unix_sockets))
}

fn mode_of(interception: &Interception) -> anyhow::Result<Mode> {
    Ok(match interception {
        Interception::Tproxy => Mode::Tproxy,
        Interception::Redirect => Mode::Redirect,
        Interception::ProxyProtocol => Mode::ProxyProtocol,
        Interception::HttpConnect => Mode::HttpConnect,
        Interception::Socks5 => Mode::Socks5,
        Interception::Fixed { destination: HostPort { host, port } } => Mode::Fixed(match host {
            Host::Ip(ip) => Destination::from_address(SocketAddr::new(*ip, *port))?,
            Host::Name(name) => Destination::from_host_port(name, *port)?,
        }),
    })
}
