//! Which UDP flows carry QUIC, also those that begin within a connection.

use std::collections::HashSet;

use millrace_wire::quic_packet::{has_quic_long_header, may_have_quic_short_header};

use super::flows::UdpSource;

/// Sources that are remembered: between so many and twice as many, 64 bytes each. The oldest are forgotten.
const MIN_REMEMBERED_SOURCES: usize = 4096;

/// The sources of a worker's flows that began with a long header of QUIC.
///
/// A flow ends before the connection inside when the viewer pauses, or the tunnel changes its server. The next one begins with
/// a short header, which other protocols may begin with too.
#[derive(Debug, Default)]
pub(super) struct QuicSources {
    recent: HashSet<UdpSource>,
    older: HashSet<UdpSource>,
}

impl QuicSources {
    /// Whether the flow of `source` to `port` that begins with `datagram` is taken for one of QUIC.
    pub(super) fn is_quic(&mut self, source: UdpSource, datagram: &[u8], port: u16) -> bool {
        let is_known = self.recent.contains(&source) || self.older.contains(&source);
        let is_quic = has_quic_long_header(datagram, port)
            || is_known && may_have_quic_short_header(datagram);
        if is_quic {
            self.remember(source);
        }
        is_quic
    }

    fn remember(&mut self, source: UdpSource) {
        if self.recent.len() >= MIN_REMEMBERED_SOURCES {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(source);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn source(number: u32) -> UdpSource {
        let client = SocketAddr::from((Ipv4Addr::from(number), 50_000));
        UdpSource { listener: 0, client, destination: None }
    }

    fn initial() -> Vec<u8> {
        let mut datagram = vec![0xc3, 0, 0, 0, 1, 0, 0];
        datagram.resize(1200, 0);
        datagram
    }

    /// Of QUIC, or of OpenVPN (P_DATA_V2).
    const SHORT: [u8; 100] = [0x48; 100];

    #[test]
    fn a_flow_that_begins_within_a_known_connection_is_one_of_quic() {
        let mut sources = QuicSources::default();
        assert!(!sources.is_quic(source(1), &SHORT, 443));
        assert!(sources.is_quic(source(1), &initial(), 443));
        assert!(sources.is_quic(source(1), &SHORT, 443));
        assert!(!sources.is_quic(source(2), &SHORT, 443), "of another source");
        let elsewhere = UdpSource { listener: 1, ..source(1) };
        assert!(!sources.is_quic(elsewhere, &SHORT, 443), "to another destination");
        assert!(!sources.is_quic(source(1), &[0x16; 100], 443), "another protocol");
    }

    #[test]
    fn the_number_of_remembered_sources_is_bounded() {
        let mut sources = QuicSources::default();
        for number in 0..3 * MIN_REMEMBERED_SOURCES as u32 {
            assert!(sources.is_quic(source(number), &initial(), 443));
            // One that is used stays.
            assert!(number == 0 || sources.is_quic(source(0), &SHORT, 443), "{number}");
            let remembered = sources.recent.len() + sources.older.len();
            assert!(remembered <= 2 * MIN_REMEMBERED_SOURCES, "{number}: {remembered}");
        }
        assert!(!sources.is_quic(source(1), &SHORT, 443));
        let last = 3 * MIN_REMEMBERED_SOURCES as u32 - 1;
        assert!(sources.is_quic(source(last - 100), &SHORT, 443));
    }
}
