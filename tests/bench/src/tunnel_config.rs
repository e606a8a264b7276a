//! Configurations of `millrace-server` and `millrace-client` for a run.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::arena::{CLIENT, SERVER};
use crate::settings::{BenchLimits, BenchSettings};

/// Where the tunnel's server listens.
pub const TUNNEL: SocketAddrV4 = SocketAddrV4::new(SERVER, 4433);
/// Where it listens for the flow at a set rate: packets that leave this port are of that flow.
pub const PROBE_TUNNEL: SocketAddrV4 = SocketAddrV4::new(SERVER, 4434);
/// What the server's certificate is for.
pub const SERVER_NAME: &str = "server.bench.invalid";
/// Where the server's metrics are, in its namespace: the default of the key.
pub const SERVER_ADMIN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9465);

/// More than any of the benches opens.
const MAX_FLOWS: u32 = 25_000;
/// For receive windows: 250 connections at full rate want more than the usual.
const MEMORY_MB: u32 = 100_000;
/// Port of the first listener.
const LISTENER_PORT: u16 = 8080;
/// Ports of the listeners and of the metrics of further client edges count from these.
const EDGE_PORT: u16 = 10_000;
const EDGE_ADMIN_PORT: u16 = 20_000;
/// Port of the listener of the flow at a set rate.
const PROBE_PORT: u16 = 9000;

/// Address of the listener of a client edge, from 0.
pub fn listener(edge: u16) -> SocketAddrV4 {
    let port = if edge == 0 { LISTENER_PORT } else { EDGE_PORT + edge };
    SocketAddrV4::new(CLIENT, port)
}

/// Where the metrics of a client edge are, in its namespace; of the first one the default of the key.
pub fn client_admin(edge: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, if edge == 0 { 9464 } else { EDGE_ADMIN_PORT + edge })
}

/// Address of the listener of the flow at a set rate.
pub fn probe_listener() -> SocketAddrV4 {
    SocketAddrV4::new(CLIENT, PROBE_PORT)
}

/// The server's.
pub fn server(origin: SocketAddrV4, settings: &BenchSettings) -> String {
    let cc = congestion_control(settings);
    let mcc = settings.rules.as_ref().map_or_else(String::new, |rules| {
        format!("[mcc]\ninitial_algorithm = \"cubic\"\nrules = {rules:?}\n")
    });
    let mut listen = format!("\"{TUNNEL}\"");
    let mut keys = String::new();
    if let Some(rate) = settings.probe_mbps {
        write!(listen, ", \"{PROBE_TUNNEL}\"").ok();
        writeln!(keys, "selectable_congestion_control = [{}]", constant(rate)).ok();
    }
    if settings.limits == BenchLimits::Raised {
        writeln!(
            keys,
            "memory_cap_mb = {MEMORY_MB}\n[limits]\nmax_flows = {MAX_FLOWS}\n\
             memory_per_client_mb = {MEMORY_MB}"
        )
        .ok();
    }
    format!(
        "[tunnel]\nlisten = [{listen}]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n\
         congestion_control = {cc}\n{keys}\
         [[destinations.allow]]\nnetwork = \"{}\"\nports = [{}]\n{mcc}{}",
        origin.ip(),
        origin.port(),
        common(settings.workers, admin(settings, SERVER_ADMIN)),
    )
}

/// That of a client edge, from 0.
pub fn client(edge: u16, origin: SocketAddrV4, settings: &BenchSettings) -> String {
    let cc = match settings.rules {
        None => congestion_control(settings),
        Some(_) => "\"cubic\"".to_owned(),
    };
    let keys = match settings.limits {
        BenchLimits::Shipped => String::new(),
        BenchLimits::Raised => format!(
            "memory_cap_mb = {MEMORY_MB}\nconnect_timeout_s = 60\nhealth_timeout_ms = 60000\n\
             [limits]\nmax_flows = {MAX_FLOWS}\n"
        ),
    };
    format!(
        "[tunnel]\nservers = [\"{TUNNEL}\"]\n{}congestion_control = {cc}\n\
         connections = \"{}\"\n{keys}\
         [[listen]]\nmode = \"static\"\naddress = \"{}\"\ndestination = \"{origin}\"\n{}",
        credentials(),
        settings.connections,
        listener(edge),
        common(settings.workers, admin(settings, client_admin(edge))),
    )
}

/// That of the client whose flow has a set rate.
pub fn probe_client(origin: SocketAddrV4, rate_mbps: f64) -> String {
    format!(
        "[tunnel]\nservers = [\"{PROBE_TUNNEL}\"]\n{}\
         [[listen]]\nmode = \"static\"\naddress = \"{}\"\ndestination = \"{origin}\"\n\
         congestion_control = {}\n{}",
        credentials(),
        probe_listener(),
        constant(rate_mbps),
        common(1, None),
    )
}

fn credentials() -> String {
    format!(
        "server_name = \"{SERVER_NAME}\"\nca = \"ca.pem\"\n\
         certificate = \"client.pem\"\nprivate_key = \"client.key\"\n"
    )
}

fn congestion_control(settings: &BenchSettings) -> String {
    settings.rate_mbps.map_or_else(|| format!("\"{}\"", settings.cc), constant)
}

fn constant(rate_mbps: f64) -> String {
    format!("{{ name = \"constant\", rate_mbps = {rate_mbps} }}")
}

fn admin(settings: &BenchSettings, address: SocketAddrV4) -> Option<SocketAddrV4> {
    (settings.limits == BenchLimits::Shipped).then_some(address)
}

fn common(workers: usize, admin: Option<SocketAddrV4>) -> String {
    let admin = admin.map_or_else(|| "none".to_owned(), |address| address.to_string());
    format!(
        "\n[runtime]\nworkers = {workers}\n[admin]\naddress = \"{admin}\"\n[log]\nlevel = \"warn\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(limits: BenchLimits) -> BenchSettings {
        BenchSettings {
            cc: "bbr".to_owned(),
            connections: "per_flow".to_owned(),
            limits,
            probe_mbps: Some(10.0),
            ..BenchSettings::default()
        }
    }

    #[test]
    fn shipped_limits_leave_every_limit_at_its_default() {
        let origin = SocketAddrV4::new(SERVER, 1234);
        let shipped = settings(BenchLimits::Shipped);
        for text in [server(origin, &shipped), client(0, origin, &shipped)] {
            for key in ["memory", "limits", "timeout"] {
                assert!(!text.contains(key), "{key} in\n{text}");
            }
        }
        assert!(server(origin, &shipped).contains("127.0.0.1:9465"));
        assert!(server(origin, &settings(BenchLimits::Raised)).contains("memory_cap_mb = 100000"));
    }

    #[test]
    fn edges_have_addresses_of_their_own() {
        let addresses: std::collections::BTreeSet<_> =
            (0..1000).flat_map(|edge| [listener(edge), client_admin(edge)]).collect();
        assert_eq!(addresses.len(), 2000);
        assert!(!addresses.contains(&probe_listener()));
    }
}
