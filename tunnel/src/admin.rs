//! The admin listener: a page for people, `/metrics` (Prometheus), `/flows` (JSON), `/healthz`, `/qlog`
//! and `/congestion_control`, over HTTP/1.1.
//!
//! It has a thread of its own, so that a slow scrape never delays the data path. Everything a
//! client can hold on to is bounded: connections, the size of a request's head, and the time for
//! it. There is no authentication; the configuration binds loopback unless told otherwise. On
//! loopback the `Host` field must name this machine, or any web page could read `/flows` through a
//! DNS name of its own that leads here. Pages of other origins read nothing, except `/flows` by those
//! that `admin.allow_origins` lists.

mod congestion_control;
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
use millrace_config::WebOrigin;
use millrace_mcc::Explained;
use tokio::sync::{Semaphore, watch};

pub use congestion_control::{SteerError, Steered, Steering};
pub use flow_info::{ConnectionCounts, ControllerInfo, FlowInfo, FlowSeen, FlowState, PlayerInfo};

use crate::metrics::Metrics;
use crate::qlog::{QlogError, TraceInfo};

/// Connections at a time; more wait in the listener's queue.
const MAX_CONNECTIONS: usize = 16;
/// Time for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
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

/// What the admin listener shows.
struct Content {
    metrics: Arc<Metrics>,
    flows: Box<dyn FlowSource>,
    health: HealthCheck,
    /// Pages from there may read `/flows`.
    origins: Vec<WebOrigin>,
    is_loopback: bool,
}

/// Binds `address`, port 0 for any, if there is to be a listener.
///
/// # Errors
/// The address can't be bound.
pub fn bind(address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    let bind = |address| {
        TcpListener::bind(address).with_context(|| format!("can't bind admin.address {address}"))
    };
    address.map(bind).transpose()
}

/// A running admin listener. It ends when this is dropped.
pub struct AdminServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    /// Serves what comes to `listener` from a thread of its own. Pages from `origins` may read `/flows`.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(
        listener: TcpListener,
        metrics: Arc<Metrics>,
        flows: Box<dyn FlowSource>,
        health: HealthCheck,
        origins: Vec<WebOrigin>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let is_loopback = address.ip().to_canonical().is_loopback();
        let content = Arc::new(Content { metrics, flows, health, origins, is_loopback });
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
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let accept_all = async {
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let content = Arc::clone(&content);
                    tokio::spawn(async move {
                        let connection = http::serve_connection(stream, content);
                        // What a client does wrong concerns nobody but it.
                        let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
                        drop(slot);
                    });
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
