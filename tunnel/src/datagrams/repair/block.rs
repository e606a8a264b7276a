//! A block of received datagrams of which something is missing, and how much work and memory its decode may take.

use millrace_wire::repair::{BlockHeader, Sequence};

/// Bytes of the datagrams of a block with their padding, and of its repair datagrams: 2,048 of 1,452 bytes have 3 MB.
/// With p, the next power of two of the larger count, `reed-solomon-simd` works on 2 p symbols: on less than 16 MiB.
pub(super) const MAX_BLOCK_BYTES: usize = 4 << 20;

/// Work of a decode whatever the size of its block, in datagrams of a large block: the code computes the places of
/// missing symbols with two Walsh-Hadamard transforms of 65,536 elements.
const DECODE_WORK: usize = 64;
/// Bytes of symbols whose decode is as much work as a datagram of the tunnel's size.
const DECODE_UNIT_BYTES: usize = 2048;

/// A block of which something is missing.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) first: Sequence,
    pub(super) header: BlockHeader,
    pub(super) symbol_bytes: usize,
    pub(super) repairs: Vec<(u16, Vec<u8>)>,
    /// How many of its datagrams are not kept.
    pub(super) missing: usize,
}

impl Block {
    /// A block of which nothing has been received.
    pub(super) fn new(first: Sequence, header: BlockHeader, symbol_bytes: usize) -> Self {
        let missing = header.datagrams.into();
        Self { first, header, symbol_bytes, repairs: Vec::new(), missing }
    }

    /// The numbers of its datagrams, each with its place.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (usize, Sequence)> {
        let first = self.first.value();
        (0..u32::from(self.header.datagrams))
            .map(move |offset| Sequence::new(first + offset))
            .enumerate()
    }

    /// Whether the datagram with this number belongs to it.
    pub(super) fn contains(&self, sequence: Sequence) -> bool {
        (0..i32::from(self.header.datagrams)).contains(&sequence.ahead_of(self.first))
    }

    /// Whether as many repair datagrams are there as datagrams are missing.
    pub(super) fn is_enough(&self) -> bool {
        self.missing <= self.repairs.len()
    }

    /// Bytes of its repair datagrams.
    pub(super) fn repair_bytes(&self) -> usize {
        self.repairs.len() * self.symbol_bytes
    }

    /// The work to compute what is missing.
    pub(super) fn decode_work(&self) -> usize {
        if self.missing == 0 {
            return 0;
        }
        let bytes = largest_count(self.header) * self.symbol_bytes;
        DECODE_WORK + usize::from(self.header.datagrams).max(bytes / DECODE_UNIT_BYTES)
    }
}

/// Whether a block with symbols of this length is within [`MAX_BLOCK_BYTES`].
pub(super) fn is_within_bounds(header: BlockHeader, symbol_bytes: usize) -> bool {
    largest_count(header) * symbol_bytes <= MAX_BLOCK_BYTES
}

fn largest_count(header: BlockHeader) -> usize {
    header.datagrams.max(header.repairs).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_bounded_in_bytes() {
        for (datagrams, repairs, symbol_bytes, is_within) in [
            (2048, 128, 1456, true),
            (2048, 1, 2048, true),
            (2048, 1, 2050, false),
            (2048, 1, 65_520, false),
            (64, 64, 65_520, true),
            (1, 128, 65_520, false),
        ] {
            let header = BlockHeader { datagrams, repairs, index: 0 };
            assert_eq!(is_within_bounds(header, symbol_bytes), is_within, "{header:?}");
        }
    }

    #[test]
    fn the_work_of_a_decode_is_that_of_its_datagrams_and_bytes() {
        for (datagrams, repairs, symbol_bytes, work) in [
            (1, 1, 2, DECODE_WORK + 1),
            (2048, 128, 1456, DECODE_WORK + 2048),
            (64, 64, 65_520, DECODE_WORK + 2047),
            (1, 64, 65_520, DECODE_WORK + 2047),
        ] {
            let header = BlockHeader { datagrams, repairs, index: 0 };
            let mut block = Block::new(Sequence::new(0), header, symbol_bytes);
            assert_eq!(block.decode_work(), work, "{header:?}");
            block.missing = 0;
            assert_eq!(block.decode_work(), 0, "nothing is computed");
        }
    }
}
