//! RTP over UDP of RTSP players, which takes the tunnel too. The allow-list has no UDP in it: an
//! origin that may be reached by RTSP may send its media.

use std::net::SocketAddr;
use std::time::Duration;

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::rtsp::{Ends, Player, RtspOrigin, assert_media, field, receive, request};
use millrace_e2e::wait::DEFAULT_TIMEOUT;
use millrace_e2e::{tcp, udp, wait};

/// The listener whose flows are of class `rtsp`.
fn connect(pair: &Pair, origin: &RtspOrigin) -> Player {
    let player = Player::connect(&pair.listeners[2], origin.address());
    assert_eq!(field(&origin.asked().head, "CSeq"), Some("1"));
    player
}

/// A medium that is set up: where the player finds the origin, and the origin the player.
pub(crate) fn set_up(player: &mut Player, origin: &RtspOrigin) -> (Ends, Ends) {
    let answer = player.set_up("live");
    let asked = origin.asked();
    assert_eq!(answer.status, 200, "{}", answer.head);
    let to_player = asked.ends.unwrap();
    let own = format!("client_port={}", player.media.ports());
    assert!(!asked.head.contains(&own), "the player's own ports: {}", asked.head);
    assert!(!asked.head.contains("millrace") && !answer.head.contains("millrace"));
    assert!(answer.head.contains(&own), "{}", answer.head);
    assert!(!answer.head.contains(&origin.media.ports()), "{}", answer.head);
    (answer.ends(), to_player)
}

fn active(from: SocketAddr) -> f64 {
    Metrics::fetch(from).sum("millrace_flows_active", &[])
}

fn wait_for_flows(pair: &Pair, flows: f64) {
    let admins = [pair.addresses.client_admin, pair.addresses.server_admin];
    wait::for_true("so many flows at both ends", DEFAULT_TIMEOUT, || {
        admins.map(active) == [flows, flows]
    });
}

fn wait_free(media: (Ends, Ends)) {
    wait::for_true("the ports are given back", DEFAULT_TIMEOUT, || {
        media.0.are_free() && media.1.are_free()
    });
}

#[test]
fn media_come_and_go_through_the_tunnel_until_the_teardown() {
    let origin = RtspOrigin::start();
    for connections in ["shared", "per_flow"] {
        let pair = Pair::builder().client("tunnel.connections", format!("\"{connections}\""));
        let pair = pair.start();
        let mut player = connect(&pair, &origin);
        let media = set_up(&mut player, &origin);
        assert_media(&player, &origin, media, 1);
        wait_for_flows(&pair, 3.0);
        for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
            let flows = admin::flows(admin);
            let udp =
                flows["flows"].as_array().unwrap().iter().filter(|it| it["protocol"] == "udp");
            let udp: Vec<_> = udp.collect();
            assert_eq!(udp.len(), 2, "{flows}");
            assert!(udp.iter().all(|flow| flow["class"] == "rtsp"), "{flows}");
            let bytes = Metrics::fetch(admin).sum("millrace_flow_datagrams_total", &[]);
            assert_eq!(bytes, 80.0);
        }
        assert_eq!(player.ask("PLAY", "live", "Session: 47\r\n").status, 200);
        assert!(origin.asked().head.starts_with("PLAY "));
        assert_media(&player, &origin, media, 2);
        assert_eq!(player.ask("TEARDOWN", "live", "Session: 47\r\n").status, 200);
        assert!(origin.asked().head.starts_with("TEARDOWN "));
        wait_for_flows(&pair, 1.0);
        wait_free(media);
        // The connection is as good as before.
        let media = set_up(&mut player, &origin);
        assert_media(&player, &origin, media, 3);
        player.tear_down();
        origin.asked();
        player.hang_up();
        wait_for_flows(&pair, 0.0);
        wait_free(media);
        let failed = |from| Metrics::fetch(from).failed_flows();
        assert_eq!(failed(pair.addresses.client_admin), 0.0);
        assert_eq!(failed(pair.addresses.server_admin), 0.0);
    }
}

/// The origin sends to both from the same ports, and over the same tunnel connection.
#[test]
fn several_players_at_a_time_get_their_own_media() {
    let origin = RtspOrigin::start();
    let pair = Pair::builder().start();
    let mut players: Vec<_> = (0..3)
        .map(|_| {
            let mut player = connect(&pair, &origin);
            let media = set_up(&mut player, &origin);
            (player, media)
        })
        .collect();
    for round in 0..3 {
        for (index, (player, media)) in players.iter().enumerate() {
            assert_media(player, &origin, *media, round * 10 + index as u64);
        }
    }
    wait_for_flows(&pair, 9.0);
    // One that dies does not take the others with it.
    let (player, media) = players.remove(1);
    tcp::reset(player.into_stream());
    wait_for_flows(&pair, 6.0);
    wait_free(media);
    for (index, (player, media)) in players.iter().enumerate() {
        assert_media(player, &origin, *media, 40 + index as u64);
    }
}

#[test]
fn a_refused_setup_leaves_nothing_behind() {
    let origin = RtspOrigin::start();
    let pair = Pair::builder().start();
    let mut player = connect(&pair, &origin);
    let answer = player.set_up("refused");
    assert_eq!(answer.status, 461, "{}", answer.head);
    let reserved = origin.asked().ends.unwrap();
    wait::for_true("the port is given back", DEFAULT_TIMEOUT, || reserved.are_free());
    wait_for_flows(&pair, 1.0);
    let media = set_up(&mut player, &origin);
    assert_media(&player, &origin, media, 1);
}

#[test]
fn a_player_that_pauses_for_long_keeps_its_media() {
    let origin = RtspOrigin::start();
    let pair = Pair::builder().both("limits.udp_idle_timeout_s", 1).start();
    let mut player = connect(&pair, &origin);
    let media = set_up(&mut player, &origin);
    assert_media(&player, &origin, media, 1);
    std::thread::sleep(Duration::from_millis(2500));
    assert_media(&player, &origin, media, 2);
}

/// The ports of a player's media are for its origin and for itself.
#[test]
fn strangers_get_nothing_in_and_nothing_out() {
    let origin = RtspOrigin::start();
    let listener = tcp::unused(std::net::Ipv4Addr::LOCALHOST);
    let to = origin.media.rtp.local_addr().unwrap();
    let other = format!(
        "mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{to}\"\nclass = \"rtsp\""
    );
    let pair = Pair::builder().listen(&other).start();
    let mut player = connect(&pair, &origin);
    let (found, to_player) = set_up(&mut player, &origin);
    // Each is followed by one of the right sender, which comes first if the stranger's does not.
    let stranger = udp::socket_at([127, 0, 0, 2].into());
    for (at, sender, receiver) in [
        (to_player.rtp, &origin.media.rtp, &player.media.rtp),
        (to_player.rtcp, &origin.media.rtcp, &player.media.rtcp),
        (found.rtp, &player.media.rtp, &origin.media.rtp),
        (found.rtcp, &player.media.rtcp, &origin.media.rtcp),
    ] {
        stranger.send_to(b"stranger", at).unwrap();
        sender.send_to(b"media", at).unwrap();
        assert_eq!(receive(receiver, DEFAULT_TIMEOUT).0, b"media");
    }
    // Another flow through the same client to the same port of the origin is not permitted by the
    // player's: the allow-list has the say.
    let client = udp::client(listener);
    let denied = || {
        let name = "millrace_destinations_denied_total";
        Metrics::fetch(pair.addresses.server_admin).sum(name, &[])
    };
    wait::for_true("it is denied", DEFAULT_TIMEOUT, || {
        client.send(b"other").unwrap();
        denied() >= 1.0
    });
    assert_media(&player, &origin, (found, to_player), 1);
}

/// With an allow-list that has it, such a flow has a port of its own.
#[test]
fn a_flow_of_its_own_to_the_same_origin_does_not_take_a_players_port() {
    let origin = RtspOrigin::start();
    let listener = tcp::unused(std::net::Ipv4Addr::LOCALHOST);
    let to = origin.media.rtp.local_addr().unwrap();
    let other = format!(
        "mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{to}\"\nclass = \"rtsp\""
    );
    let pair = Pair::builder().allow_udp("127.0.0.1").listen(&other).start();
    let mut player = connect(&pair, &origin);
    let media = set_up(&mut player, &origin);
    let client = udp::client(listener);
    client.send(b"other").unwrap();
    let (got, from) = receive(&origin.media.rtp, DEFAULT_TIMEOUT);
    assert_eq!(got, b"other");
    assert_ne!(from, media.1.rtp);
    origin.media.rtp.send_to(b"its own", from).unwrap();
    assert_eq!(udp::receive(&client, DEFAULT_TIMEOUT).as_deref(), Some(&b"its own"[..]));
    assert_media(&player, &origin, media, 1);
}

/// Media in the connection itself pass, media over UDP are refused.
fn assert_udp_refused(pair: PairBuilder) {
    let origin = RtspOrigin::start();
    let pair = pair.start();
    let mut player = Player::connect(&pair.listeners[2], origin.address());
    origin.asked();
    assert_eq!(player.set_up("live").status, 461);
    let fields = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nX: y\r\n";
    let answer = player.ask("SETUP", "live", fields);
    assert_eq!(origin.asked().head, request("SETUP", "live", 3, fields));
    assert!(answer.head.contains("Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n"));
    wait_for_flows(&pair, 1.0);
}

#[test]
fn switched_off_at_either_end_media_over_udp_are_refused() {
    assert_udp_refused(Pair::builder().server("limits.max_rtsp_port_pairs", 0));
    assert_udp_refused(Pair::builder().client("limits.max_rtsp_port_pairs", 0));
    assert_udp_refused(Pair::builder().both("limits.max_rtsp_port_pairs", 0));
}

#[test]
fn pairs_of_ports_are_bounded_at_either_end() {
    for side in ["client", "server"] {
        let pair = match side {
            "client" => Pair::builder().client("limits.max_rtsp_port_pairs", 2),
            _ => Pair::builder().server("limits.max_rtsp_port_pairs", 2),
        };
        let (pair, origin) = (pair.start(), RtspOrigin::start());
        let mut players: Vec<_> = (0..3).map(|_| connect(&pair, &origin)).collect();
        let media: Vec<_> = players[..2].iter_mut().map(|it| set_up(it, &origin)).collect();
        let answer = players[2].set_up("live");
        assert_eq!(answer.status, 461, "{side}: {}", answer.head);
        let admin = match side {
            "client" => pair.addresses.client_admin,
            _ => pair.addresses.server_admin,
        };
        let dropped =
            Metrics::fetch(admin).sum("millrace_drops_total", &[("reason", "rtsp_ports")]);
        assert_eq!(dropped, 1.0, "{side}");
        assert_media(&players[1], &origin, media[1], 1);
        // A player that leaves makes room.
        players[0].tear_down();
        origin.asked();
        wait_free(media[0]);
        let media = set_up(&mut players[2], &origin);
        assert_media(&players[2], &origin, media, 2);
    }
}

/// The tunnel's end is that of the RTSP connection, and so of its media.
#[test]
fn without_the_server_nothing_is_left_at_the_client() {
    let origin = RtspOrigin::start();
    let pair = Pair::builder().both("tunnel.idle_timeout_s", 3).client("tunnel.keepalive_s", 1);
    let mut pair = pair.start();
    let mut player = connect(&pair, &origin);
    let (found, _) = set_up(&mut player, &origin);
    pair.server.kill();
    wait::for_true("the ports are given back", Duration::from_secs(30), || found.are_free());
    let none = || active(pair.addresses.client_admin) == 0.0;
    wait::for_true("the client has no flow any more", DEFAULT_TIMEOUT, none);
}
