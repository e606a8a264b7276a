/// By how much the sequence numbers of a medium are less than the origin's: by the packets that were dropped ahead of each.
/// Each number is one more than that of the packet sent before (RFC 3550, Section 5.1), and players do not wait for what
/// never comes.
///
/// A packet in the queue has the number of those dropped between it and the packet before it. Dropping others does not
/// touch it, but for the next one that stays.
#[derive(Debug, Default)]
pub(super) struct SequenceShift {
    /// Packets dropped ahead of what is in the queue.
    ahead: u16,
    /// The same at the place in the queue to which a copy has come.
    at_copy: u16,
    /// Packets dropped behind all that is in the queue.
    behind: u16,
    /// Packets removed between the last packet that a removal has left and the place to which it has come.
    removed: u16,
}

impl SequenceShift {
    /// A packet is dropped before it is in the queue.
    pub(super) fn on_refused(&mut self) {
        self.behind = self.behind.wrapping_add(1);
    }

    /// A packet is in the queue now: how many were dropped between it and the one before.
    pub(super) fn take_behind(&mut self) -> u16 {
        std::mem::take(&mut self.behind)
    }

    /// A packet has been sent, before which so many were dropped.
    pub(super) fn on_sent(&mut self, dropped_before: u16) {
        self.ahead = self.ahead.wrapping_add(dropped_before);
    }

    /// A packet is removed from the queue, before which so many were dropped.
    pub(super) fn on_removed(&mut self, dropped_before: u16) {
        self.removed = self.removed.wrapping_add(dropped_before).wrapping_add(1);
    }

    /// The removal leaves a packet: how many were removed just before it.
    pub(super) fn take_removed(&mut self) -> u16 {
        std::mem::take(&mut self.removed)
    }

    /// Whether the next packet that stays is still to be told what was removed before it.
    pub(super) fn has_removed(&self) -> bool {
        self.removed > 0
    }

    /// The removal has come to the end of the queue.
    pub(super) fn end_removal(&mut self) {
        self.behind = self.behind.wrapping_add(self.take_removed());
    }

    /// A copy of what is in the queue begins.
    pub(super) fn begin_copy(&mut self) {
        self.at_copy = self.ahead;
    }

    /// The copy has come to a packet before which so many were dropped: by how much its number is less.
    pub(super) fn on_copied(&mut self, dropped_before: u16) -> u16 {
        self.at_copy = self.at_copy.wrapping_add(dropped_before);
        self.at_copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five packets, the second and third of which are removed; a sixth is dropped as it comes.
    #[test]
    fn numbers_are_less_by_what_was_dropped_ahead() {
        let mut shift = SequenceShift::default();
        let before: Vec<u16> = (0..5).map(|_| shift.take_behind()).collect();
        assert_eq!(before, [0; 5]);
        shift.on_refused();
        (0..2).for_each(|_| shift.on_removed(0));
        assert!(shift.has_removed());
        let fourth = shift.take_removed();
        shift.end_removal();
        let seventh = shift.take_behind();
        let shifts = |shift: &mut SequenceShift, queue: &[u16]| -> Vec<u16> {
            shift.begin_copy();
            queue.iter().map(|before| shift.on_copied(*before)).collect()
        };
        assert_eq!(shifts(&mut shift, &[0, fourth, 0, seventh]), [0, 2, 2, 3]);
        // The first two are sent, and what is left of the queue removed.
        shift.on_sent(0);
        shift.on_sent(fourth);
        shift.on_removed(0);
        shift.on_removed(seventh);
        shift.end_removal();
        let eighth = shift.take_behind();
        assert_eq!(shifts(&mut shift, &[eighth]), [5]);
    }
}
