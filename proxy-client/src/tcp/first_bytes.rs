//! Holds TCP flows for their first bytes, and gives them their class.

use millrace_tunnel::event_loop::Core;
use millrace_tunnel::flow_trace::SetupStep;
use millrace_tunnel::metrics::FlowFailure;
use millrace_wire::Destination;

use super::flows::TcpFlows;
use crate::accepted::{AcceptedState, FirstBytes};
use crate::flow_context::FlowContext;
use crate::pool::Availability;
use crate::recognition::Classification;

impl TcpFlows {
    /// The destination of an accepted connection is known.
    pub(super) fn on_destination(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        key: u64,
        destination: Destination,
    ) {
        let is_down = context.pool.availability(core.now()) == Availability::Down;
        let Some(accepted) = self.accepted.get_mut(key) else { return };
        accepted.handshake_place = None;
        // A client that gets a reply sends nothing before it, and a flow that bypasses the tunnel needs no class.
        let is_held = !accepted.expects_reply() && !is_down;
        accepted.state = AcceptedState::Recognising(destination);
        if !is_held {
            return self.classify_now(context, core, key);
        }
        self.recognise(context, core, key);
        self.accepted.hold(key, core.now());
    }

    /// Reads first bytes of a flow that is held for them.
    pub(super) fn recognise(&mut self, context: &mut FlowContext, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get_mut(key) else { return };
        let AcceptedState::Recognising(destination) = &accepted.state else { return };
        let (classes, port) = (context.classes(accepted.listener), destination.port());
        match accepted.read_first_bytes(|bytes| Classification::of_bytes(classes, port, bytes)) {
            FirstBytes::Wait => {}
            FirstBytes::Enough(classification) => {
                self.classify(context, core, key, classification);
            }
            FirstBytes::Ended => self.classify_now(context, core, key),
            FirstBytes::Gone => {
                self.accepted.remove(key);
                core.shared.metrics.flows_finished.of(FlowFailure::TcpReset.into()).inc();
                self.accepted.forget_classified();
            }
        }
    }

    /// Gives a flow its class by the first bytes that have come.
    pub(super) fn classify_now(&mut self, context: &mut FlowContext, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get(key) else { return };
        let AcceptedState::Recognising(destination) = &accepted.state else { return };
        let (classes, port) = (context.classes(accepted.listener), destination.port());
        let classification = Classification::by_now(classes, port, &accepted.bytes);
        self.classify(context, core, key, classification);
    }

    fn classify(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        key: u64,
        classification: Classification,
    ) {
        let Some(accepted) = self.accepted.get_mut(key) else { return };
        let AcceptedState::Recognising(destination) = &accepted.state else { return };
        let destination = destination.clone();
        if classification.is_rtsp_over_tls(destination.port()) {
            tracing::info!(
                %destination,
                "RTSP over TLS can't be followed: media over UDP are not carried"
            );
        }
        let Classification { class, follows_rtsp, by } = classification;
        core.shared.metrics.flows_recognised.of(by).inc();
        core.shared.metrics.flows_classified.of(class).inc();
        accepted.group = context.classes(accepted.listener).group(class);
        accepted.follows_rtsp = follows_rtsp;
        if let Some(trace) = &mut accepted.admission.trace {
            trace.describe(class, destination.port());
            trace.begin(SetupStep::Tunnel, core.now());
        }
        accepted.state = AcceptedState::Waiting(destination);
        accepted.deadline = core.now() + context.connect_timeout;
        self.accepted.forget_classified();
        self.request(context, core, key);
        self.maintain(context, core);
    }
}
