//! Which packets begin a group of pictures: NAL units of H.264 (RFC 6184) and H.265 (RFC 7798).

/// What a packet says of the picture that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureKind {
    /// A decoder can begin with the picture.
    Key,
    /// The picture refers to earlier ones.
    Dependent,
    /// Other packets of the picture say it: this one has no slice, as of a delimiter or of side information.
    Undecided,
}

impl PictureKind {
    /// Of a packet with several units.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Key, _) | (_, Self::Key) => Self::Key,
            (Self::Dependent, _) | (_, Self::Dependent) => Self::Dependent,
            (Self::Undecided, Self::Undecided) => Self::Undecided,
        }
    }
}

/// Of a packet of H.264 (RFC 6184, Section 5.2).
pub fn h264(payload: &[u8]) -> PictureKind {
    let Some(header) = payload.first() else { return PictureKind::Undecided };
    match header & 0x1f {
        // STAP-A, STAP-B, MTAP16, MTAP24: bytes before the first unit, and between the size and its unit.
        24 => aggregated(&payload[1..], 0, h264_unit),
        25 => aggregated(payload.get(3..).unwrap_or_default(), 0, h264_unit),
        26 => aggregated(payload.get(3..).unwrap_or_default(), 3, h264_unit),
        27 => aggregated(payload.get(3..).unwrap_or_default(), 4, h264_unit),
        // FU-A, FU-B: every fragment has the type of its unit.
        28 | 29 => payload.get(1).map_or(PictureKind::Undecided, |it| h264_unit(*it)),
        _ => h264_unit(*header),
    }
}

/// By a NAL unit's first byte (ITU-T H.264, Table 7-1).
fn h264_unit(header: u8) -> PictureKind {
    match header & 0x1f {
        // IDR, and the parameter set that comes with each picture at which a decoder may begin: streams with open
        // groups of pictures have no IDR after the first.
        5 | 7 => PictureKind::Key,
        // Slices and their partitions.
        1..=4 => PictureKind::Dependent,
        _ => PictureKind::Undecided,
    }
}

/// Of a packet of H.265 (RFC 7798, Section 4.4) without decoding order numbers.
pub fn h265(payload: &[u8]) -> PictureKind {
    let [header, _, rest @ ..] = payload else { return PictureKind::Undecided };
    match header >> 1 & 0x3f {
        // Aggregation packet.
        48 => aggregated(rest, 0, h265_unit),
        // Fragmentation unit: every fragment has the type of its unit.
        49 => rest.first().map_or(PictureKind::Undecided, |it| h265_unit(it << 1)),
        _ => h265_unit(*header),
    }
}

/// By a NAL unit's first byte (ITU-T H.265, Table 7-1).
fn h265_unit(header: u8) -> PictureKind {
    match header >> 1 & 0x3f {
        // Random access points (BLA, IDR, CRA), and the parameter sets that come with them.
        16..=23 | 32 | 33 => PictureKind::Key,
        0..=15 => PictureKind::Dependent,
        _ => PictureKind::Undecided,
    }
}

/// Of units with their sizes before them, and `gap` bytes between a size and its unit that the size does not count for
/// but the unit follows.
fn aggregated(mut units: &[u8], gap: usize, unit: fn(u8) -> PictureKind) -> PictureKind {
    let mut kind = PictureKind::Undecided;
    while let [high, low, rest @ ..] = units {
        let size = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(header) = rest.get(gap).filter(|_| size > 0) else { break };
        kind = kind.or(unit(*header));
        units = rest.get(gap + size..).unwrap_or_default();
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::PictureKind::{Dependent, Key, Undecided};
    use super::*;

    #[test]
    fn single_units_of_h264() {
        for (unit, kind) in [
            (0x65, Key),
            (0x67, Key),
            (0x41, Dependent),
            (0x01, Dependent),
            (0x42, Dependent),
            (0x43, Dependent),
            (0x44, Dependent),
            (0x60, Undecided),
            (0x06, Undecided),
            (0x68, Undecided),
            (0x09, Undecided),
            (0x17, Undecided),
            (0x1e, Undecided),
            (0x1f, Undecided),
        ] {
            assert_eq!(h264(&[unit, 0x88]), kind, "0x{unit:02x}");
        }
        assert_eq!(h264(&[]), Undecided);
    }

    #[test]
    fn fragments_of_h264_have_the_type_of_their_unit() {
        for position in [0x80, 0x00, 0x40] {
            assert_eq!(h264(&[0x7c, position | 5, 1]), Key);
            assert_eq!(h264(&[0x5c, position | 1, 1]), Dependent);
        }
        assert_eq!(h264(&[0x7d, 0x85, 0, 0, 1]), Key, "FU-B");
        assert_eq!(h264(&[0x7c]), Undecided);
    }

    #[test]
    fn a_unit_of_an_aggregate_decides() {
        let delimiter = [0, 2, 0x09, 0xf0];
        let set = [0, 3, 0x67, 1, 2];
        let slice = [0, 4, 0x41, 0x9a, 0, 0];
        let stap = |units: &[&[u8]]| [&[0x78], &units.concat()[..]].concat();
        assert_eq!(h264(&stap(&[&delimiter, &set])), Key);
        assert_eq!(h264(&stap(&[&delimiter, &slice])), Dependent);
        assert_eq!(h264(&stap(&[&delimiter])), Undecided);
        assert_eq!(h264(&stap(&[&[0, 0], &set])), Undecided, "an empty unit ends it");
        assert_eq!(h264(&stap(&[&[0, 0], &[5, 220, 0x41]])), Undecided, "a size is no unit");
        assert_eq!(h264(&stap(&[&delimiter, &[0xff, 0xff, 0x65]])), Key, "cut off");
        let key_bytes_inside = [0, 5, 0x41, 0, 0x65, 0, 0x65];
        assert_eq!(h264(&stap(&[&key_bytes_inside])), Dependent, "bytes of a unit are no units");
        assert_eq!(h264(&[0x79, 0, 7, 0, 2, 0x65, 0x88]), Key, "STAP-B");
        assert_eq!(h264(&[0x7a, 0, 7, 0, 2, 1, 0, 0, 0x65, 0x88]), Key, "MTAP16");
        assert_eq!(h264(&[0x7b, 0, 7, 0, 2, 1, 0, 0, 0, 0x65, 0x88]), Key, "MTAP24");
        let second = [0x7a, 0, 7, 0, 2, 1, 0, 0, 0x41, 0x88, 0, 2, 1, 0, 0, 0x65, 0x88];
        assert_eq!(h264(&second), Key, "the second unit of an MTAP16");
        let second = [0x7b, 0, 7, 0, 2, 1, 0, 0, 0, 0x41, 0x88, 0, 2, 1, 0, 0, 0, 0x65, 0x88];
        assert_eq!(h264(&second), Key, "the second unit of an MTAP24");
        for kind in 24..=27 {
            assert_eq!(
                h264(&[0x60 | kind, 0]),
                Undecided,
                "nothing in an aggregate of type {kind}"
            );
        }
    }

    #[test]
    fn units_of_h265() {
        let single = |kind: u8| h265(&[kind << 1, 1, 0xaf]);
        for kind in [16, 19, 20, 21, 23, 32, 33] {
            assert_eq!(single(kind), Key, "{kind}");
        }
        for kind in [0, 1, 9, 15] {
            assert_eq!(single(kind), Dependent, "{kind}");
        }
        for kind in [24, 31, 34, 35, 39, 63] {
            assert_eq!(single(kind), Undecided, "{kind}");
        }
        assert_eq!(h265(&[49 << 1, 1, 0x80 | 19, 1]), Key, "a fragment");
        assert_eq!(h265(&[49 << 1, 1, 0x40 | 1, 1]), Dependent, "the last fragment");
        let units = [&[48 << 1, 1][..], &[0, 2, 35 << 1, 1], &[0, 3, 32 << 1, 1, 9]].concat();
        assert_eq!(h265(&units), Key, "an aggregate");
        let units = [&[48 << 1, 1][..], &[0, 3, 1 << 1, 1, 9], &[0, 2, 35 << 1, 1]].concat();
        assert_eq!(h265(&units), Dependent, "an aggregate without a key picture");
        for nothing in [&[0][..], &[48 << 1, 1], &[49 << 1, 1]] {
            assert_eq!(h265(nothing), Undecided, "{nothing:?}");
        }
        assert_eq!(h265(&[0x80 | 19 << 1, 1]), Key, "the first bit is no part of the type");
    }
}
