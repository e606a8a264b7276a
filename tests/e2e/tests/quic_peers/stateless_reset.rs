//! Stateless resets: a server that was started again resets its old connections, and no other server can.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use millrace_e2e::pair::Pair;
use millrace_e2e::{tcp, wait};

use crate::peer::Peer;

/// What a server answers to a packet with the connection ID that the peer sends to, without being able to read it.
fn answer(server: std::net::SocketAddr, peer: &Peer) -> Vec<u8> {
    let id = peer.quic.destination_id().to_vec();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    // The form of a short header.
    let question = [&[0x40], &id[..], &[7; 100]].concat();
    let mut buffer = [0; 1500];
    let length = wait::until(wait::DEFAULT_TIMEOUT, || {
        socket.send(&question).ok()?;
        socket.recv(&mut buffer).ok()
    });
    buffer[..length.expect("an answer")].to_vec()
}

/// The same certificate and key everywhere, as behind a balancer.
#[test]
fn only_the_restarted_server_itself_resets_a_connection() {
    let mut pair = Pair::builder().start();
    let other_state = pair.dir().join("other-state");
    let file = pair.dir().join("server.toml");
    let text = fs::read_to_string(&file).unwrap();
    let state = pair.dir().join("state");
    let tunnel = tcp::unused(std::net::Ipv4Addr::LOCALHOST);
    // Another instance: also what listens at the same address of another machine.
    fs::write(
        &file,
        text.replace(&state.display().to_string(), &other_state.display().to_string()),
    )
    .unwrap();
    let _other = pair.start_another_server(tunnel);
    fs::write(&file, &text).unwrap();

    let mut peer = Peer::connect(&pair, true);
    peer.drive(Duration::from_millis(200), |_| None::<()>);
    let oracle = answer(tunnel, &peer);
    pair.server.kill();
    peer.take_quietly(&oracle);
    assert!(!peer.quic.is_closed(), "another server's answer resets the connection");
    pair.start_server_again();
    let own = answer(pair.addresses.tunnel, &peer);
    peer.take_quietly(&own);
    assert!(peer.quic.is_closed(), "the restarted server's answer does not reset the connection");
}

#[test]
fn server_without_state_directory_says_what_it_can_not_do() {
    let mut pair = Pair::builder().start();
    let file = pair.dir().join("server.toml");
    let text = fs::read_to_string(&file).unwrap();
    let kept: Vec<_> = text.lines().filter(|line| !line.starts_with("state_dir")).collect();
    assert!(!pair.server.log_text().contains("state_dir"));
    pair.server.kill();
    fs::write(&file, kept.join("\n")).unwrap();
    pair.start_server_again();
    pair.server.expect_log("a warning", wait::DEFAULT_TIMEOUT, |line| {
        (line.contains("WARN") && line.contains("tunnel.state_dir is not set")).then_some(())
    });
}
