//! Answers to clients whose flow has ended before they had a response: HTTP requests in absolute form.

use millrace_tunnel::event_loop::Core;
use millrace_tunnel::flow_end::FlowEnd;
use millrace_tunnel::http_exchange::UnansweredExchange;
use millrace_tunnel::metrics::FlowFailure;
use millrace_wire::{ConnectFailure, Destination};

use super::accepted_table::AcceptedTable;
use crate::accepted::{Accepted, AcceptedState};
use crate::flow_context::FlowContext;
use crate::intercept::Handshake;
use crate::server_set::ServerSet;

/// A flow has ended before its client had a response: it gets the reason as one.
pub(crate) fn answer(
    accepted: &mut AcceptedTable,
    context: &mut FlowContext,
    core: &Core,
    flow: UnansweredExchange,
) {
    let UnansweredExchange { mut socket, label, admission, exchange, end } = flow;
    let key = context.new_key();
    let watched = socket.watch_again(core.registry(), Core::role_token(key as usize));
    let (Ok(destination), Ok(())) = (label.destination.parse::<Destination>(), watched) else {
        core.shared.metrics.flows_finished.of(FlowFailure::Internal.into()).inc();
        return socket.reset();
    };
    let (failure, reason) = (failure_of(end), end.as_str());
    tracing::info!(%destination, reason, %failure, "HTTP request has no response");
    // The answer is followed by an end in order.
    socket.abort_on_close(false);
    let handshake = Handshake::forwarding(destination.clone(), exchange);
    let unanswered = Accepted {
        socket,
        handshake,
        bytes: Vec::new(),
        client: label.client,
        // Of no meaning for a flow that is over.
        listener: 0,
        group: 0,
        follows_rtsp: false,
        handshake_place: None,
        admission,
        deadline: core.now(),
        state: AcceptedState::Waiting(destination),
        offers: 0,
        refused_by: ServerSet::default(),
    };
    let reply = unanswered.failure_reply(failure);
    accepted.insert(key, unanswered);
    accepted.reply_and_close(key, reply, core.now());
}

/// What the client is told; where the exchange itself has failed it has an answer of its own.
fn failure_of(end: FlowEnd) -> ConnectFailure {
    match end {
        FlowEnd::Refused(failure) => match failure {
            FlowFailure::Refused => ConnectFailure::Refused,
            FlowFailure::Unreachable => ConnectFailure::HostUnreachable,
            FlowFailure::DialTimeout => ConnectFailure::TimedOut,
            FlowFailure::NameNotResolved => ConnectFailure::NameNotResolved,
            FlowFailure::Denied => ConnectFailure::Forbidden,
            FlowFailure::ServerFull => ConnectFailure::ServerFull,
            FlowFailure::ClientLimit => ConnectFailure::ClientLimitReached,
            FlowFailure::Overloaded => ConnectFailure::Overloaded,
            FlowFailure::LocalResources => ConnectFailure::LocalResources,
            FlowFailure::TunnelUnavailable => ConnectFailure::TunnelUnavailable,
            _ => ConnectFailure::Internal,
        },
        FlowEnd::Idle => ConnectFailure::TimedOut,
        FlowEnd::Memory => ConnectFailure::Overloaded,
        FlowEnd::TunnelLost => ConnectFailure::TunnelUnavailable,
        _ => ConnectFailure::Internal,
    }
}

#[cfg(test)]
mod tests {
    use millrace_tunnel::event_loop::streams::failure_metric;

    use super::*;

    #[test]
    fn refusal_of_the_server_reaches_the_client_with_its_status() {
        for failure in ConnectFailure::ALL {
            let told = failure_of(FlowEnd::Refused(failure_metric(failure)));
            assert_eq!((told.status(), told.token()), (failure.status(), failure.token()));
        }
    }

    #[test]
    fn ends_of_a_flow_are_gateway_errors() {
        for (end, status) in
            [(FlowEnd::Idle, 504), (FlowEnd::TunnelLost, 503), (FlowEnd::Memory, 503)]
        {
            assert_eq!(failure_of(end).status(), status, "{end:?}");
        }
    }
}
