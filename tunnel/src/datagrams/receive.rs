//! Datagrams on their way out of the tunnel.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::udp::SEND_MESSAGE_BYTES;

/// Datagrams of one connection that are kept although their request, or the answer to it, has not
/// arrived; beyond it the oldest are dropped (RFC 9297, Section 2.1).
const MAX_EARLY_DATAGRAMS: usize = 64;
/// How long they are kept: as long as name resolution may take.
const MAX_EARLY_AGE: Duration = Duration::from_secs(5);

/// The datagrams of one connection that arrived before their request or its answer.
#[derive(Debug, Default)]
pub(crate) struct Early(VecDeque<(u64, Instant, Vec<u8>)>);

impl Early {
    /// Keeps one datagram. Returns whether an older one was dropped.
    pub(crate) fn push(&mut self, stream: u64, now: Instant, datagram: &[u8]) -> bool {
        let full = self.0.len() >= MAX_EARLY_DATAGRAMS;
        if full {
            self.0.pop_front();
        }
        self.0.push_back((stream, now, datagram.to_vec()));
        full
    }

    /// Takes those of a stream.
    pub(crate) fn take(&mut self, stream: u64) -> Vec<Vec<u8>> {
        let (its, others) = self.0.drain(..).partition::<VecDeque<_>, _>(|it| it.0 == stream);
        self.0 = others;
        its.into_iter().map(|(_, _, datagram)| datagram).collect()
    }

    pub(crate) fn forget(&mut self, now: Instant) {
        self.0.retain(|(_, at, _)| now.saturating_duration_since(*at) < MAX_EARLY_AGE);
    }
}

/// Datagrams of one flow and one size, which leave with one system call.
#[derive(Debug, Default)]
pub(crate) struct DatagramRun {
    pub(crate) flow: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) segment: usize,
    pub(crate) count: usize,
}

impl DatagramRun {
    /// Whether a datagram of `len` bytes can go with the others.
    pub(crate) fn takes(&self, flow: usize, len: usize, most: usize) -> bool {
        self.count > 0
            && self.flow == flow
            && self.count < most
            && (1..=self.segment).contains(&len)
            && self.bytes.len() == self.count * self.segment
            && self.bytes.len() + len <= SEND_MESSAGE_BYTES
    }
}
