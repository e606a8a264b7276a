//! Forward error correction of what is received.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use millrace_wire::repair::{BlockHeader, MAX_BLOCK_DATAGRAMS, RepairKind, Sequence};

use super::symbol::{from_symbol, to_symbol};

/// Datagrams that are kept for blocks whose repair datagrams are still to come: those of the largest block, and as many
/// again that come before its last repair datagram.
const MAX_KEPT: usize = 2 * MAX_BLOCK_DATAGRAMS;
/// Blocks that wait for more datagrams: short and long ones overlap.
const MAX_BLOCKS: usize = 8;
/// After this time without a repair datagram nothing is kept: the peer sends none.
const UNUSED_AFTER: Duration = Duration::from_secs(10);

/// A block of which something is missing.
#[derive(Debug)]
struct Block {
    first: Sequence,
    header: BlockHeader,
    symbol_bytes: usize,
    repairs: Vec<(u16, Vec<u8>)>,
}

impl Block {
    /// The numbers of its datagrams, each with its place.
    fn numbers(&self) -> impl Iterator<Item = (usize, Sequence)> {
        let first = self.first.value();
        (0..u32::from(self.header.datagrams))
            .map(move |offset| Sequence::new(first + offset))
            .enumerate()
    }
}

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
        if now.saturating_duration_since(self.used) > UNUSED_AFTER {
            self.clear();
            return Vec::new();
        }
        self.keep(sequence, to_symbol(kind, payload));
        let of_it = |block: &Block| {
            let ahead = sequence.ahead_of(block.first);
            (0..i32::from(block.header.datagrams)).contains(&ahead)
        };
        let mut recovered = Vec::new();
        while let Some(index) = self.blocks.iter().position(|it| of_it(it) && self.is_enough(it)) {
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
        if self.complete.contains(&(first, header.datagrams)) {
            return Vec::new();
        }
        let is_it =
            |block: &Block| (block.first, block.header.datagrams) == (first, header.datagrams);
        let found = self.blocks.iter().position(is_it);
        let index = found.unwrap_or_else(|| {
            if self.blocks.len() >= MAX_BLOCKS {
                self.blocks.pop_front();
            }
            let symbol_bytes = symbol.len();
            self.blocks.push_back(Block { first, header, symbol_bytes, repairs: Vec::new() });
            self.blocks.len() - 1
        });
        let block = &mut self.blocks[index];
        let same = (header.repairs, symbol.len()) == (block.header.repairs, block.symbol_bytes);
        if !same || block.repairs.iter().any(|(index, _)| *index == header.index) {
            return Vec::new();
        }
        block.repairs.push((header.index, symbol.to_vec()));
        if self.is_enough(&self.blocks[index]) { self.recover(index) } else { Vec::new() }
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        let of_block = |block: &Block| block.repairs.len() * block.symbol_bytes;
        self.kept_bytes + self.blocks.iter().map(of_block).sum::<usize>()
    }

    /// Whether as many repair datagrams are there as datagrams are missing.
    fn is_enough(&self, block: &Block) -> bool {
        let missing = block.numbers().filter(|(_, it)| !self.kept.contains_key(it));
        missing.take(block.repairs.len() + 1).count() <= block.repairs.len()
    }

    /// Computes what is missing of a block, of which enough is there, and removes it.
    fn recover(&mut self, index: usize) -> Vec<Recovered> {
        let Some(block) = self.blocks.remove(index) else { return Vec::new() };
        let missing: Vec<_> =
            block.numbers().filter(|(_, it)| !self.kept.contains_key(it)).collect();
        // A symbol that is longer than those of the block is none of it.
        let padded = |symbol: &Vec<u8>| {
            let mut symbol = symbol.clone();
            (symbol.len() <= block.symbol_bytes).then(|| {
                symbol.resize(block.symbol_bytes, 0);
                symbol
            })
        };
        let originals = block
            .numbers()
            .filter_map(|(offset, number)| Some((offset, padded(self.kept.get(&number)?)?)));
        let repairs = block.repairs.iter().map(|(index, symbol)| (usize::from(*index), symbol));
        let restored = match missing.is_empty() {
            true => BTreeMap::new(),
            false => reed_solomon_simd::decode(
                block.header.datagrams.into(),
                block.header.repairs.into(),
                originals,
                repairs,
            )
            .unwrap_or_default(),
        };
        let recovered = missing.into_iter().filter_map(|(offset, sequence)| {
            let (kind, payload) = from_symbol(restored.get(&offset)?)?;
            Some(Recovered { sequence, kind, payload: payload.to_vec() })
        });
        let recovered: Vec<_> = recovered.collect();
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

    fn keep(&mut self, sequence: Sequence, symbol: Vec<u8>) {
        while self.order.len() >= MAX_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.kept_bytes -= self.kept.remove(&oldest).map_or(0, |symbol| symbol.len());
        }
        self.kept_bytes += symbol.len();
        if self.kept.insert(sequence, symbol).is_none() {
            self.order.push_back(sequence);
        }
    }

    fn clear(&mut self) {
        (self.kept, self.order, self.blocks) = Default::default();
        self.kept_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
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
        for number in 0..3 * MAX_KEPT as u32 {
            decoder.add(Sequence::new(number), RepairKind::Whole, b"payload", now);
        }
        assert_eq!((decoder.kept.len(), decoder.held_bytes()), (MAX_KEPT, 10 * MAX_KEPT));
        let header = BlockHeader { datagrams: 2, repairs: 2, index: 0 };
        for first in 0..2 * MAX_BLOCKS as u32 {
            decoder.add_repair(Sequence::new(1 << 20 | first), header, &[0; 10], now);
        }
        assert_eq!(decoder.blocks.len(), MAX_BLOCKS);
        let later = now + UNUSED_AFTER + Duration::from_millis(1);
        decoder.add(Sequence::new(1), RepairKind::Whole, b"payload", later);
        assert_eq!(decoder.held_bytes(), 0);
    }
}
