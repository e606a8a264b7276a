//! The class of a TCP flow: by its port, by its first bytes, or by its listener.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_config::Class;
use millrace_tunnel::metrics::FlowRecognition;
use millrace_wire::first_bytes::{self, FlowProtocol};

use crate::connection_group::ListenerClasses;

/// How long a flow is held for its first bytes. A player sends its request at once, so that it comes within some
/// milliseconds of its connection, on Wi-Fi too. Where the server speaks first (SMTP, FTP, SSH) nothing comes before
/// its banner, which this delays by less than the 100 ms that a person notices.
pub(crate) const FIRST_BYTES_TIMEOUT: Duration = Duration::from_millis(50);

/// Ports of RTSP over TLS: `rtsps` of IANA's registry, and that of mediamtx.
const RTSPS_PORTS: [u16; 2] = [322, 8322];

/// The class of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classification {
    pub(crate) class: Class,
    /// Whether its messages are followed if it turns out to be RTSP.
    pub(crate) follows_rtsp: bool,
    /// What decided it.
    pub(crate) by: FlowRecognition,
}

impl Classification {
    /// The class of a flow to `port` that begins with `bytes`; `None` while they don't decide.
    pub(crate) fn of_bytes(classes: &ListenerClasses, port: u16, bytes: &[u8]) -> Option<Self> {
        if let Some(class) = classes.class_of_port(port) {
            return Some(Self::configured(class, classes.recognises));
        }
        if !classes.recognises {
            return Some(Self::configured(classes.default, false));
        }
        first_bytes::recognise(bytes).map(|protocol| Self::of_protocol(protocol, classes.default))
    }

    /// The class of a flow to `port` that has sent `bytes` when the wait for its first bytes is over.
    pub(crate) fn by_now(classes: &ListenerClasses, port: u16, bytes: &[u8]) -> Self {
        Self::of_bytes(classes, port, bytes).unwrap_or_else(|| Self::undecided(classes.default))
    }

    /// The class of a flow whose first bytes have not decided in time.
    pub(crate) fn undecided(class: Class) -> Self {
        Self { class, follows_rtsp: true, by: FlowRecognition::Undecided }
    }

    /// Whether a flow to `port` is RTSP over TLS, which the proxies can't follow.
    pub(crate) fn is_rtsp_over_tls(self, port: u16) -> bool {
        let is_rtsp = self.class == Class::Rtsp || RTSPS_PORTS.contains(&port);
        self.by == FlowRecognition::Tls && is_rtsp
    }

    fn configured(class: Class, recognises: bool) -> Self {
        let follows_rtsp = class == Class::Rtsp || recognises;
        Self { class, follows_rtsp, by: FlowRecognition::Configured }
    }

    fn of_protocol(protocol: FlowProtocol, default: Class) -> Self {
        let (class, by) = match protocol {
            FlowProtocol::Rtsp => (Class::Rtsp, FlowRecognition::Rtsp),
            FlowProtocol::RtspOverHttp => (Class::Rtsp, FlowRecognition::RtspOverHttp),
            FlowProtocol::HttpCmcd => (Class::Dash, FlowRecognition::HttpCmcd),
            FlowProtocol::HttpMedia => (Class::Dash, FlowRecognition::HttpMedia),
            FlowProtocol::Http => (default, FlowRecognition::Http),
            FlowProtocol::Tls => (default, FlowRecognition::Tls),
            FlowProtocol::Other => (default, FlowRecognition::Other),
        };
        let follows_rtsp = match protocol {
            FlowProtocol::Rtsp => true,
            // A method of an extension, which the listener's class says to be RTSP.
            FlowProtocol::Other => class == Class::Rtsp,
            _ => false,
        };
        Self { class, follows_rtsp, by }
    }
}

/// Flows that are held for their first bytes, and until when. All are held equally long, so that the first one's time
/// is over first. It has no more than the flows that have begun within [`FIRST_BYTES_TIMEOUT`].
#[derive(Debug, Default)]
pub(crate) struct FirstBytesQueue(VecDeque<(Instant, u64)>);

impl FirstBytesQueue {
    /// Adds a flow, whose deadline is not before those of the others.
    pub(crate) fn add(&mut self, deadline: Instant, key: u64) {
        self.0.push_back((deadline, key));
    }

    /// Removes flows in front that are not held any more: others behind them wait until their turn.
    pub(crate) fn remove_decided(&mut self, is_held: impl Fn(u64) -> bool) {
        while self.0.pop_front_if(|(_, key)| !is_held(*key)).is_some() {}
    }

    /// When the time of the first flow is over.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.0.front().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
#[path = "recognition_tests.rs"]
mod tests;
