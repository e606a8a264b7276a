//! When to send repair datagrams, and those that wait to be sent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_wire::repair::{BlockHeader, RepairKind, Sequence};

use super::encoder::BlockEncoder;
use super::symbol::payload_room;

/// How long error correction continues after the last loss, or after the begin of a flow: a loss becomes known only after
/// a round trip, and more losses may follow until then.
const FEC_HOLD_TIME: Duration = Duration::from_secs(10);

/// Bytes of repair datagrams for each byte of others, of short blocks and of long ones: a tenth together.
const OVERHEAD_RATIOS: [f64; 2] = [0.05, 0.05];
/// A short block ends before the deadline: what it repairs has the rest to arrive.
const SHORT_BLOCK_DEADLINES: f64 = 0.85;
/// A long block repairs bursts that short ones can't, for players that wait for longer than the deadline.
const LONG_BLOCK_DEADLINES: f64 = 3.4;

/// Error correction of one direction of a flow.
#[derive(Debug)]
pub(super) struct Fec {
    /// Short blocks and long ones; each datagram is in one of each.
    blocks: [BlockEncoder; 2],
    /// Payloads of repair datagrams, each with the number of its block.
    repairs: VecDeque<(Sequence, Vec<u8>)>,
    /// When a datagram was lost last, or the flow began.
    last_loss: Instant,
    is_active: bool,
}

impl Fec {
    pub(super) fn new(deadline: Duration, now: Instant) -> Self {
        Self {
            blocks: [
                BlockEncoder::new(deadline.mul_f64(SHORT_BLOCK_DEADLINES), OVERHEAD_RATIOS[0], now),
                BlockEncoder::new(deadline.mul_f64(LONG_BLOCK_DEADLINES), OVERHEAD_RATIOS[1], now),
            ],
            repairs: VecDeque::new(),
            last_loss: now,
            is_active: false,
        }
    }

    /// Decides whether it is active: there are losses, and they can't be sent again in time.
    pub(super) fn update(&mut self, can_retransmit: bool, now: Instant) {
        let has_losses = now.saturating_duration_since(self.last_loss) <= FEC_HOLD_TIME;
        self.is_active = has_losses && !can_retransmit;
        if !self.is_active {
            self.close();
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    pub(super) fn on_loss(&mut self, now: Instant) {
        self.last_loss = now;
    }

    /// The largest payload of which the repair datagram has a payload of `room` bytes at most.
    pub(super) fn payload_room(room: usize) -> usize {
        payload_room(room.saturating_sub(BlockHeader::BYTES))
    }

    /// Notes a datagram that was sent.
    pub(super) fn add(
        &mut self,
        sequence: Sequence,
        kind: RepairKind,
        payload: &[u8],
        now: Instant,
    ) {
        if self.is_active {
            self.close_selected(|block| !block.has_room(payload.len()));
            for block in &mut self.blocks {
                block.add(sequence, kind, payload, now);
            }
        }
    }

    /// Ends the blocks for which it is time; `paused` if nothing waits to be sent.
    pub(super) fn poll(&mut self, paused: bool, now: Instant) {
        self.close_selected(|block| block.is_due(paused, now));
    }

    /// Ends the blocks: the next datagram does not belong to them.
    pub(super) fn close(&mut self) {
        self.close_selected(|_| true);
    }

    fn close_selected(&mut self, select: impl Fn(&BlockEncoder) -> bool) {
        for block in self.blocks.iter_mut().filter(|block| select(block)) {
            let (first, repairs) = block.close();
            self.repairs.extend(repairs.into_iter().map(|payload| (first, payload)));
        }
    }

    /// Whether a block has begun whose end only time brings.
    pub(super) fn has_open_block(&self) -> bool {
        self.blocks.iter().any(|block| block.held_bytes() > 0)
    }

    /// Whether repair datagrams wait to be sent.
    pub(super) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// Takes a repair datagram: the number of its block, and its payload.
    pub(super) fn pop_repair(&mut self) -> Option<(Sequence, Vec<u8>)> {
        self.repairs.pop_front()
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        let repairs: usize = self.repairs.iter().map(|(_, payload)| payload.len()).sum();
        self.blocks.iter().map(BlockEncoder::held_bytes).sum::<usize>() + repairs
    }
}

#[cfg(test)]
mod tests {
    use millrace_wire::repair::MAX_BLOCK_DATAGRAMS;

    use super::*;

    #[test]
    fn it_is_active_while_there_are_losses_that_can_not_be_sent_again() {
        let start = Instant::now();
        let mut fec = Fec::new(Duration::from_millis(200), start);
        for (can_retransmit, after_ms, is_active) in
            [(false, 0, true), (true, 0, false), (false, 10_000, true), (false, 10_001, false)]
        {
            fec.update(can_retransmit, start + Duration::from_millis(after_ms));
            assert_eq!(fec.is_active(), is_active, "{can_retransmit} {after_ms}");
        }
        fec.add(Sequence::new(1), RepairKind::Whole, b"payload", start);
        assert!(!fec.has_open_block(), "it is not active");
        let later = start + Duration::from_secs(20);
        fec.on_loss(later);
        fec.update(false, later);
        for number in 0..40 {
            fec.add(Sequence::new(number), RepairKind::Whole, b"payload", later);
        }
        assert!(fec.has_open_block() && !fec.has_repairs());
        for (after_ms, repairs) in [(135, 0), (136, 1), (543, 0), (544, 1)] {
            fec.poll(true, later + Duration::from_millis(after_ms));
            let blocks: Vec<_> = std::iter::from_fn(|| fec.pop_repair()).collect();
            assert_eq!(blocks.is_empty(), repairs == 0, "{after_ms}");
            assert!(blocks.iter().all(|(first, _)| *first == Sequence::new(0)));
        }
        assert!(!fec.has_open_block());
    }

    #[test]
    fn a_block_ends_where_the_next_datagram_has_no_room() {
        let now = Instant::now();
        let mut fec = Fec::new(Duration::from_millis(200), now);
        fec.update(false, now);
        for number in 0..MAX_BLOCK_DATAGRAMS as u32 {
            assert!(!fec.has_repairs(), "{number}");
            fec.add(Sequence::new(number), RepairKind::Whole, b"payload", now);
        }
        fec.add(Sequence::new(MAX_BLOCK_DATAGRAMS as u32), RepairKind::Whole, b"payload", now);
        let (first, repair) = fec.pop_repair().unwrap();
        let (header, _) = BlockHeader::parse(&repair).unwrap();
        assert_eq!(first, Sequence::new(0));
        assert_eq!(usize::from(header.datagrams), MAX_BLOCK_DATAGRAMS);
    }

    #[test]
    fn a_repair_datagram_fits_where_the_datagrams_of_its_block_do() {
        let now = Instant::now();
        for room in [100, 101, 1406] {
            let mut fec = Fec::new(Duration::from_millis(200), now);
            fec.update(false, now);
            let payload = vec![1; Fec::payload_room(room)];
            for number in 0..40 {
                fec.add(Sequence::new(number), RepairKind::Whole, &payload, now);
            }
            fec.close();
            let (_, repair) = fec.pop_repair().unwrap();
            assert!((room - 1..=room).contains(&repair.len()), "{room}: {}", repair.len());
        }
    }
}
