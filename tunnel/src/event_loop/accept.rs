//! Admission of new connections, and address validation before it.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use boring::hash::{MessageDigest, hash};
use boring::nid::Nid;
use boring::x509::X509;
use millrace_admission::client_id::ClientId;
use millrace_admission::peer_limits::HandshakeLimit;
use quiche::{ConnectionId, Header, RetryConnectionIds, Type};

use crate::address_validation::Evidence;
use crate::event_loop::core::Core;
use crate::known_client::KnownClients;
use crate::metrics::{Drop, HandshakeFailure, KnownClientToken};
use crate::retry::FirstPacket;
use crate::udp::UdpPort;
use crate::version::Invariants;

/// RFC 9000, Section 14.1: a server drops shorter datagrams with an Initial packet, or it would
/// answer with more than it got.
const MIN_INITIAL_BYTES: usize = 1200;
/// RFC 9000, Section 7.2: a client's first packet has at least so long a destination ID, and a
/// server drops it otherwise.
const MIN_FIRST_ID_BYTES: usize = 8;
/// Clients per tick that a full server tells the reason of the refusal. Each costs the first step
/// of a handshake, which a flood must not get for all its packets.
const MAX_REFUSALS_TOLD_PER_TICK: usize = 8;
/// RFC 9114, Section 8.1.
const H3_EXCESSIVE_LOAD: u64 = 0x107;

/// The alert `certificate_revoked` (RFC 8446, Section 6.2) as a QUIC error (RFC 9001, Section 4.8).
const CERTIFICATE_REVOKED: u64 = 0x100 + 44;

/// How a datagram came.
pub(crate) struct Arrival<'a> {
    pub(crate) port: usize,
    pub(crate) socket: &'a UdpPort,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) len: usize,
}

impl Core {
    /// Handles a packet without a known connection: it opens one, or belongs to none of ours.
    pub(crate) fn accept(&mut self, arrival: &Arrival<'_>, header: &Header<'_>) -> Option<usize> {
        let Arrival { from, to, .. } = *arrival;
        if self.settings.max_connections == 0 || header.ty != Type::Initial {
            self.shared.metrics.drops.of(Drop::UnknownConnection).inc();
            return None;
        }
        if arrival.len < MIN_INITIAL_BYTES {
            self.shared.metrics.drops.of(Drop::Malformed).inc();
            return None;
        }
        if header.dcid.len() < MIN_FIRST_ID_BYTES {
            self.shared.metrics.drops.of(Drop::Malformed).inc();
            return None;
        }
        let full = self.fullness();
        if let Some((reason, _)) = full {
            self.drop_first_packet(from, reason);
            if self.admission.refusals_told >= MAX_REFUSALS_TOLD_PER_TICK {
                return None;
            }
            self.admission.refusals_told += 1;
        }
        let Some(evidence) = self.validate(from, header) else {
            return self.drop_first_packet(from, Drop::InvalidToken);
        };
        let Evidence { retried, known } = &evidence;
        let is_crowded = known.is_some() && self.shared.peers.is_crowded(from);
        // Behind a balancer many clients have the same address.
        let is_proven = retried.is_some()
            || known.is_some_and(|known| known.is_at_same_address)
                && !is_crowded
                && !self.shared.peers.is_balancer(from.ip());
        if !is_proven && (is_crowded || self.shared.peers.wants_proof()) {
            self.send_retry(arrival, header, known.is_some());
            return None;
        }
        let known = known.map(|known| known.id);
        let place = match self.shared.peers.begin_handshake(from, known, self.now) {
            Ok(place) => place,
            Err(limit) => return self.drop_first_packet(from, handshake_metric(limit)),
        };
        let cid = self.new_cid();
        self.set_unauthenticated_window();
        let scid = ConnectionId::from_ref(&cid);
        let token = self.tunnel.reset.as_ref().map(|reset| reset.token(&cid));
        self.tunnel.quic.set_stateless_reset_token(token);
        let accepted = match retried {
            None => quiche::accept(&scid, None, to, from, &mut self.tunnel.quic),
            Some(first) => {
                let ids = RetryConnectionIds {
                    original_destination_cid: &ConnectionId::from_ref(&first.destination_id),
                    retry_source_cid: &header.dcid,
                };
                quiche::accept_with_retry(&scid, ids, to, from, &mut self.tunnel.quic)
            }
        };
        match accepted {
            Ok(quic) => {
                let cids = vec![cid, header.dcid.to_vec()];
                let slot = self.insert(quic, cids, arrival.port, from).slot;
                self.conns[slot].handshake.handshake_place = Some(place);
                self.conns[slot].handshake.refusal = full.map(|(_, text)| text);
                Some(slot)
            }
            Err(error) => {
                tracing::error!(peer = %from, %error, "failed to accept a connection");
                None
            }
        }
    }

    /// Tells a client which version this server speaks (RFC 9000, Section 6.1).
    pub(crate) fn negotiate_version(
        &mut self,
        socket: &UdpPort,
        (from, to): (SocketAddr, SocketAddr),
        packet: &Invariants<'_>,
        len: usize,
    ) {
        if self.settings.max_connections == 0 {
            return self.shared.metrics.drops.of(Drop::UnknownConnection).inc();
        }
        if len < MIN_INITIAL_BYTES {
            return self.shared.metrics.drops.of(Drop::Malformed).inc();
        }
        self.shared.metrics.drops.of(Drop::UnsupportedVersion).inc();
        let [scid, dcid] = [packet.scid, packet.dcid].map(ConnectionId::from_ref);
        let mut out = [0; MIN_INITIAL_BYTES];
        if let Ok(len) = quiche::negotiate_version(&scid, &dcid, &mut out) {
            // Unanswered, the client asks again.
            let _ = socket.send(from, to.ip(), &out[..len], len);
        }
    }

    /// Why no connection can be taken now, and how a client is told.
    fn fullness(&self) -> Option<(Drop, &'static [u8])> {
        if self.shared.connections() >= self.settings.max_connections {
            Some((Drop::ConnectionLimit, b"limits.max_connections is reached"))
        } else if self.shared.memory.is_full() {
            Some((Drop::MemoryCap, b"tunnel.memory_cap_mb is reached"))
        } else {
            None
        }
    }

    /// Drops the first packet of a connection: an answer would be more than a flood deserves.
    fn drop_first_packet(&mut self, from: SocketAddr, reason: Drop) -> Option<usize> {
        use crate::metrics::Label;
        self.shared.metrics.drops.of(reason).inc();
        if matches!(reason, Drop::ConnectionLimit | Drop::MemoryCap) {
            self.shared.metrics.handshake_failures.of(HandshakeFailure::Overloaded).inc();
        }
        if self.may_log_refusal() {
            tracing::warn!(
                peer = %from,
                reason = reason.as_str(),
                "connection refused; similar refusals may not be logged"
            );
        }
        None
    }

    /// What the token of a first packet shows; `None` if the client can't go on with it.
    fn validate(&self, from: SocketAddr, header: &Header<'_>) -> Option<Evidence> {
        let (Some(validation), Some(token)) = (&self.tunnel.address_validation, &header.token)
        else {
            return Some(Evidence::default());
        };
        let evidence = validation.check(token, from, &header.dcid, unix_time_s())?;
        if KnownClients::has_token_form(token) {
            let result = match evidence.known.map(|known| known.is_at_same_address) {
                Some(true) => KnownClientToken::SameAddress,
                Some(false) => KnownClientToken::OtherAddress,
                None => KnownClientToken::Invalid,
            };
            self.shared.metrics.known_client_tokens.of(result).inc();
        }
        Some(evidence)
    }

    /// Lets a client prove its address. The Retry's token contains the token of a known client, because the client's next
    /// packet carries only the Retry's.
    fn send_retry(&mut self, arrival: &Arrival<'_>, header: &Header<'_>, is_known: bool) {
        let Some(validation) = &self.tunnel.address_validation else { return };
        let Arrival { from, to, .. } = *arrival;
        let given = self.new_cid();
        let first = FirstPacket {
            destination_id: header.dcid.to_vec(),
            token: header.token.clone().filter(|_| is_known).unwrap_or_default(),
        };
        let token = validation.retry_token(from, &first, &given, unix_time_s());
        let mut out = [0; MIN_INITIAL_BYTES];
        let given = ConnectionId::from_ref(&given);
        let version = header.version;
        match quiche::retry(&header.scid, &header.dcid, &given, &token, version, &mut out) {
            // Lost, it is sent again for the client's next packet.
            Ok(len) => drop(arrival.socket.send(from, to.ip(), &out[..len], len)),
            Err(error) => tracing::debug!(peer = %from, %error, "failed to create a Retry packet"),
        }
        self.shared.metrics.retries_sent.inc();
    }

    /// A handshake is over: counts the connection as one of its peer's, and gives it its full
    /// window. `false` when it may not stay.
    pub(crate) fn admit_peer(&mut self, slot: usize) -> bool {
        // The deny-list may have changed since the handshake began.
        if self.close_if_denied(slot) {
            return false;
        }
        self.identify(slot);
        let Some(conn) = self.conns.get(slot) else { return false };
        let limit = if conn.quic.is_server() && conn.handshake.peer_place.is_none() {
            Some(Drop::PeerConnections)
        } else {
            (!self.open_window(slot)).then_some(Drop::PeerMemory)
        };
        let Some(limit) = limit else {
            self.issue_token(slot);
            return true;
        };
        let id = self.conns[slot].id;
        self.drop_first_packet(self.conns[slot].address.peer, limit);
        self.close(id, H3_EXCESSIVE_LOAD, b"this client has as much as it may");
        false
    }

    /// Issues a token for later connections to a client that is authenticated, when one is due: each client that is
    /// connected has one for at least half a lifetime.
    pub(crate) fn issue_token(&mut self, slot: usize) {
        let Some(validation) = &self.tunnel.address_validation else { return };
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let handshake = &mut conn.handshake;
        // A reload may have changed the lifetime.
        let is_due = handshake
            .token_issued
            .is_none_or(|at| self.now.saturating_duration_since(at) >= validation.lifetime() / 2);
        let Some(peer) = handshake.peer_place.as_ref().filter(|_| is_due) else { return };
        handshake.token_issued = Some(self.now);
        let id = ClientId::of_name(peer.name());
        if let Ok(token) = validation.known_client_token(id, conn.address.peer, unix_time_s()) {
            // An error only says that the connection is closed already.
            let _ = conn.quic.send_new_token(&token);
        }
    }

    /// Closes the connections of clients that have come on the deny-list.
    pub(crate) fn close_denied(&mut self) {
        if !self.tunnel.verifier.has_denied_clients() {
            return;
        }
        let slots: Vec<_> = self.conns.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.close_if_denied(slot);
        }
    }

    fn close_if_denied(&mut self, slot: usize) -> bool {
        let Some(conn) =
            self.conns.get_mut(slot).filter(|_| self.tunnel.verifier.has_denied_clients())
        else {
            return false;
        };
        if !conn.quic.is_server() || !conn.quic.is_established() {
            return false;
        }
        let certificate = conn.quic.peer_cert().and_then(|der| X509::from_der(der).ok());
        let Some(entry) = certificate.and_then(|it| self.tunnel.verifier.denied(&it)) else {
            return false;
        };
        self.shared.metrics.drops.of(Drop::DeniedClient).inc();
        tracing::info!(peer = %conn.address.peer, %entry, "connection closed: the client is on the deny-list");
        // An error only says that it is closed already.
        let _ = conn.quic.close(false, CERTIFICATE_REVOKED, b"client certificate denied");
        self.mark_pending(slot);
        true
    }

    /// Identifies the peer of a connection, where peers are limited.
    pub(crate) fn identify(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if !conn.quic.is_server() || conn.handshake.peer_place.is_some() {
            return;
        }
        let Some(name) = conn.quic.peer_cert().and_then(peer_name) else { return };
        conn.handshake.peer_place = self.shared.peers.join(&name);
    }
}

fn handshake_metric(limit: HandshakeLimit) -> Drop {
    match limit {
        HandshakeLimit::All => Drop::Handshakes,
        HandshakeLimit::Share => Drop::HandshakeShare,
        HandshakeLimit::Handshakes => Drop::PeerHandshakes,
        HandshakeLimit::Rate => Drop::PeerHandshakeRate,
    }
}

/// The name of a peer: the common name, which stays when a certificate is renewed; without one the
/// certificate itself.
fn peer_name(certificate: &[u8]) -> Option<String> {
    let parsed = X509::from_der(certificate).ok()?;
    let named = parsed
        .subject_name()
        .entries_by_nid(Nid::COMMONNAME)
        .next()
        .and_then(|entry| entry.data().as_utf8().ok())
        .map(|name| name.to_string());
    let own = || {
        let digest = hash(MessageDigest::sha256(), certificate).ok()?;
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    };
    named.filter(|name| !name.is_empty()).or_else(own)
}

/// Tokens outlive this process, so that its own clock would not do.
fn unix_time_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
