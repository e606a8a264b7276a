//! Players at the receivers of flows.

use super::{Engine, Of, place};
use crate::attached_player::AttachedPlayer;
use crate::timers::NEVER;

impl Engine<'_> {
    pub(super) fn on_player(&mut self, index: usize) {
        let (now, back_ns) = (self.now(), self.back_ns(index));
        let flow = &mut self.flows[index];
        let Some(player) = &mut flow.player else { return };
        if player.advance_to(now, back_ns, &mut flow.sender) {
            self.drive(index);
        }
        self.schedule_player(index);
    }

    pub(super) fn schedule_player(&mut self, index: usize) {
        let flow = &self.flows[index];
        let next_ns =
            flow.player.as_ref().filter(|_| flow.is_active()).map(AttachedPlayer::next_ns);
        // Nothing is due any more: the next wake-up is later, or the flow's own now.
        self.timers
            .set(place(index, Of::Player), next_ns.map_or(NEVER, |at_ns| at_ns.max(self.now_ns)));
    }

    /// Passes what has arrived in order to the player.
    pub(super) fn give_to_player(&mut self, index: usize) {
        let (now, back_ns) = (self.now(), self.back_ns(index));
        let flow = &mut self.flows[index];
        let Some(player) = flow.player.as_mut().filter(|_| !flow.sender.is_stopped()) else {
            return;
        };
        let Some(response) = flow.sender.response_bytes(flow.receiver.units_in_order()) else {
            return;
        };
        player.on_bytes(now, response, back_ns);
        self.schedule_player(index);
    }
}
