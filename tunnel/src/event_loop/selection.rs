//! Congestion control that rules select.

use crate::agent::Agent;
use crate::event_loop::core::Core;

impl Core {
    /// Reports what a player has sent about itself (CMCD) to the Selector.
    pub(crate) fn report_player(&mut self, flow_slot: usize) {
        let (Some(agent), Some(flow)) = (&mut self.tunnel.agent, self.flows.get_mut(flow_slot))
        else {
            return;
        };
        let watched = self.conns.get(flow.conn.slot).is_some_and(|conn| conn.cc.watched.is_some());
        if let Some(report) = flow.take_player_report().filter(|_| watched) {
            agent.report_player(flow.conn, &report, self.now);
        }
    }

    /// Applies the switch requests of the Selector.
    pub(crate) fn apply_selections(&mut self) {
        while let Some((slot, algorithm, request)) =
            self.tunnel.agent.as_mut().and_then(Agent::next_request)
        {
            let conn = self.conns.get_mut(slot);
            if let Some(conn) = conn.filter(|conn| conn.id.serial == request.connection)
                && conn.apply_selection(&algorithm, request.is_new_path, self.now)
            {
                self.counters.selected.add(1);
                // Another window may let more be sent now.
                self.mark_pending(slot);
            }
        }
    }
}
