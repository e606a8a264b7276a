//! `doctor` at a gateway: reports what is missing, and nothing once everything is set up.

use millrace_lab::process::output_of;
use serde_json::Value;

use crate::http3::{self, CARRIED};
use crate::interception::{TPROXY, tproxy_rules};
use crate::world::World;

/// The checks of a verdict, each with its remedy.
fn checks(found: &Value, verdict: &str) -> Vec<(String, String)> {
    let findings = found["findings"].as_array().unwrap().iter();
    let of_verdict = findings.filter(|it| it["verdict"] == verdict);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    of_verdict.map(|it| (text(&it["check"]), text(&it["remedy"]))).collect()
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn what_interception_needs_is_missed_until_it_is_there() {
    let world = World::start(&TPROXY, |_| {});
    let (code, found) = world.doctor();
    assert_eq!(code, Some(1), "{found:#}");
    let failed = checks(&found, "failed");
    for (check, remedy) in [
        ("nftables", "tproxy.nft"),
        ("ip rule", "rule add fwmark 0x4d54 lookup 4454"),
        ("tunnel.mark", "0x4d52"),
    ] {
        let has = |(failed, what): &(String, String)| failed == check && what.contains(remedy);
        assert!(failed.iter().any(has), "{check} is not missed: {found:#}");
    }
    // The tunnel itself is up.
    assert!(
        checks(&found, "ok").iter().any(|(check, _)| check.starts_with("server ")),
        "{found:#}"
    );

    tproxy_rules(&world.topology, "millrace_tproxy client_interfaces { \"lan\" }");
    let (code, found) = world.doctor();
    assert_eq!((code, checks(&found, "failed")), (Some(0), vec![]), "{found:#}");
    let fine: Vec<_> = checks(&found, "ok").into_iter().map(|(check, _)| check).collect();
    for check in [
        "nftables",
        "ip rule",
        "tunnel.mark",
        "ip_forward",
        "HTTP/3",
        "MTU",
        "path MTU",
        "RTP over UDP",
    ] {
        assert!(fine.iter().any(|it| it == check), "{check}: {found:#}");
    }

    // The check has a finding of the rules and one of the server.
    let warned = checks(&found, "warning");
    assert!(!warned.iter().any(|(check, _)| check == "RTP over UDP"), "{found:#}");

    // The rules name an interface that is not there.
    let rule = "add element inet millrace_tproxy client_interfaces { \"wlan9\" }";
    output_of(world.topology.client_edge.command("nft").arg(rule)).unwrap();
    let (code, found) = world.doctor();
    assert_eq!(code, Some(1), "{found:#}");
    let failed = checks(&found, "failed");
    let missed =
        |(check, what): &(String, String)| check == "client_interfaces" && what.contains("wlan9");
    assert!(failed.iter().any(missed), "{found:#}");

    // A table that leads elsewhere.
    world.topology.client_edge.ip("route flush table 4454").unwrap();
    let (_, found) = world.doctor();
    let failed = checks(&found, "failed");
    let missed =
        |(check, what): &(String, String)| check == "ip rule" && what.contains("table 4454");
    assert!(failed.iter().any(missed), "{found:#}");
}

/// HTTP/3 is rejected, passes, or is carried.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn handling_of_http3_is_reported() {
    let world = World::start(&CARRIED, http3::rules);
    let edge = &world.topology.client_edge;
    let of_http3 = |verdict| {
        let (_, found) = world.doctor();
        let told = checks(&found, verdict).into_iter().find(|(check, _)| check == "HTTP/3");
        told.unwrap_or_else(|| panic!("HTTP/3 is not {verdict}: {found:#}")).1
    };
    assert!(of_http3("warning").contains("carried_udp_ports"));
    http3::carry(edge);
    of_http3("ok");
    let (code, found) = world.doctor();
    assert_eq!((code, checks(&found, "failed")), (Some(0), vec![]), "{found:#}");
    let fine: Vec<_> = checks(&found, "ok").into_iter().map(|(check, _)| check).collect();
    for check in ["CAP_NET_BIND_SERVICE", "ip -6 rule", "UDP"] {
        assert!(fine.iter().any(|it| it == check), "{check}: {found:#}");
    }

    drop(world);
    let world = World::start(&TPROXY, |topology| {
        tproxy_rules(topology, "millrace_tproxy client_interfaces { \"lan\" }");
        let rule = "flush set inet millrace_tproxy rejected_udp_ports";
        output_of(topology.client_edge.command("nft").arg(rule)).unwrap();
    });
    let (_, found) = world.doctor();
    let warned = checks(&found, "warning");
    assert!(warned.iter().any(|(check, _)| check == "HTTP/3"), "{found:#}");
}
