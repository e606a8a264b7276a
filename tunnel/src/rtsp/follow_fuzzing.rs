//! The checks of the fuzz target `rtsp_follower`: a [`Follower`] at each end of a tunnel.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use millrace_wire::rtsp::MAX_HEAD_BYTES;

use super::*;

/// Separates the pieces of an input. The first byte of a piece is its sender.
const SEPARATOR: u8 = 0xff;

/// Port numbers without sockets.
struct Numbers {
    next: u16,
    remaining: usize,
    reserved: Rc<Cell<usize>>,
}

/// Counts as reserved until it is dropped.
struct Pair(Rc<Cell<usize>>);

impl Drop for Pair {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl PortSource for Numbers {
    type Pair = Pair;

    fn reserve(&mut self, _player: PortPair) -> Option<(Pair, PortPair)> {
        self.remaining = self.remaining.checked_sub(1)?;
        let rtp = self.next;
        self.next = self.next.checked_add(2)?;
        self.reserved.set(self.reserved.get() + 1);
        Some((Pair(self.reserved.clone()), PortPair { rtp, rtcp: rtp + 1 }))
    }

    fn source(&self) -> Option<IpAddr> {
        Some(IpAddr::from([198, 18, 0, 1]))
    }

    fn connect(&mut self, _pair: &mut Pair, origin: &OriginMedia) -> bool {
        let Some(ports) = origin.ports else { return true };
        assert!(ports.rtp.min(ports.rtcp) >= MIN_ORIGIN_PORT);
        !ports.rtp.is_multiple_of(16)
    }
}

/// One end of a tunnel, with the media that it has set up.
struct End {
    follower: Follower<Numbers>,
    reserved: Rc<Cell<usize>>,
    media: BTreeMap<u32, Pair>,
    next_number: u32,
}

impl End {
    fn new(side: RtspSide, first_port: u16, ports: usize) -> Self {
        let reserved = Rc::default();
        let numbers =
            Numbers { next: first_port, remaining: ports, reserved: Rc::clone(&reserved) };
        Self {
            follower: Follower::new(side, numbers),
            reserved,
            media: BTreeMap::new(),
            next_number: 0,
        }
    }

    /// Memory is bounded, each medium ends once, and each pair belongs to a request or a medium.
    fn check(&mut self) {
        for event in self.follower.events() {
            match event {
                Event::SetUp { number, pair, .. } => {
                    assert_eq!(number, self.next_number);
                    self.next_number += 1;
                    self.media.insert(number, pair);
                }
                Event::TornDown { number } => {
                    assert!(self.media.remove(&number).is_some(), "medium {number} ends twice");
                }
                Event::Begun | Event::Refused(_) | Event::CloseOrigin => {}
            }
        }
        let follower = &self.follower;
        assert!(follower.requests.held_bytes() <= MAX_HEAD_BYTES);
        assert!(follower.answers.held_bytes() <= MAX_HEAD_BYTES);
        let asked = follower.exchanges.asked().filter(|it| matches!(it, Asked::SetUp(_))).count();
        assert!(asked + self.media.len() <= MAX_MEDIA);
        assert!(follower.media.iter().map(|it| it.number).eq(self.media.keys().copied()));
        assert_eq!(self.reserved.get(), asked + self.media.len());
    }
}

/// Both ends of a tunnel, and their output.
struct Tunnel {
    client: End,
    server: End,
    to_origin: Vec<u8>,
    to_player: Vec<u8>,
}

impl Tunnel {
    fn new(server_follows: Option<bool>, ports: usize) -> Self {
        let side = RtspSide::Client { player: IpAddr::from([198, 18, 0, 9]), server_follows };
        Self {
            client: End::new(side, 40_000, ports),
            server: End::new(RtspSide::Server, 50_000, ports),
            to_origin: Vec::new(),
            to_player: Vec::new(),
        }
    }

    fn take(&mut self, sender: u8, bytes: &[u8]) {
        match sender {
            b'P' => self.client.follower.take_requests(bytes),
            b'O' => self.server.follower.take_answers(bytes),
            other => self.client.follower.on_server_follows(other & 1 == 1),
        }
        self.pass();
        self.check();
    }

    /// Passes what each end says to the next one.
    fn pass(&mut self) {
        let [client, server] = [&mut self.client, &mut self.server].map(|it| &mut it.follower);
        loop {
            let requests = std::mem::take(&mut client.out.to_origin);
            let answers = std::mem::take(&mut server.out.to_player);
            if requests.is_empty() && answers.is_empty() {
                break;
            }
            server.take_requests(&requests);
            client.take_answers(&answers);
        }
        self.to_origin.append(&mut server.out.to_origin);
        self.to_player.append(&mut client.out.to_player);
    }

    fn end(&mut self) {
        self.client.follower.end_requests();
        self.pass();
        self.server.follower.end_requests();
        self.server.follower.end_answers();
        self.pass();
        self.client.follower.end_answers();
        self.pass();
        self.check();
    }

    fn check(&mut self) {
        self.client.check();
        self.server.check();
    }
}

/// The bytes one by one, but for the method of a SETUP: if only its beginning has come, that goes on, and the origin
/// refuses what this end would have refused.
fn pieces_of_one_byte(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const METHOD: &[u8] = b"SETUP ";
    std::iter::from_fn(move || {
        let length = if bytes.starts_with(METHOD) { METHOD.len() } else { 1 };
        let (piece, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        Some(piece)
    })
}

/// Passes the pieces of `input` whole and byte by byte; both ways must give the same output.
///
/// The first byte of the input says whether the server has said that it follows RTSP too (bit 0) and how many port
/// pairs each end has. Pieces follow: `P` is the player, `O` the origin, any other sender the server's word (bit 0).
pub fn follow(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else { return };
    let (server_follows, ports) = ((first & 1 == 1).then_some(true), usize::from(first >> 1));
    let pieces: Vec<(u8, &[u8])> = rest
        .split(|byte| *byte == SEPARATOR)
        .filter_map(|piece| piece.split_first().map(|(sender, bytes)| (*sender, bytes)))
        .collect();
    let mut whole = Tunnel::new(server_follows, ports);
    let mut bytewise = Tunnel::new(server_follows, ports);
    for (sender, bytes) in &pieces {
        whole.take(*sender, bytes);
        if bytes.is_empty() {
            bytewise.take(*sender, bytes);
        }
        pieces_of_one_byte(bytes).for_each(|byte| bytewise.take(*sender, byte));
    }
    whole.end();
    bytewise.end();
    assert_eq!(whole.to_origin, bytewise.to_origin);
    assert_eq!(whole.to_player, bytewise.to_player);

    let sent = |by: u8| -> Vec<u8> {
        pieces.iter().filter(|piece| piece.0 == by).flat_map(|piece| piece.1).copied().collect()
    };
    let (requests, answers) = (sent(b'P'), sent(b'O'));
    // A player or an origin may write the mark itself.
    if !has_mark(&requests) && !has_mark(&answers) {
        assert!(!has_mark(&whole.to_origin) && !has_mark(&whole.to_player), "the mark leaves");
        if !requests.windows(6).any(|it| it == b"SETUP ") {
            assert_eq!(whole.to_origin, requests, "requests pass unchanged");
            assert_eq!(whole.to_player, answers, "answers pass unchanged");
        }
    }
    let reserved = [&whole.client, &whole.server].map(|end| Rc::clone(&end.reserved));
    drop(whole);
    assert!(reserved.iter().all(|it| it.get() == 0), "every pair is given back");
}

fn has_mark(bytes: &[u8]) -> bool {
    bytes.windows(MARK.len()).any(|it| it.eq_ignore_ascii_case(MARK.as_bytes()))
}
