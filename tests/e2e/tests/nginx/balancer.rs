//! The balancer of the Compose example, with one server of the test's own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millrace_e2e::program::Program;
use millrace_e2e::udp::{self, UdpEcho};
use millrace_e2e::{tcp, wait};

/// Datagrams of garbage, each from an address of its own: more than nginx had sessions for with
/// 16,384 connections.
const GARBAGE: u32 = 9200;
/// RFC 9000, Section 14.1.
const FIRST_DATAGRAM: [u8; 1200] = [0; 1200];

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn garbage_at_the_balancer_leaves_sessions_to_tunnels() {
    let server = UdpEcho::start();
    let balancer = tcp::unused(Ipv4Addr::LOCALHOST);
    let dir = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/docker/balancer.conf");
    let config = fs::read_to_string(shipped)
        .unwrap()
        .replace("/etc/nginx/modules-enabled/*.conf", "/etc/nginx/modules-enabled/*stream.conf")
        .replace("tunnel-server:4433", &server.address().to_string())
        .replace("listen 4433 udp", &format!("listen {balancer} udp"))
        .replace("/run/nginx/nginx.pid", dir.path().join("pid").to_str().unwrap());
    let path = dir.path().join("nginx.conf");
    fs::write(&path, config).unwrap();
    let mut command = Command::new("nginx");
    command.args(["-e", "stderr", "-c"]).arg(&path);
    let mut nginx = Program::start("balancer", command);
    let connects = |client: &UdpSocket| {
        udp::exchange(client, &FIRST_DATAGRAM, Duration::from_millis(200)).is_some()
    };
    let early = udp::client(balancer);
    wait::for_true("the balancer answers", wait::DEFAULT_TIMEOUT, || connects(&early));
    let seen = server.seen();
    for number in 0..GARBAGE {
        let from = IpAddr::from((0x7f01_0000 + number).to_be_bytes());
        UdpSocket::bind((from, 0)).unwrap().send_to(b"x", balancer).unwrap();
    }
    let late = udp::client(balancer);
    wait::for_true("a new tunnel comes through", wait::DEFAULT_TIMEOUT, || connects(&late));
    let passed = server.seen() - seen;
    assert!(passed < 1000, "{passed} datagrams of garbage have sessions");
    assert!(connects(&early));
    assert!(nginx.is_running());
    assert!(!nginx.log_text().contains("not enough"), "{}", nginx.log_text());
}
