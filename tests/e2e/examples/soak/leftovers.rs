//! What must be gone: sockets and connection tracking when the last flow has ended, the rest of it
//! when the soak has.

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use millrace_e2e::program::Program;
use millrace_e2e::wait;
use millrace_lab::netns::{self, Namespace};
use millrace_lab::process::ip;
use nix::sys::signal::Signal;

use crate::health::Health;
use crate::site::{CLIENT, SERVERS, Site};
use crate::tally::Tally;
use crate::vanish;

/// Flows end at once when their clients have; a flow whose other end a kill has taken waits for the
/// idle time-out of 10 s, a half-closed one for 60 s.
const END_TIMEOUT: Duration = Duration::from_secs(75);
/// Drains of 4 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// TCP's state ESTABLISHED in /proc/net/tcp.
const ESTABLISHED: &str = "01";

/// All clients have ended.
pub fn after_the_last_flow(site: &mut Site, health: &Health, tally: &Tally) {
    let mut problems = Vec::new();
    wait::until(END_TIMEOUT, || {
        problems = health.idle_problems(site);
        problems.extend(tracked_problems(site).unwrap_or_else(|error| vec![error.to_string()]));
        problems.is_empty().then_some(())
    });
    problems.into_iter().for_each(|problem| tally.wrong(problem));
    stop_client(site, tally);
    stop_servers(site, tally);
}

/// Entries of live connections at the client edge, without a live connection.
fn tracked_problems(site: &Site) -> Result<Vec<String>> {
    let tracked = in_namespace(&site.topology.client_edge, "nf_conntrack")?;
    let mut live = HashSet::new();
    for namespace in [&site.topology.player, &site.topology.client_edge, &site.topology.origin] {
        for (addresses, state) in sockets(&in_namespace(namespace, "tcp")?) {
            if state == ESTABLISHED {
                live.insert(addresses);
            }
        }
    }
    // The reset of a flow whose client has disappeared need not be what connection tracking expects: its entry
    // runs out by the kernel's time-out.
    let tracked = if vanish::count() > 0 { "" } else { tracked.as_str() };
    let mut problems: Vec<_> = tracked
        .lines()
        .filter(|line| line.contains(" tcp ") && line.contains(" ESTABLISHED "))
        .filter(|line| directions(line).iter().all(|ends| !live.contains(ends)))
        // The admin listener's are ours.
        .filter(|line| !line.contains("127.0.0.1"))
        .map(|line| format!("tracked without a socket: {}", line.trim()))
        .collect();
    let held = live.iter().filter(|(from, _)| !from.ip().is_loopback()).count();
    if held > 0 {
        problems.push(format!("{held} connections are established without a flow: {live:?}"));
    }
    Ok(problems)
}

/// How many connections are tracked, for the report.
pub fn tracked(site: &Site) -> usize {
    let tracked = in_namespace(&site.topology.client_edge, "nf_conntrack").unwrap_or_default();
    tracked.lines().filter(|line| line.contains(" tcp ")).count()
}

fn in_namespace(namespace: &Namespace, file: &str) -> Result<String> {
    namespace.inside(|| Ok(fs::read_to_string(format!("/proc/thread-self/net/{file}"))?))
}

type Ends = (SocketAddrV4, SocketAddrV4);

/// Local and remote address of each socket, and its state: proc(5), /proc/net/tcp.
fn sockets(text: &str) -> Vec<(Ends, String)> {
    let address = |word: &str| {
        let (ip, port) = word.split_once(':')?;
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.swap_bytes());
        Some(SocketAddrV4::new(ip, u16::from_str_radix(port, 16).ok()?))
    };
    let socket = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let ends = (address(words.next()?)?, address(words.next()?)?);
        Some((ends, words.next()?.to_owned()))
    };
    text.lines().skip(1).filter_map(socket).collect()
}

/// The addresses of a tracked connection as either end sees them, both ways.
fn directions(line: &str) -> Vec<Ends> {
    let values = |name: &str| -> Vec<String> {
        let name = format!("{name}=");
        let words = line.split_ascii_whitespace();
        words.filter_map(|word| word.strip_prefix(&name).map(str::to_owned)).collect()
    };
    let (from, to) = (values("src"), values("dst"));
    let (from_port, to_port) = (values("sport"), values("dport"));
    let mut ends = Vec::new();
    for n in 0..from.len().min(to.len()).min(from_port.len()).min(to_port.len()) {
        let parse = |ip: &str, port: &str| format!("{ip}:{port}").parse::<SocketAddrV4>().ok();
        if let (Some(from), Some(to)) = (parse(&from[n], &from_port[n]), parse(&to[n], &to_port[n]))
        {
            ends.extend([(from, to), (to, from)]);
        }
    }
    ends
}

/// Ends the client in order; the servers must give back what its connections held.
fn stop_client(site: &mut Site, tally: &Tally) {
    let client = site.client.take();
    stop(site, CLIENT, client, tally);
    for number in 0..2 {
        let mut held = (0.0, 0.0);
        let given_back = wait::until(STOP_TIMEOUT, || {
            let metrics = site.server_metrics(number)?;
            held = (
                metrics.sum("millrace_connections", &[]),
                metrics.sum("millrace_memory_used_bytes", &[]),
            );
            (held == (0.0, 0.0)).then_some(())
        });
        if given_back.is_none() {
            let (connections, bytes) = held;
            tally.wrong(format!(
                "server {number} keeps {connections} connections and {bytes} bytes without a client"
            ));
        }
    }
}

fn stop_servers(site: &mut Site, tally: &Tally) {
    for (number, name) in SERVERS.into_iter().enumerate() {
        let server = site.servers[number].take();
        stop(site, name, server, tally);
    }
}

fn stop(site: &Site, name: &str, program: Option<Program>, tally: &Tally) {
    let Some(mut program) = program else { return };
    program.signal(Signal::SIGTERM);
    let ended = wait::until(STOP_TIMEOUT, || (!program.is_running()).then_some(()));
    site.keep_log(&program, name, tally);
    match ended {
        None => tally.wrong(format!("{name} has not ended {STOP_TIMEOUT:?} after SIGTERM")),
        Some(()) => {
            let status = program.wait(STOP_TIMEOUT);
            if !status.success() {
                tally.wrong(format!("{name} ended with {status} after SIGTERM"));
            }
        }
    }
}

/// What the run made outside of its namespaces, and the namespaces themselves.
pub fn after_the_end(run_id: &str, rules_before: &str, tally: &Tally) {
    for name in netns::of_run(run_id) {
        tally.wrong(format!("the namespace {name} is left"));
    }
    for left in [format!("/run/millrace-lab/{run_id}"), format!("/run/millrace-lab/{run_id}.lock")]
    {
        if Path::new(&left).exists() {
            tally.wrong(format!("{left} is left"));
        }
    }
    let rules = own_rules();
    if rules != rules_before {
        tally.wrong(format!("rules outside of the namespaces: {rules}; before: {rules_before}"));
    }
}

/// Routing rules outside of the namespaces that have our mark.
pub fn own_rules() -> String {
    let rules = ip("rule show").unwrap_or_default();
    rules.lines().filter(|line| line.contains("0x4d54")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracked_connection_is_known_by_its_socket() {
        let line = "ipv4     2 tcp      6 431999 ESTABLISHED src=198.18.1.2 dst=198.18.3.2 \
                    sport=40000 dport=554 src=198.18.1.1 dst=198.18.1.2 sport=15002 dport=40000 \
                    [ASSURED] mark=0 use=1";
        let table = "  sl  local_address rem_address   st\n   0: 020112C6:9C40 020312C6:022A 01 0";
        let [(ends, state)] = &sockets(table)[..] else { panic!("one socket") };
        assert_eq!(ends.0.to_string(), "198.18.1.2:40000");
        assert_eq!(state, ESTABLISHED);
        assert!(directions(line).contains(ends));
        assert_eq!(directions(line).len(), 4);
    }
}
