//! What both ends set about the QUIC tunnel.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Class, ConfigError, CongestionControl, Source};

/// Packets that may be in flight before the first acknowledgement. RFC 9002, Section 7.2
/// recommends ten for a connection that stands for one; a tunnel's stands for all the TCP
/// connections that it replaces, of which a browser alone opens six with ten packets each.
/// They leave paced, not at once. With ten, the first segments of a video on the demo's link came
/// at 3.9 and 7.1 Mbit/s.
///
/// MCC's training set and the scenarios that evaluate its learned rules begin with the same window.
pub const INITIAL_CONGESTION_WINDOW_PACKETS: usize = 32;

/// The keys of `[tunnel]` that client and server share.
///
/// All windows and the memory cap are in bytes. A window must hold rate x round trip to fill a
/// path: 1 Gbit/s x 100 ms is 12.5 MB.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportConfig {
    /// The algorithm of new connections for what this end sends; default `cubic`.
    pub congestion_control: CongestionControl,
    /// `[tunnel.class.*]`: the algorithms of classes that have another one.
    pub class_congestion_control: BTreeMap<Class, CongestionControl>,
    /// Silence after which a connection is given up, 1 s to 10 min; default 60 s. Too small, and
    /// a short outage ends all flows; too large, and a dead peer holds them that long.
    pub idle_timeout: Duration,
    /// Upper bound of path MTU discovery, 1200 to 65527; default 1452, which is Ethernet less
    /// IPv6 and UDP headers. Too small costs header and CPU for each packet; too large only costs
    /// a few lost probes.
    pub max_udp_payload_bytes: u16,
    /// By how much media over UDP of RTSP players may be late, up to 5 s; default 200 ms, and `None` with 0. Too small
    /// leaves no time to send what is lost again; too large sends what players do not wait for.
    pub media_deadline: Option<Duration>,
    /// Whether media over UDP have forward error correction where the round trip is too long to send again within
    /// `media_deadline`; default true. It costs a tenth of the bandwidth while packets are lost.
    pub media_fec: bool,
    /// Whether packets of QUIC in UDP flows are sent again when they are lost, and passed on in order; default true. They
    /// are delayed by round trips of the tunnel where the QUIC connection would reduce its rate.
    pub quic_repair: bool,
    /// Interval at which a path that carries less than `max_udp_payload_bytes` is probed for more,
    /// 1 s to 1 h; default 60 s. Too small costs probes, some 25 packets each time; too large keeps
    /// small packets in use on a path that carries larger ones again.
    pub path_mtu_probe_interval: Duration,
    /// A stream's receive window at its start, 16 KiB to 1 GiB; default 256 KiB, which is also the
    /// window of a stream whose reader is paused. Too small costs round trips at the start of each
    /// flow; too large lets flows that are never read take memory.
    pub initial_window_bytes: u64,
    /// What a stream's window may grow to, 16 KiB to 1 GiB; default 32 MiB. It follows what its own
    /// reader takes, up to four times as much as in a round trip. Too small caps a flow's rate at
    /// window / round trip; too large lets a reader that was fast and then pauses take memory.
    pub max_stream_window_bytes: u64,
    /// What a connection's window may grow to, 16 KiB to 4 GiB; default 64 MiB. It bounds what is on
    /// its way, not what waits for slow readers. Too small caps the rate of all flows of the
    /// connection together.
    pub max_connection_window_bytes: u64,
    /// What connections and flows of the process may hold together, 8 MB to 1 TB; default 1024 MB
    /// (MB is 10^6 bytes). Beyond it the flows that their readers drain slowest are reset. Too
    /// small resets paused flows; too large risks the system's memory.
    pub memory_cap_bytes: u64,
}

impl TransportConfig {
    pub(crate) fn check(&self, source: &Source) -> Result<(), ConfigError> {
        let ordered = [
            ("initial_window_bytes", self.initial_window_bytes),
            ("max_stream_window_bytes", self.max_stream_window_bytes),
            ("max_connection_window_bytes", self.max_connection_window_bytes),
            ("memory_cap_mb", self.memory_cap_bytes),
        ];
        for [(smaller, smaller_bytes), (larger, larger_bytes)] in ordered.array_windows() {
            if smaller_bytes > larger_bytes {
                let problem = format!(
                    "{smaller_bytes} bytes are more than {larger}, {larger_bytes} bytes; lower \
                     this or raise that"
                );
                return Err(source.error(&format!("tunnel.{smaller}"), problem));
            }
        }
        Ok(())
    }
}

/// Defines a `[tunnel]` section: the keys given, and those of [`TransportConfig`].
///
/// serde's `flatten` would do the same but can't refuse unknown keys.
macro_rules! tunnel_section {
    (struct $name:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* }) => {
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($(#[$meta])* $field: $type,)*
            #[serde(default)]
            congestion_control: $crate::congestion_control::RawCongestionControl,
            #[serde(default)]
            class: $crate::congestion_control::RawClasses,
            #[serde(default)]
            idle_timeout_s: $crate::value::Int<60, 1, 600>,
            #[serde(default)]
            max_udp_payload_bytes: $crate::value::Int<1452, 1200, 65527>,
            #[serde(default)]
            media_deadline_ms: $crate::value::Int<200, 0, 5000>,
            media_fec: Option<bool>,
            quic_repair: Option<bool>,
            #[serde(default)]
            path_mtu_probe_interval_s: $crate::value::Int<60, 1, 3600>,
            #[serde(default)]
            initial_window_bytes: $crate::value::Int<0x4_0000, 0x4000, 0x4000_0000>,
            #[serde(default)]
            max_stream_window_bytes: $crate::value::Int<0x200_0000, 0x4000, 0x4000_0000>,
            #[serde(default)]
            max_connection_window_bytes: $crate::value::Int<0x400_0000, 0x4000, 0x1_0000_0000>,
            #[serde(default)]
            memory_cap_mb: $crate::value::Int<1024, 8, 1_000_000>,
        }

        impl $name {
            fn transport(
                &mut self,
                source: &$crate::Source,
                known: $crate::CheckAlgorithm<'_>,
            ) -> Result<$crate::transport::TransportConfig, $crate::ConfigError> {
                let congestion_control = std::mem::take(&mut self.congestion_control);
                let classes = std::mem::take(&mut self.class);
                let transport = $crate::transport::TransportConfig {
                    congestion_control: congestion_control.check(
                        source,
                        "tunnel.congestion_control",
                        known,
                    )?,
                    class_congestion_control: classes.check(source, known)?,
                    idle_timeout: self.idle_timeout_s.seconds(),
                    max_udp_payload_bytes: self.max_udp_payload_bytes.get(),
                    media_deadline: Some(self.media_deadline_ms.milliseconds())
                        .filter(|deadline| !deadline.is_zero()),
                    media_fec: self.media_fec.unwrap_or(true),
                    quic_repair: self.quic_repair.unwrap_or(true),
                    path_mtu_probe_interval: self.path_mtu_probe_interval_s.seconds(),
                    initial_window_bytes: self.initial_window_bytes.get(),
                    max_stream_window_bytes: self.max_stream_window_bytes.get(),
                    max_connection_window_bytes: self.max_connection_window_bytes.get(),
                    memory_cap_bytes: self.memory_cap_mb.get::<u64>() * 1_000_000,
                };
                transport.check(source)?;
                Ok(transport)
            }
        }
    };
}
pub(crate) use tunnel_section;
