//! The RTSP state machine of both tunnel ends. Bytes go in and out; sockets come through [`Ports`].
//!
//! | | request, SETUP | answer, 2xx |
//! |---|---|---|
//! | client | takes two ports towards the player, marks the request | tells the player these ports, and takes the mark out |
//! | server | takes two ports towards the origin, and names them in place of the player's | connects them to the origin's, names the player's again, marks the answer |
//!
//! Without a mark the other end changes nothing, so that a SETUP for which one end finds no ports passes unchanged. An
//! answer other than 2xx gives the ports back.

use std::net::IpAddr;

use millrace_wire::rtsp::{
    Head, MARK, MAX_HEAD_BYTES, PortPair, Start, Transport, Way, with_transport,
};

use super::reader::{Message, Reader};

/// Media of one connection with ports, those of unanswered requests included. A player has two or
/// three.
pub(super) const MAX_MEDIA: usize = 8;
/// Requests of interest that an answer is waited for; the oldest is forgotten when there are more.
const MAX_ASKED: usize = 16;
/// Below are ports of services, not of media: an answer that names one is not followed, so that no
/// origin can have a server of ours send to what an allow-list is there to protect.
const LEAST_ORIGIN_PORT: u16 = 1024;

/// Where ports come from.
pub(crate) trait Ports {
    /// Two ports, given back when dropped.
    type Pair;

    /// Two ports for a medium that a player wants to have at `player`, and their numbers.
    fn reserve(&mut self, player: PortPair) -> Option<(Self::Pair, PortPair)>;

    /// The origin's ports of that medium are known; whether the pair can be used.
    fn connect(&mut self, pair: &mut Self::Pair, origin: PortPair) -> bool;
}

/// Which end of the tunnel this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The player's.
    Client {
        /// Where the player is.
        player: IpAddr,
        /// Where its media will come from.
        source: IpAddr,
        /// The server has said that it follows RTSP too.
        agreed: bool,
    },
    /// The origin's.
    Server,
}

/// What a connection's media are to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<P> {
    /// A medium's ports are known at both ends.
    SetUp {
        /// Its number in this connection.
        number: u32,
        /// Its ports here.
        pair: P,
        /// The origin's.
        origin: PortPair,
    },
    /// A medium is over.
    TornDown {
        /// Its number.
        number: u32,
    },
}

#[derive(Debug)]
struct Asked<P> {
    cseq: u32,
    uri: String,
    what: What<P>,
}

#[derive(Debug)]
enum What<P> {
    SetUp {
        /// `client_port` as the player wrote it.
        player: String,
        pair: P,
        ports: PortPair,
    },
    TearDown {
        session: Option<String>,
    },
}

#[derive(Debug)]
pub(crate) struct Medium {
    number: u32,
    uri: String,
    session: Option<String>,
}

/// Follows one RTSP connection at one end of the tunnel.
#[derive(Debug)]
pub(crate) struct Follower<P: Ports> {
    side: Side,
    ports: P,
    requests: Reader,
    answers: Reader,
    asked: Vec<Asked<P::Pair>>,
    media: Vec<Medium>,
    next_number: u32,
    events: Vec<Event<P::Pair>>,
}

impl<P: Ports> Follower<P> {
    pub(crate) fn new(side: Side, ports: P) -> Self {
        Self {
            side,
            ports,
            requests: Reader::default(),
            answers: Reader::default(),
            asked: Vec::new(),
            media: Vec::new(),
            next_number: 0,
            events: Vec::new(),
        }
    }

    /// The player's first bytes, the beginning of a request, have been passed on.
    pub(crate) fn after_passed(self, first: Vec<u8>) -> Self {
        Self { requests: Reader::after(first), ..self }
    }

    /// The server follows RTSP too; requests from now on are marked.
    pub(crate) fn agree(&mut self) {
        if let Side::Client { agreed, .. } = &mut self.side {
            *agreed = true;
        }
    }

    /// What happened since the last call.
    pub(crate) fn events(&mut self) -> Vec<Event<P::Pair>> {
        std::mem::take(&mut self.events)
    }

    /// Takes the next bytes of the player; returns the bytes to forward instead.
    pub(crate) fn requests(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        while let Some(message) = self.requests.next(&mut bytes, &mut out, Some(b"SETUP ")) {
            let written = self.request(&message);
            out.extend_from_slice(written.as_deref().unwrap_or(&message.bytes[message.passed..]));
        }
        out
    }

    /// Takes the next bytes of the origin; returns the bytes to forward instead.
    pub(crate) fn answers(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        loop {
            let waited_for = |it: &Asked<_>| matches!(it.what, What::SetUp { .. });
            let held = self.asked.iter().any(waited_for).then_some(&b"RTSP/"[..]);
            let Some(message) = self.answers.next(&mut bytes, &mut out, held) else { return out };
            let written = self.answer(&message);
            out.extend_from_slice(written.as_deref().unwrap_or(&message.bytes[message.passed..]));
        }
    }

    /// Takes the end of the player's direction; returns what was held back.
    pub(crate) fn end_requests(&mut self) -> Vec<u8> {
        self.requests.end()
    }

    /// Takes the end of the origin's direction; returns what was held back.
    pub(crate) fn end_answers(&mut self) -> Vec<u8> {
        self.answers.end()
    }

    /// A request; how it is written instead.
    fn request(&mut self, message: &Message) -> Option<Vec<u8>> {
        let Start::Request { method, uri } = &message.head.start else { return None };
        let cseq = message.head.cseq?;
        match method.as_str() {
            "SETUP" => self.set_up(message, cseq, uri),
            "TEARDOWN" if !self.media.is_empty() => {
                let session = message.head.session.clone();
                self.ask(Asked { cseq, uri: uri.clone(), what: What::TearDown { session } });
                None
            }
            _ => None,
        }
    }

    fn set_up(&mut self, message: &Message, cseq: u32, uri: &str) -> Option<Vec<u8>> {
        let (mut transport, range) = transport_of(message)?;
        let way = transport.unicast_udp()?;
        let player = way.get("client_port").map(str::to_owned);
        let wanted = player.as_deref().and_then(PortPair::parse);
        match self.side {
            Side::Client { player, agreed, .. } => {
                let marked = way.get(MARK).is_some();
                let elsewhere = way.get("destination").is_some_and(|it| !is_address(it, player));
                let fits = message.bytes.len() + parameter_bytes(MARK, "") <= MAX_HEAD_BYTES;
                if marked || elsewhere || !agreed || !fits {
                    return None;
                }
            }
            Side::Server => {
                way.get(MARK)?;
                way.remove(MARK);
            }
        }
        let setups = self.asked.iter().filter(|it| matches!(it.what, What::SetUp { .. })).count();
        let room = setups + self.media.len() < MAX_MEDIA;
        let reserved = wanted.filter(|_| room).and_then(|wanted| self.ports.reserve(wanted));
        match (self.side, reserved, player) {
            (side, Some((pair, ports)), Some(player)) => {
                match side {
                    Side::Client { .. } => {
                        // From here on another address sends the media than the one that the player
                        // asks.
                        way.remove("destination");
                        way.set(MARK, "");
                    }
                    Side::Server => way.set("client_port", &ports.to_string()),
                }
                let what = What::SetUp { player, pair, ports };
                self.ask(Asked { cseq, uri: uri.to_owned(), what });
            }
            (Side::Client { .. }, ..) => {
                tracing::debug!(uri, "no UDP ports left for an RTSP player");
                return None;
            }
            // As the player wrote it.
            (Side::Server, ..) => tracing::debug!(uri, "no UDP ports left for an RTSP origin"),
        }
        Some(with_transport(&message.bytes, range, &transport.to_string()))
    }

    fn ask(&mut self, asked: Asked<P::Pair>) {
        self.asked.retain(|it| it.cseq != asked.cseq);
        if self.asked.len() == MAX_ASKED {
            self.asked.remove(0);
        }
        self.asked.push(asked);
    }

    /// An answer; how it is written instead.
    fn answer(&mut self, message: &Message) -> Option<Vec<u8>> {
        let Start::Response { status } = message.head.start else { return None };
        let cseq = message.head.cseq?;
        // Another answer follows an interim one.
        if status < 200 {
            return None;
        }
        let index = self.asked.iter().position(|it| it.cseq == cseq)?;
        let Asked { uri, what, .. } = self.asked.remove(index);
        if status >= 300 {
            return None;
        }
        match what {
            What::TearDown { session } => {
                self.tear_down(&uri, session.as_deref());
                None
            }
            What::SetUp { player, pair, ports } => {
                let (mut transport, range) = transport_of(message)?;
                let way = transport.chosen_udp()?;
                let added = parameter_bytes(MARK, "") + parameter_bytes("client_port", &player);
                if self.side == Side::Server && message.bytes.len() + added > MAX_HEAD_BYTES {
                    return None;
                }
                self.chosen(&message.head, uri, way, (pair, ports), &player);
                Some(with_transport(&message.bytes, range, &transport.to_string()))
            }
        }
    }

    /// The origin has chosen `way` for a medium.
    fn chosen(
        &mut self,
        head: &Head,
        uri: String,
        way: &mut Way,
        (mut pair, ports): (P::Pair, PortPair),
        player: &str,
    ) {
        let origin = way
            .ports("server_port")
            .filter(|origin| origin.rtp.min(origin.rtcp) >= LEAST_ORIGIN_PORT);
        let marked = way.get(MARK).is_some();
        way.remove(MARK);
        if self.side == Side::Server {
            way.set("client_port", player);
        } else if !marked {
            // The server has no ports for it, and its media do not come this way.
            return;
        }
        let Some(origin) = origin.filter(|origin| self.ports.connect(&mut pair, *origin)) else {
            return tracing::debug!(uri, "RTSP origin's ports not usable");
        };
        match self.side {
            Side::Server => way.set(MARK, ""),
            Side::Client { player, source, .. } => {
                way.set("server_port", &ports.to_string());
                // RFC 2326, Section 12.39: needed where it differs from the address that the player
                // asks.
                way.set("source", &source.to_string());
                if way.get("destination").is_some() {
                    way.set("destination", &player.to_string());
                }
            }
        }
        let session = head.session.clone();
        let again = |it: &Medium| it.uri == uri && it.session == session;
        self.tear_down_if(again);
        let number = self.next_number;
        self.next_number += 1;
        self.media.push(Medium { number, uri, session });
        self.events.push(Event::SetUp { number, pair, origin });
    }

    /// A medium, or all those of a session (Section 10.7).
    fn tear_down(&mut self, uri: &str, session: Option<&str>) {
        let of_session = |it: &Medium| session.is_none() || it.session.as_deref() == session;
        let alone = self.media.iter().any(|it| of_session(it) && it.uri == uri);
        self.tear_down_if(|it| of_session(it) && (!alone || it.uri == uri));
    }

    fn tear_down_if(&mut self, over: impl Fn(&Medium) -> bool) {
        let events = &mut self.events;
        self.media.retain(|it| {
            let over = over(it);
            if over {
                events.push(Event::TornDown { number: it.number });
            }
            !over
        });
    }
}

/// The Transport field of a message that can still be rewritten.
fn transport_of(message: &Message) -> Option<(Transport, std::ops::Range<usize>)> {
    let range = message.head.transport.clone().filter(|_| message.passed == 0)?;
    let text = str::from_utf8(&message.bytes[range.clone()]).ok()?;
    Some((Transport::parse(text), range))
}

/// The most bytes by which a head grows with a parameter of its Transport field. The other end of the tunnel reads
/// heads of up to [`MAX_HEAD_BYTES`]: it would not find the mark in a longer one.
fn parameter_bytes(name: &str, value: &str) -> usize {
    ";=".len() + name.len() + value.len()
}

fn is_address(text: &str, address: IpAddr) -> bool {
    text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|it| it.to_canonical() == address)
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;

#[cfg(fuzzing)]
#[path = "follow_fuzzing.rs"]
pub mod fuzzing;
