//! Ethernet frames and their pool.

use millrace_sim::link::queue::LinkSized;

/// Ethernet header before the network-layer packet.
const ETHERNET_HEADER_BYTES: usize = 14;

/// Room for a frame of a 1500-byte MTU with a margin; longer frames are counted and discarded.
pub(super) const MAX_FRAME_BYTES: usize = 2048;

/// One Ethernet frame.
#[derive(Debug)]
pub struct EthernetFrame {
    pub(super) room: Box<[u8; MAX_FRAME_BYTES]>,
    pub(super) len: usize,
}

impl EthernetFrame {
    fn empty() -> Self {
        Self { room: Box::new([0; MAX_FRAME_BYTES]), len: 0 }
    }
}

/// Ethernet type of IPv4.
const IPV4: [u8; 2] = [0x08, 0x00];
/// Ethernet type of IPv6.
const IPV6: [u8; 2] = [0x86, 0xdd];

impl EthernetFrame {
    /// The number of the transport protocol (6 TCP, 17 UDP): IPv4's protocol or IPv6's first next
    /// header; `None` when the frame is neither.
    pub fn protocol(&self) -> Option<u8> {
        let at = match [self.room[12], self.room[13]] {
            IPV4 => ETHERNET_HEADER_BYTES + 9,
            IPV6 => ETHERNET_HEADER_BYTES + 6,
            _ => return None,
        };
        (at < self.len).then(|| self.room[at])
    }

    /// The last four bytes of the source's and of the destination's address; `None` when the frame is
    /// not IP.
    pub fn addresses(&self) -> Option<[u32; 2]> {
        let ends = match [self.room[12], self.room[13]] {
            IPV4 => [16, 20],
            IPV6 => [24, 40],
            _ => return None,
        };
        let word = |end: usize| {
            let at = ETHERNET_HEADER_BYTES + end - 4;
            let bytes = self.room.get(at..at + 4)?.try_into().ok()?;
            (at + 4 <= self.len).then_some(u32::from_be_bytes(bytes))
        };
        Some([word(ends[0])?, word(ends[1])?])
    }
}

impl EthernetFrame {
    /// The payload of a UDP datagram; `None` for anything else, a fragment, or a truncated frame.
    pub fn udp_payload(&self) -> Option<&[u8]> {
        const UDP: u8 = 17;
        const UDP_HEADER_BYTES: usize = 8;
        let packet = self.room.get(ETHERNET_HEADER_BYTES..self.len)?;
        let header = match [self.room[12], self.room[13]] {
            IPV4 if [packet.get(6)? & 0x3f, *packet.get(7)?] != [0, 0] => return None,
            IPV4 => usize::from(packet.first()? & 0x0f) * 4,
            IPV6 => 40,
            _ => return None,
        };
        if self.protocol() != Some(UDP) {
            return None;
        }
        let datagram = packet.get(header..)?;
        let length = usize::from(u16::from_be_bytes([*datagram.get(4)?, *datagram.get(5)?]));
        datagram.get(UDP_HEADER_BYTES..length)
    }
}

impl LinkSized for EthernetFrame {
    fn link_bytes(&self) -> u64 {
        self.len.saturating_sub(ETHERNET_HEADER_BYTES) as u64
    }
}

#[cfg(test)]
impl EthernetFrame {
    /// An IPv4 packet of so many bytes.
    pub fn ipv4(from: u32, to: u32, bytes: usize) -> Self {
        let mut frame = Self { len: ETHERNET_HEADER_BYTES + bytes, ..Self::empty() };
        frame.room[12..14].copy_from_slice(&IPV4);
        frame.room[ETHERNET_HEADER_BYTES + 12..][..4].copy_from_slice(&from.to_be_bytes());
        frame.room[ETHERNET_HEADER_BYTES + 16..][..4].copy_from_slice(&to.to_be_bytes());
        frame
    }

    /// An IPv6 packet of so many bytes, from and to addresses that end so.
    pub fn ipv6(from: u32, to: u32, bytes: usize) -> Self {
        let mut frame = Self { len: ETHERNET_HEADER_BYTES + bytes, ..Self::empty() };
        frame.room[12..14].copy_from_slice(&IPV6);
        frame.room[ETHERNET_HEADER_BYTES + 20..][..4].copy_from_slice(&from.to_be_bytes());
        frame.room[ETHERNET_HEADER_BYTES + 36..][..4].copy_from_slice(&to.to_be_bytes());
        frame
    }
}

/// Frames for reuse, so that the steady state allocates nothing.
#[derive(Debug, Default)]
pub struct FramePool(Vec<EthernetFrame>);

impl FramePool {
    /// Idle frames kept (8 MiB).
    const MAX_IDLE_FRAMES: usize = 4096;

    pub(super) fn take(&mut self) -> EthernetFrame {
        self.0.pop().unwrap_or_else(EthernetFrame::empty)
    }

    /// Gives a frame back.
    pub fn put(&mut self, frame: EthernetFrame) {
        if self.0.len() < Self::MAX_IDLE_FRAMES {
            self.0.push(frame);
        }
    }
}

/// A frame as read: when the kernel received it (nanoseconds of the wall clock) and the frame.
pub struct ReceivedFrame {
    /// Wall-clock nanoseconds since 1970, zero when the kernel gave none.
    pub wall_ns: u64,
    /// The frame.
    pub frame: EthernetFrame,
}
