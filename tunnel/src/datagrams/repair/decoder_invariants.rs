//! What holds for a [`BlockDecoder`] whatever the peer sends.

use super::*;

impl BlockDecoder {
    /// Memory and work are bounded, and all counts are right.
    pub(in super::super) fn assert_invariants(&self) {
        assert!(self.work <= MAX_WORK);
        assert!(self.kept.len() <= MAX_KEPT_DATAGRAMS && self.kept_bytes <= MAX_RECEIVED_BYTES);
        assert_eq!(self.kept_bytes, self.kept.values().map(Vec::len).sum::<usize>());
        assert_eq!(self.kept.len(), self.order.len());
        assert!(self.order.iter().all(|number| self.kept.contains_key(number)));
        assert!(self.blocks.len() <= MAX_BLOCKS && self.complete.len() <= MAX_BLOCKS);
        assert!(self.repair_bytes() <= MAX_REPAIR_BYTES);
        for block in &self.blocks {
            let is_missing = |number: &Sequence| !self.kept.contains_key(number);
            let missing = block.numbers().filter(|(_, number)| is_missing(number)).count();
            assert_eq!(block.missing, missing, "{:?}", block.header);
            assert!(is_within_bounds(block.header, block.symbol_bytes));
            let mut indices: Vec<_> = block.repairs.iter().map(|(index, _)| *index).collect();
            indices.sort_unstable();
            indices.dedup();
            assert_eq!(indices.len(), block.repairs.len());
            assert!(indices.iter().all(|index| *index < block.header.repairs));
            assert!(block.repairs.iter().all(|(_, it)| it.len() == block.symbol_bytes));
        }
    }
}
