/// Packets of dropped frames whose memory is still to be released.
///
/// A group of pictures of a fast stream is ten thousand packets. Released at once, they kept the event loop for 20 to 50 ms
/// on a virtual machine, in which its connections sent nothing.
#[derive(Debug, Default)]
pub(super) struct Discarded {
    packets: Vec<Vec<u8>>,
    pub(super) bytes: usize,
}

/// Released with each packet that comes or goes: more than come.
const RELEASED_AT_A_TIME: usize = 4;

impl Discarded {
    pub(super) fn add(&mut self, packet: Vec<u8>) {
        self.bytes += packet.len();
        self.packets.push(packet);
    }

    pub(super) fn release_some(&mut self) {
        if self.packets.is_empty() {
            return;
        }
        let kept = self.packets.len().saturating_sub(RELEASED_AT_A_TIME);
        for packet in self.packets.drain(kept..) {
            self.bytes -= packet.len();
        }
        if kept == 0 {
            self.packets = Vec::new();
        }
    }
}
