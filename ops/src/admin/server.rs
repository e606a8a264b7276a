//! The listener and its thread.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use millrace_config::Admin;
use millrace_tunnel::metrics::Metrics;
use tokio::sync::watch;

use super::access::Access;
use super::connections::AdminConnections;
use super::content::{AdminContent, Checks, FlowSource};
use super::http;
use super::program::{ProgramInfo, StartedProgram};

/// Time for a connection as a whole.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// A listener that is bound, and what it asks of requests.
#[derive(Debug)]
pub struct BoundListener {
    pub(super) listener: TcpListener,
    pub(super) access: Access,
}

/// Binds the address of `config`, port 0 for any, if there is to be a listener, and reads the token: the user
/// that the process becomes may not be allowed to.
///
/// # Errors
/// The address can't be bound, or the token not be read.
pub fn bind(config: &Admin) -> anyhow::Result<Option<BoundListener>> {
    let Some(address) = config.address else { return Ok(None) };
    let listener = TcpListener::bind(address)
        .with_context(|| format!("can't bind admin.address {address}"))?;
    let access = Access {
        origins: config.cors_allow_origins.clone(),
        allowed_hosts: config.allowed_hosts.clone(),
        token: config.token().context("admin.token_file")?,
    };
    Ok(Some(BoundListener { listener, access }))
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
        bound: BoundListener,
        program: ProgramInfo,
        metrics: Arc<Metrics>,
        flows: Box<dyn FlowSource>,
        checks: Checks,
    ) -> io::Result<Self> {
        let BoundListener { listener, access } = bound;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let program = StartedProgram::new(program);
        let content = Arc::new(AdminContent { program, metrics, flows, checks, access });
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

async fn serve(
    listener: TcpListener,
    content: Arc<AdminContent>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "failed to serve the admin listener");
            return;
        }
    };
    let mut connections = AdminConnections::new();
    let accept_all = async {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let (content, place) = (Arc::clone(&content), connections.place());
                    let connection = http::serve_connection(stream, content, place.clone());
                    // A client's error ends only its own connection.
                    let task = tokio::spawn(tokio::time::timeout(CONNECTION_TIMEOUT, connection));
                    connections.add(from.ip().to_canonical(), &place, task.abort_handle());
                    // It may have sent its head already: then it is not silent.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    // Out of descriptors, most likely: try again when some may be free.
                    tracing::warn!(%error, "failed to accept an admin connection");
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
