//! Holds TCP flows for their first bytes, and gives them their class.

use millrace_tunnel::event_loop::Core;
use millrace_tunnel::metrics::FlowFailure;
use millrace_wire::Destination;

use super::ClientRole;
use crate::accepted::{Accepted, FirstBytes, Stage};
use crate::connection_group::ListenerClasses;
use crate::pool::State;
use crate::recognition::{Classification, FIRST_BYTES_TIMEOUT};

impl ClientRole {
    /// The destination of an accepted connection is known.
    pub(super) fn on_destination(&mut self, core: &mut Core, key: u64, destination: Destination) {
        let is_down = self.pool.state(core.now()) == State::Down;
        let Some(accepted) = self.accepted.get_mut(&key) else { return };
        accepted.handshake_place = None;
        // A client that gets a reply sends nothing before it, and a flow that bypasses the tunnel needs no class.
        let is_held = !accepted.expects_reply() && !is_down;
        accepted.stage = Stage::Recognising(destination);
        if !is_held {
            return self.classify_now(core, key);
        }
        self.recognise(core, key);
        let deadline = core.now() + FIRST_BYTES_TIMEOUT;
        if let Some(accepted) = self.accepted.get_mut(&key).filter(|it| it.is_recognising()) {
            accepted.deadline = deadline;
            self.first_bytes.add(deadline, key);
        }
    }

    /// Reads first bytes of a flow that is held for them.
    pub(super) fn recognise(&mut self, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get_mut(&key) else { return };
        let Stage::Recognising(destination) = &accepted.stage else { return };
        let classes = &self.classes[self.listener_views[accepted.listener].number];
        let port = destination.port();
        match accepted.read_first_bytes(|bytes| Classification::of_bytes(classes, port, bytes)) {
            FirstBytes::Wait => {}
            FirstBytes::Enough(classification) => self.classify(core, key, classification),
            FirstBytes::Ended => self.classify_now(core, key),
            FirstBytes::Gone => {
                self.accepted.remove(&key);
                core.shared.metrics.flows_finished.of(FlowFailure::TcpReset.into()).inc();
                self.forget_classified();
            }
        }
    }

    /// Gives a flow its class by the first bytes that have come.
    pub(super) fn classify_now(&mut self, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        let Stage::Recognising(destination) = &accepted.stage else { return };
        let classification = self.classification(accepted, destination);
        self.classify(core, key, classification);
    }

    /// The class of a flow by what has come of it so far.
    pub(crate) fn classification(
        &self,
        accepted: &Accepted,
        destination: &Destination,
    ) -> Classification {
        let classes = self.classes_of(accepted);
        Classification::of_bytes(classes, destination.port(), &accepted.bytes)
            .unwrap_or_else(|| Classification::undecided(classes.default))
    }

    /// How the listener of an accepted connection classifies its flows.
    pub(crate) fn classes_of(&self, accepted: &Accepted) -> &ListenerClasses {
        &self.classes[self.listener_view(accepted).number]
    }

    fn classify(&mut self, core: &mut Core, key: u64, classification: Classification) {
        let Some(accepted) = self.accepted.get_mut(&key) else { return };
        let Stage::Recognising(destination) = &accepted.stage else { return };
        let destination = destination.clone();
        let Classification { class, follows_rtsp, by } = classification;
        core.shared.metrics.flows_recognised.of(by).inc();
        core.shared.metrics.flows_classified.of(class).inc();
        let classes = &self.classes[self.listener_views[accepted.listener].number];
        accepted.group = classes.group(class);
        accepted.follows_rtsp = follows_rtsp;
        accepted.stage = Stage::Waiting(destination);
        accepted.deadline = core.now() + self.connect_timeout;
        self.forget_classified();
        self.request(core, key);
        self.maintain(core);
    }

    /// Removes the deadlines of flows that are not held any more.
    pub(super) fn forget_classified(&mut self) {
        let accepted = &self.accepted;
        self.first_bytes
            .remove_decided(|key| accepted.get(&key).is_some_and(Accepted::is_recognising));
    }
}
