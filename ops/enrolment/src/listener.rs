//! The TCP listener of enrolment. It has a budget of its own, so that it never takes anything from the tunnel: a few
//! connections at a time, a deadline for each, and a limit of attempts.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use millrace_config::ServerEnrolment;
use millrace_ops::published::Published;
use millrace_tunnel::metrics::{EnrolmentResult, Metrics};
use socket2::SockRef;

use crate::attempts::{AttemptLimit, source};
use crate::deadline_stream::DeadlineStream;
use crate::service::EnrolmentService;

/// Connections at a time; each has a thread.
const MAX_CONNECTIONS: usize = 16;
/// Of them from one source.
const MAX_CONNECTIONS_PER_SOURCE: usize = 4;
/// Time for the handshake, the request and the response.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time until it is tried again to accept, when descriptors or threads are used up.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Binds the addresses of `[enrolment]`.
///
/// # Errors
/// One can't be bound.
pub fn bind(settings: Option<&ServerEnrolment>) -> anyhow::Result<Vec<TcpListener>> {
    let addresses = settings.map_or(&[][..], |settings| &settings.listen);
    let bind = |address: &SocketAddr| -> io::Result<TcpListener> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(*address),
            socket2::Type::STREAM,
            None,
        )?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&(*address).into())?;
        socket.listen(64)?;
        Ok(socket.into())
    };
    addresses
        .iter()
        .map(|address| {
            bind(address).with_context(|| format!("can't bind enrolment.listen {address}"))
        })
        .collect()
}

/// A running listener. It ends when this is dropped.
pub struct EnrolmentListener {
    listeners: Vec<Arc<TcpListener>>,
    threads: Vec<JoinHandle<()>>,
}

/// What connections share.
struct EnrolmentConnections {
    service: Published<EnrolmentService>,
    metrics: Arc<Metrics>,
    budget: Mutex<ConnectionBudget>,
}

struct ConnectionBudget {
    attempts: AttemptLimit,
    open: HashMap<IpAddr, usize>,
}

/// A place in the budget, until it is dropped.
struct ConnectionPlace {
    connections: Arc<EnrolmentConnections>,
    source: IpAddr,
}

impl EnrolmentListener {
    /// Serves what comes to the listeners, each from a thread of its own.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start(
        listeners: Vec<TcpListener>,
        service: Published<EnrolmentService>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let attempts = AttemptLimit::new(Instant::now());
        let budget = Mutex::new(ConnectionBudget { attempts, open: HashMap::new() });
        let connections = Arc::new(EnrolmentConnections { service, metrics, budget });
        let mut started = Self { listeners: Vec::new(), threads: Vec::new() };
        for listener in listeners {
            let listener = Arc::new(listener);
            tracing::info!(address = %listener.local_addr()?, what = "enrolment", "listening");
            let (own, connections) = (listener.clone(), connections.clone());
            started.listeners.push(listener);
            let thread = Builder::new().name("enrolment".to_owned());
            started.threads.push(thread.spawn(move || accept_all(&own, &connections))?);
        }
        Ok(started)
    }
}

impl Drop for EnrolmentListener {
    fn drop(&mut self) {
        for listener in &self.listeners {
            // Ends its `accept`.
            let _ = SockRef::from(&**listener).shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            // A panic there has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

fn accept_all(listener: &TcpListener, connections: &Arc<EnrolmentConnections>) {
    loop {
        match listener.accept() {
            Ok((stream, from)) => connections.take(stream, from),
            // The listener was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) => {
                tracing::warn!(%error, "failed to accept an enrolment connection");
                std::thread::sleep(RETRY_PAUSE);
            }
        }
    }
}

impl EnrolmentConnections {
    /// Serves a connection on a thread of its own, or closes it if there is no room.
    fn take(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let Some(place) = self.place(from.ip()) else {
            self.metrics.enrolments.of(EnrolmentResult::LimitReached).inc();
            tracing::debug!(%from, "enrolment connection closed: too many");
            return;
        };
        let service = self.service.get();
        let deadline = Instant::now() + EXCHANGE_TIMEOUT;
        let metrics = self.metrics.clone();
        let serve = move || {
            let _place = place;
            service.serve(DeadlineStream::new(stream, deadline), from, &metrics);
        };
        if let Err(error) = Builder::new().name("enrolment-peer".to_owned()).spawn(serve) {
            tracing::warn!(%error, "failed to start a thread for an enrolment connection");
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    fn place(self: &Arc<Self>, from: IpAddr) -> Option<ConnectionPlace> {
        let mut budget = self.budget();
        let source = source(from);
        let open = budget.open.values().sum::<usize>();
        let own = budget.open.get(&source).copied().unwrap_or_default();
        let has_room = open < MAX_CONNECTIONS && own < MAX_CONNECTIONS_PER_SOURCE;
        if !has_room || !budget.attempts.take(from, Instant::now()) {
            return None;
        }
        budget.open.insert(source, own + 1);
        drop(budget);
        Some(ConnectionPlace { connections: self.clone(), source })
    }

    // Counts are right whenever the mutex is free.
    fn budget(&self) -> MutexGuard<'_, ConnectionBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut budget = self.connections.budget();
        match budget.open.get_mut(&self.source) {
            Some(open) if *open > 1 => *open -= 1,
            _ => {
                budget.open.remove(&self.source);
            }
        }
    }
}
