//! Health probes of one tunnel connection.

use std::time::{Duration, Instant};

use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::probe::ProbeState;

/// Least time for the answer to a probe.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Least time for the answer in round trips: on a lossy path several retransmissions follow one another.
const MIN_PROBE_TIMEOUT_ROUND_TRIPS: u32 = 8;

/// The schedule of health probes of one tunnel connection.
#[derive(Debug)]
pub(crate) struct Probing {
    /// When the last probe began.
    began: Instant,
}

impl Probing {
    /// The schedule of a connection that opens `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now }
    }

    /// Begins a probe when it is due. Returns whether the current one had no answer in time.
    pub(crate) fn is_stuck(
        &mut self,
        core: &mut Core,
        id: ConnId,
        interval: Duration,
        authority: &str,
    ) -> bool {
        let timeout =
            MIN_PROBE_TIMEOUT.max(MIN_PROBE_TIMEOUT_ROUND_TRIPS * core.rtt(id).unwrap_or_default());
        let state = core.probe_state(id);
        if state.is_none() && core.now().saturating_duration_since(self.began) >= interval {
            self.began = core.now();
            core.begin_probe(id, authority.to_owned());
        }
        state.is_some_and(|state| is_late(state, timeout))
    }
}

/// A connection that transfers data is not stuck: the probe waits behind its flows.
fn is_late(state: ProbeState, timeout: Duration) -> bool {
    state.elapsed >= timeout && !state.is_moving
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_late_after_its_time_on_a_connection_that_does_not_move() {
        let after = |s, is_moving| ProbeState { elapsed: Duration::from_secs(s), is_moving };
        assert!(!is_late(after(4, false), MIN_PROBE_TIMEOUT));
        assert!(is_late(after(5, false), MIN_PROBE_TIMEOUT));
        assert!(!is_late(after(60, true), MIN_PROBE_TIMEOUT));
    }
}
