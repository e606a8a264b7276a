//! `doctor`: each check that fails is reported, with its remedy.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use millrace_e2e::binaries;
use millrace_e2e::certificates::{Authority, SERVER_NAME};
use millrace_e2e::listeners::TestListener;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::program::Program;
use millrace_e2e::relay::RelayOptions;
use millrace_e2e::tcp;
use serde_json::Value;

use crate::stub_server::{Capabilities, StubServer};

/// Longest connection attempt in these tests, and what else the doctor does.
const DOCTOR_TIMEOUT: Duration = Duration::from_secs(20);

struct Found {
    code: Option<i32>,
    json: Value,
}

impl Found {
    fn findings(&self) -> impl Iterator<Item = (&str, &str, String)> {
        let findings = self.json["findings"].as_array().unwrap().iter();
        findings.map(|it| {
            let text = |key: &str| it[key].as_str().unwrap_or_default();
            (text("check"), text("verdict"), format!("{} -> {}", text("found"), text("remedy")))
        })
    }

    #[track_caller]
    fn has(&self, check: &str, verdict: &str, said: &str) {
        let is_it = |(its, how, what): (&str, &str, String)| {
            its.starts_with(check) && how == verdict && what.contains(said)
        };
        assert!(self.findings().any(is_it), "no {check} {verdict} {said:?}: {:#}", self.json);
    }
}

/// The file is that of the running program, which does not read it again; it is the same afterwards.
fn doctor(pair: &Pair, side: &str, change: impl Fn(String) -> String) -> Found {
    let file = pair.dir().join(format!("{side}.toml"));
    let before = fs::read_to_string(&file).unwrap();
    fs::write(&file, change(before.clone())).unwrap();
    let found = run_doctor(side, &file);
    fs::write(&file, before).unwrap();
    found
}

fn run_doctor(side: &str, file: &Path) -> Found {
    let mut command = if side == "client" { binaries::client() } else { binaries::server() };
    command.args(["doctor", "--json", "--config"]).arg(file);
    let ended = Program::run("doctor", command, DOCTOR_TIMEOUT);
    let json = serde_json::from_str(&ended.output);
    Found { code: ended.code, json: json.unwrap_or_else(|e| panic!("{e}: {}", ended.output)) }
}

/// A pair whose listener with one destination has an origin.
fn pair_with(origin: &Origin) -> PairBuilder {
    Pair::builder().static_destination(origin.address())
}

fn same(text: String) -> String {
    text
}

#[test]
fn a_pair_that_works_has_nothing_that_failed() {
    let origin = Origin::echo();
    let pair = pair_with(&origin).start();
    let client = doctor(&pair, "client", same);
    client.has("server ", "ok", "round trip");
    client.has("path MTU", "ok", "1452");
    client.has("MTU", "ok", "bytes on the way");
    client.has("chain", "ok", "tunnel.ca");
    client.has("key exchange", "ok", "X25519MLKEM768, post-quantum");
    client.has("names", "ok", "client");
    client.has("listen[0].destination", "ok", "connects to it");
    let server = doctor(&pair, "server", same);
    server.has("tunnel.listen", "ok", "answers");
    server.has("names", "ok", SERVER_NAME);
    server.has("destinations", "ok", "2 entries for TCP, 0 for UDP");
    for found in [&client, &server] {
        assert!(found.findings().all(|(check, ..)| !check.starts_with("UDP")), "{:#}", found.json);
    }
    for found in [client, server] {
        assert_eq!(found.code, Some(0), "{:#}", found.json);
        assert!(found.findings().all(|(_, verdict, _)| verdict != "failed"), "{:#}", found.json);
    }
    // For people.
    let mut command = binaries::client();
    command.args(["doctor", "--config"]).arg(pair.dir().join("client.toml"));
    let ended = Program::run("doctor", command, DOCTOR_TIMEOUT);
    assert_eq!(ended.code, Some(0));
    assert!(ended.output.contains("ok       server 127.0.0.1:"), "{}", ended.output);
    assert!(ended.output.contains("\n0 failed, "), "{}", ended.output);
}

#[test]
fn what_a_client_gets_wrong_is_found() {
    let mut pair = Pair::builder().relay(RelayOptions::default()).start();
    let other = Authority::make(pair.dir());
    let expired = other.sign("edge", -30..-1);
    let future = other.sign("edge", 1..30);
    let ca = pair.certificates.ca.display().to_string();
    let own = pair.certificates.client.clone();
    let with = |identity: &millrace_e2e::certificates::Identity| {
        let (certificate, key) = (identity.certificate.clone(), identity.private_key.clone());
        let (old, old_key) = (own.certificate.clone(), own.private_key.clone());
        move |text: String| {
            text.replace(old.to_str().unwrap(), certificate.to_str().unwrap())
                .replace(old_key.to_str().unwrap(), key.to_str().unwrap())
        }
    };
    let failed = |found: &Found| assert_eq!(found.code, Some(1), "{:#}", found.json);

    let found = doctor(&pair, "client", |text| text.replace(SERVER_NAME, "elsewhere.test"));
    failed(&found);
    found.has("server ", "failed", &format!("certificate is for {SERVER_NAME}"));

    let found = doctor(&pair, "client", |text| {
        text.replace(&format!("\"{ca}\""), &format!("\"{}\"", other.ca.display()))
    });
    failed(&found);
    found.has("server ", "failed", "tunnel.ca must be");
    found.has("chain", "warning", "would not be taken");

    let found = doctor(&pair, "client", with(&expired));
    failed(&found);
    found.has("tunnel.certificate", "failed", "has expired");
    found.has("server ", "failed", "did not take our certificate");

    let found = doctor(&pair, "client", with(&future));
    found.has("tunnel.certificate", "failed", "set the clock");

    let found = doctor(&pair, "client", |text| {
        let servers = text.lines().find(|line| line.starts_with("servers")).unwrap();
        text.replace(servers, "servers = [\"no-such-host.invalid:4433\"]")
    });
    failed(&found);
    found.has("server no-such-host.invalid:4433", "failed", "has no address");

    // A path that swallows everything, and one that ends at a closed port.
    let short = |text: String| text.replace("[tunnel]", "[tunnel]\nconnect_timeout_s = 2");
    pair.relay.as_ref().unwrap().swallow(true);
    let found = doctor(&pair, "client", short);
    failed(&found);
    found.has("server ", "failed", "no answer");
    drop(pair.relay.take());
    let found = doctor(&pair, "client", short);
    failed(&found);
    found.has("server ", "failed", "the port is closed");
}

#[test]
fn what_a_server_gets_wrong_is_found() {
    let mut pair = Pair::builder().start();
    let other = Authority::make(pair.dir());
    let expired = other.sign(SERVER_NAME, -30..-1);
    let own = pair.certificates.server.clone();
    let found = doctor(&pair, "server", |text| {
        text.replace(own.certificate.to_str().unwrap(), expired.certificate.to_str().unwrap())
            .replace(own.private_key.to_str().unwrap(), expired.private_key.to_str().unwrap())
    });
    assert_eq!(found.code, Some(1), "{:#}", found.json);
    found.has("tunnel.certificate", "failed", "has expired");

    let found = doctor(&pair, "server", |text| {
        text.split_once("[[destinations.allow]]").unwrap().0.to_owned()
    });
    assert_eq!(found.code, Some(1), "{:#}", found.json);
    found.has("destinations", "failed", "[[destinations.allow]]");

    let found = doctor(&pair, "server", |text| {
        text.replace(&pair.addresses.tunnel.to_string(), "198.18.77.77:4433")
    });
    found.has("tunnel.listen 198.18.77.77:4433", "failed", "does not have the address");

    pair.server.kill();
    let found = doctor(&pair, "server", same);
    found.has("tunnel.listen", "skipped", "no answer");
}

/// A client with a UDP listener reports of each server whether that carries UDP.
#[test]
fn a_server_that_does_not_carry_udp_is_found() {
    let address = tcp::unused(Ipv4Addr::LOCALHOST);
    let section = format!("mode = \"udp\"\naddress = \"{address}\"\ndestination = \"127.0.0.1:9\"");
    let origin = Origin::echo();
    let pair = pair_with(&origin).allow_udp("127.0.0.1").listen(&section).start();
    let found = doctor(&pair, "client", same);
    assert_eq!(found.code, Some(0), "{:#}", found.json);
    let both = "extended CONNECT (RFC 9220) and HTTP datagrams (RFC 9297)";
    found.has("UDP", "ok", &format!("{} offers {both}", pair.addresses.tunnel));

    for (extended_connect, datagrams, missing) in [
        (false, false, both),
        (true, false, "does not offer HTTP datagrams (RFC 9297) ->"),
        (false, true, "does not offer extended CONNECT (RFC 9220) ->"),
    ] {
        let at: SocketAddr = tcp::unused(Ipv4Addr::LOCALHOST);
        let capabilities = Capabilities { extended_connect, datagrams };
        let _server = StubServer::start(at, &pair.certificates, capabilities);
        let to_it =
            |text: String| text.replace(&pair.addresses.tunnel.to_string(), &at.to_string());
        let found = doctor(&pair, "client", to_it);
        assert_eq!(found.code, Some(1), "{:#}", found.json);
        found.has("server ", "ok", "took our certificate");
        found.has("UDP", "failed", missing);
        found.has("UDP", "failed", "server from tunnel.servers");
        // For TCP alone it is as good as any.
        let without = |text: String| to_it(text).replace(&format!("[[listen]]\n{section}\n"), "");
        let found = doctor(&pair, "client", without);
        assert_eq!(found.code, Some(0), "{:#}", found.json);
        assert!(found.findings().all(|(check, ..)| check != "UDP"), "{:#}", found.json);
    }
}

/// Each cause for which RTP over UDP is not carried.
#[test]
fn a_configuration_that_does_not_follow_rtsp_is_found() {
    let check = "RTP over UDP";
    let origin = Origin::echo();
    let pair = pair_with(&origin).start();
    let at = pair.addresses.tunnel;
    let found = doctor(&pair, "client", same);
    found.has(check, "ok", &format!("{at} follows RTSP"));
    found.has(check, "warning", "mode proxy_protocol");
    found.has("RTP ports", "ok", "for at most 1000 pairs");
    doctor(&pair, "server", same).has("RTP ports", "ok", "for at most 1000 pairs");

    let with = |side: &str, from: &str, to: &str| {
        doctor(&pair, side, |text| {
            assert!(text.contains(from), "{text}");
            text.replacen(from, to, 1)
        })
    };
    let mode = "mode = \"http_connect\"";
    let found = with("client", mode, &format!("{mode}\nrecognise_class = false"));
    found.has(check, "warning", "listen[1].recognise_class is off, and flows to port 554");
    for side in ["client", "server"] {
        let none = "[limits]\nmax_rtsp_port_pairs = 0\n[log]";
        let found = with(side, "[log]", none);
        found.has(check, "warning", "limits.max_rtsp_port_pairs is 0");
        assert_eq!(found.code, Some(0), "{:#}", found.json);
        let many = "[limits]\nmax_rtsp_port_pairs = 10000\n[log]";
        let found = with(side, "[log]", many);
        assert!(found.findings().any(|(check, ..)| check == "RTP ports"), "{:#}", found.json);
    }
    let forwarded = "[[destinations.allow]]\nforward_to = \"127.0.0.1:9\"";
    let found = with("server", "[[destinations.allow]]", forwarded);
    found.has(check, "warning", "destinations.allow[0] forwards port 554");

    let address: SocketAddr = tcp::unused(Ipv4Addr::LOCALHOST);
    let capabilities = Capabilities { extended_connect: true, datagrams: true };
    let _server = StubServer::start(address, &pair.certificates, capabilities);
    let found = with("client", &at.to_string(), &address.to_string());
    found.has(check, "skipped", "does not say whether it follows RTSP");
}

#[test]
fn a_server_that_does_not_follow_rtsp_is_found() {
    let origin = Origin::echo();
    let pair = pair_with(&origin).server("limits.max_rtsp_port_pairs", 0).start();
    let found = doctor(&pair, "client", same);
    found.has(
        "RTP over UDP",
        "warning",
        "does not follow RTSP: SETUP of media over UDP is refused with 461",
    );
    assert_eq!(found.code, Some(0), "{:#}", found.json);
}

#[test]
fn a_server_with_fewer_ports_than_udp_flows_is_found() {
    let pair = Pair::builder().allow_udp("127.0.0.1").start();
    let found = doctor(&pair, "server", |text| format!("{text}\n[limits]\nmax_flows = 1000\n"));
    found.has("destinations", "ok", "2 entries for TCP, 1 for UDP");
    found.has("UDP ports", "ok", "for at most 1000 flows");
    let found = doctor(&pair, "server", |text| format!("{text}\n[limits]\nmax_flows = 100000\n"));
    found.has("UDP ports", "warning", "limits.max_flows = ");
    assert_eq!(found.code, Some(0), "{:#}", found.json);
}

/// A destination that the server does not allow, one at which nothing listens, and one with a name without address.
#[test]
fn a_destination_that_is_forbidden_or_unreachable_is_found() {
    let origin = Origin::echo();
    let pair = pair_with(&origin).start();
    let to = |destination: &str| {
        doctor(&pair, "client", |text| text.replace(&origin.address().to_string(), destination))
    };
    let closed = tcp::unused(Ipv4Addr::LOCALHOST).to_string();
    for (destination, said) in [
        ("198.18.77.77:80", "does not allow it -> add it to [[destinations.allow]]"),
        (closed.as_str(), "can't connect to it: connection refused"),
        ("no-such-origin.invalid:80", "can't connect to it: name not resolved"),
    ] {
        let found = to(destination);
        assert_eq!(found.code, Some(1), "{:#}", found.json);
        found.has(&format!("listen[0].destination {destination}"), "failed", said);
    }
    let entry = format!(
        "[[destinations.allow]]\nnetwork = \"127.0.0.1\"\nports = [{}]\n",
        origin.address().port()
    );
    let found = doctor(&pair, "server", |text| format!("{text}\n{entry}"));
    found.has("destinations.allow[2]", "ok", "127.0.0.1: connected");
    let found = doctor(&pair, "server", |text| {
        format!("{text}\n[[destinations.allow]]\nname = \"no-such-origin.invalid\"\nports = [80]\n")
    });
    assert_eq!(found.code, Some(1), "{:#}", found.json);
    found.has("destinations.allow[2]", "failed", "no-such-origin.invalid: port 80: ");
}

/// Addresses of the running pair, with its configuration and with another one, and addresses of another program.
#[test]
fn an_address_that_another_process_has_is_found() {
    let origin = Origin::echo();
    let pair = pair_with(&origin).start();
    let of = |side: &str, file: &str| run_doctor(side, &pair.dir().join(file));
    let found = of("client", "client.toml");
    assert_eq!(found.code, Some(0), "{:#}", found.json);
    let running = format!("process {}) has it", pair.client.pid());
    for key in ["listen[0] ", "listen[1] ", "listen[4] unix:", "admin.address "] {
        found.has(key, "ok", &running);
    }
    let running = format!("process {}) has it", pair.server.pid());
    of("server", "server.toml").has("tunnel.listen", "ok", &running);
    // A second server with the same address would not start.
    fs::copy(pair.dir().join("server.toml"), pair.dir().join("second.toml")).unwrap();
    let found = of("server", "second.toml");
    assert_eq!(found.code, Some(1), "{:#}", found.json);
    found.has("tunnel.listen", "failed", "with the configuration");

    // The origin is a thread of this test.
    let taken = format!("process {}) has it", std::process::id());
    let TestListener::Http(address) = &pair.listeners[1] else { panic!("{:?}", pair.listeners[1]) };
    let found = doctor(&pair, "client", |text| {
        text.replace(
            &format!("address = \"{address}\""),
            &format!("address = \"{}\"", origin.address()),
        )
    });
    assert_eq!(found.code, Some(1), "{:#}", found.json);
    found.has(&format!("listen[1] {}", origin.address()), "failed", &taken);
    let udp = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let of_udp = udp.local_addr().unwrap().to_string();
    let found =
        doctor(&pair, "server", |text| text.replace(&pair.addresses.tunnel.to_string(), &of_udp));
    assert_eq!(found.code, Some(1), "{:#}", found.json);
    found.has(&format!("tunnel.listen {of_udp}"), "failed", &taken);
}

#[test]
fn a_wrong_configuration_has_its_own_exit_code() {
    let pair = Pair::builder().start();
    for side in ["client", "server"] {
        let file = pair.dir().join("wrong.toml");
        fs::write(&file, "[nonsense]\n").unwrap();
        let mut command = if side == "client" { binaries::client() } else { binaries::server() };
        command.args(["doctor", "--config"]).arg(&file);
        let ended = Program::run("doctor", command, DOCTOR_TIMEOUT);
        assert_eq!(ended.code, Some(64), "{}", ended.output);
    }
}
