//! Flows whose TCP peer has disappeared.

use crate::event_loop::core::Core;
use crate::flow_end::FlowEnd;

impl Core {
    /// Ends the flows whose TCP peer has disappeared, of those that have their turn.
    pub(crate) fn end_vanished(&mut self) {
        let (now, round) = (self.now, self.tcp_liveness.next_round());
        let mut vanished = Vec::new();
        for (slot, flow) in self.flows.iter_mut().filter(|(slot, _)| round.includes(*slot)) {
            if flow.tcp_liveness.has_vanished(&flow.socket, &round, now) {
                vanished.push(slot);
            }
        }
        for slot in vanished {
            self.end_flow(slot, FlowEnd::TcpTimeout);
        }
    }
}
