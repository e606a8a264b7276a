use std::cell::RefCell;
use std::rc::Rc;

use super::*;

const PLAYER: &str = "198.18.0.9";
const SOURCE: &str = "198.18.0.1";
const URI: &str = "rtsp://cam.example/live/1";

/// Pairs of ports from a number on, and how many there are out.
#[derive(Clone, Debug)]
struct Numbers {
    next: u16,
    left: usize,
    out: Rc<RefCell<usize>>,
    connects: bool,
}

#[derive(Debug)]
struct Pair(u16, Rc<RefCell<usize>>);

impl Drop for Pair {
    fn drop(&mut self) {
        *self.1.borrow_mut() -= 1;
    }
}

impl Ports for Numbers {
    type Pair = Pair;

    fn reserve(&mut self, _player: PortPair) -> Option<(Pair, PortPair)> {
        self.left = self.left.checked_sub(1)?;
        let rtp = self.next;
        self.next += 2;
        *self.out.borrow_mut() += 1;
        Some((Pair(rtp, self.out.clone()), PortPair { rtp, rtcp: rtp + 1 }))
    }

    fn connect(&mut self, _pair: &mut Pair, _origin: PortPair) -> bool {
        self.connects
    }
}

fn numbers(next: u16) -> Numbers {
    Numbers { next, left: usize::MAX, out: Rc::default(), connects: true }
}

fn client() -> Follower<Numbers> {
    let [player, source] = [PLAYER, SOURCE].map(|it| it.parse().unwrap());
    Follower::new(Side::Client { player, source, agreed: true }, numbers(40_000))
}

fn server() -> Follower<Numbers> {
    Follower::new(Side::Server, numbers(50_000))
}

fn out(follower: &Follower<Numbers>) -> usize {
    *follower.ports.out.borrow()
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

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// Number, pair and origin's ports of media that were set up, and numbers of those that are over.
fn seen(follower: &mut Follower<Numbers>) -> (Vec<(u32, u16, String)>, Vec<u32>) {
    let (mut up, mut over) = (Vec::new(), Vec::new());
    for event in follower.events() {
        match event {
            Event::SetUp { number, pair, origin } => up.push((number, pair.0, origin.to_string())),
            Event::TornDown { number } => over.push(number),
        }
    }
    (up, over)
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
    assert_eq!(seen(&mut server), (vec![(0, 50_000, "6970-6971".into())], vec![]));
    assert_eq!(seen(&mut client), (vec![(0, 40_000, "6970-6971".into())], vec![]));
}

/// Cut anywhere, the bytes and what is found are the same, with other messages around it.
#[test]
fn at_every_split_position() {
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
        assert_eq!(seen(&mut server).0.len(), 1, "cut at {cut}");
    }
    let (mut server, mut written) = (server(), Vec::new());
    for byte in requests.as_bytes() {
        written.extend(server.requests(&[*byte]));
    }
    assert_eq!(text(written), requests.replace(MARKED, TO_ORIGIN));
}

#[test]
fn what_is_no_udp_or_not_agreed_on_passes_unchanged() {
    for transport in [
        "RTP/AVP/TCP;unicast;interleaved=0-1",
        "RTP/AVP;multicast;client_port=5000-5001",
        "RTP/AVP;unicast",
        "RTP/AVP;unicast;client_port=5000-5000",
        "RTP/AVP;unicast;client_port=x",
        "RTP/AVP;unicast;destination=198.18.0.8;client_port=5000-5001",
        "RTP/AVP;unicast;client_port=5000-5001,RTP/AVPF;unicast;client_port=5000-5001",
    ] {
        let mut client = client();
        assert_eq!(text(client.requests(setup(1, transport).as_bytes())), setup(1, transport));
        assert_eq!((out(&client), client.asked.len()), (0, 0), "{transport}");
    }
    let mut early = client();
    let Side::Client { agreed, .. } = &mut early.side else { panic!() };
    *agreed = false;
    assert_eq!(text(early.requests(setup(1, ASKED).as_bytes())), setup(1, ASKED));
    early.agree();
    assert_eq!(text(early.requests(setup(2, ASKED).as_bytes())), setup(2, MARKED));
    // A client that does not say that it takes part.
    assert_eq!(text(server().requests(setup(1, ASKED).as_bytes())), setup(1, ASKED));
}

#[test]
fn a_player_may_name_itself_as_destination_and_more_ways_than_one() {
    let asked = "RTP/AVP/TCP;unicast;interleaved=0-1,RTP/AVP/UDP;unicast;destination=198.18.0.9;client_port=5000";
    let want =
        "RTP/AVP/TCP;unicast;interleaved=0-1,RTP/AVP/UDP;unicast;client_port=5000;x-millrace-udp";
    let mut client = client();
    let request = client.requests(setup(1, asked).as_bytes());
    assert_eq!(text(request.clone()), setup(1, want));
    let mut server = server();
    let to_origin = want.replace(";x-millrace-udp", "").replace("=5000", "=50000-50001");
    assert_eq!(text(server.requests(&request)), setup(1, &to_origin));
    // What it wrote, it gets back.
    let chosen = "RTP/AVP/UDP;unicast;client_port=50000-50001;server_port=6970";
    let reply = text(server.answers(answer(1, chosen).as_bytes()));
    let want = "RTP/AVP/UDP;unicast;client_port=5000;server_port=6970;x-millrace-udp";
    assert_eq!(reply, answer(1, want));
    assert_eq!(seen(&mut server).0, [(0, 50_000, "6970-6971".to_owned())]);
    // The origin may take the other one.
    let tcp = "RTP/AVP/TCP;unicast;interleaved=0-1";
    assert_eq!(text(client.answers(answer(1, tcp).as_bytes())), answer(1, tcp));
    assert_eq!((out(&client), seen(&mut client)), (0, (vec![], vec![])));
}

#[test]
fn a_refused_setup_gives_the_ports_back() {
    for mut follower in [client(), server()] {
        follower.requests(
            setup(1, if follower.side == Side::Server { MARKED } else { ASKED }).as_bytes(),
        );
        assert_eq!(out(&follower), 1);
        let interim = "RTSP/1.0 100 Continue\r\nCSeq: 1\r\n\r\n";
        assert_eq!(text(follower.answers(interim.as_bytes())), interim);
        assert_eq!(out(&follower), 1);
        let refused = "RTSP/1.0 461 Unsupported Transport\r\nCSeq: 1\r\nTransport: RTP/AVP;unicast;server_port=1-2\r\n\r\n";
        assert_eq!(text(follower.answers(refused.as_bytes())), refused);
        assert_eq!((out(&follower), seen(&mut follower)), (0, (vec![], vec![])));
    }
}

#[test]
fn without_ports_a_setup_passes_as_the_player_wrote_it() {
    let (mut client, mut server) = (client(), server());
    client.ports.left = 0;
    server.ports.left = 0;
    assert_eq!(text(client.requests(setup(1, ASKED).as_bytes())), setup(1, ASKED));
    assert_eq!(text(server.requests(setup(1, MARKED).as_bytes())), setup(1, ASKED));
    let chosen = CHOSEN.replace("50000-50001", "5000-5001");
    assert_eq!(text(server.answers(answer(1, &chosen).as_bytes())), answer(1, &chosen));
}

#[test]
fn an_answer_that_cant_be_used_names_the_players_ports_again_and_is_not_marked() {
    for (ports, connects) in [
        (";server_port=6970-6971", false),
        (";server_port=1022-1023", true),
        (";server_port=6970-1023", true),
        (";server_port=6970-6970", true),
        ("", true),
    ] {
        let mut server = server();
        server.ports.connects = connects;
        server.requests(setup(1, MARKED).as_bytes());
        let chosen = format!("RTP/AVP;unicast;client_port=50000-50001{ports}");
        let want = answer(1, &format!("RTP/AVP;unicast;client_port=5000-5001{ports}"));
        assert_eq!(text(server.answers(answer(1, &chosen).as_bytes())), want);
        assert_eq!((out(&server), seen(&mut server)), (0, (vec![], vec![])), "{ports}");
        // The client then has nothing to say either.
        let mut client = client();
        client.requests(setup(1, ASKED).as_bytes());
        assert_eq!(text(client.answers(want.as_bytes())), want);
        assert_eq!((out(&client), seen(&mut client)), (0, (vec![], vec![])), "{ports}");
    }
}

/// `head` with a field that makes it as long as the longest that is read.
fn longest(head: &str) -> String {
    let padding = "x".repeat(MAX_HEAD_BYTES - head.len() - "X: \r\n".len());
    head.replace("\r\n\r\n", &format!("\r\nX: {padding}\r\n\r\n"))
}

#[test]
fn a_head_that_has_no_room_for_the_mark_passes_unchanged() {
    let (mut client, mut server) = (client(), server());
    let request = longest(&setup(1, ASKED));
    assert_eq!(text(client.requests(request.as_bytes())), request);
    assert_eq!((out(&client), seen(&mut client)), (0, (vec![], vec![])));

    server.requests(setup(2, MARKED).as_bytes());
    let refused = longest(&answer(2, CHOSEN));
    assert_eq!(text(server.answers(refused.as_bytes())), refused);
    assert_eq!((out(&server), seen(&mut server)), (0, (vec![], vec![])));
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
    assert_eq!(seen(&mut server).0.len(), 4);
    tear_down(&mut server, "a", "A", 401);
    tear_down(&mut server, "a", "C", 200);
    assert!(seen(&mut server).1.is_empty());
    tear_down(&mut server, "a/2", "A", 200);
    assert_eq!(seen(&mut server).1, [1]);
    // A repeated SETUP of a medium replaces the first one.
    set_up(&mut server, 5, "a/1", "A");
    assert_eq!(seen(&mut server), (vec![(4, 50_008, "6970-6971".into())], vec![0]));
    tear_down(&mut server, "a", "A", 200);
    assert_eq!(seen(&mut server).1, [2, 4]);
}

#[test]
fn media_and_requests_are_bounded() {
    let mut server = server();
    for cseq in 0..100 {
        let request = setup(cseq, MARKED).replace(URI, &format!("a/{cseq}"));
        let written = text(server.requests(request.as_bytes()));
        assert_eq!(written.contains("client_port=5000-5001"), cseq >= MAX_MEDIA as u32);
    }
    assert_eq!((out(&server), server.asked.len()), (MAX_MEDIA, MAX_MEDIA));
    set_up(&mut server, 0, "a/0", "A");
    for _ in 0..100 {
        tear_down(&mut server, "b", "B", 100);
    }
    assert!(server.asked.len() <= MAX_ASKED);
    // A repeated request counts once.
    let mut server = Follower::new(Side::Server, numbers(50_000));
    for _ in 0..3 {
        server.requests(setup(1, MARKED).as_bytes());
    }
    assert_eq!((out(&server), server.asked.len()), (1, 1));
}

#[test]
fn nothing_is_lost_of_what_is_no_rtsp_or_ends_early() {
    let begin = &setup(1, MARKED)[..40];
    let mut server = server();
    assert_eq!(server.requests(begin.as_bytes()), b"");
    assert_eq!(text(server.end_requests()), begin);
    for other in ["\x16\x03\x01abc", "GET / HTTP/1.1\r\nA: b\r\n\r\n", "S\0"] {
        let mut server = self::server();
        let written = [server.requests(other.as_bytes()), server.requests(b"SETUP a")].concat();
        assert_eq!(text(written), format!("{other}SETUP a"));
        assert!(server.requests.is_lost());
    }
    // A protocol that begins like ours and waits for an answer is not kept waiting.
    let mut server = self::server();
    assert_eq!(text(server.requests(b"HELLO")), "HELLO");
    assert_eq!(text(server.answers(b"RTSP/")), "RTSP/");
    let long = format!("SETUP {}", "a".repeat(20_000));
    let mut server = self::server();
    let written: Vec<_> = long.as_bytes().chunks(700).flat_map(|it| server.requests(it)).collect();
    assert_eq!(text(written), long);
    assert!(server.requests.is_lost());
}
