//! Checks what transparent listeners need of the host: rules, routes, settings.

use std::net::IpAddr;

use millrace_config::{ClientConfig, Interception, ListenAddress, Protocol};
use millrace_ops::doctor::{Report, sysctl};
use nix::net::if_::if_nameindex;
use serde_json::Value;

use super::rtsp;
use super::rules::Rules;
use crate::host_command::output;

/// The mark of the shipped rules, used when no rules are loaded.
const DELIVER_MARK: u32 = 0x4d54;

/// Runs the checks if there is a transparent listener.
pub fn check(report: &mut Report, config: &ClientConfig) {
    if !config.listen.iter().any(|it| it.interception.intercepts()) {
        return;
    }
    let rules = match output("nft", &["-j", "list", "ruleset"])
        .and_then(|json| Rules::parse(&json).map_err(|error| error.to_string()))
    {
        Ok(rules) => Some(rules),
        Err(error) => {
            let remedy = "as root, with Debian's package nftables: nft list ruleset";
            report.skip("nftables", format!("the rules can't be read: {error}"), remedy);
            None
        }
    };
    for listen in config.listen.iter().filter(|it| it.interception.intercepts()) {
        let ListenAddress::Tcp(address) = listen.address else { continue };
        let protocol = match listen.interception.is_udp() {
            true => Protocol::Udp,
            false => Protocol::Tcp,
        };
        let transparent = listen.interception != Interception::Redirect;
        if let Some(rules) = &rules {
            match transparent {
                true => tproxy_listener(report, rules, protocol, address.port()),
                false => redirect_listener(report, rules, address.port()),
            }
        }
        if transparent {
            let given = rules.iter().flat_map(|rules| &rules.tproxy);
            let mut given = given.filter(|it| (it.protocol, it.port) == (protocol, address.port()));
            let mark = given.find_map(|it| it.mark);
            routes(report, mark.unwrap_or(DELIVER_MARK), address.ip());
            reverse_path_filter(report);
        } else {
            loopback_routes(report, rules.as_ref(), address.ip());
        }
    }
    if let Some(rules) = &rules {
        if config.listen.iter().any(|it| it.interception == Interception::Tproxy)
            && rtsp::may_follow(config)
        {
            rtsp::delivery(report, rules);
        }
        own_mark(report, rules, config.tunnel.mark);
        scope(report, rules);
        let carries = config.listen.iter().any(|it| it.interception == Interception::TproxyUdp);
        datagrams(report, rules, carries);
    }
}

fn tproxy_listener(report: &mut Report, rules: &Rules, protocol: Protocol, port: u16) {
    let found = rules.tproxy.iter().any(|it| (it.protocol, it.port) == (protocol, port));
    let what = match protocol {
        Protocol::Tcp => format!("port {port}"),
        Protocol::Udp => format!("UDP port {port}"),
    };
    listener(report, "tproxy.nft", &what, port, found);
}

fn redirect_listener(report: &mut Report, rules: &Rules, port: u16) {
    let found = rules.redirect.contains(&port);
    listener(report, "redirect.nft", &format!("port {port}"), port, found);
}

fn listener(report: &mut Report, file: &str, what: &str, port: u16, found: bool) {
    if found {
        report.ok("nftables", format!("a rule leads to {what}"));
    } else {
        let remedy = format!(
            "set listener_port = {port} in deploy/nftables/{file} and load it: nft -f {file}"
        );
        report.fail("nftables", format!("no rule leads to {what}"), remedy);
    }
}

/// HTTP/3 of intercepted clients, which would bypass the tunnel.
fn datagrams(report: &mut Report, rules: &Rules, carries: bool) {
    let check = "HTTP/3";
    match (carries, rules.carried_udp_ports, rules.rejected_udp_ports) {
        (true, true, _) => report.ok(check, "UDP ports of `carried_udp_ports` are carried"),
        (true, false, _) => report.warn(
            check,
            "the set `carried_udp_ports` is empty: no datagram comes to the listener",
            "nft add element inet millrace_tproxy carried_udp_ports '{ 443 }'",
        ),
        (false, _, true) => {
            report.ok(check, "UDP ports of `rejected_udp_ports` are rejected: browsers use TCP");
        }
        (false, _, false) => report.warn(
            check,
            "UDP of browsers bypasses the tunnel: the set `rejected_udp_ports` is empty or missing",
            "load deploy/nftables/tproxy.nft or redirect.nft again; on purpose, for a VPN on that \
             port, ignore this",
        ),
    }
}

/// Packets with the mark must be delivered on the loopback (ip-rule(8)).
fn routes(report: &mut Report, mark: u32, ip: IpAddr) {
    let (family, check) = if ip.is_ipv4() { ("-4", "ip rule") } else { ("-6", "ip -6 rule") };
    let add = format!(
        "ip {family} rule add fwmark {mark:#x} lookup 4454; ip {family} route add local default \
         dev lo table 4454"
    );
    let listed = output("ip", &["-json", family, "rule", "show"])
        .and_then(|json| serde_json::from_str(&json).map_err(|error| error.to_string()));
    let list: Value = match listed {
        Ok(list) => list,
        Err(error) => return report.skip(check, error, "install Debian's package iproute2"),
    };
    let Some(table) = table_of(&list, mark) else {
        return report.fail(check, format!("none for mark {mark:#x}"), add);
    };
    let listed = output("ip", &["-json", family, "route", "show", "table", &table])
        .and_then(|json| serde_json::from_str(&json).map_err(|error| error.to_string()));
    let is_local = |route: &Value| route["type"] == "local" && route["dst"] == "default";
    match listed {
        Ok(Value::Array(routes)) if routes.iter().any(is_local) => {
            report.ok(check, format!("mark {mark:#x} leads to table {table}, and that to lo"));
        }
        _ => report.fail(
            check,
            format!("table {table} of mark {mark:#x} has no `local default dev lo`"),
            format!("ip {family} route add local default dev lo table {table}"),
        ),
    }
}

fn table_of(list: &Value, mark: u32) -> Option<String> {
    let number = |value: &Value| match value {
        Value::String(text) => u32::from_str_radix(text.trim_start_matches("0x"), 16).ok(),
        value => u32::try_from(value.as_u64()?).ok(),
    };
    let rules = list.as_array()?;
    let rule = rules.iter().find(|rule| number(&rule["fwmark"]) == Some(mark))?;
    match &rule["table"] {
        Value::String(name) => Some(name.clone()),
        value => Some(value.as_u64()?.to_string()),
    }
}

/// Strict filtering drops packets that arrive on another interface than the route back uses.
fn reverse_path_filter(report: &mut Report) {
    let check = "rp_filter";
    match sysctl("net/ipv4/conf/all/rp_filter") {
        Some(1) => report.warn(
            check,
            "is strict: where routes are asymmetric, intercepted packets are dropped",
            "sysctl -w net.ipv4.conf.all.rp_filter=2",
        ),
        Some(value) => report.ok(check, format!("{value}, not strict")),
        None => report.skip(check, "can't be read", "sysctl net.ipv4.conf.all.rp_filter"),
    }
}

/// A gateway's clients are redirected to the address of the interface, not to the loopback.
fn loopback_routes(report: &mut Report, rules: Option<&Rules>, ip: IpAddr) {
    let check = "route_localnet";
    let gateway = rules.is_some_and(|rules| !rules.client_interfaces.is_empty());
    if ip.is_loopback() && gateway {
        let found = "a gateway's clients can't reach a listener on the loopback";
        let remedy = "listen on 0.0.0.0 or on the client interface's address";
        return report.fail(check, found, remedy);
    }
    if sysctl("net/ipv4/conf/all/route_localnet") == Some(1) {
        report.warn(
            check,
            "is on: services on 127.0.0.1 can be reached from the network",
            "sysctl -w net.ipv4.conf.all.route_localnet=0; millrace needs it nowhere",
        );
    } else {
        report.ok(check, "is off, and not needed");
    }
}

/// Without a rule for the mark the tunnel's own packets would be intercepted.
fn own_mark(report: &mut Report, rules: &Rules, mark: Option<u32>) {
    let check = "tunnel.mark";
    match mark {
        Some(mark) if rules.marks.contains(&mark) => {
            report.ok(check, format!("a rule looks for {mark:#x}"));
        }
        Some(mark) => {
            let remedy = format!("own_mark = {mark:#x} in the rules, as in the shipped files");
            report.fail(check, format!("no rule looks for {mark:#x}"), remedy);
        }
        None => {
            let remedy = "leave the key out, or set the mark that the rules let pass";
            report.fail(check, "is 0, so that the tunnel may intercept itself", remedy);
        }
    }
}

/// Which flows are intercepted, and forwarding for the rest.
fn scope(report: &mut Report, rules: &Rules) {
    missing_interfaces(report, rules);
    if rules.client_interfaces.is_empty() && !rules.client_uids {
        report.warn(
            "scope",
            "the shipped rules intercept nothing yet",
            "nft add element inet millrace_tproxy client_interfaces '{ \"lan0\" }' on a gateway, \
             client_uids '{ 1000 }' on a host; the same for millrace_redirect",
        );
    }
    if !rules.client_interfaces.is_empty() {
        match sysctl("net/ipv4/ip_forward") {
            Some(0) => report.fail(
                "ip_forward",
                "is off: packets that are not intercepted do not get through the gateway",
                "sysctl -w net.ipv4.ip_forward=1 (and net.ipv6.conf.all.forwarding=1)",
            ),
            Some(_) => report.ok("ip_forward", "is on"),
            None => report.skip("ip_forward", "can't be read", "sysctl net.ipv4.ip_forward"),
        }
    }
}

/// Names of interfaces in the rules that this host does not have: no flow that arrives there is intercepted.
fn missing_interfaces(report: &mut Report, rules: &Rules) {
    let check = "client_interfaces";
    let own = match if_nameindex() {
        Ok(own) => own,
        Err(error) => {
            let found = format!("the interfaces can't be read: {error}");
            return report.skip(check, found, "`ip -brief link` shows them");
        }
    };
    let own: Vec<_> = own.iter().map(|it| it.name().to_string_lossy()).collect();
    for name in &rules.client_interfaces {
        if own.iter().any(|own| is_named(own, name)) {
            report.ok(check, format!("{name} is an interface of this host"));
        } else {
            report.fail(
                check,
                format!("this host has no interface {name}: no flow is intercepted there"),
                format!(
                    "`ip -brief link` shows the names; nft add element inet millrace_tproxy client_interfaces \
                     '{{ \"NAME\" }}', and delete element for \"{name}\"; the same for millrace_redirect"
                ),
            );
        }
    }
}

/// Whether a name in a set of nftables, which may end with a wildcard, is that of an interface.
fn is_named(interface: &str, name: &str) -> bool {
    match name.strip_suffix('*') {
        Some(prefix) => interface.starts_with(prefix),
        None => interface == name,
    }
}

#[cfg(test)]
mod tests {
    use millrace_ops::doctor::CheckVerdict;

    use super::*;

    #[test]
    fn interfaces_that_are_not_there_fail() {
        let names = ["lo", "l*", "no-such-lan", "no-*"].map(str::to_owned);
        let rules = Rules { client_interfaces: names.into(), ..Rules::default() };
        let mut report = Report::default();
        missing_interfaces(&mut report, &rules);
        let verdicts: Vec<_> = report.findings.iter().map(|it| it.verdict).collect();
        let expected =
            [CheckVerdict::Ok, CheckVerdict::Ok, CheckVerdict::Failed, CheckVerdict::Failed];
        assert_eq!(verdicts, expected, "{report:?}");
        assert!(report.findings[2].found.contains("no-such-lan"), "{report:?}");
    }

    #[test]
    fn the_table_of_a_mark_is_found_as_ip_shows_it() {
        let list = r#"[{"priority":0,"src":"all","table":"local"},
            {"priority":32765,"src":"all","fwmark":"0x4d54","table":"4454"},
            {"priority":32766,"src":"all","table":"main"}]"#;
        let list: Value = serde_json::from_str(list).unwrap();
        assert_eq!(table_of(&list, 0x4d54).as_deref(), Some("4454"));
        assert_eq!(table_of(&list, 0x4d55), None);
    }
}
