//! Connections whose handshake is refused.

use millrace_tunnel::event_loop::Core;
use millrace_tunnel::metrics::{Drop, FlowFailure, FlowOutcome, Label, Parser};
use tracing::field;

use super::accepted_table::AcceptedTable;
use crate::intercept::{Reject, RejectReason};

/// How a refused handshake is counted.
enum RejectKind {
    /// The refusal is what the protocol foresees.
    Expected,
    /// The client shows no credentials that are right.
    Credentials,
    /// The bytes are not of the protocol.
    Malformed(Parser),
}

/// Answers a client whose handshake is refused.
pub(super) fn answer(table: &mut AcceptedTable, core: &Core, key: u64, reject: Reject) {
    let Reject { reply, reason } = reject;
    let Some(accepted) = table.get_mut(key) else { return };
    let client = accepted.client.map(field::display);
    let metrics = &core.shared.metrics;
    let kind = kind_of(&reason, &reply);
    let failure = match kind {
        RejectKind::Expected => None,
        RejectKind::Credentials => Some(FlowFailure::Denied.as_str()),
        RejectKind::Malformed(_) => Some(FlowFailure::Protocol.as_str()),
    };
    accepted.admission.end_set_up(failure, core.now());
    match kind {
        RejectKind::Expected => {
            tracing::debug!(client, %reason, "closed in its handshake");
            metrics.flows_finished.of(FlowOutcome::Complete).inc();
        }
        RejectKind::Credentials => {
            tracing::warn!(client, %reason, "client of an explicit proxy refused");
            metrics.drops.of(Drop::WrongCredentials).inc();
            metrics.flows_finished.of(FlowFailure::Denied.into()).inc();
        }
        RejectKind::Malformed(parser) => {
            tracing::warn!(client, %reason, "bad handshake");
            metrics.protocol_errors.of(parser).inc();
            metrics.flows_finished.of(FlowFailure::Protocol.into()).inc();
        }
    }
    // For a PROXY header without a destination, accepting the connection is the answer (PROXY protocol, section 2.2).
    let is_answered = !reply.is_empty() || reason == RejectReason::NoDestination;
    table.reply_and_close(key, is_answered.then_some(reply), core.now());
}

fn kind_of(reason: &RejectReason, reply: &[u8]) -> RejectKind {
    match reason {
        // A health check.
        RejectReason::NoDestination => RejectKind::Expected,
        // Clients of HTTP show credentials once they are asked for them (RFC 9110, Section 11.7.1).
        RejectReason::MissingCredentials if reply.starts_with(b"HTTP/") => RejectKind::Expected,
        RejectReason::MissingCredentials | RejectReason::WrongCredentials => {
            RejectKind::Credentials
        }
        RejectReason::HttpConnect(_) | RejectReason::HttpForward(_) => {
            RejectKind::Malformed(Parser::HttpConnect)
        }
        RejectReason::Socks5(_) | RejectReason::NoAcceptableMethod => {
            RejectKind::Malformed(Parser::Socks5)
        }
        RejectReason::ProxyProtocol(_) | RejectReason::BadDestination(_) => {
            RejectKind::Malformed(Parser::ProxyProtocol)
        }
    }
}
