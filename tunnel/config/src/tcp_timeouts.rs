//! When a TCP peer that has disappeared is given up; the same keys at both ends.

use std::time::Duration;

/// Keys `tcp_user_timeout_s` and `tcp_probe_timeout_s` of `[limits]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpTimeouts {
    /// How long a TCP peer to which data is under way may acknowledge nothing (the USER TIMEOUT of
    /// RFC 9293 §3.10.8 and RFC 5482), 1 s to 1 day; default 60 s. Then its flow is reset. Too small
    /// ends flows in short outages of the access network; too large keeps what vanished peers hold.
    pub user: Duration,
    /// How long a TCP peer may answer no probe while no data is under way to it, because it reads
    /// nothing (zero window, RFC 9293 §3.8.6.1) or there is nothing to send (keep-alive, §3.8.4), 5 s
    /// to 1 day; default 5 min. A paused peer that answers stays. Too small ends flows of hosts that
    /// sleep; too large keeps what vanished peers hold. Zero-window probes are up to 2 min apart, and
    /// two must be unanswered.
    pub probe: Duration,
}
