//! Packets are conserved.

use super::Engine;

impl Engine<'_> {
    /// Every packet that was sent has arrived, was lost, or is inside: in total and flow by flow.
    pub(super) fn assert_conserved(&self) {
        let total = self.bottleneck.pipe.counters();
        let inside = self.bottleneck.pipe.inside_packets();
        assert_eq!(
            total.arrived_packets,
            total.delivered_packets + total.lost_packets + total.dropped_packets + inside,
            "packets of the link: {total:?}, {inside} inside"
        );
        let mut inside = vec![0; self.flows.len()];
        for packet in self.bottleneck.pipe.inside() {
            inside[packet.flow as usize] += 1;
        }
        for (flow, inside) in self.flows.iter().zip(inside) {
            let counts = flow.counts;
            assert_eq!(
                flow.sender.counts.sent,
                counts.delivered + counts.random_lost + counts.dropped + inside,
                "packets of a flow: {counts:?}, {inside} inside"
            );
        }
    }
}
