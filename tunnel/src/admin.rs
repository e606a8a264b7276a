//! The admin listener: a page for people, `/metrics` (Prometheus), `/flows` (JSON), `/healthz`, `/livez`,
//! `/qlog` and `/congestion_control`, over HTTP/1.1.
//!
//! It has a thread of its own, so that a slow scrape never delays the data path. Everything a
//! client can hold on to is bounded: connections, the size of a request's head, and the time for
//! it ([`connections`]). Off loopback it takes a token, and everywhere a `Host` field that names this
//! machine ([`access`]). Pages of other origins read nothing, except `/flows` by those that
//! `admin.allow_origins` lists.

mod access;
mod congestion_control;
mod connections;
mod dashboard;
mod flow_info;
mod http;
mod qlog;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use millrace_config::Admin;
use millrace_mcc::Explained;
use tokio::sync::watch;

pub use access::Access;
pub use congestion_control::{SteerError, Steered, Steering};
pub use flow_info::{ConnectionCounts, ControllerInfo, FlowInfo, FlowSeen, FlowState, PlayerInfo};

use connections::Connections;

use crate::metrics::Metrics;
use crate::qlog::{QlogError, TraceInfo};

/// Time for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a connection as a whole.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Size of a request's head.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Fields of a request's head.
const MAX_HEAD_FIELDS: usize = 64;

/// Whoever knows the flows.
pub trait FlowSource: Send + Sync {
    /// The flows now, in any order. It may block, on a thread of the admin listener, but must come
    /// back within a second or so by itself.
    fn flows(&self) -> Vec<FlowInfo>;

    /// The traces that run.
    ///
    /// # Errors
    /// There can be none.
    fn traces(&self) -> Result<Vec<TraceInfo>, QlogError> {
        Err(QlogError::NotConfigured)
    }

    /// Begins or ends the trace of a connection; its file.
    ///
    /// # Errors
    /// See [`QlogError`].
    fn trace(&self, _connection: &str, _on: bool) -> Result<PathBuf, QlogError> {
        Err(QlogError::NotConfigured)
    }

    /// Changes a connection's congestion control.
    ///
    /// # Errors
    /// See [`SteerError`].
    fn steer(&self, _connection: &str, _steering: &Steering) -> Result<Steered, SteerError> {
        Err(SteerError::NoConnection)
    }

    /// What the rules make of a connection; `None` when they don't select its algorithm.
    fn explain(&self, _connection: &str) -> Option<Explained> {
        None
    }
}

/// The answer to `/healthz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// 200: flows are carried.
    Healthy,
    /// 503, with the reason in one line.
    Unhealthy(String),
}

/// Says whether this process carries flows; it must not block.
pub type HealthCheck = Box<dyn Fn() -> Health + Send + Sync>;

/// The answers to `/healthz` and `/livez`.
pub struct Checks {
    /// Whether flows are carried, and move.
    pub health: HealthCheck,
    /// Whether the process works, whatever its peers and paths do: otherwise it has to be restarted.
    pub liveness: HealthCheck,
}

/// What the admin listener shows.
struct Content {
    metrics: Arc<Metrics>,
    flows: Box<dyn FlowSource>,
    checks: Checks,
    access: Access,
}

/// A listener that is bound, and what it asks of requests.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    access: Access,
}

/// Binds the address of `config`, port 0 for any, if there is to be a listener, and reads the token: the user
/// that the process becomes may not be allowed to.
///
/// # Errors
/// The address can't be bound, or the token not be read.
pub fn bind(config: &Admin) -> anyhow::Result<Option<Bound>> {
    let Some(address) = config.address else { return Ok(None) };
    let listener = TcpListener::bind(address)
        .with_context(|| format!("can't bind admin.address {address}"))?;
    let access = Access {
        origins: config.allow_origins.clone(),
        allowed_hosts: config.allowed_hosts.clone(),
        token: config.token().context("admin.token_file")?,
    };
    Ok(Some(Bound { listener, access }))
}

/// A running admin listener. It ends when this is dropped.
pub struct AdminServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    /// Serves what comes to the listener from a thread of its own.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(
        bound: Bound,
        metrics: Arc<Metrics>,
        flows: Box<dyn FlowSource>,
        checks: Checks,
    ) -> io::Result<Self> {
        let Bound { listener, access } = bound;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let content = Arc::new(Content { metrics, flows, checks, access });
        // FlowSource may block; two at a time are enough for any dashboard.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(2)
            .thread_name("admin-flows")
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(serve(listener, content, stopped));
            runtime.shutdown_timeout(Duration::from_secs(1));
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// The address that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, content: Arc<Content>, mut stopped: watch::Receiver<bool>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the admin listener can't be served");
            return;
        }
    };
    let mut connections = Connections::new();
    let accept_all = async {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let (content, place) = (Arc::clone(&content), connections.place());
                    let connection = http::serve_connection(stream, content, place.clone());
                    // What a client does wrong concerns nobody but it.
                    let task = tokio::spawn(tokio::time::timeout(CONNECTION_TIMEOUT, connection));
                    connections.add(from.ip().to_canonical(), &place, task.abort_handle());
                    // It may have sent its head already: then it is not silent.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    // Out of descriptors, most likely: try again when some may be free.
                    tracing::warn!(%error, "the admin listener can't accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept_all => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

#[cfg(test)]
mod tests;
