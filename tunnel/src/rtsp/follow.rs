//! The RTSP agent of a tunnel end: it stands between a player and an origin, and completes or refuses each SETUP of
//! media over UDP. Bytes go in and out; sockets come through [`PortSource`].
//!
//! | | request, SETUP | answer, 2xx |
//! |---|---|---|
//! | client | reserves two ports towards the player, marks the request | names these ports to the player, removes the mark |
//! | server | reserves two ports towards the origin, and names them in place of the player's | learns where the origin's media come from, names the player's ports again, marks the answer |
//!
//! A SETUP that an end can't complete is answered with 461 (Unsupported Transport), so that the player changes to RTP in
//! the RTSP connection: the origin would send its media to the peer of its TCP connection, which is the tunnel server
//! and not the player. Where the player offers RTP in the RTSP connection too, that remains of the request.

use std::net::IpAddr;

use millrace_wire::rtsp::{
    Authorization, MARK, MAX_HEAD_BYTES, MessageHead, PortPair, Start, TransportHeader,
    TransportSpec, with_transport,
};

use super::exchanges::Exchanges;
use super::reader::{HeldHeads, Message, Next, Reader};
use super::refusal;
use crate::metrics::SetupRefusal;

/// Media of one connection with ports, those of unanswered requests included. A player has two or three, one for a
/// wall of cameras or a conference some dozens.
pub(super) const MAX_MEDIA: usize = 64;
/// Bytes of a player that wait behind a SETUP until the server has said whether it follows RTSP. Players wait for the
/// answer of a SETUP before they go on.
const MAX_HELD_BYTES: usize = 64 << 10;
/// A transport that no origin has (RFC 2326, Section 12.39 has `RTP/AVP` and leaves room for others): the answer is 461.
const NO_TRANSPORT: &str = "RTP/NONE";
/// Below are ports of services, not of media: nothing is sent to them, so that no origin can have a server of ours send
/// to what an allow-list is there to protect.
pub(super) const MIN_ORIGIN_PORT: u16 = 1024;

/// Where ports come from.
pub(crate) trait PortSource {
    /// Two ports, given back when dropped.
    type Pair;

    /// Two ports for a medium that a player wants to have at `player`, and their numbers.
    fn reserve(&mut self, player: PortPair) -> Option<(Self::Pair, PortPair)>;

    /// Where pairs are, once one was reserved.
    fn source(&self) -> Option<IpAddr>;

    /// The origin has said where its media come from; whether the pair can be used.
    fn connect(&mut self, pair: &mut Self::Pair, origin: &OriginMedia) -> bool;
}

/// What an origin says of where its media come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OriginMedia {
    /// `server_port`, where it can be sent to.
    pub(crate) ports: Option<PortPair>,
    /// `source`, where it is an address.
    pub(crate) source: Option<IpAddr>,
}

/// Which end of the tunnel this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RtspSide {
    /// The player's.
    Client {
        /// Where the player is.
        player: IpAddr,
        /// Whether the server follows RTSP too; `None` before it has said so.
        server_follows: Option<bool>,
    },
    /// The origin's.
    Server,
}

/// What a connection's media are to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<P> {
    /// The player's first bytes are RTSP.
    Begun,
    /// A medium's ports are known at both ends.
    SetUp {
        /// Its number in this connection.
        number: u32,
        /// Its ports here.
        pair: P,
        /// The ports by which both ends identify it: the origin's where it has named some that no other medium has.
        origin: PortPair,
    },
    /// A medium is over.
    TornDown {
        /// Its number.
        number: u32,
    },
    /// A medium over UDP was not carried.
    Refused(SetupRefusal),
    /// The origin has set up a medium that can't be carried, and no TEARDOWN of this end would be authorized.
    CloseOrigin,
}

/// What an answer is waited for.
#[derive(Debug)]
enum Asked<P> {
    SetUp(Box<AskedSetup<P>>),
    TearDown {
        uri: String,
        session: Option<String>,
    },
    /// A TEARDOWN of this end.
    Own,
    Other,
}

#[derive(Debug)]
struct AskedSetup<P> {
    uri: String,
    /// The value of `Authorization` where it fits a TEARDOWN too; `Err` where it does not.
    authorization: Result<Option<Vec<u8>>, ()>,
    cseq: Option<u32>,
    /// `client_port` as the player wrote it.
    player: String,
    pair: P,
    ports: PortPair,
}

#[derive(Debug)]
pub(crate) struct FollowedMedium {
    number: u32,
    uri: String,
    session: Option<String>,
    origin: PortPair,
    /// The player has sent a TEARDOWN of it.
    ends: bool,
}

/// What goes on instead of what came.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) to_origin: Vec<u8>,
    pub(crate) to_player: Vec<u8>,
}

/// A SETUP that waits for the server's word on whether it follows RTSP, and what came behind it.
#[derive(Debug)]
struct Held {
    setup: Message,
    behind: Vec<u8>,
}

/// Follows one RTSP connection at one end of the tunnel.
#[derive(Debug)]
pub(crate) struct Follower<P: PortSource> {
    side: RtspSide,
    ports: P,
    pub(super) requests: Reader,
    answers: Reader,
    exchanges: Exchanges<Asked<P::Pair>>,
    media: Vec<FollowedMedium>,
    next_number: u32,
    newest_cseq: u32,
    held: Option<Held>,
    events: Vec<Event<P::Pair>>,
    /// What goes on since it was taken.
    pub(crate) out: Output,
}

impl<P: PortSource> Follower<P> {
    pub(crate) fn new(side: RtspSide, ports: P) -> Self {
        Self {
            side,
            ports,
            requests: Reader::default(),
            answers: Reader::default(),
            exchanges: Exchanges::default(),
            media: Vec::new(),
            next_number: 0,
            newest_cseq: 0,
            held: None,
            events: Vec::new(),
            out: Output::default(),
        }
    }

    /// The server has said whether it follows RTSP too.
    pub(crate) fn on_server_follows(&mut self, follows: bool) {
        if let RtspSide::Client { server_follows, .. } = &mut self.side {
            *server_follows = Some(follows);
        }
        self.release_held();
    }

    /// What happened since the last call.
    pub(crate) fn events(&mut self) -> Vec<Event<P::Pair>> {
        std::mem::take(&mut self.events)
    }

    /// Whether nothing of this connection is of interest: it began with another protocol.
    pub(crate) fn is_over(&self) -> bool {
        self.requests.is_other_protocol()
            && self.media.is_empty()
            && self.held.is_none()
            && !self.awaits_rewriting()
            && !self.exchanges.has_reply()
    }

    /// The media that the player has not ended with a TEARDOWN.
    pub(crate) fn lasting_media(&self) -> impl Iterator<Item = u32> {
        self.media.iter().filter(|it| !it.ends).map(|it| it.number)
    }

    /// Takes the next bytes of the player.
    pub(crate) fn take_requests(&mut self, mut bytes: &[u8]) {
        if let Some(held) = &mut self.held {
            held.behind.extend_from_slice(bytes);
            if held.behind.len() > MAX_HELD_BYTES {
                self.on_server_follows(false);
            }
            return;
        }
        let was_rtsp = self.requests.is_rtsp();
        loop {
            let message =
                match self.requests.next(&mut bytes, &mut self.out.to_origin, HeldHeads::SetUps) {
                    Next::Message(message) => message,
                    Next::Passed => continue,
                    Next::AllTaken => break,
                };
            if !was_rtsp && self.events.is_empty() {
                self.events.push(Event::Begun);
            }
            if self.must_wait(&message) {
                self.held = Some(Held { setup: message, behind: bytes.to_vec() });
                return;
            }
            self.on_request(&message);
        }
        self.send_replies();
    }

    /// Takes the next bytes of the origin.
    pub(crate) fn take_answers(&mut self, mut bytes: &[u8]) {
        loop {
            let is_held = self.awaits_rewriting() || self.exchanges.has_reply();
            let held = if is_held { HeldHeads::Responses } else { HeldHeads::None };
            match self.answers.next(&mut bytes, &mut self.out.to_player, held) {
                Next::Message(message) => self.on_answer(&message),
                Next::Passed => {}
                Next::AllTaken => break,
            }
            self.send_replies();
        }
    }

    /// The player's direction has ended: what was held of it goes on.
    pub(crate) fn end_requests(&mut self) {
        if self.held.is_some() {
            self.on_server_follows(false);
        }
        let held = self.requests.end();
        self.out.to_origin.extend(held);
    }

    /// The origin's direction has ended: what was held of it goes on.
    pub(crate) fn end_answers(&mut self) {
        let held = self.answers.end();
        self.out.to_player.extend(held);
    }

    /// Whether the origin will send an answer that does not pass unchanged.
    fn awaits_rewriting(&self) -> bool {
        self.exchanges.asked().any(|it| matches!(it, Asked::SetUp(_) | Asked::Own))
    }

    /// Whether a SETUP is about media over UDP, and the server has not said whether it follows RTSP.
    fn must_wait(&self, message: &Message) -> bool {
        let waits = matches!(self.side, RtspSide::Client { server_follows: None, .. });
        waits && is_setup(&message.head) && transport_of(message).is_some_and(|it| any_udp(&it))
    }

    fn release_held(&mut self) {
        let Some(Held { setup, behind }) = self.held.take() else { return };
        self.on_request(&setup);
        self.take_requests(&behind);
    }

    /// Answers of this end whose turn it is, where the origin's stream has a gap for them.
    fn send_replies(&mut self) {
        while self.answers.is_between_messages()
            && let Some(reply) = self.exchanges.next_reply()
        {
            self.out.to_player.extend(reply);
        }
    }

    fn on_request(&mut self, message: &Message) {
        let Start::Request { method, uri } = &message.head.start else {
            // An answer to a request of the origin.
            return self.out.to_origin.extend_from_slice(message.rest());
        };
        let cseq = message.head.cseq;
        self.newest_cseq = self.newest_cseq.max(cseq.unwrap_or(0));
        let asked = match method.as_str() {
            "SETUP" => match self.set_up(message, uri) {
                Ok((written, asked)) => {
                    self.out.to_origin.extend_from_slice(&written[message.passed..]);
                    return self.exchanges.ask(cseq, asked);
                }
                Err(refusal) => {
                    self.events.push(Event::Refused(refusal));
                    if message.passed > 0 {
                        // The origin has its beginning, and refuses the rest itself.
                        let ranges = &message.head.transports;
                        let written = with_transport(&message.bytes, ranges, NO_TRANSPORT);
                        self.out.to_origin.extend_from_slice(&written[message.passed..]);
                        return self.exchanges.ask(cseq, Asked::Other);
                    }
                    let answer = refusal::answer(cseq);
                    // The origin does not see the request, nor its content.
                    self.requests.discard_message();
                    return self.exchanges.reply(answer);
                }
            },
            "TEARDOWN" => {
                let session = message.head.session.clone();
                self.mark_ends(uri, session.as_deref());
                Asked::TearDown { uri: uri.clone(), session }
            }
            _ => Asked::Other,
        };
        self.out.to_origin.extend_from_slice(message.rest());
        self.exchanges.ask(cseq, asked);
    }

    /// How a SETUP is written instead, from its beginning on, and what its answer is waited for.
    fn set_up(
        &mut self,
        message: &Message,
        uri: &str,
    ) -> Result<(Vec<u8>, Asked<P::Pair>), SetupRefusal> {
        let unchanged = || Ok((message.bytes.clone(), Asked::Other));
        let Some(mut transport) = transport_of(message).filter(any_udp) else {
            return unchanged();
        };
        let reserved = self.reserve(message, &transport);
        let refusal = reserved.as_ref().err().copied();
        let mut asked = Asked::Other;
        let side = self.side;
        let mut chosen = None;
        if let Ok((index, player, pair, ports)) = reserved {
            chosen = Some(index);
            let setup = AskedSetup {
                uri: uri.to_owned(),
                authorization: authorization_of(message),
                cseq: message.head.cseq,
                player,
                pair,
                ports,
            };
            let spec = &setup.ports.to_string();
            let mut at = 0;
            transport.retain(|it| {
                let is_it = at == index;
                at += 1;
                if is_it {
                    rewrite_request(it, side, spec);
                }
                is_it || !is_unicast_udp(it)
            });
            asked = Asked::SetUp(Box::new(setup));
        }
        if chosen.is_none() {
            transport.retain(|it| !is_unicast_udp(it));
        }
        match refusal {
            Some(refusal) if transport.is_empty() => return Err(refusal),
            Some(refusal) => self.events.push(Event::Refused(refusal)),
            None => {}
        }
        let written =
            with_transport(&message.bytes, &message.head.transports, &transport.to_string());
        Ok((written, asked))
    }

    /// Ports for the first transport of a SETUP that can be carried: its position, and `client_port` of it.
    fn reserve(
        &mut self,
        message: &Message,
        transport: &TransportHeader,
    ) -> Result<(usize, String, P::Pair, PortPair), SetupRefusal> {
        let carried = |spec: &TransportSpec| is_unicast_udp(spec) && self.side.can_carry(spec);
        let index = transport.specs().iter().position(carried).ok_or(SetupRefusal::Transport)?;
        let player = transport.specs()[index].get("client_port").unwrap_or_default().to_owned();
        let wanted = PortPair::parse(&player).ok_or(SetupRefusal::Transport)?;
        if matches!(self.side, RtspSide::Client { server_follows: None | Some(false), .. }) {
            return Err(SetupRefusal::Server);
        }
        if message.bytes.len() + parameter_bytes(MARK, "") > MAX_HEAD_BYTES {
            return Err(SetupRefusal::Transport);
        }
        let setups = self.exchanges.asked().filter(|it| matches!(it, Asked::SetUp(_))).count();
        let has_room = setups + self.media.len() < MAX_MEDIA;
        let reserved = if has_room { self.ports.reserve(wanted) } else { None };
        let (pair, ports) = reserved.ok_or(SetupRefusal::Ports)?;
        Ok((index, player, pair, ports))
    }

    fn on_answer(&mut self, message: &Message) {
        let status = match message.head.start {
            Start::Response { status } => status,
            // A request of the origin.
            Start::Request { .. } => 0,
        };
        // Another answer follows an interim one.
        if status < 200 {
            return self.out.to_player.extend_from_slice(message.rest());
        }
        let has_transport = !message.head.transports.is_empty() && status < 300;
        let asked = self.exchanges.answered(
            message.head.cseq,
            |it| !has_transport || matches!(it, Asked::SetUp(_) | Asked::Other),
            |it| matches!(it, Asked::SetUp(_)),
        );
        match asked {
            Some(Asked::Own) => return self.answers.discard_content(),
            Some(Asked::TearDown { uri, session }) if status < 300 => {
                self.tear_down(&uri, session.as_deref());
            }
            Some(Asked::SetUp(setup)) if status < 300 && message.passed == 0 => {
                return self.on_set_up(message, *setup);
            }
            _ => {}
        }
        self.out.to_player.extend_from_slice(message.rest());
    }

    /// The origin has set up a medium.
    fn on_set_up(&mut self, message: &Message, setup: AskedSetup<P::Pair>) {
        let mut transport = transport_of(message).unwrap_or_else(TransportHeader::udp);
        let Some(spec) = transport.first_mut().filter(|spec| is_unicast_udp(spec)) else {
            // In the RTSP connection, or by multicast: neither needs ports.
            return self.out.to_player.extend_from_slice(message.rest());
        };
        let Some((mut medium, pair)) =
            self.complete(&message.head, spec, setup, message.bytes.len())
        else {
            return;
        };
        medium.session = message.head.session.clone();
        let again = |it: &FollowedMedium| it.uri == medium.uri && it.session == medium.session;
        self.tear_down_if(again);
        let (number, origin) = (medium.number, medium.origin);
        self.next_number += 1;
        self.media.push(medium);
        self.events.push(Event::SetUp { number, pair, origin });
        let mut first = true;
        transport.retain(|_| std::mem::take(&mut first));
        let written =
            with_transport(&message.bytes, &message.head.transports, &transport.to_string());
        self.out.to_player.extend(written);
    }

    /// Completes a medium, and writes in `spec` what the next end has to know; undoes it where that is not possible.
    fn complete(
        &mut self,
        head: &MessageHead,
        spec: &mut TransportSpec,
        mut setup: AskedSetup<P::Pair>,
        head_bytes: usize,
    ) -> Option<(FollowedMedium, P::Pair)> {
        let is_marked = spec.get(MARK).is_some();
        spec.remove(MARK);
        let origin = match self.side {
            RtspSide::Server => self.complete_at_server(spec, &mut setup, head_bytes),
            RtspSide::Client { player, .. } => {
                let origin = spec.ports("server_port").filter(|_| is_marked);
                spec.set("server_port", &setup.ports.to_string());
                // RFC 2326, Section 12.39: needed where it differs from the address of the RTSP connection.
                if let Some(source) = self.ports.source() {
                    spec.set("source", &source.to_string());
                }
                if spec.get("destination").is_some() {
                    spec.set("destination", &player.to_string());
                }
                origin
            }
        };
        let Some(origin) = origin else {
            self.undo(head, setup);
            return None;
        };
        let number = self.next_number;
        let medium = FollowedMedium { number, uri: setup.uri, session: None, origin, ends: false };
        Some((medium, setup.pair))
    }

    /// The ports by which both ends identify the medium.
    fn complete_at_server(
        &mut self,
        spec: &mut TransportSpec,
        setup: &mut AskedSetup<P::Pair>,
        head_bytes: usize,
    ) -> Option<PortPair> {
        let can_be_sent_to = |ports: &PortPair| ports.rtp.min(ports.rtcp) >= MIN_ORIGIN_PORT;
        let ports = spec.ports("server_port").filter(can_be_sent_to);
        let source = spec.get("source").and_then(address);
        if !self.ports.connect(&mut setup.pair, &OriginMedia { ports, source }) {
            return None;
        }
        let is_taken = |ports: &PortPair| {
            let taken =
                |port| self.media.iter().any(|it| [it.origin.rtp, it.origin.rtcp].contains(&port));
            taken(ports.rtp) || taken(ports.rtcp) || ports.rtp == ports.rtcp
        };
        let origin = ports.filter(|ports| !is_taken(ports)).unwrap_or(setup.ports);
        spec.set("client_port", &setup.player);
        spec.set("server_port", &origin.to_string());
        spec.set(MARK, "");
        let added = parameter_bytes(MARK, "")
            + parameter_bytes("client_port", &setup.player)
            + parameter_bytes("server_port", &origin.to_string());
        (head_bytes + added <= MAX_HEAD_BYTES && !is_taken(&origin)).then_some(origin)
    }

    /// The origin has set up a medium that can't be carried: the player is told 461, and the origin to end it.
    fn undo(&mut self, head: &MessageHead, setup: AskedSetup<P::Pair>) {
        self.events.push(Event::Refused(SetupRefusal::Answer));
        self.answers.discard_content();
        self.out.to_player.extend(refusal::answer(setup.cseq));
        match (setup.authorization, &head.session) {
            (Ok(authorization), Some(session)) => {
                self.newest_cseq = self.newest_cseq.wrapping_add(1);
                let teardown = refusal::teardown(
                    &setup.uri,
                    self.newest_cseq,
                    session,
                    authorization.as_deref(),
                );
                self.out.to_origin.extend(teardown);
                self.exchanges.ask(Some(self.newest_cseq), Asked::Own);
            }
            _ => self.events.push(Event::CloseOrigin),
        }
    }

    /// The media that a TEARDOWN is about: one, or all those of a session (Section 10.7).
    fn torn_down<'a>(
        media: &[FollowedMedium],
        uri: &'a str,
        session: Option<&'a str>,
    ) -> impl Fn(&FollowedMedium) -> bool + use<'a, P> {
        let of_session =
            move |it: &FollowedMedium| session.is_none() || it.session.as_deref() == session;
        let alone = media.iter().any(|it| of_session(it) && it.uri == uri);
        move |it| of_session(it) && (!alone || it.uri == uri)
    }

    fn mark_ends(&mut self, uri: &str, session: Option<&str>) {
        let over = Self::torn_down(&self.media, uri, session);
        self.media.iter_mut().filter(|it| over(it)).for_each(|it| it.ends = true);
    }

    fn tear_down(&mut self, uri: &str, session: Option<&str>) {
        self.tear_down_if(Self::torn_down(&self.media, uri, session));
    }

    fn tear_down_if(&mut self, over: impl Fn(&FollowedMedium) -> bool) {
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

impl RtspSide {
    /// Whether a transport over UDP can be carried, as far as the request tells.
    fn can_carry(self, spec: &TransportSpec) -> bool {
        if spec.ports("client_port").is_none() {
            return false;
        }
        match self {
            Self::Client { player, .. } => {
                let destination = spec.get("destination");
                destination.is_none_or(|it| it.is_empty() || address(it) == Some(player))
            }
            // What the client has not marked it can't carry.
            Self::Server => spec.get(MARK).is_some(),
        }
    }
}

fn rewrite_request(spec: &mut TransportSpec, side: RtspSide, ports: &str) {
    match side {
        RtspSide::Client { .. } => {
            // From here on another address sends the media than the one that the player asks.
            spec.remove("destination");
            spec.set(MARK, "");
        }
        RtspSide::Server => {
            spec.remove(MARK);
            spec.set("client_port", ports);
        }
    }
}

fn is_setup(head: &MessageHead) -> bool {
    matches!(&head.start, Start::Request { method, .. } if method == "SETUP")
}

/// Media over UDP that the origin sends to the peer of its connection. Multicast goes its own way.
fn is_unicast_udp(spec: &TransportSpec) -> bool {
    spec.is_udp() && !spec.is_multicast()
}

fn any_udp(transport: &TransportHeader) -> bool {
    transport.specs().iter().any(is_unicast_udp)
}

/// The Transport fields of a message; `None` if there are none.
fn transport_of(message: &Message) -> Option<TransportHeader> {
    let ranges = &message.head.transports;
    if ranges.is_empty() {
        return None;
    }
    let text = |range: &std::ops::Range<usize>| str::from_utf8(&message.bytes[range.clone()]);
    Some(TransportHeader::join(
        ranges.iter().filter_map(|it| text(it).ok()).map(TransportHeader::parse),
    ))
}

fn authorization_of(message: &Message) -> Result<Option<Vec<u8>>, ()> {
    match &message.head.authorization {
        None => Ok(None),
        Some(Authorization::Basic(range)) => Ok(Some(message.bytes[range.clone()].to_vec())),
        Some(Authorization::OfRequest) => Err(()),
    }
}

/// The most bytes by which a head grows with a parameter of its Transport field. The other end of the tunnel reads
/// heads of up to [`MAX_HEAD_BYTES`]: it would not find the mark in a longer one.
fn parameter_bytes(name: &str, value: &str) -> usize {
    ";=".len() + name.len() + value.len()
}

fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches(['"', '[', ']']);
    text.parse::<IpAddr>().ok().map(|it| it.to_canonical())
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;

#[cfg(feature = "fuzzing")]
#[path = "follow_fuzzing.rs"]
pub mod fuzzing;
