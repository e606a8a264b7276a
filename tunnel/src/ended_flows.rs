//! The flows that ended last, for `/status` of the admin listener.
//!
//! The table takes an entry for each flow that ends, never for a packet, and keeps the last [`MAX_ENDED_FLOWS`].

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use millrace_config::{Class, Protocol};
use serde::Serialize;

use crate::flow_info::FlowInfo;
use crate::metrics::{FlowOutcome, Label};

/// Entries of the table, of all workers together.
pub const MAX_ENDED_FLOWS: usize = 100;

/// A flow that has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndedFlow {
    /// Number of the flow; a later one can have the same.
    pub id: u64,
    /// Protocol outside the tunnel.
    pub protocol: Protocol,
    /// Whether it bypassed the tunnel.
    pub bypassed: bool,
    /// The QUIC connection that carried it, in hexadecimal; none when it bypassed the tunnel.
    pub connection: Option<String>,
    /// Address of the client, or `unix`.
    pub client: String,
    /// Where it went, `host:port`.
    pub destination: String,
    /// What it carried.
    pub class: Class,
    /// Congestion control of its connection at its end.
    pub algorithm: Option<String>,
    /// Bytes from client to destination.
    pub bytes_up: u64,
    /// Bytes from destination to client.
    pub bytes_down: u64,
    /// From its acceptance to its end.
    pub duration_s: f64,
    /// `complete`, or why it carried no data or ended early: the label of `millrace_flows_finished_total`.
    pub outcome: &'static str,
    /// Time since its end.
    pub ended_s_ago: f64,
}

impl EndedFlow {
    /// A flow that ends now, with its last values.
    fn new(flow: FlowInfo, outcome: FlowOutcome) -> Self {
        Self {
            id: flow.id,
            protocol: flow.protocol,
            bypassed: flow.bypassed,
            connection: flow.connection,
            client: flow.client,
            destination: flow.destination,
            class: flow.class,
            algorithm: flow.algorithm,
            bytes_up: flow.bytes_up,
            bytes_down: flow.bytes_down,
            duration_s: flow.age_s,
            outcome: outcome.as_str(),
            ended_s_ago: 0.0,
        }
    }
}

/// The flows that ended last, of all workers of a process.
#[derive(Debug, Default)]
pub struct EndedFlows {
    /// The oldest first.
    entries: Mutex<VecDeque<(Instant, EndedFlow)>>,
}

impl EndedFlows {
    /// Adds a flow that ended at `now`; the oldest makes room for it.
    pub fn add(&self, flow: FlowInfo, outcome: FlowOutcome, now: Instant) {
        let ended = EndedFlow::new(flow, outcome);
        let mut entries = self.lock();
        if entries.len() >= MAX_ENDED_FLOWS {
            entries.pop_front();
        }
        entries.push_back((now, ended));
    }

    /// The entries, the latest first.
    pub fn list(&self, now: Instant) -> Vec<EndedFlow> {
        let entries = self.lock().clone();
        let aged = |(ended, flow): (Instant, EndedFlow)| EndedFlow {
            ended_s_ago: now.saturating_duration_since(ended).as_secs_f64(),
            ..flow
        };
        entries.into_iter().rev().map(aged).collect()
    }

    // Each entry is whole, whatever thread panicked with the lock.
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, EndedFlow)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::FlowFailure;

    fn flow(id: u64) -> FlowInfo {
        FlowInfo { id, bytes_down: 10 * id, age_s: 2.5, ..FlowInfo::default() }
    }

    #[test]
    fn the_latest_hundred_flows_are_kept_latest_first() {
        let (ended, start) = (EndedFlows::default(), Instant::now());
        for id in 0..250 {
            ended.add(flow(id), FlowOutcome::Complete, start + Duration::from_secs(id));
        }
        let list = ended.list(start + Duration::from_secs(250));
        let ids: Vec<_> = list.iter().map(|flow| flow.id).collect();
        assert_eq!(ids, (150..250).rev().collect::<Vec<_>>());
        assert_eq!(list[0].ended_s_ago, 1.0);
        assert_eq!(list[99].ended_s_ago, 100.0);
    }

    #[test]
    fn an_entry_has_the_last_values_and_the_outcome_of_the_metric() {
        let (ended, now) = (EndedFlows::default(), Instant::now());
        ended.add(flow(7), FlowFailure::IdleTimeout.into(), now);
        let list = ended.list(now);
        let entry = &list[0];
        assert_eq!((entry.id, entry.bytes_down, entry.duration_s), (7, 70, 2.5));
        assert_eq!(entry.outcome, "idle_timeout");
    }
}
