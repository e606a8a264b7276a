//! Interception of one address family beside flows of the other one, which it lets pass.

use std::net::IpAddr;

use millrace_config::{ClientConfig, Interception, Listen, ListenAddress};
use millrace_ops::doctor::Report;
use millrace_tunnel::own_addresses::interface_addresses;

const CHECK: &str = "address families";

/// Checks that intercepting listeners have addresses of both families where the host has both.
pub(super) fn check(report: &mut Report, config: &ClientConfig) {
    if !config.listen.iter().any(|it| it.interception.intercepts()) {
        return;
    }
    match interface_addresses() {
        Ok(own) => check_listeners(report, &config.listen, own.into_iter().any(is_global_v6)),
        Err(error) => {
            let found = format!("the addresses of this host can't be read: {error}");
            report.skip(CHECK, found, "`ip -6 address` shows whether there is IPv6");
        }
    }
}

fn check_listeners(report: &mut Report, listeners: &[Listen], has_ipv6: bool) {
    for (interception, mode, consequence) in [
        (Interception::Tproxy, "tproxy", "bypass the tunnel"),
        (Interception::TproxyUdp, "tproxy with protocol udp", "bypass the tunnel"),
        (Interception::Redirect, "redirect", "are refused"),
    ] {
        let of_mode = listeners.iter().filter(|it| it.interception == interception);
        let addresses = of_mode.filter_map(|it| match it.address {
            ListenAddress::Tcp(address) => Some(address),
            ListenAddress::Unix(_) => None,
        });
        let addresses: Vec<_> = addresses.collect();
        let Some(first) = addresses.first() else { continue };
        let (ipv4, ipv6) =
            (addresses.iter().any(|it| it.is_ipv4()), addresses.iter().any(|it| it.is_ipv6()));
        let port = first.port();
        match (ipv4, ipv6) {
            (true, true) => report.ok(CHECK, format!("mode {mode} has listeners for both")),
            (true, false) if !has_ipv6 => {
                report.ok(CHECK, format!("mode {mode} has IPv4, and this host has no IPv6"));
            }
            (true, false) => report.warn(
                CHECK,
                format!("mode {mode} has no listener for IPv6: intercepted IPv6 flows {consequence}"),
                format!(
                    "a second [[listen]] on [::1]:{port}, the `ip -6` commands in the head of the rules, and IPv6 \
                     networks in [[destinations.allow]] of the server; to let IPv6 pass on purpose: \
                     nft flush set inet {} destinations6",
                    table_of(&interception)
                ),
            ),
            (false, _) => report.warn(
                CHECK,
                format!("mode {mode} has no listener for IPv4: intercepted IPv4 flows {consequence}"),
                format!("a second [[listen]] on 127.0.0.1:{port}"),
            ),
        }
    }
}

/// The table of the shipped rules.
fn table_of(interception: &Interception) -> &'static str {
    match interception {
        Interception::Redirect => "millrace_redirect",
        _ => "millrace_tproxy",
    }
}

/// Whether flows to other networks can have this address: not on the loopback, not of one link only.
fn is_global_v6(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use millrace_ops::doctor::CheckVerdict;
    use millrace_tunnel::algorithms;

    use super::*;

    fn found(listeners: &[(&str, &str)], has_ipv6: bool) -> Vec<(CheckVerdict, String)> {
        let entry = |(mode, address): &(&str, &str)| {
            format!("[[listen]]\nmode = \"{mode}\"\naddress = \"{address}\"\n")
        };
        let listeners: String = listeners.iter().map(entry).collect();
        let text = format!(
            "[tunnel]\nservers = [\"192.0.2.1:4433\"]\nserver_name = \"a\"\nca = \"ca.pem\"\n\
             certificate = \"a.pem\"\nprivate_key = \"a.key\"\n{listeners}"
        );
        let path = Path::new("client.toml");
        let config = millrace_config::parse_client(&text, path, &algorithms::check).unwrap();
        let mut report = Report::default();
        check_listeners(&mut report, &config.listen, has_ipv6);
        report.findings.into_iter().map(|it| (it.verdict, it.found)).collect()
    }

    #[test]
    fn a_missing_family_is_a_warning_where_the_host_has_it() {
        let both = [("tproxy", "127.0.0.1:15001"), ("tproxy", "[::1]:15001")];
        assert_eq!(found(&both, true)[0].0, CheckVerdict::Ok);
        assert_eq!(found(&both[..1], false)[0].0, CheckVerdict::Ok);
        let (verdict, words) = found(&both[..1], true).remove(0);
        assert_eq!(verdict, CheckVerdict::Warning);
        assert!(words.contains("no listener for IPv6: intercepted IPv6 flows bypass"), "{words}");
        let (verdict, words) = found(&both[1..], true).remove(0);
        assert_eq!(verdict, CheckVerdict::Warning);
        assert!(words.contains("no listener for IPv4"), "{words}");
        let (_, words) = found(&[("redirect", "127.0.0.1:15002")], true).remove(0);
        assert!(words.contains("IPv6 flows are refused"), "{words}");
        assert!(found(&[("http_connect", "127.0.0.1:3128")], true).is_empty());
    }

    #[test]
    fn addresses_of_one_link_or_host_are_not_global() {
        let of = |text: &str| is_global_v6(text.parse().unwrap());
        assert_eq!(["2001:db8::1", "fd00::1"].map(of), [true, true]);
        assert_eq!(["::1", "fe80::1", "192.0.2.1"].map(of), [false, false, false]);
    }
}
