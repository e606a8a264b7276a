//! Forward error correction of what is sent: blocks of datagrams, and repair datagrams after each.

use std::time::{Duration, Instant};

use millrace_wire::repair::{BlockHeader, MAX_BLOCK_DATAGRAMS, MAX_REPAIRS, RepairKind, Sequence};
use reed_solomon_simd::ReedSolomonEncoder;

use super::block::MAX_BLOCK_BYTES;
use super::symbol::{symbol_bytes, to_symbol};

/// What frame, packet and its authentication cost beside a datagram, which counts in the overhead.
const COST_BYTES: f64 = 40.0;
/// A block ends after this part of its duration if nothing more waits: between two frames of video.
const PAUSE_FRACTION: f64 = 0.8;
/// Repair datagrams of unused overhead that later blocks may have, so that small ones have some.
const MAX_CREDIT_REPAIRS: f64 = 4.0;

/// The datagrams of the block that is being sent.
#[derive(Debug)]
pub(super) struct BlockEncoder {
    duration: Duration,
    /// Bytes of repair datagrams for each byte of others.
    overhead: f64,
    first: Sequence,
    symbols: Vec<Vec<u8>>,
    bytes: usize,
    longest_payload: usize,
    began: Instant,
    /// Bytes that repair datagrams may have.
    credit: f64,
}

impl BlockEncoder {
    /// Blocks of this duration, with so many bytes of repair datagrams for each byte of others at most.
    pub(super) fn new(duration: Duration, overhead: f64, now: Instant) -> Self {
        Self {
            duration,
            overhead,
            first: Sequence::default(),
            symbols: Vec::new(),
            bytes: 0,
            longest_payload: 0,
            began: now,
            credit: 0.0,
        }
    }

    /// Adds the datagram that was sent now; its number follows that of the one before in the block.
    pub(super) fn add(
        &mut self,
        sequence: Sequence,
        kind: RepairKind,
        payload: &[u8],
        now: Instant,
    ) {
        if self.symbols.is_empty() {
            (self.first, self.began) = (sequence, now);
        }
        self.symbols.push(to_symbol(kind, payload));
        self.bytes += payload.len();
        self.longest_payload = self.longest_payload.max(payload.len());
        self.credit += self.overhead * (payload.len() as f64 + COST_BYTES);
    }

    /// Whether the block has room for one more datagram: receivers ignore larger blocks.
    pub(super) fn has_room(&self, payload_bytes: usize) -> bool {
        let count = self.symbols.len() + 1;
        let bytes = symbol_bytes(self.longest_payload.max(payload_bytes));
        count <= MAX_BLOCK_DATAGRAMS && count * bytes <= MAX_BLOCK_BYTES
    }

    /// Whether the block is over; `paused` if nothing waits to be sent.
    pub(super) fn is_due(&self, paused: bool, now: Instant) -> bool {
        let duration = if paused { self.duration.mul_f64(PAUSE_FRACTION) } else { self.duration };
        let age = now.saturating_duration_since(self.began);
        let is_full = !self.has_room(self.longest_payload);
        !self.symbols.is_empty() && (is_full || age >= duration)
    }

    /// Ends the block. Returns the number of its first datagram and the payloads of its repair datagrams.
    pub(super) fn close(&mut self) -> (Sequence, Vec<Vec<u8>>) {
        let mut symbols = std::mem::take(&mut self.symbols);
        if symbols.is_empty() {
            return (self.first, Vec::new());
        }
        let bytes = symbol_bytes(std::mem::take(&mut self.longest_payload));
        self.bytes = 0;
        let cost = (BlockHeader::BYTES + bytes) as f64 + COST_BYTES;
        let count = ((self.credit / cost) as usize).min(MAX_REPAIRS).min(MAX_BLOCK_BYTES / bytes);
        self.credit = (self.credit - count as f64 * cost).min(MAX_CREDIT_REPAIRS * cost);
        for symbol in &mut symbols {
            symbol.resize(bytes, 0);
        }
        (self.first, repairs(&symbols, count, bytes).unwrap_or_default())
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }
}

/// The payloads of `count` repair datagrams; `None` if there are none.
fn repairs(symbols: &[Vec<u8>], count: usize, bytes: usize) -> Option<Vec<Vec<u8>>> {
    // The counts are within the limits of the code, and the length is even.
    let mut encoder = ReedSolomonEncoder::new(symbols.len(), count, bytes).ok()?;
    for symbol in symbols {
        encoder.add_original_shard(symbol).ok()?;
    }
    let encoded = encoder.encode().ok()?;
    let payload = |(index, symbol): (usize, &[u8])| {
        let header = BlockHeader {
            datagrams: symbols.len() as u16,
            repairs: count as u16,
            index: index as u16,
        };
        [&header.to_bytes()[..], symbol].concat()
    };
    Some(encoded.recovery_iter().enumerate().map(payload).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_millis(200);
    const OVERHEAD: f64 = 0.1;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_block_ends_by_time_or_count() {
        let start = Instant::now();
        let mut block = BlockEncoder::new(DURATION, OVERHEAD, start);
        assert!(!block.is_due(true, start + DURATION), "it is empty");
        block.add(Sequence::new(9), RepairKind::Whole, b"payload", start + DURATION);
        for (ms, paused, due) in
            [(159, true, false), (160, true, true), (199, false, false), (200, false, true)]
        {
            assert_eq!(block.is_due(paused, start + DURATION + ms * MS), due, "{ms} {paused}");
        }
        for number in 10..9 + MAX_BLOCK_DATAGRAMS as u32 {
            assert!(!block.is_due(false, start + DURATION));
            block.add(Sequence::new(number), RepairKind::Whole, b"payload", start + DURATION);
        }
        assert!(block.is_due(false, start + DURATION));
        assert_eq!(block.held_bytes(), 7 * MAX_BLOCK_DATAGRAMS);
        let (first, repairs) = block.close();
        assert_eq!(first, Sequence::new(9));
        assert!(!repairs.is_empty());
        assert_eq!(block.held_bytes(), 0);
    }

    #[test]
    fn a_block_ends_before_it_has_too_many_bytes() {
        let now = Instant::now();
        let mut block = BlockEncoder::new(DURATION, OVERHEAD, now);
        let payload = [1; 9000];
        for number in 0..MAX_BLOCK_BYTES as u32 / 9004 {
            assert!(!block.is_due(false, now) && block.has_room(9000), "{number}");
            block.add(Sequence::new(number), RepairKind::Whole, &payload, now);
        }
        assert!(block.is_due(false, now) && !block.has_room(1));
        assert!(!block.close().1.is_empty());
        // A longer datagram makes those before it longer too.
        for number in 0..64 {
            assert!(block.has_room(65_000), "{number}");
            block.add(Sequence::new(number), RepairKind::Whole, b"payload", now);
        }
        assert!(!block.has_room(65_000) && block.has_room(60_000));
        assert!(!block.is_due(false, now));
    }

    #[test]
    fn the_overhead_is_a_tenth_at_most() {
        let now = Instant::now();
        for (size, count) in [(1400, 10), (1400, 200), (200, 3), (1400, 1)] {
            let mut block = BlockEncoder::new(DURATION, OVERHEAD, now);
            let (mut sent, mut repaired) = (0, 0);
            for number in 0..40 * count {
                // Every fifth is short, as the last packets of frames are.
                let payload = vec![1; if number % 5 == 0 { size / 5 } else { size }];
                sent += payload.len() + 40;
                block.add(Sequence::new(number), RepairKind::Whole, &payload, now);
                if number % count == count - 1 {
                    repaired += block.close().1.iter().map(|it| it.len() + 40).sum::<usize>();
                }
            }
            assert!(repaired * 10 <= sent, "{size} {count}: {repaired} of {sent}");
            assert!(repaired * 20 > sent, "{size} {count}: {repaired} of {sent}");
        }
    }
}
