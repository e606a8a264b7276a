//! What a UDP flow belongs to that an RTSP connection has set up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::conn_id::ConnId;
use crate::shared::PairPlace;

/// Silence after which a medium without RTSP connection is over: three of the longest intervals of RTCP reports for a
/// session of two (RFC 3550, Section 6.2).
const MAX_SILENCE: Duration = Duration::from_secs(15);
/// How long media go on without RTSP connection and without a datagram of the player: as long as paused viewers of TCP
/// flows that have vanished.
const MAX_PLAYER_SILENCE: Duration = Duration::from_secs(300);

/// Which medium of which RTSP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumId {
    /// The connection of the RTSP flow, and so of the medium's flows.
    pub conn: ConnId,
    /// The RTSP flow's stream.
    pub stream: u64,
    pub(crate) number: u32,
}

/// What a UDP flow belongs to that an RTSP connection has set up.
#[derive(Clone, Debug)]
pub struct Medium {
    /// Which.
    pub id: MediumId,
    /// When its RTSP connection ended without a TEARDOWN.
    orphaned: Option<Instant>,
    /// Both flows' share of it.
    common: Arc<Common>,
}

#[derive(Debug)]
struct Common {
    began: Instant,
    /// When the player was heard last, in milliseconds since `began`.
    player_heard_ms: AtomicU64,
    /// Held for as long as a port of it is.
    _place: PairPlace,
}

impl Medium {
    pub(crate) fn new(id: MediumId, place: PairPlace, now: Instant) -> Self {
        let common = Common { began: now, player_heard_ms: AtomicU64::new(0), _place: place };
        Self { id, orphaned: None, common: Arc::new(common) }
    }

    /// Whether it belongs to this RTSP flow, and is the one of this number if one is given.
    pub fn is_of(&self, conn: ConnId, stream: u64, number: Option<u32>) -> bool {
        let MediumId { conn: its, stream: own, number: this } = self.id;
        (its, own) == (conn, stream) && number.is_none_or(|number| number == this)
    }

    /// A datagram of the player has come.
    pub(crate) fn on_player_datagram(&self, now: Instant) {
        let since = now.saturating_duration_since(self.common.began);
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.common.player_heard_ms.store(ms, Ordering::Relaxed);
    }

    /// Its RTSP connection was closed without a TEARDOWN: the session may go on, as it is not bound to one connection
    /// (RFC 2326, Section 1.1).
    pub(crate) fn orphan(&mut self, now: Instant) {
        self.orphaned = Some(now);
    }

    /// Whether its RTSP connection has ended.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned.is_some()
    }

    /// Whether it is over although no TEARDOWN was seen, after `silence` of the flow.
    pub(crate) fn is_abandoned(&self, silence: Duration, now: Instant) -> bool {
        let Some(orphaned) = self.orphaned else { return false };
        let heard_ms = self.common.player_heard_ms.load(Ordering::Relaxed);
        let heard = self.common.began + Duration::from_millis(heard_ms);
        silence > MAX_SILENCE
            || now.saturating_duration_since(heard.max(orphaned)) > MAX_PLAYER_SILENCE
    }
}
