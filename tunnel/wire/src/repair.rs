//! Repair of lost datagrams in CONNECT-UDP flows: an extension with a context ID of its own (RFC 9298 §4).
//!
//! A client offers methods of repair in the field [`FIELD`] of its request, and the answer has those that the server
//! uses too. Then both ends may send datagrams of [`CONTEXT`], each with a [`RepairHeader`] before its payload.

use std::fmt;

/// The field of a request that offers methods, and of its answer that has the accepted ones: a list of tokens.
pub const FIELD: &str = "millrace-datagram-repair";

/// The context ID of datagrams with a [`RepairHeader`]. Even ones are those of the client (RFC 9298 §4).
pub const CONTEXT: u64 = 2;

const RETRANSMISSION: &str = "retransmission";
const FEC: &str = "fec";
const IN_ORDER: &str = "in-order";

/// Methods of repair that an end offers or accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairMethods {
    /// Datagrams have sequence numbers, lost ones may be sent again, and a packet may come in two parts.
    pub retransmission: bool,
    /// Forward error correction: blocks of datagrams are followed by [`RepairKind::Repair`] datagrams.
    pub fec: bool,
    /// For QUIC in the flow: lost datagrams may be sent again, and those behind a missing one wait for it.
    pub in_order: bool,
}

impl RepairMethods {
    /// Reads the value of [`FIELD`]. Unknown methods are those of later versions, and ignored.
    pub fn parse(value: &[u8]) -> Self {
        let mut methods = Self::default();
        for token in value.split(|byte| *byte == b',') {
            match token.trim_ascii() {
                it if it == RETRANSMISSION.as_bytes() => methods.retransmission = true,
                it if it == FEC.as_bytes() => methods.fec = true,
                it if it == IN_ORDER.as_bytes() => methods.in_order = true,
                _ => {}
            }
        }
        methods
    }

    /// The methods of an answer.
    pub fn of_answer<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let value = fields.into_iter().find(|(name, _)| *name == FIELD.as_bytes());
        value.map_or(Self::default(), |(_, value)| Self::parse(value))
    }

    /// Those that `other` has too.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        Self {
            retransmission: self.retransmission && other.retransmission,
            fec: self.fec && other.fec,
            in_order: self.in_order && other.in_order,
        }
    }

    /// Whether there are none, so that the field is left out.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for RepairMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all =
            [(self.retransmission, RETRANSMISSION), (self.fec, FEC), (self.in_order, IN_ORDER)];
        let names: Vec<_> = all.iter().filter(|(used, _)| *used).map(|(_, name)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

/// The sequence number of a datagram, modulo 2^22.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Sequence(u32);

/// 22 bits, so that a header has three bytes.
const SEQUENCE_BITS: u32 = 22;
const SEQUENCE_MASK: u32 = (1 << SEQUENCE_BITS) - 1;

impl Sequence {
    /// The number `value`, modulo 2^22.
    pub fn new(value: u32) -> Self {
        Self(value & SEQUENCE_MASK)
    }

    /// Its value, below 2^22.
    pub fn value(self) -> u32 {
        self.0
    }

    /// The number of the datagram after it.
    #[must_use]
    pub fn successor(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// By how many datagrams it is ahead of `other`, or behind it if negative: the nearer of the two ways around.
    pub fn ahead_of(self, other: Self) -> i32 {
        let distance = self.0.wrapping_sub(other.0) & SEQUENCE_MASK;
        if distance < 1 << (SEQUENCE_BITS - 1) {
            distance as i32
        } else {
            distance as i32 - (1 << SEQUENCE_BITS)
        }
    }
}

/// What a datagram of [`CONTEXT`] carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairKind {
    /// A packet.
    Whole,
    /// The first part of a packet that is larger than a datagram.
    FirstPart,
    /// The rest of one or several such packets ([`second_parts`]).
    SecondParts,
    /// A [`BlockHeader`] and a repair symbol. The number is that of the first datagram of the block.
    Repair,
}

impl RepairKind {
    /// Its two bits.
    pub fn code(self) -> u8 {
        match self {
            Self::Whole => 0,
            Self::FirstPart => 1,
            Self::SecondParts => 2,
            Self::Repair => 3,
        }
    }

    /// The kind with this code, if there is one.
    pub fn of_code(code: u8) -> Option<Self> {
        [Self::Whole, Self::FirstPart, Self::SecondParts, Self::Repair]
            .get(usize::from(code))
            .copied()
    }
}

/// What precedes the payload of a datagram of [`CONTEXT`]: the kind in two bits and the sequence number in 22.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairHeader {
    /// What the payload is.
    pub kind: RepairKind,
    /// The number of the datagram.
    pub sequence: Sequence,
}

impl RepairHeader {
    /// Size of a header.
    pub const BYTES: usize = 3;

    /// Splits the header from the payload. `None` if the datagram is too short.
    pub fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (&[first, second, third], payload) = datagram.split_first_chunk()?;
        let kind = RepairKind::of_code(first >> 6)?;
        let sequence = Sequence::new(u32::from_be_bytes([0, first, second, third]));
        Some((Self { kind, sequence }, payload))
    }

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let [_, first, second, third] = self.sequence.value().to_be_bytes();
        [self.kind.code() << 6 | first, second, third]
    }
}

/// Most datagrams in a block.
pub const MAX_BLOCK_DATAGRAMS: usize = 2048;
/// Most repair datagrams of a block.
pub const MAX_REPAIRS: usize = 128;

/// What precedes the symbol in the payload of a repair datagram. The code is the Reed-Solomon code of Leopard-RS over
/// GF(2^16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// How many datagrams the block has.
    pub datagrams: u16,
    /// How many repair datagrams it has.
    pub repairs: u16,
    /// Which of them this is.
    pub index: u16,
}

impl BlockHeader {
    /// Size of a header.
    pub const BYTES: usize = 6;

    /// Splits the header from the symbol. `None` if it contradicts itself, or the symbol can't be one: it has an even
    /// number of bytes.
    pub fn parse(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (&[a, b, c, d, e, f], symbol) = payload.split_first_chunk()?;
        let [datagrams, repairs, index] = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
        let is_valid = (1..=MAX_BLOCK_DATAGRAMS).contains(&datagrams.into())
            && (1..=MAX_REPAIRS).contains(&repairs.into())
            && index < repairs
            && !symbol.is_empty()
            && symbol.len() % 2 == 0;
        is_valid.then_some((Self { datagrams, repairs, index }, symbol))
    }

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let [[a, b], [c, d], [e, f]] =
            [self.datagrams, self.repairs, self.index].map(u16::to_be_bytes);
        [a, b, c, d, e, f]
    }
}

/// What precedes each second part: the number of the datagram with the first part, in three bytes, and its length in two.
pub const PART_HEADER_BYTES: usize = 5;

/// Most second parts in a datagram. Receivers ignore those behind them, each of which would cost a search for its first
/// part.
pub const MAX_SECOND_PARTS: usize = 16;

/// Adds a second part, which is not empty, to the payload of a datagram.
///
/// # Panics
/// When it is longer than a UDP payload can be.
// Inlined into a loop that is unrolled, LLVM 21's constraint elimination took 25 s for it.
#[inline(never)]
pub fn put_second_part(payload: &mut Vec<u8>, first_part: Sequence, part: &[u8]) {
    let length = u16::try_from(part.len()).expect("a part of a UDP payload");
    payload.extend_from_slice(&first_part.value().to_be_bytes()[1..]);
    payload.extend_from_slice(&length.to_be_bytes());
    payload.extend_from_slice(part);
}

/// The second parts in a payload, at most [`MAX_SECOND_PARTS`], each with the number of the datagram that has the first
/// part. Ends at one that is truncated or empty.
pub fn second_parts(mut payload: &[u8]) -> impl Iterator<Item = (Sequence, &[u8])> {
    let parts = std::iter::from_fn(move || {
        let (&[first, second, third, high, low], rest) = payload.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
        payload = rest;
        let first_part = Sequence::new(u32::from_be_bytes([0, first, second, third]));
        (!part.is_empty()).then_some((first_part, part))
    });
    parts.take(MAX_SECOND_PARTS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_have_the_documented_form() {
        let header =
            RepairHeader { kind: RepairKind::SecondParts, sequence: Sequence::new(0x01_02_03) };
        assert_eq!(header.to_bytes(), [0x81, 0x02, 0x03]);
        assert_eq!(RepairHeader::parse(b"\x81\x02\x03rest"), Some((header, &b"rest"[..])));
        for unreadable in [&b""[..], b"\x01\x02"] {
            assert_eq!(RepairHeader::parse(unreadable), None);
        }
    }

    #[test]
    fn unknown_methods_are_ignored() {
        let none = RepairMethods::default();
        let retransmission = RepairMethods { retransmission: true, ..none };
        for (value, methods) in [
            ("retransmission", retransmission),
            ("other, retransmission ,x;y=1", retransmission),
            ("", none),
            ("fec,retransmission", RepairMethods { retransmission: true, fec: true, ..none }),
            ("fec", RepairMethods { fec: true, ..none }),
            ("in-order, other", RepairMethods { in_order: true, ..none }),
            ("Retransmission", none),
            ("retransmission;v=2", none),
        ] {
            assert_eq!(RepairMethods::parse(value.as_bytes()), methods, "{value}");
            let fields = [(&b":status"[..], &b"200"[..]), (FIELD.as_bytes(), value.as_bytes())];
            assert_eq!(RepairMethods::of_answer(fields), methods, "{value}");
        }
        assert_eq!(
            RepairMethods::of_answer([(&b":status"[..], &b"200"[..])]),
            RepairMethods::default()
        );
        assert!(retransmission.common(RepairMethods::default()).is_empty());
    }

    #[test]
    fn methods_are_read_back() {
        for bits in 0..8_u8 {
            let [retransmission, fec, in_order] = [1, 2, 4].map(|bit| bits & bit != 0);
            let methods = RepairMethods { retransmission, fec, in_order };
            assert_eq!(RepairMethods::parse(methods.to_string().as_bytes()), methods);
            assert_eq!(methods.common(methods), methods);
            assert_eq!(methods.is_empty(), bits == 0);
        }
    }

    #[test]
    fn second_parts_end_at_an_empty_one_and_at_the_limit() {
        let mut payload = Vec::new();
        for part in [&b"1"[..], b"2", b"", b"4"] {
            put_second_part(&mut payload, Sequence::new(7), part);
        }
        assert_eq!(second_parts(&payload).count(), 2);
        payload.clear();
        for number in 0..10_000 {
            put_second_part(&mut payload, Sequence::new(number), b"1");
        }
        assert_eq!(second_parts(&payload).count(), MAX_SECOND_PARTS);
    }

    #[test]
    fn method_of_one_end_only_is_not_used() {
        let [none, retransmission, fec, both] =
            ["", "retransmission", "fec", "fec, retransmission"]
                .map(|it| RepairMethods::parse(it.as_bytes()));
        for (one, other, common) in [
            (both, retransmission, retransmission),
            (both, fec, fec),
            (both, none, none),
            (retransmission, fec, none),
        ] {
            assert_eq!(one.common(other), common, "{one} and {other}");
            assert_eq!(other.common(one), common, "{other} and {one}");
        }
    }

    #[test]
    fn blocks_beyond_the_limits_are_refused() {
        let is_read = |datagrams, repairs, index, symbol: &[u8]| {
            let header = BlockHeader { datagrams, repairs, index };
            BlockHeader::parse(&[&header.to_bytes()[..], symbol].concat()).is_some()
        };
        assert!(is_read(1, 1, 0, &[0; 2]) && is_read(2048, 128, 127, &[0; 2]));
        assert!(!is_read(0, 1, 0, &[0; 2]) && !is_read(2049, 1, 0, &[0; 2]), "datagrams");
        assert!(!is_read(1, 0, 0, &[0; 2]) && !is_read(1, 129, 0, &[0; 2]), "repair datagrams");
        assert!(!is_read(1, 5, 5, &[0; 2]) && !is_read(1, 5, 6, &[0; 2]), "index");
        assert!(!is_read(1, 1, 0, &[]) && !is_read(1, 1, 0, &[0; 3]), "bytes of the symbol");
    }

    #[test]
    fn distances_wrap_around() {
        assert_eq!(Sequence::new(1).successor(), Sequence::new(2));
        let last = Sequence::new(SEQUENCE_MASK);
        assert_eq!(last.successor(), Sequence::new(0));
        assert_eq!(last.successor().ahead_of(last), 1);
        assert_eq!(last.ahead_of(last.successor()), -1);
        assert_eq!(Sequence::new(1 << 21).ahead_of(Sequence::new(0)), -(1 << 21));
    }

    proptest! {
        #[test]
        fn headers_are_read_back(kind in 0..4_u8, number: u32, payload: Vec<u8>) {
            let kind = RepairKind::of_code(kind).unwrap();
            let header = RepairHeader { kind, sequence: Sequence::new(number) };
            let datagram = [&header.to_bytes()[..], &payload].concat();
            prop_assert_eq!(RepairHeader::parse(&datagram), Some((header, &payload[..])));
        }

        #[test]
        fn what_is_parsed_is_encoded_alike(datagram: Vec<u8>) {
            if let Some((header, payload)) = RepairHeader::parse(&datagram) {
                prop_assert_eq!([&header.to_bytes()[..], payload].concat(), datagram);
            }
        }

        #[test]
        fn block_headers_are_read_back(
            datagrams in 0..2100_u16,
            repairs in 0..140_u16,
            index in 0..140_u16,
            symbol in prop::collection::vec(any::<u8>(), 0..5),
        ) {
            let header = BlockHeader { datagrams, repairs, index };
            let payload = [&header.to_bytes()[..], &symbol].concat();
            let is_valid = (1..=2048).contains(&datagrams)
                && (1..=128).contains(&repairs)
                && index < repairs
                && [2, 4].contains(&symbol.len());
            prop_assert_eq!(BlockHeader::parse(&payload), is_valid.then_some((header, &symbol[..])));
        }

        #[test]
        fn second_parts_are_read_back(
            parts in prop::collection::vec(
                (any::<u32>(), prop::collection::vec(any::<u8>(), 1..50)),
                0..=MAX_SECOND_PARTS,
            ),
            cut: prop::sample::Index,
        ) {
            let mut payload = Vec::new();
            for (number, part) in &parts {
                put_second_part(&mut payload, Sequence::new(*number), part);
            }
            let parts: Vec<_> =
                parts.iter().map(|(number, part)| (Sequence::new(*number), &part[..])).collect();
            prop_assert!(second_parts(&payload).eq(parts.iter().copied()));
            let truncated = &payload[..cut.index(payload.len() + 1)];
            prop_assert!(parts.starts_with(&second_parts(truncated).collect::<Vec<_>>()));
        }

        #[test]
        fn a_sum_is_as_far_ahead(from: u32, distance in -(1_i32 << 21)..1 << 21) {
            let from = Sequence::new(from);
            let to = Sequence::new(from.value().wrapping_add_signed(distance));
            prop_assert_eq!(to.ahead_of(from), distance);
        }
    }
}
