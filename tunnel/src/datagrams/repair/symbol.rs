//! Source symbols: datagrams in a form of one length, which erasure codes need.

use millrace_wire::repair::RepairKind;

/// Length of the payload and kind of the datagram, before the payload.
const HEAD_BYTES: usize = 3;

/// Bytes of the shortest symbol that holds a payload of this length; an even number, as the code works on 16 bits.
pub(super) fn symbol_bytes(payload_bytes: usize) -> usize {
    (HEAD_BYTES + payload_bytes).next_multiple_of(2)
}

/// Bytes of the longest payload for which a symbol of at most `bytes` has room.
pub(super) fn payload_room(bytes: usize) -> usize {
    (bytes / 2 * 2).saturating_sub(HEAD_BYTES)
}

/// The symbol of a datagram without its padding.
pub(super) fn to_symbol(kind: RepairKind, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut symbol = Vec::with_capacity(symbol_bytes(payload.len()));
    symbol.extend_from_slice(&length.to_be_bytes());
    symbol.push(kind.code());
    symbol.extend_from_slice(payload);
    symbol
}

/// The kind and the payload of a symbol. `None` if it is not one of a datagram.
pub(super) fn from_symbol(symbol: &[u8]) -> Option<(RepairKind, &[u8])> {
    let (&[high, low, kind], rest) = symbol.split_first_chunk()?;
    let payload = rest.get(..u16::from_be_bytes([high, low]).into())?;
    let kind = RepairKind::of_code(kind).filter(|kind| *kind != RepairKind::Repair)?;
    Some((kind, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_read_back() {
        for payload in [&b""[..], b"a", b"ab"] {
            let mut symbol = to_symbol(RepairKind::FirstPart, payload);
            symbol.resize(symbol_bytes(7), 0);
            assert_eq!(symbol.len(), 10);
            assert_eq!(from_symbol(&symbol), Some((RepairKind::FirstPart, payload)));
        }
        for malformed in [&b""[..], b"\x00\x00", b"\x00\x02\x00a", b"\x00\x00\x03", b"\x00\x00\x04"]
        {
            assert_eq!(from_symbol(malformed), None, "{malformed:?}");
        }
    }
}
