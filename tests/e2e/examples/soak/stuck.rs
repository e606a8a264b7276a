//! A flow in which nothing moves, looked at while it still is there.

use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::site::Site;

/// Between two looks. They list all sockets of the site: a hundred at once, as when many paused flows end, would
/// keep packets waiting for seconds.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

static LAST_LOOK: Mutex<Option<Instant>> = Mutex::new(None);
static NAMESPACES: OnceLock<Vec<String>> = OnceLock::new();

/// Remembers where to look.
pub fn watch(site: &Site) {
    let topology = &site.topology;
    let all = [&topology.player, &topology.client_edge, &topology.server_edge, &topology.origin];
    NAMESPACES.set(all.map(|namespace| namespace.name().to_owned()).to_vec()).ok();
}

fn is_due() -> bool {
    let mut last = LAST_LOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = last.is_none_or(|at| at.elapsed() >= LOOK_INTERVAL);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// What the kernel and the client say about a flow, by a port of one of its ends, unless that was told of another
/// one just before.
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
