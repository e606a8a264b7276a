//! A client or server in a network namespace.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use millrace_lab::netns::Namespace;

use crate::admin::{self, Metrics};
use crate::program::Program;
use crate::{binaries, wait};

/// Timeout for a start on a busy machine.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts `program` with the configuration file `config`, and waits until its admin listener answers at this port of
/// loopback.
///
/// # Panics
/// When it ends, or does not answer within [`START_TIMEOUT`].
pub fn start(namespace: &Namespace, program: &str, config: &Path, admin_port: u16) -> Program {
    let path = binaries::path(program);
    let mut command = namespace.command(path.to_str().expect("a path in UTF-8"));
    command.args(["run", "--config"]).arg(config);
    let mut started = Program::start(program, command);
    wait::for_true("the admin listener", START_TIMEOUT, || {
        assert!(started.is_running(), "{program} has ended at its start");
        metrics(namespace, admin_port).is_some()
    });
    started
}

/// The metrics of a program; `None` while its admin listener does not answer.
#[must_use]
pub fn metrics(namespace: &Namespace, admin_port: u16) -> Option<Metrics> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, admin_port));
    let (_, text) = namespace.inside(|| Ok(admin::get(address, "/metrics")?)).ok()?;
    Metrics::parse(&text).ok()
}

/// Waits until the workers of a client have `count` healthy servers in total.
///
/// # Panics
/// When they have fewer after [`START_TIMEOUT`].
pub fn wait_for_servers(client_edge: &Namespace, admin_port: u16, count: usize) {
    let healthy = |it: Metrics| it.sum("millrace_server_healthy", &[]) >= count as f64;
    wait::for_true("healthy servers", START_TIMEOUT, || {
        metrics(client_edge, admin_port).is_some_and(healthy)
    });
}
