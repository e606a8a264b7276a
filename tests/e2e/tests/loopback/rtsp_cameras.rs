//! RTP over UDP of cameras and players that deviate from RFC 2326: media come, or the player is told at once that they
//! don't.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::camera::{Camera, DESCRIPTION, Deviation, Request};
use millrace_e2e::listeners::{read_head, status_of};
use millrace_e2e::pair::Pair;
use millrace_e2e::rtsp::{Ends, Player, RtspOrigin, Sockets, field, parameter, receive, request};
use millrace_e2e::wait::DEFAULT_TIMEOUT;
use millrace_e2e::{tcp, wait};
use socket2::Socket;

fn connect(pair: &Pair, camera: &Camera) -> Player {
    Player::connect(&pair.listeners[2], camera.address())
}

fn refused_setups(pair: &Pair, reason: &str) -> f64 {
    let name = "millrace_rtsp_setups_refused_total";
    let admins = [pair.addresses.client_admin, pair.addresses.server_admin];
    admins.map(|it| Metrics::fetch(it).sum(name, &[("reason", reason)])).iter().sum()
}

/// Datagrams come from `from` to a player's socket.
#[track_caller]
fn assert_comes(from: &UdpSocket, to: SocketAddr, at: &UdpSocket) {
    for number in 0..5_u8 {
        from.send_to(&[number; 100], to).unwrap();
        assert_eq!(receive(at, DEFAULT_TIMEOUT).0, [number; 100]);
    }
}

#[test]
fn media_of_deviating_cameras_come() {
    let pair = Pair::builder().start();
    for deviation in Deviation::CARRIED {
        let camera = Camera::start(deviation);
        let mut player = connect(&pair, &camera);
        let described = player.ask("DESCRIBE", "live", "");
        assert_eq!(described.status, 200, "{deviation:?}");
        assert_eq!(player.read(DESCRIPTION.len()), DESCRIPTION.as_bytes(), "{deviation:?}");
        let answer = player.set_up("live");
        assert_eq!(answer.status, 200, "{deviation:?}: {}", answer.head);
        let Request { ends, .. } = camera.request("SETUP");
        let (found, to_player) = (answer.ends(), ends.unwrap());
        assert_comes(&camera.media.rtp, to_player.rtp, &player.media.rtp);
        assert_comes(&camera.media.rtcp, to_player.rtcp, &player.media.rtcp);
        if deviation != Deviation::OtherPorts {
            assert_comes(&player.media.rtcp, found.rtcp, &camera.media.rtcp);
        }
        assert_eq!(player.ask("TEARDOWN", "live", "Session: 47\r\n").status, 200);
    }
    assert_eq!(refused_setups(&pair, "answer") + refused_setups(&pair, "transport"), 0.0);
}

/// The player changes to RTP in its connection, and the camera's session is ended.
#[test]
fn a_camera_that_names_a_foreign_source_is_refused_and_told_so() {
    let pair = Pair::builder().start();
    let camera = Camera::start(Deviation::ForeignSource);
    let mut player = connect(&pair, &camera);
    assert_eq!(player.set_up("live").status, 461);
    assert!(camera.request("TEARDOWN").head.contains("Session: 47\r\n"));
    assert_eq!(refused_setups(&pair, "answer"), 1.0);
    let tcp = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";
    assert_eq!(player.ask("SETUP", "live", tcp).status, 200);
    // A TEARDOWN of the tunnel would need the player's password.
    let digest = format!(
        "Transport: RTP/AVP;unicast;client_port={}\r\nAuthorization: Digest username=\"a\"\r\n",
        player.media.ports()
    );
    assert_eq!(player.ask("SETUP", "live", &digest).status, 461);
    let mut rest = Vec::new();
    player.into_stream().read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    assert!(!camera.was_asked("TEARDOWN"));
}

/// As SAT>IP clients send it: the server has not said yet that it follows RTSP.
#[test]
fn setup_is_the_first_request_of_a_connection() {
    let pair = Pair::builder().start();
    let origin = RtspOrigin::start();
    let media = Sockets::open();
    let transport = format!("Transport: RTP/AVP;unicast;client_port={}\r\n", media.ports());
    let mut stream = pair.listeners[2].open(&origin.address().to_string()).unwrap();
    stream.write_all(request("SETUP", "live", 1, &transport).as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap();
    assert_eq!(status_of(&head), 200, "{head}");
    let to_player = origin.asked().ends.unwrap();
    assert_comes(&origin.media.rtp, to_player.rtp, &media.rtp);
}

/// `client_port=p-p`: RTP and RTCP come to one port of the player.
#[test]
fn a_player_with_one_port_gets_both() {
    let pair = Pair::builder().start();
    let origin = RtspOrigin::start();
    let mut player = Player::connect(&pair.listeners[2], origin.address());
    origin.asked();
    let port = player.media.rtp.local_addr().unwrap().port();
    let own = format!("client_port={port}-{port}");
    let answer = player.ask("SETUP", "live", &format!("Transport: RTP/AVP;unicast;{own}\r\n"));
    assert!(answer.head.contains(&own), "{}", answer.head);
    let to_player = origin.asked().ends.unwrap();
    assert_comes(&origin.media.rtp, to_player.rtp, &player.media.rtp);
    assert_comes(&origin.media.rtcp, to_player.rtcp, &player.media.rtp);
    assert_comes(&player.media.rtp, answer.ends().rtcp, &origin.media.rtcp);
}

#[test]
fn of_several_transports_one_is_carried() {
    let pair = Pair::builder().start();
    let origin = RtspOrigin::start();
    let mut player = Player::connect(&pair.listeners[2], origin.address());
    origin.asked();
    let ports = player.media.ports();
    let several = format!(
        "Transport: RTP/AVP;unicast;client_port={ports},RTP/AVPF;unicast;client_port={ports}\r\n"
    );
    let answer = player.ask("SETUP", "live", &several);
    let asked = origin.asked();
    assert_eq!(field(&asked.head, "Transport").unwrap().matches("client_port").count(), 1);
    let to_player = Ends::parse(
        [127, 0, 0, 1].into(),
        parameter(field(&asked.head, "Transport").unwrap(), "client_port").unwrap(),
    );
    assert_eq!(answer.status, 200);
    assert_comes(&origin.media.rtp, to_player.rtp, &player.media.rtp);
}

/// More than players have, as for a wall of cameras.
#[test]
fn a_connection_has_a_dozen_media() {
    let pair = Pair::builder().both("limits.rtsp_share_per_viewer", 100).start();
    let origin = RtspOrigin::start();
    let mut player = Player::connect(&pair.listeners[2], origin.address());
    origin.asked();
    let media: Vec<_> = (0..12).map(|_| Sockets::open()).collect();
    for (number, sockets) in media.iter().enumerate() {
        let transport = format!("Transport: RTP/AVP;unicast;client_port={}\r\n", sockets.ports());
        assert_eq!(player.ask("SETUP", &format!("live/{number}"), &transport).status, 200);
        let to_player = origin.asked().ends.unwrap();
        assert_comes(&origin.media.rtp, to_player.rtp, &sockets.rtp);
    }
}

/// What can't be carried is answered, and the connection goes on with RTP in it.
#[test]
fn media_that_cant_be_carried_are_refused() {
    let pair = Pair::builder().start();
    let camera = Camera::start(Deviation::NoServerPort);
    let mut player = connect(&pair, &camera);
    for transport in
        ["RTP/AVP;unicast", "RTP/AVP;unicast;destination=198.18.0.8;client_port=5000-5001"]
    {
        let answer = player.ask("SETUP", "live", &format!("Transport: {transport}\r\n"));
        assert_eq!(answer.status, 461, "{}", answer.head);
    }
    assert_eq!(refused_setups(&pair, "transport"), 2.0);
    assert!(!camera.was_asked("SETUP"));
    for transport in ["RTP/AVP/TCP;unicast;interleaved=0-1", "RTP/AVP;multicast;port=5000-5001"] {
        let answer = player.ask("SETUP", "live", &format!("Transport: {transport}\r\n"));
        assert_eq!(answer.status, 200);
        let head = camera.request("SETUP").head;
        assert_eq!(field(&head, "Transport"), Some(transport));
    }
}

/// A NAL unit in one RTP packet that leaves the origin in IP fragments. The loopback takes 64 KiB at once; that fragments
/// are allowed at the last hop is seen in namespaces.
#[test]
fn large_packets_arrive_whole() {
    let pair = Pair::builder().start();
    let origin = RtspOrigin::start();
    let mut player = Player::connect(&pair.listeners[2], origin.address());
    origin.asked();
    player.set_up("live");
    let to_player = origin.asked().ends.unwrap();
    let large = vec![7; 7000];
    origin.media.rtp.send_to(&large, to_player.rtp).unwrap();
    let mut buffer = vec![0; 9000];
    player.media.rtp.set_read_timeout(Some(DEFAULT_TIMEOUT)).unwrap();
    let length = player.media.rtp.recv(&mut buffer).unwrap();
    assert!(buffer[..length] == large, "{length} bytes");
}

/// A session is not bound to a connection (RFC 2326, Section 1.1).
#[test]
fn media_go_on_after_the_connection_and_end_with_the_player() {
    let pair = Pair::builder().start();
    let origin = RtspOrigin::start();
    let mut player = Player::connect(&pair.listeners[2], origin.address());
    origin.asked();
    let answer = player.set_up("live");
    let to_player = origin.asked().ends.unwrap();
    assert_eq!(player.ask("PLAY", "live", "Session: 47\r\n").status, 200);
    player.hang_up();
    let flows = || {
        let admins = [pair.addresses.client_admin, pair.addresses.server_admin];
        admins.map(|it| Metrics::fetch(it).sum("millrace_flows_active", &[]))
    };
    wait::for_true("only the media remain", DEFAULT_TIMEOUT, || flows() == [2.0; 2]);
    assert_comes(&origin.media.rtp, to_player.rtp, &player.media.rtp);
    assert_comes(&player.media.rtcp, answer.ends().rtcp, &origin.media.rtcp);
    // A player that has gone refuses what comes: that is the end of its media.
    drop(player);
    wait::for_true("the media have ended", DEFAULT_TIMEOUT, || {
        origin.media.rtp.send_to(b"x", to_player.rtp).unwrap();
        origin.media.rtcp.send_to(b"x", to_player.rtcp).unwrap();
        flows() == [0.0; 2]
    });
}

/// A TEARDOWN whose answer the player does not wait for is one.
#[test]
fn media_end_with_a_teardown_before_the_connection_ends() {
    let pair = Pair::builder().start();
    let origin = RtspOrigin::start();
    let mut player = Player::connect(&pair.listeners[2], origin.address());
    origin.asked();
    player.set_up("live");
    let to_player = origin.asked().ends.unwrap();
    let stream = player.into_stream();
    (&stream).write_all(request("TEARDOWN", "live", 9, "Session: 47\r\n").as_bytes()).unwrap();
    drop(stream);
    wait::for_true("the ports are given back", DEFAULT_TIMEOUT, || to_player.are_free());
}

/// A flow that bypasses the tunnel has no ports: the player is told so at once.
#[test]
fn a_bypassed_flow_refuses_media_over_udp() {
    let origin = RtspOrigin::start();
    let listener = tcp::unused(std::net::Ipv4Addr::LOCALHOST);
    let listen = format!(
        "mode = \"static\"\naddress = \"{listener}\"\ndestination = \"{}\"\nclass = \"rtsp\"\nfail_mode = \"open\"",
        origin.address()
    );
    let mut pair = Pair::builder().listen(&listen).direct("127.0.0.0/8").start();
    pair.server.kill();
    let mut stream = None;
    wait::for_true("a flow bypasses the tunnel", Duration::from_secs(30), || {
        stream = answered(listener);
        stream.is_some()
    });
    let mut player = Player::over(stream.unwrap(), Sockets::open());
    let answer = player.set_up("live");
    assert_eq!(answer.status, 461, "{}", answer.head);
    let tcp = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";
    assert_eq!(player.ask("SETUP", "live", tcp).status, 200);
    let refused = Metrics::fetch(pair.addresses.client_admin);
    assert_eq!(refused.sum("millrace_rtsp_setups_refused_total", &[]), 1.0);
}

/// A connection whose first request was answered.
fn answered(listener: SocketAddr) -> Option<Socket> {
    let mut stream = Socket::from(TcpStream::connect(listener).ok()?);
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(request("OPTIONS", "*", 0, "").as_bytes()).ok()?;
    read_head(&mut stream).ok()?;
    Some(stream)
}
