//! Forward error correction of what is received.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use millrace_wire::repair::{BlockHeader, MAX_BLOCK_DATAGRAMS, RepairKind, Sequence};

use super::block::{Block, is_within_bounds};
use super::symbol::{from_symbol, to_symbol};

/// Datagrams that are kept for blocks whose repair datagrams are still to come: those of the largest block, and as many
/// again that come before its last repair datagram.
const MAX_KEPT_DATAGRAMS: usize = 2 * MAX_BLOCK_DATAGRAMS;
/// Bytes of those datagrams: 4,096 of 1,452 bytes have 6 MB. The oldest are dropped.
const MAX_RECEIVED_BYTES: usize = 8 << 20;
/// Blocks that wait for more datagrams: short and long ones overlap.
const MAX_BLOCKS: usize = 8;
/// Bytes of their repair datagrams: 8 blocks with 128 of 1,452 bytes have 1.5 MB. The oldest blocks are dropped.
const MAX_REPAIR_BYTES: usize = 4 << 20;
/// Work that a flow may take at once: one for each number that is looked up for a new block, and [`Block::decode_work`].
/// A block of the largest size takes about twice its datagrams.
const MAX_WORK: usize = 4 * MAX_BLOCK_DATAGRAMS;
/// Work that each received datagram allows. If all short and long blocks have losses, each of their datagrams takes 4,
/// and each decode 64 more. That is enough for short blocks of 7 datagrams, and for 100 smaller ones in sequence.
const WORK_PER_DATAGRAM: usize = 16;
/// After this time without a repair datagram nothing is kept: the peer sends none.
const UNUSED_TIMEOUT: Duration = Duration::from_secs(10);

/// A datagram that was not received and is known now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recovered {
    pub(super) sequence: Sequence,
    pub(super) kind: RepairKind,
    pub(super) payload: Vec<u8>,
}

/// Received datagrams, and the blocks that they belong to.
#[derive(Debug)]
pub(super) struct BlockDecoder {
    kept: HashMap<Sequence, Vec<u8>>,
    /// The numbers of those in `kept`, in the order of arrival.
    order: VecDeque<Sequence>,
    kept_bytes: usize,
    blocks: VecDeque<Block>,
    /// Blocks of which nothing is missing: the number of their first datagram, and how many they have.
    complete: VecDeque<(Sequence, u16)>,
    /// Work that it may take now. When it is used up, repair datagrams of new blocks are ignored, and decodes wait.
    work: usize,
    /// When a repair datagram has been received last, or the flow has begun.
    used: Instant,
}

impl BlockDecoder {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            kept: HashMap::new(),
            order: VecDeque::new(),
            kept_bytes: 0,
            blocks: VecDeque::new(),
            complete: VecDeque::new(),
            work: MAX_WORK,
            used: now,
        }
    }

    /// Takes a datagram that was received. Returns those that can be computed with it.
    pub(super) fn add(
        &mut self,
        sequence: Sequence,
        kind: RepairKind,
        payload: &[u8],
        now: Instant,
    ) -> Vec<Recovered> {
        if now.saturating_duration_since(self.used) > UNUSED_TIMEOUT {
            self.clear();
            return Vec::new();
        }
        self.allow_work();
        self.keep(sequence, to_symbol(kind, payload));
        let mut recovered = Vec::new();
        while let Some(index) =
            self.blocks.iter().position(|it| it.contains(sequence) && self.can_recover(it))
        {
            recovered.extend(self.recover(index));
        }
        recovered
    }

    /// Takes a repair datagram of the block that begins with `first`. Returns the datagrams that can be computed with it.
    pub(super) fn add_repair(
        &mut self,
        first: Sequence,
        header: BlockHeader,
        symbol: &[u8],
        now: Instant,
    ) -> Vec<Recovered> {
        self.used = now;
        self.allow_work();
        let is_complete = self.complete.contains(&(first, header.datagrams));
        if is_complete || !is_within_bounds(header, symbol.len()) {
            return Vec::new();
        }
        self.make_repair_room(symbol.len());
        let Some(index) = self.find_or_begin_block(first, header, symbol.len()) else {
            return Vec::new();
        };
        let block = &mut self.blocks[index];
        let same = (header.repairs, symbol.len()) == (block.header.repairs, block.symbol_bytes);
        if !same || block.repairs.iter().any(|(index, _)| *index == header.index) {
            return Vec::new();
        }
        block.repairs.push((header.index, symbol.to_vec()));
        if self.can_recover(&self.blocks[index]) { self.recover(index) } else { Vec::new() }
    }

    /// The index of a block in `blocks`, which it joins if it is new. `None` if that is more work than it may take now.
    fn find_or_begin_block(
        &mut self,
        first: Sequence,
        header: BlockHeader,
        symbol_bytes: usize,
    ) -> Option<usize> {
        let is_it =
            |block: &Block| (block.first, block.header.datagrams) == (first, header.datagrams);
        if let Some(index) = self.blocks.iter().position(is_it) {
            return Some(index);
        }
        self.work = self.work.checked_sub(header.datagrams.into())?;
        if self.blocks.len() >= MAX_BLOCKS {
            self.blocks.pop_front();
        }
        let mut block = Block::new(first, header, symbol_bytes);
        block.missing = block.numbers().filter(|(_, it)| !self.kept.contains_key(it)).count();
        self.blocks.push_back(block);
        Some(self.blocks.len() - 1)
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.kept_bytes + self.repair_bytes()
    }

    fn repair_bytes(&self) -> usize {
        self.blocks.iter().map(Block::repair_bytes).sum()
    }

    fn allow_work(&mut self) {
        self.work = MAX_WORK.min(self.work + WORK_PER_DATAGRAM);
    }

    /// Whether enough is there of a block, and its decode is no more work than it may take now.
    fn can_recover(&self, block: &Block) -> bool {
        block.is_enough() && block.decode_work() <= self.work
    }

    /// Removes a block of which enough is there, and computes what is missing.
    fn recover(&mut self, index: usize) -> Vec<Recovered> {
        let Some(block) = self.blocks.remove(index) else { return Vec::new() };
        self.work -= block.decode_work();
        let recovered = if block.missing == 0 { Vec::new() } else { self.decode(&block) };
        for Recovered { sequence, kind, payload } in &recovered {
            // A longer block may need it.
            self.keep(*sequence, to_symbol(*kind, payload));
        }
        self.complete.push_back((block.first, block.header.datagrams));
        if self.complete.len() > MAX_BLOCKS {
            self.complete.pop_front();
        }
        recovered
    }

    fn decode(&self, block: &Block) -> Vec<Recovered> {
        let missing: Vec<_> =
            block.numbers().filter(|(_, it)| !self.kept.contains_key(it)).collect();
        // A datagram whose symbol is longer than the symbols of the block is not part of the block.
        let padded = |symbol: &Vec<u8>| {
            (symbol.len() <= block.symbol_bytes).then(|| {
                let mut padded = Vec::with_capacity(block.symbol_bytes);
                padded.extend_from_slice(symbol);
                padded.resize(block.symbol_bytes, 0);
                padded
            })
        };
        let originals = block
            .numbers()
            .filter_map(|(offset, number)| Some((offset, padded(self.kept.get(&number)?)?)));
        let repairs = block.repairs.iter().map(|(index, symbol)| (usize::from(*index), symbol));
        let restored = reed_solomon_simd::decode(
            block.header.datagrams.into(),
            block.header.repairs.into(),
            originals,
            repairs,
        )
        .unwrap_or_default();
        let recovered = missing.into_iter().filter_map(|(offset, sequence)| {
            let (kind, payload) = from_symbol(restored.get(&offset)?)?;
            Some(Recovered { sequence, kind, payload: payload.to_vec() })
        });
        recovered.collect()
    }

    fn keep(&mut self, sequence: Sequence, symbol: Vec<u8>) {
        self.make_room(symbol.len());
        self.kept_bytes += symbol.len();
        match self.kept.insert(sequence, symbol) {
            // Numbers are accepted again after the peer has jumped far ahead.
            Some(replaced) => self.kept_bytes -= replaced.len(),
            None => {
                self.order.push_back(sequence);
                self.blocks_with(sequence).for_each(|block| block.missing -= 1);
            }
        }
    }

    /// Drops the oldest datagrams until there is room for one of `bytes`.
    fn make_room(&mut self, bytes: usize) {
        while (self.order.len() >= MAX_KEPT_DATAGRAMS
            || self.kept_bytes + bytes > MAX_RECEIVED_BYTES)
            && let Some(oldest) = self.order.pop_front()
        {
            self.kept_bytes -= self.kept.remove(&oldest).map_or(0, |symbol| symbol.len());
            self.blocks_with(oldest).for_each(|block| block.missing += 1);
        }
    }

    /// Drops the oldest blocks until there is room for a repair datagram of `bytes`.
    fn make_repair_room(&mut self, bytes: usize) {
        while self.repair_bytes() + bytes > MAX_REPAIR_BYTES && self.blocks.pop_front().is_some() {}
    }

    fn blocks_with(&mut self, sequence: Sequence) -> impl Iterator<Item = &mut Block> {
        self.blocks.iter_mut().filter(move |block| block.contains(sequence))
    }

    fn clear(&mut self) {
        (self.kept, self.order, self.blocks) = Default::default();
        self.kept_bytes = 0;
    }
}

#[cfg(feature = "fuzzing")]
#[path = "decoder_invariants.rs"]
mod invariants;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::encoder::BlockEncoder;
    use super::*;

    const DURATION: Duration = Duration::from_millis(200);

    type Datagrams = Vec<(Sequence, Vec<u8>)>;
    type Repairs = Vec<(BlockHeader, Vec<u8>)>;

    /// A block of datagrams of several lengths, and its repair datagrams.
    fn block(count: u32, first: u32) -> (Datagrams, Repairs) {
        let now = Instant::now();
        let mut encoder = BlockEncoder::new(DURATION, 0.1, now);
        let datagrams: Vec<_> = (0..count)
            .map(|offset| {
                let payload = vec![offset as u8; 1000 + (offset as usize * 37) % 301];
                (Sequence::new(first.wrapping_add(offset)), payload)
            })
            .collect();
        for (sequence, payload) in &datagrams {
            encoder.add(*sequence, RepairKind::Whole, payload, now);
        }
        let (begins, repairs) = encoder.close();
        assert_eq!(begins, datagrams[0].0);
        let parse = |payload: Vec<u8>| {
            let (header, symbol) = BlockHeader::parse(&payload).unwrap();
            (header, symbol.to_vec())
        };
        (datagrams, repairs.into_iter().map(parse).collect())
    }

    #[test]
    fn as_many_datagrams_as_there_are_repairs_are_recovered() {
        // The second one has numbers that wrap around.
        for first in [0, (1 << 22) - 20] {
            let (datagrams, repairs) = block(100, first);
            let (now, begins) = (Instant::now(), datagrams[0].0);
            assert!((6..=10).contains(&repairs.len()), "{}", repairs.len());
            let mut decoder = BlockDecoder::new(now);
            // A burst, with the last datagram and one between.
            let is_lost = |index: usize| index == 40 || index >= 101 - repairs.len();
            for (index, (sequence, payload)) in datagrams.iter().enumerate() {
                if !is_lost(index) {
                    assert_eq!(decoder.add(*sequence, RepairKind::Whole, payload, now), []);
                }
            }
            let mut recovered = Vec::new();
            for (index, (header, symbol)) in repairs.iter().enumerate() {
                assert!(recovered.is_empty(), "{index}: too early");
                recovered = decoder.add_repair(begins, *header, symbol, now);
            }
            let lost: Vec<_> = (0..100)
                .filter(|index| is_lost(*index))
                .map(|index| Recovered {
                    sequence: datagrams[index].0,
                    kind: RepairKind::Whole,
                    payload: datagrams[index].1.clone(),
                })
                .collect();
            assert_eq!(recovered, lost);
            let (header, symbol) = &repairs[0];
            assert_eq!(decoder.add_repair(begins, *header, symbol, now), [], "it is complete");
            assert!(decoder.blocks.is_empty());
        }
    }

    #[test]
    fn a_datagram_that_is_late_completes_its_block() {
        let (datagrams, repairs) = block(100, 7);
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        let used = repairs.len() - 1;
        for (sequence, payload) in &datagrams[used + 1..] {
            decoder.add(*sequence, RepairKind::Whole, payload, now);
        }
        for (header, symbol) in &repairs[..used] {
            assert_eq!(decoder.add_repair(datagrams[0].0, *header, symbol, now), []);
        }
        let (sequence, payload) = &datagrams[0];
        assert_eq!(decoder.add(*sequence, RepairKind::Whole, payload, now).len(), used);
    }

    #[test]
    fn repairs_that_contradict_each_other_recover_nothing() {
        let (datagrams, repairs) = block(100, 0);
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        for (sequence, payload) in &datagrams[2..] {
            decoder.add(*sequence, RepairKind::Whole, payload, now);
        }
        let (header, symbol) = &repairs[0];
        let first = datagrams[0].0;
        assert_eq!(decoder.add_repair(first, *header, symbol, now), []);
        assert_eq!(decoder.add_repair(first, *header, symbol, now), [], "the same again");
        let other = BlockHeader { repairs: header.repairs + 1, index: 1, ..*header };
        assert_eq!(decoder.add_repair(first, other, symbol, now), []);
        let other = BlockHeader { index: 1, ..*header };
        assert_eq!(decoder.add_repair(first, other, &symbol[2..], now), []);
        assert_eq!(decoder.blocks[0].repairs.len(), 1);
    }

    #[test]
    fn what_is_kept_is_bounded_and_goes_when_it_is_not_used() {
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        for number in 0..3 * MAX_KEPT_DATAGRAMS as u32 {
            decoder.add(Sequence::new(number), RepairKind::Whole, b"payload", now);
        }
        assert_eq!(
            (decoder.kept.len(), decoder.held_bytes()),
            (MAX_KEPT_DATAGRAMS, 10 * MAX_KEPT_DATAGRAMS)
        );
        let header = BlockHeader { datagrams: 2, repairs: 2, index: 0 };
        for first in 0..2 * MAX_BLOCKS as u32 {
            decoder.add_repair(Sequence::new(1 << 20 | first), header, &[0; 10], now);
        }
        assert_eq!(decoder.blocks.len(), MAX_BLOCKS);
        let later = now + UNUSED_TIMEOUT + Duration::from_millis(1);
        decoder.add(Sequence::new(1), RepairKind::Whole, b"payload", later);
        assert_eq!(decoder.held_bytes(), 0);
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        let payload = vec![1; 65_529];
        for number in 0..200 {
            decoder.add(Sequence::new(number), RepairKind::Whole, &payload, now);
        }
        // Each symbol has 3 bytes more.
        assert_eq!((decoder.kept.len(), decoder.held_bytes()), (128, 128 * 65_532));
        let newest = (72..200).map(Sequence::new);
        assert_eq!(decoder.order.iter().copied().collect::<Vec<_>>(), newest.collect::<Vec<_>>());
    }

    #[test]
    fn repairs_are_bounded_in_bytes() {
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        let symbol = vec![0; 65_520];
        for (datagrams, repairs) in [(2048, 1), (1, 128)] {
            let header = BlockHeader { datagrams, repairs, index: 0 };
            assert_eq!(decoder.add_repair(Sequence::new(0), header, &symbol, now), []);
            assert!(decoder.blocks.is_empty(), "{header:?}");
        }
        for (first, index) in [0, 100].iter().flat_map(|first| (0..60).map(move |it| (*first, it)))
        {
            let header = BlockHeader { datagrams: 64, repairs: 64, index };
            assert_eq!(decoder.add_repair(Sequence::new(first), header, &symbol, now), []);
            assert!(decoder.held_bytes() <= MAX_REPAIR_BYTES, "{first} {index}");
        }
        assert_eq!(decoder.blocks.len(), 1);
        assert_eq!(
            (decoder.blocks[0].first, decoder.blocks[0].repairs.len()),
            (Sequence::new(100), 60)
        );
    }

    #[test]
    fn a_datagram_that_replaces_another_counts_once() {
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        for round in 0..10 {
            // Each is ahead of the one before it, so that all are new each time.
            for number in [0, 1_398_101, 2_796_202] {
                let payload = vec![1; 100 - round];
                decoder.add(Sequence::new(number), RepairKind::Whole, &payload, now);
            }
        }
        assert_eq!((decoder.order.len(), decoder.held_bytes()), (3, 3 * (91 + 3)));
    }

    #[test]
    fn a_block_counts_which_of_its_datagrams_are_not_kept() {
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        let mut counts = HashSet::new();
        for number in 0..2 * MAX_KEPT_DATAGRAMS as u32 {
            if number % 500 == 0 && number < 4000 {
                // Some of its datagrams have come before it, and some come later; numbers wrap around in the first one.
                let first = Sequence::new(number.wrapping_sub(300));
                let header = BlockHeader { datagrams: 700, repairs: 1, index: 0 };
                assert_eq!(decoder.add_repair(first, header, &[0; 10], now), []);
            }
            if number % 10 != 0 {
                decoder.add(Sequence::new(number), RepairKind::Whole, b"payload", now);
            }
            for block in decoder.blocks.iter().filter(|_| number % 100 == 0) {
                let is_missing = |number: &Sequence| !decoder.kept.contains_key(number);
                let missing = block.numbers().filter(|(_, number)| is_missing(number)).count();
                assert_eq!(block.missing, missing, "{number} {:?}", block.first);
                counts.insert(missing);
            }
        }
        assert!(counts.contains(&70) && counts.contains(&700), "{counts:?}");
    }

    #[test]
    fn new_blocks_are_ignored_without_work_left() {
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        let header = BlockHeader { datagrams: 2048, repairs: 1, index: 0 };
        let mut begun = 0;
        for first in (0..1000).map(Sequence::new) {
            decoder.add_repair(first, header, b"symbol", now);
            begun += usize::from(decoder.blocks.back().is_some_and(|block| block.first == first));
        }
        let most = (MAX_WORK + 1000 * WORK_PER_DATAGRAM) / 2048;
        assert!((most - 1..=most).contains(&begun), "{begun} of at most {most}");
    }

    #[test]
    fn a_decode_waits_until_there_is_work_left() {
        let (datagrams, repairs) = block(100, 7);
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        for (sequence, payload) in &datagrams[2..] {
            decoder.add(*sequence, RepairKind::Whole, payload, now);
        }
        // Enough to look for what is missing.
        decoder.work = 100;
        let first = datagrams[0].0;
        for (header, symbol) in &repairs[..3] {
            assert_eq!(decoder.add_repair(first, *header, symbol, now), []);
        }
        assert!(decoder.blocks[0].is_enough());
        assert_eq!(decoder.work, 3 * WORK_PER_DATAGRAM);
        decoder.work = MAX_WORK;
        let (header, symbol) = &repairs[3];
        let recovered = decoder.add_repair(first, *header, symbol, now);
        let lost = datagrams[..2].iter().map(|(sequence, payload)| Recovered {
            sequence: *sequence,
            kind: RepairKind::Whole,
            payload: payload.clone(),
        });
        assert_eq!(recovered, lost.collect::<Vec<_>>());
        assert!(decoder.work < MAX_WORK - 100, "the decode is counted");
    }

    #[test]
    fn small_blocks_that_all_have_losses_have_enough_work() {
        let now = Instant::now();
        let mut decoder = BlockDecoder::new(now);
        for round in 0..200 {
            let (datagrams, repairs) = block(30, round * 30);
            for (sequence, payload) in &datagrams[1..] {
                decoder.add(*sequence, RepairKind::Whole, payload, now);
            }
            let (header, symbol) = &repairs[0];
            let recovered = decoder.add_repair(datagrams[0].0, *header, symbol, now);
            assert_eq!(recovered.len(), 1, "{round}");
        }
        assert_eq!(decoder.work, MAX_WORK - (64 + 30) - 30);
    }
}
