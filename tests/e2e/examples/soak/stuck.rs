//! A flow in which nothing moves, looked at while it still is there.

use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::site::Site;

/// Least time between two dumps. Each lists all sockets of the site, and a run has more than a hundred stuck flows.
const DUMP_INTERVAL: Duration = Duration::from_secs(10);

static LAST_DUMP: Mutex<Option<Instant>> = Mutex::new(None);
static NAMESPACES: OnceLock<Vec<String>> = OnceLock::new();

/// Remembers where to look.
pub fn watch(site: &Site) {
    let topology = &site.topology;
    let all = [&topology.player, &topology.client_edge, &topology.server_edge, &topology.origin];
    NAMESPACES.set(all.map(|namespace| namespace.name().to_owned()).to_vec()).ok();
}

fn is_due() -> bool {
    let mut last = LAST_DUMP.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = last.is_none_or(|at| at.elapsed() >= DUMP_INTERVAL);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// Prints what the kernel and the client say about a flow, by a port of one of its ends, at most once in
/// [`DUMP_INTERVAL`].
pub fn tell(what: &str, port: u16) {
    if !is_due() {
        return;
    }
    let mut told = format!("     stuck: {what}, port {port}");
    for namespace in NAMESPACES.get().into_iter().flatten() {
        let script = format!(
            "ss -tnio 2>&1 | grep -A1 ':{port} '; grep '={port} ' /proc/net/nf_conntrack; \
             curl -s -m 5 http://127.0.0.1:9464/flows 2>/dev/null | tr '}}' '\\n' | grep ':{port}'"
        );
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "sh", "-c", &script]);
        let output = command.output().map(|it| it.stdout).unwrap_or_default();
        told += &format!("\n       {namespace}: {}", String::from_utf8_lossy(&output).trim());
    }
    println!("{told}");
}
