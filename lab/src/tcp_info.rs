//! `TCP_INFO` of a TCP connection.

use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Context, Result};

/// `struct tcp_info` of `linux/tcp.h`, as far as it is read here; libc's ends at `total_retrans`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawTcpInfo {
    /// State, options, window scales, flags.
    bytes: [u8; 8],
    /// rto, ato.
    timeouts_us: [u32; 2],
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    /// sacked, lost, retrans, fackets.
    segments: [u32; 4],
    /// Since data and acknowledgements were sent and received.
    last_ms: [u32; 4],
    /// pmtu, rcv_ssthresh.
    limits: [u32; 2],
    rtt_us: u32,
    rttvar_us: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    /// advmss, reordering, rcv_rtt, rcv_space.
    more: [u32; 4],
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt_us: u32,
    data_segs_in: u32,
    data_segs_out: u32,
}

/// A connection, seen from one of its ends.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TcpInfo {
    /// Smoothed round trip.
    pub rtt_ms: f64,
    /// Smallest round trip.
    pub min_rtt_ms: f64,
    /// Congestion window.
    pub window_bytes: u64,
    /// In flight.
    pub in_flight_bytes: u64,
    /// Pacing rate, if it is paced.
    pub pacing_mbps: Option<f64>,
    /// Segments sent with data.
    pub data_segments_sent: u64,
    /// Retransmissions among them.
    pub retransmitted_segments: u64,
    /// Segments received with data.
    pub data_segments_received: u64,
    /// Payload of a full segment received.
    pub segment_bytes: u64,
    /// Payload received in order.
    pub received_bytes: u64,
}

impl TcpInfo {
    /// Of a socket.
    ///
    /// # Errors
    /// When it is no TCP socket.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Self> {
        let mut raw = RawTcpInfo::default();
        let mut length = size_of::<RawTcpInfo>() as libc::socklen_t;
        // SAFETY: the pointers describe `raw` and `length`, which outlive the call; the kernel writes
        // at most `length` bytes, and any value of them is valid.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut raw).cast(),
                &raw mut length,
            )
        };
        if result < 0 {
            return Err(std::io::Error::last_os_error()).context("TCP_INFO");
        }
        let mss = u64::from(raw.snd_mss);
        // All ones is "not limited".
        let pacing = Some(raw.pacing_rate).filter(|rate| *rate < u64::from(u32::MAX) << 16);
        Ok(Self {
            rtt_ms: f64::from(raw.rtt_us) / 1e3,
            min_rtt_ms: f64::from(raw.min_rtt_us) / 1e3,
            window_bytes: u64::from(raw.snd_cwnd) * mss,
            in_flight_bytes: u64::from(raw.unacked) * mss,
            pacing_mbps: pacing.map(|rate| rate as f64 * 8e-6),
            data_segments_sent: u64::from(raw.data_segs_out),
            retransmitted_segments: u64::from(raw.total_retrans),
            data_segments_received: u64::from(raw.data_segs_in),
            segment_bytes: u64::from(raw.rcv_mss),
            received_bytes: raw.bytes_received,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_connection_over_loopback_is_as_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(&[7; 100_000]).unwrap();
        client.read_exact(&mut [0; 100_000]).unwrap();
        let (sent, received) =
            (TcpInfo::of(server.as_fd()).unwrap(), TcpInfo::of(client.as_fd()).unwrap());
        assert_eq!(received.received_bytes, 100_000);
        assert_eq!(received.data_segments_received, sent.data_segments_sent);
        assert_eq!(sent.retransmitted_segments, 0);
        assert!((0.001..100.0).contains(&sent.rtt_ms), "{sent:?}");
        assert!(sent.window_bytes > 10_000, "{sent:?}");
    }
}
