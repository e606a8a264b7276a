//! Ends of flows that disappear: from one moment on nothing of them arrives and nothing reaches them, as
//! when a host loses power or its network. A packet filter in the end's namespace drops both directions.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use millrace_lab::netns::Namespace;
use millrace_lab::process::output_of;
use socket2::Socket;

/// How long packets of a flow are dropped: longer than both programs take to give it up.
const DROPPED_FOR_S: u32 = 120;

/// A new connection with the same ports is another flow.
const RULES: &str = "table ip vanish {
    set flows { type inet_service . inet_service; flags timeout, dynamic; size 65535; }
    chain out {
        type filter hook output priority 0;
        tcp flags & (syn | ack) == syn delete @flows { tcp sport . tcp dport } accept
        tcp sport . tcp dport @flows drop
    }
    chain in {
        type filter hook input priority 0;
        tcp flags & (syn | ack) == syn delete @flows { tcp dport . tcp sport } accept
        tcp dport . tcp sport @flows drop
    }
}";

static VANISHED: AtomicU64 = AtomicU64::new(0);

/// Gives a namespace the filter.
pub fn prepare(namespace: &Namespace) -> Result<()> {
    output_of(namespace.command("nft").arg(RULES))?;
    Ok(())
}

/// How many have disappeared.
pub fn count() -> u64 {
    VANISHED.load(Ordering::Relaxed)
}

/// Lets an end disappear that is in the namespace called `namespace`. It is reset instead where the filter
/// can't be changed.
pub fn vanish(socket: Socket, namespace: &str) {
    let port =
        |address: std::io::Result<socket2::SockAddr>| Some(address.ok()?.as_socket()?.port());
    let ports = port(socket.local_addr()).zip(port(socket.peer_addr()));
    let dropped = ports.is_some_and(|(local, remote)| {
        let flow = format!("{{ {local} . {remote} timeout {DROPPED_FOR_S}s }}");
        let mut command = std::process::Command::new("ip");
        command
            .args(["netns", "exec", namespace, "nft", "add", "element", "ip", "vanish", "flows"]);
        output_of(command.arg(flow)).is_ok()
    });
    match dropped {
        true => {
            VANISHED.fetch_add(1, Ordering::Relaxed);
            drop(socket);
        }
        false => millrace_e2e::tcp::reset(socket),
    }
}
