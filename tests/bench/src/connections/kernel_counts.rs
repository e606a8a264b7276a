//! What the kernel counts of a namespace.

use std::fs;

use anyhow::{Context, Result};
use millrace_lab::netns::Namespace;

/// What the kernel of a namespace has sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KernelCounts {
    /// TCP segments; with segmentation offload those on the wire.
    pub tcp_segments: f64,
    /// Calls that sent UDP; with segmentation offload a message of several packets counts once.
    pub udp_messages: f64,
}

impl KernelCounts {
    /// Reads them.
    ///
    /// # Errors
    /// When /proc/net/snmp is not as proc(5) says.
    pub fn read(host: &Namespace) -> Result<Self> {
        // /proc/net would be that of the process's first thread.
        host.inside(|| {
            let text =
                fs::read_to_string("/proc/thread-self/net/snmp").context("/proc/net/snmp")?;
            Self::parse(&text).context("/proc/net/snmp has no OutSegs or OutDatagrams")
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |protocol: &str, name: &str| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
            let (names, values) = (lines.next()?, lines.next()?);
            let index = names.split_ascii_whitespace().position(|it| it == name)?;
            values.split_ascii_whitespace().nth(index)?.parse().ok()
        };
        Some(Self {
            tcp_segments: field("Tcp:", "OutSegs")?,
            udp_messages: field("Udp:", "OutDatagrams")?,
        })
    }

    /// Of two hosts together.
    pub fn with(self, other: Self) -> Self {
        Self {
            tcp_segments: self.tcp_segments + other.tcp_segments,
            udp_messages: self.udp_messages + other.udp_messages,
        }
    }

    /// What was sent since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            tcp_segments: self.tcp_segments - earlier.tcp_segments,
            udp_messages: self.udp_messages - earlier.udp_messages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_are_found_by_name() {
        let text = "Tcp: RtoMin InSegs OutSegs\nTcp: 200 5 17\n\
            Udp: InDatagrams NoPorts OutDatagrams\nUdp: 1 2 33\n\
            UdpLite: InDatagrams OutDatagrams\nUdpLite: 0 0\n";
        let expected = KernelCounts { tcp_segments: 17.0, udp_messages: 33.0 };
        assert_eq!(KernelCounts::parse(text), Some(expected));
        assert_eq!(KernelCounts::parse("Tcp: A\nTcp: 1\n"), None);
    }
}
