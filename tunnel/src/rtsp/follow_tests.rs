use std::cell::RefCell;
use std::rc::Rc;

use super::*;

const PLAYER: &str = "198.18.0.9";
const URI: &str = "rtsp://cam.example/live/1";

/// Pairs of ports from a number on, and how many there are out.
#[derive(Clone, Debug)]
struct Numbers {
    next: u16,
    left: usize,
    out: Rc<RefCell<usize>>,
    connects: bool,
    /// What origins have said of their media.
    told: Rc<RefCell<Vec<OriginMedia>>>,
}

#[derive(Debug)]
struct Pair(u16, Rc<RefCell<usize>>);

impl Drop for Pair {
    fn drop(&mut self) {
        *self.1.borrow_mut() -= 1;
    }
}

impl PortSource for Numbers {
    type Pair = Pair;

    fn reserve(&mut self, _player: PortPair) -> Option<(Pair, PortPair)> {
        self.left = self.left.checked_sub(1)?;
        let rtp = self.next;
        self.next += 2;
        *self.out.borrow_mut() += 1;
        Some((Pair(rtp, self.out.clone()), PortPair { rtp, rtcp: rtp + 1 }))
    }

    fn source(&self) -> Option<IpAddr> {
        Some(IpAddr::from([198, 18, 0, 1]))
    }

    fn connect(&mut self, _pair: &mut Pair, origin: &OriginMedia) -> bool {
        self.told.borrow_mut().push(*origin);
        self.connects
    }
}

fn numbers(next: u16) -> Numbers {
    Numbers { next, left: usize::MAX, out: Rc::default(), connects: true, told: Rc::default() }
}

fn client() -> Follower<Numbers> {
    client_before(Some(true))
}

fn client_before(server_follows: Option<bool>) -> Follower<Numbers> {
    let player = PLAYER.parse().unwrap();
    Follower::new(RtspSide::Client { player, server_follows }, numbers(40_000))
}

fn server() -> Follower<Numbers> {
    Follower::new(RtspSide::Server, numbers(50_000))
}

fn out(follower: &Follower<Numbers>) -> usize {
    *follower.ports.out.borrow()
}

impl Follower<Numbers> {
    /// What goes to the origin after these bytes of the player.
    fn requests(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.take_requests(bytes);
        std::mem::take(&mut self.out.to_origin)
    }

    /// What goes to the player after these bytes of the origin.
    fn answers(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.take_answers(bytes);
        std::mem::take(&mut self.out.to_player)
    }

    /// What this end has said to the player itself.
    fn replies(&mut self) -> String {
        text(std::mem::take(&mut self.out.to_player))
    }
}

fn setup(cseq: u32, transport: &str) -> String {
    format!(
        "SETUP {URI} RTSP/1.0\r\nCSeq: {cseq}\r\nTransport: {transport}\r\nUser-Agent: x\r\n\r\n"
    )
}

fn answer(cseq: u32, transport: &str) -> String {
    format!(
        "RTSP/1.0 200 OK\r\nCSeq: {cseq}\r\nTransport: {transport}\r\nSession: 47;timeout=60\r\n\r\n"
    )
}

fn refused(cseq: u32) -> String {
    format!("RTSP/1.0 461 Unsupported Transport\r\nCSeq: {cseq}\r\n\r\n")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// What happened in a connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Number, pair and origin's ports of media that were set up.
    up: Vec<(u32, u16, String)>,
    /// Numbers of those that are over.
    over: Vec<u32>,
    refused: Vec<SetupRefusal>,
    closes_origin: bool,
}

fn seen(follower: &mut Follower<Numbers>) -> Seen {
    let mut seen = Seen::default();
    for event in follower.events() {
        match event {
            Event::SetUp { number, pair, origin, .. } => {
                seen.up.push((number, pair.0, origin.to_string()));
            }
            Event::TornDown { number } => seen.over.push(number),
            Event::Refused(reason) => seen.refused.push(reason),
            Event::CloseOrigin => seen.closes_origin = true,
            Event::Begun => {}
        }
    }
    seen
}

fn only_up(number: u32, pair: u16, origin: &str) -> Seen {
    Seen { up: vec![(number, pair, origin.to_owned())], ..Seen::default() }
}

fn only_refused(reason: SetupRefusal) -> Seen {
    Seen { refused: vec![reason], ..Seen::default() }
}

const ASKED: &str = "RTP/AVP;unicast;client_port=5000-5001";
const MARKED: &str = "RTP/AVP;unicast;client_port=5000-5001;x-millrace-udp";
const TO_ORIGIN: &str = "RTP/AVP;unicast;client_port=50000-50001";
const CHOSEN: &str = "RTP/AVP;unicast;destination=198.18.1.1;source=198.18.2.1;\
    client_port=50000-50001;server_port=6970-6971;ssrc=1A";
const CHOSEN_MARKED: &str = "RTP/AVP;unicast;destination=198.18.1.1;source=198.18.2.1;\
    client_port=5000-5001;server_port=6970-6971;ssrc=1A;x-millrace-udp";
const TO_PLAYER: &str = "RTP/AVP;unicast;destination=198.18.0.9;source=198.18.0.1;\
    client_port=5000-5001;server_port=40000-40001;ssrc=1A";
const TCP: &str = "RTP/AVP/TCP;unicast;interleaved=0-1";

#[test]
fn both_ends_agree_on_ports() {
    let (mut client, mut server) = (client(), server());
    let request = client.requests(setup(3, ASKED).as_bytes());
    assert_eq!(text(request.clone()), setup(3, MARKED));
    let request = server.requests(&request);
    assert_eq!(text(request), setup(3, TO_ORIGIN));
    let reply = server.answers(answer(3, CHOSEN).as_bytes());
    assert_eq!(text(reply.clone()), answer(3, CHOSEN_MARKED));
    assert_eq!(text(client.answers(&reply)), answer(3, TO_PLAYER));
    assert_eq!(seen(&mut server), only_up(0, 50_000, "6970-6971"));
    assert_eq!(seen(&mut client), only_up(0, 40_000, "6970-6971"));
    let origin = OriginMedia {
        ports: Some(PortPair { rtp: 6970, rtcp: 6971 }),
        source: Some("198.18.2.1".parse().unwrap()),
    };
    assert_eq!(*server.ports.told.borrow(), [origin]);
}

/// Cut anywhere, the bytes and what is found are the same, with other messages around it.
#[test]
fn every_split_position_gives_the_same() {
    let requests = [
        "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n",
        "SET_PARAMETER a RTSP/1.0\r\nCSeq: 2\r\nContent-Length: 9\r\n\r\nSETUP a R",
        &setup(3, MARKED),
        "$\x01\x00\x06SETUP ",
        &format!("PLAY {URI} RTSP/1.0\r\nCSeq: 4\r\n\r\n"),
    ];
    let answers = [
        "RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n",
        "$\x00\x00\x06RTSP/1",
        "RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: 5\r\n\r\nRTSP/",
        &answer(3, CHOSEN),
        "RTSP/1.0 200 OK\r\nCSeq: 4\r\n\r\n",
    ];
    let [requests, answers] = [requests.concat(), answers.concat()];
    for cut in 0..requests.len() {
        let mut server = server();
        let (first, second) = requests.as_bytes().split_at(cut);
        let written = [server.requests(first), server.requests(second)].concat();
        let want = requests.replace(MARKED, TO_ORIGIN);
        assert_eq!(text(written), want, "cut at {cut}");
        assert_eq!(out(&server), 1, "cut at {cut}");
    }
    for cut in 0..answers.len() {
        let mut server = server();
        server.requests(requests.as_bytes());
        let (first, second) = answers.as_bytes().split_at(cut);
        let written = [server.answers(first), server.answers(second)].concat();
        assert_eq!(text(written), answers.replace(CHOSEN, CHOSEN_MARKED), "cut at {cut}");
        assert_eq!(seen(&mut server).up.len(), 1, "cut at {cut}");
    }
    let (mut server, mut written) = (server(), Vec::new());
    for byte in requests.as_bytes() {
        written.extend(server.requests(&[*byte]));
    }
    assert_eq!(text(written), requests.replace(MARKED, TO_ORIGIN));
}

#[test]
fn media_that_need_no_ports_pass_unchanged() {
    for transport in
        [TCP, "RTP/AVP;multicast;port=5000-5001", "RTP/AVP;multicast;client_port=5000-5001"]
    {
        for mut follower in [client(), server()] {
            assert_eq!(
                text(follower.requests(setup(1, transport).as_bytes())),
                setup(1, transport)
            );
            assert_eq!(
                text(follower.answers(answer(1, transport).as_bytes())),
                answer(1, transport)
            );
            assert_eq!((out(&follower), seen(&mut follower)), (0, Seen::default()), "{transport}");
        }
    }
}

#[test]
fn setup_that_cant_be_carried_is_answered_461_and_reaches_no_origin() {
    for transport in [
        "RTP/AVP;unicast",
        "RTP/AVP;unicast;client_port=x",
        "RTP/AVP;unicast;client_port=0-1",
        "RTP/AVP;unicast;destination=198.18.0.8;client_port=5000-5001",
    ] {
        let mut client = client();
        assert_eq!(text(client.requests(setup(1, transport).as_bytes())), "");
        assert_eq!(client.replies(), refused(1), "{transport}");
        assert_eq!(out(&client), 0, "{transport}");
        assert_eq!(seen(&mut client), only_refused(SetupRefusal::Transport), "{transport}");
        // The connection goes on.
        assert_eq!(text(client.requests(setup(2, TCP).as_bytes())), setup(2, TCP));
        assert_eq!(text(client.answers(answer(2, TCP).as_bytes())), answer(2, TCP));
    }
    // A client that does not say that it takes part.
    let mut server = server();
    assert_eq!(text(server.requests(setup(1, ASKED).as_bytes())), "");
    assert_eq!(server.replies(), refused(1));
    // A request with content: none of it reaches the origin.
    let mut client = client();
    let with_content =
        setup(1, "RTP/AVP;unicast").replace("\r\n\r\n", "\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(text(client.requests(format!("{with_content}OPTIONS").as_bytes())), "OPTIONS");
}

#[test]
fn without_ports_setup_is_answered_461() {
    let (mut client, mut server) = (client(), server());
    client.ports.left = 0;
    server.ports.left = 0;
    for (follower, transport) in [(&mut client, ASKED), (&mut server, MARKED)] {
        assert_eq!(text(follower.requests(setup(1, transport).as_bytes())), "");
        assert_eq!(follower.replies(), refused(1));
        assert_eq!(seen(follower), only_refused(SetupRefusal::Ports));
    }
}

#[test]
fn of_several_transports_the_first_that_can_be_carried_and_those_in_the_connection_remain() {
    let (mut client, mut server) = (client(), server());
    let asked = format!(
        "RTP/AVPF;unicast;destination=198.18.0.8;client_port=1-2,{ASKED},RTP/AVPF;unicast;client_port=7-8,{TCP}"
    );
    let request = client.requests(setup(1, &asked).as_bytes());
    assert_eq!(text(request.clone()), setup(1, &format!("{MARKED},{TCP}")));
    assert_eq!(text(server.requests(&request)), setup(1, &format!("{TO_ORIGIN},{TCP}")));
    // The origin may take the one in the connection.
    assert_eq!(text(server.answers(answer(1, TCP).as_bytes())), answer(1, TCP));
    assert_eq!(text(client.answers(answer(1, TCP).as_bytes())), answer(1, TCP));
    assert_eq!((out(&client), out(&server)), (0, 0));
    assert_eq!((seen(&mut client), seen(&mut server)), (Seen::default(), Seen::default()));
    // Without ports only that one remains, and that is counted.
    client.ports.left = 0;
    assert_eq!(text(client.requests(setup(2, &asked).as_bytes())), setup(2, TCP));
    assert_eq!(seen(&mut client), only_refused(SetupRefusal::Ports));
}

#[test]
fn several_transport_fields_are_one_list() {
    let mut client = client();
    let twice =
        setup(1, ASKED).replace("User-Agent: x", &format!("transport: {TCP}\r\nUser-Agent: x"));
    let want = setup(1, &format!("{MARKED},{TCP}"));
    assert_eq!(text(client.requests(twice.as_bytes())), want);
}

#[test]
fn transports_of_sat_ip_and_single_ports_are_carried() {
    for (protocol, ports) in [
        ("MP2T/RTP/UDP", "5000-5001"),
        ("RAW/RAW/UDP", "5000"),
        ("MP2T/H2221/UDP", "5000-5000"),
        ("RTP/AVP", "5000-5000"),
        ("RTP/AVPF/UDP", "5000 - 5001"),
    ] {
        let (mut client, mut server) = (client(), server());
        let asked = format!("{protocol};unicast;client_port={ports}");
        let request = client.requests(setup(0, &asked).as_bytes());
        assert_eq!(text(request.clone()), setup(0, &format!("{asked};x-millrace-udp")));
        let to_origin = text(server.requests(&request));
        assert_eq!(to_origin, setup(0, &format!("{protocol};unicast;client_port=50000-50001")));
        let chosen = format!("{protocol};unicast;client_port=50000-50001;server_port=6970-6971");
        let reply = server.answers(answer(0, &chosen).as_bytes());
        let reply = text(client.answers(&reply));
        assert!(reply.contains(&format!("client_port={ports};")), "{reply}");
        assert!(reply.contains("server_port=40000-40001"), "{reply}");
        assert_eq!((seen(&mut client).up.len(), seen(&mut server).up.len()), (1, 1), "{protocol}");
    }
}

/// The ports that identify the medium are the server's own where the origin has named none, or the same twice.
#[test]
fn answers_without_usable_server_port_are_completed() {
    for (ports, told) in [
        ("", None),
        (";server_port=0-0", None),
        (";server_port=0-1", None),
        (";server_port=0", None),
        (";server_port=1022-1023", None),
        (";server_port=6970-1023", None),
        (";server_port=6970-6970", Some(PortPair { rtp: 6970, rtcp: 6970 })),
    ] {
        let (mut client, mut server) = (client(), server());
        let request = client.requests(setup(1, ASKED).as_bytes());
        server.requests(&request);
        let chosen = format!("RTP/AVP;unicast;client_port=50000-50001{ports}");
        let reply = server.answers(answer(1, &chosen).as_bytes());
        assert_eq!(server.ports.told.borrow()[0].ports, told, "{ports}");
        let reply = text(client.answers(&reply));
        assert!(reply.contains(";server_port=40000-40001;source=198.18.0.1"), "{reply}");
        assert_eq!(seen(&mut server), only_up(0, 50_000, "50000-50001"), "{ports}");
        assert_eq!(seen(&mut client), only_up(0, 40_000, "50000-50001"), "{ports}");
    }
}

#[test]
fn answer_without_transport_gets_one() {
    let (mut client, mut server) = (client(), server());
    let request = client.requests(setup(1, ASKED).as_bytes());
    server.requests(&request);
    let reply = server.answers(b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nSession: 47\r\n\r\n");
    let reply = text(client.answers(&reply));
    let want = "RTSP/1.0 200 OK\r\nCSeq: 1\r\nSession: 47\r\n\
        Transport: RTP/AVP;unicast;client_port=5000-5001;server_port=40000-40001;source=198.18.0.1\r\n\r\n";
    assert_eq!(reply, want);
}

#[test]
fn media_from_the_same_ports_of_an_origin_are_told_apart() {
    let mut server = server();
    set_up(&mut server, 1, "a/1", "A");
    set_up(&mut server, 2, "a/2", "A");
    let up = [(0, 50_000, "6970-6971".to_owned()), (1, 50_002, "50002-50003".to_owned())];
    assert_eq!(seen(&mut server).up, up);
}

#[test]
fn answers_belong_to_requests_by_order_where_cseq_deviates() {
    for cseq in ["CSeq: 0\r\n", "CSeq: 4\r\n", "", "CSeq: x\r\n", "CSeq: 3\r\nCSeq: 3\r\n"] {
        let mut server = server();
        server.requests(b"OPTIONS * RTSP/1.0\r\nCSeq: 2\r\n\r\n");
        server.answers(b"RTSP/1.0 200 OK\r\n\r\n");
        server.requests(setup(3, MARKED).as_bytes());
        let reply = server.answers(answer(3, CHOSEN).replace("CSeq: 3\r\n", cseq).as_bytes());
        assert_eq!(text(reply), answer(3, CHOSEN_MARKED).replace("CSeq: 3\r\n", cseq));
        assert_eq!(seen(&mut server).up.len(), 1, "{cseq:?}");
    }
}

/// What a camera has in its answer to DESCRIBE does not keep the SETUP after it from being followed.
#[test]
fn folded_repeated_and_malformed_lines_are_read() {
    for line in [
        "Public: OPTIONS,\r\n DESCRIBE, SETUP\r\n",
        "CSeq: 1\r\n",
        "no colon\r\n",
        "Content-Length: x\r\n",
    ] {
        let mut server = server();
        server.requests(format!("DESCRIBE {URI} RTSP/1.0\r\nCSeq: 1\r\n\r\n").as_bytes());
        let described = format!("RTSP/1.0 200 OK\r\nCSeq: 1\r\n{line}\r\n");
        assert_eq!(text(server.answers(described.as_bytes())), described);
        server.requests(setup(2, MARKED).as_bytes());
        let chosen = answer(2, CHOSEN).replace("Session", &format!("{line}Session"));
        let want = answer(2, CHOSEN_MARKED).replace("Session", &format!("{line}Session"));
        assert_eq!(text(server.answers(chosen.as_bytes())), want, "{line:?}");
        assert_eq!(seen(&mut server).up.len(), 1, "{line:?}");
    }
}

/// A camera that counts the content of an answer too small: the rest of it passes, and the next answer is found.
#[test]
fn bytes_between_messages_pass_and_the_next_message_is_found() {
    let mut server = server();
    server.requests(format!("DESCRIBE {URI} RTSP/1.0\r\nCSeq: 1\r\n\r\n").as_bytes());
    let described =
        "RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 4\r\n\r\nv=0\nm=video\r\na=b\r\n";
    assert_eq!(text(server.answers(described.as_bytes())), described);
    server.requests(setup(2, MARKED).as_bytes());
    assert_eq!(text(server.answers(answer(2, CHOSEN).as_bytes())), answer(2, CHOSEN_MARKED));
}

#[test]
fn setup_waits_until_the_server_says_whether_it_follows() {
    let behind = "OPTIONS * RTSP/1.0\r\nCSeq: 2\r\n\r\n";
    let both = format!("{}{behind}", setup(1, ASKED));
    let mut client = client_before(None);
    assert_eq!(text(client.requests(both.as_bytes())), "");
    client.on_server_follows(true);
    let written = std::mem::take(&mut client.out.to_origin);
    assert_eq!(text(written), format!("{}{behind}", setup(1, MARKED)));

    let mut client = client_before(None);
    client.requests(both.as_bytes());
    client.on_server_follows(false);
    assert_eq!(text(std::mem::take(&mut client.out.to_origin)), behind);
    assert_eq!(client.replies(), refused(1));
    assert_eq!(seen(&mut client), only_refused(SetupRefusal::Server));

    // It does not wait for what needs no ports, and for no more than a player sends.
    let mut client = client_before(None);
    assert_eq!(text(client.requests(setup(1, TCP).as_bytes())), setup(1, TCP));
    client.requests(setup(2, ASKED).as_bytes());
    client.requests(&vec![b'x'; MAX_HELD_BYTES + 1]);
    assert!(client.held.is_none());
    // The player's end is an end of waiting too.
    let mut client = client_before(None);
    client.requests(both.as_bytes());
    client.end_requests();
    assert_eq!(text(std::mem::take(&mut client.out.to_origin)), behind);
}

#[test]
fn refusals_come_in_the_order_of_the_requests_and_between_messages() {
    let mut client = client();
    client.requests(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n");
    client.requests(setup(2, "RTP/AVP;unicast").as_bytes());
    assert_eq!(client.replies(), "", "the first request has no answer yet");
    let first = "RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 3\r\n\r\nab";
    assert_eq!(text(client.answers(first.as_bytes())), first);
    assert_eq!(text(client.answers(b"c")), format!("c{}", refused(2)));
    // A frame of interleaved media is not cut.
    assert_eq!(client.answers(b"$\x00\x00\x04ab"), b"$\x00\x00\x04ab");
    client.requests(setup(3, "RTP/AVP;unicast").as_bytes());
    assert_eq!(client.replies(), "");
    assert_eq!(text(client.answers(b"cd")), format!("cd{}", refused(3)));
}

/// The origin's answers to the requests before and behind the refused one come at once, the first with content.
#[test]
fn a_refusal_stands_before_the_answer_of_a_later_request() {
    let first = "RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 3\r\n\r\nabc";
    let third = "RTSP/1.0 200 OK\r\nCSeq: 3\r\n\r\n";
    let both = format!("{first}{third}");
    for cut in 0..both.len() {
        let mut client = client();
        client.requests(b"DESCRIBE * RTSP/1.0\r\nCSeq: 1\r\n\r\n");
        client.requests(setup(2, "RTP/AVP;unicast").as_bytes());
        client.requests(b"OPTIONS * RTSP/1.0\r\nCSeq: 3\r\n\r\n");
        let (one, two) = both.as_bytes().split_at(cut);
        let written = [client.answers(one), client.answers(two)].concat();
        assert_eq!(text(written), format!("{first}{}{third}", refused(2)), "cut at {cut}");
    }
}

/// Behind the answer come a line that is no RTSP and a frame.
#[test]
fn a_refusal_stands_behind_the_content_wherever_the_bytes_are_cut() {
    let answer = "RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 3\r\n\r\nabc";
    for behind in ["x y z\r\n", "$\0\0\u{4}abcd", "\r\n"] {
        let both = format!("{answer}{behind}");
        for cut in 0..=both.len() {
            let mut client = client();
            client.requests(b"DESCRIBE * RTSP/1.0\r\nCSeq: 1\r\n\r\n");
            client.requests(setup(2, "RTP/AVP;unicast").as_bytes());
            let (one, two) = both.as_bytes().split_at(cut);
            let written = [client.answers(one), client.answers(two)].concat();
            assert_eq!(text(written), format!("{answer}{}{behind}", refused(2)), "cut at {cut}");
        }
    }
}

/// The server has seen no message, relays such a stream unchanged, and would not remove a mark.
#[test]
fn other_bytes_behind_refused_setups_alone_end_the_following() {
    let mut client = client();
    let bytes = format!("{}x\n{}", setup(1, "RTP/AVP;unicast"), setup(2, ASKED));
    assert_eq!(text(client.requests(bytes.as_bytes())), format!("x\n{}", setup(2, ASKED)));
    assert_eq!(client.replies(), refused(1));
    assert!(client.is_over());
}

#[test]
fn an_unusable_answer_is_undone() {
    let basic = setup(1, MARKED).replace("User-Agent: x", "Authorization: Basic YTpi");
    let digest = setup(1, MARKED).replace("User-Agent: x", "Authorization: Digest x=y");
    for (request, authorization) in [
        (setup(1, MARKED), Some("")),
        (basic, Some("Authorization: Basic YTpi\r\n")),
        (digest, None),
    ] {
        let mut server = server();
        server.ports.connects = false;
        server.requests(request.as_bytes());
        let chosen = answer(1, CHOSEN).replace("\r\n\r\n", "\r\nContent-Length: 2\r\n\r\nab");
        assert_eq!(text(server.answers(chosen.as_bytes())), refused(1));
        assert_eq!(out(&server), 0);
        let sent = text(std::mem::take(&mut server.out.to_origin));
        let Some(authorization) = authorization else {
            assert_eq!(sent, "");
            assert!(seen(&mut server).closes_origin);
            continue;
        };
        let want =
            format!("TEARDOWN {URI} RTSP/1.0\r\nCSeq: 2\r\nSession: 47\r\n{authorization}\r\n");
        assert_eq!(sent, want);
        assert_eq!(seen(&mut server), only_refused(SetupRefusal::Answer));
        // The player has no such request, and has the next number for one of its own.
        server.requests(setup(2, TCP).as_bytes());
        let torn_down = "RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(text(server.answers(torn_down.as_bytes())), "");
        assert_eq!(text(server.answers(answer(2, TCP).as_bytes())), answer(2, TCP));
    }
}

#[test]
fn an_answer_that_a_server_has_not_completed_is_refused_by_the_client() {
    let mut client = client();
    client.requests(setup(1, ASKED).as_bytes());
    let chosen = "RTP/AVP;unicast;client_port=5000-5001;server_port=6970-6971";
    assert_eq!(text(client.answers(answer(1, chosen).as_bytes())), refused(1));
    assert_eq!((out(&client), seen(&mut client)), (0, only_refused(SetupRefusal::Answer)));
}

#[test]
fn a_refused_setup_gives_the_ports_back() {
    for mut follower in [client(), server()] {
        follower.requests(
            setup(1, if follower.side == RtspSide::Server { MARKED } else { ASKED }).as_bytes(),
        );
        assert_eq!(out(&follower), 1);
        let interim = "RTSP/1.0 100 Continue\r\nCSeq: 1\r\n\r\n";
        assert_eq!(text(follower.answers(interim.as_bytes())), interim);
        assert_eq!(out(&follower), 1);
        let refused = "RTSP/1.0 461 Unsupported Transport\r\nCSeq: 1\r\nTransport: RTP/AVP;unicast;server_port=1-2\r\n\r\n";
        assert_eq!(text(follower.answers(refused.as_bytes())), refused);
        assert_eq!((out(&follower), seen(&mut follower)), (0, Seen::default()));
    }
}

/// `head` with a field that makes it as long as the longest that is read.
fn longest(head: &str) -> String {
    let padding = "x".repeat(MAX_HEAD_BYTES - head.len() - "X: \r\n".len());
    head.replace("\r\n\r\n", &format!("\r\nX: {padding}\r\n\r\n"))
}

#[test]
fn a_head_that_has_no_room_for_the_mark_is_refused() {
    let (mut client, mut server) = (client(), server());
    assert_eq!(text(client.requests(longest(&setup(1, ASKED)).as_bytes())), "");
    assert_eq!(client.replies(), refused(1));
    assert_eq!((out(&client), seen(&mut client)), (0, only_refused(SetupRefusal::Transport)));

    server.requests(setup(2, MARKED).as_bytes());
    assert_eq!(text(server.answers(longest(&answer(2, CHOSEN)).as_bytes())), refused(2));
    assert_eq!((out(&server), seen(&mut server)), (0, only_refused(SetupRefusal::Answer)));
    server.out.to_origin.clear();
    // Both ends still find the messages that follow.
    let marked = text(client.requests(setup(3, ASKED).as_bytes()));
    assert_eq!(marked, setup(3, MARKED));
    assert_eq!(
        text(server.requests(marked.as_bytes())),
        setup(3, TO_ORIGIN.replace("50000-50001", "50002-50003").as_str())
    );
}

fn set_up(server: &mut Follower<Numbers>, cseq: u32, uri: &str, session: &str) {
    let place = |text: String| text.replace(URI, uri).replace("47;", &format!("{session};"));
    server.requests(place(setup(cseq, MARKED)).as_bytes());
    server.answers(place(answer(cseq, CHOSEN)).as_bytes());
}

fn tear_down(server: &mut Follower<Numbers>, uri: &str, session: &str, status: u16) {
    let request = format!("TEARDOWN {uri} RTSP/1.0\r\nCSeq: 90\r\nSession: {session}\r\n\r\n");
    assert_eq!(text(server.requests(request.as_bytes())), request);
    server.answers(format!("RTSP/1.0 {status} X\r\nCSeq: 90\r\n\r\n").as_bytes());
}

#[test]
fn a_teardown_ends_one_medium_or_a_session() {
    let mut server = server();
    for (cseq, uri, session) in [(1, "a/1", "A"), (2, "a/2", "A"), (3, "a/3", "A"), (4, "a/1", "B")]
    {
        set_up(&mut server, cseq, uri, session);
    }
    assert_eq!(seen(&mut server).up.len(), 4);
    tear_down(&mut server, "a", "A", 401);
    tear_down(&mut server, "a", "C", 200);
    assert!(seen(&mut server).over.is_empty());
    tear_down(&mut server, "a/2", "A", 200);
    assert_eq!(seen(&mut server).over, [1]);
    // A repeated SETUP of a medium replaces the first one.
    set_up(&mut server, 5, "a/1", "A");
    assert_eq!(seen(&mut server).over, [0]);
    tear_down(&mut server, "a", "A", 200);
    assert_eq!(seen(&mut server).over, [2, 4]);
}

/// Media last beyond the connection unless the player has sent a TEARDOWN, whether or not it has waited for the answer.
#[test]
fn media_last_without_a_teardown() {
    let mut server = server();
    for (cseq, uri) in [(1, "a/1"), (2, "a/2")] {
        set_up(&mut server, cseq, uri, "A");
    }
    assert_eq!(server.lasting_media().collect::<Vec<_>>(), [0, 1]);
    server.requests(b"TEARDOWN a/2 RTSP/1.0\r\nCSeq: 3\r\nSession: A\r\n\r\n");
    assert_eq!(server.lasting_media().collect::<Vec<_>>(), [0]);
    server.requests(b"TEARDOWN a RTSP/1.0\r\nCSeq: 4\r\nSession: A\r\n\r\n");
    assert_eq!(server.lasting_media().count(), 0);
}

#[test]
fn media_and_requests_are_bounded() {
    let mut server = server();
    for cseq in 0..100 {
        let request = setup(cseq, MARKED).replace(URI, &format!("a/{cseq}"));
        let passed = !server.requests(request.as_bytes()).is_empty();
        assert_eq!(passed, cseq < MAX_MEDIA as u32);
    }
    assert!(out(&server) <= MAX_MEDIA);
    assert!(seen(&mut server).refused.iter().all(|it| *it == SetupRefusal::Ports));
}

#[test]
fn nothing_is_lost_of_what_is_no_rtsp_or_ends_early() {
    let begin = &setup(1, MARKED)[..40];
    let mut server = server();
    assert_eq!(server.requests(begin.as_bytes()), b"");
    server.end_requests();
    assert_eq!(text(std::mem::take(&mut server.out.to_origin)), begin);
    for other in ["\x16\x03\x01abc", "GET / HTTP/1.1\r\nA: b\r\n\r\n", "S\0"] {
        let mut server = self::server();
        let written = [server.requests(other.as_bytes()), server.requests(b"SETUP a")].concat();
        assert_eq!(text(written), format!("{other}SETUP a"));
        assert!(server.is_over());
    }
    // A protocol that begins like ours and waits for an answer is not kept waiting.
    let mut server = self::server();
    assert_eq!(text(server.requests(b"HELLO")), "HELLO");
    assert_eq!(text(server.answers(b"RTSP/")), "RTSP/");
    let long = format!("SETUP {}", "a".repeat(20_000));
    let mut server = self::server();
    let written: Vec<_> = long.as_bytes().chunks(700).flat_map(|it| server.requests(it)).collect();
    assert_eq!(text(written), long);
    assert!(server.is_over());
}

/// A client of another protocol may send this and wait for an answer.
#[test]
fn the_beginning_of_a_method_does_not_wait() {
    for beginning in ["S", "SET", "SETUP"] {
        let mut client = client();
        assert_eq!(text(client.requests(beginning.as_bytes())), beginning);
        let rest = " of another protocol\n";
        assert_eq!(text(client.requests(rest.as_bytes())), rest);
        assert!(client.is_over());
    }
}

#[test]
fn a_setup_whose_beginning_comes_alone_is_rewritten() {
    for cut in 1..=setup(1, ASKED).len() {
        let mut client = client();
        let request = setup(1, ASKED);
        let (first, rest) = request.split_at(cut);
        let written = [client.requests(first.as_bytes()), client.requests(rest.as_bytes())];
        assert_eq!(text(written.concat()), setup(1, MARKED), "cut at {cut}");
    }
}

#[test]
fn a_refused_setup_whose_beginning_has_gone_on_is_refused_by_the_origin() {
    let mut client = client_before(Some(false));
    let request = setup(1, ASKED);
    let (first, rest) = request.split_at(1);
    let written = [client.requests(first.as_bytes()), client.requests(rest.as_bytes())];
    assert_eq!(text(written.concat()), setup(1, "RTP/NONE"));
    assert_eq!(client.replies(), "");
    assert_eq!(seen(&mut client), only_refused(SetupRefusal::Server));
    assert_eq!(text(client.answers(refused(1).as_bytes())), refused(1));
}
