//! The field `traceparent` of W3C Trace Context (Recommendation of 2021-11-23, Section 3.2), which ties the traces of
//! both ends of a flow together.

use std::fmt;

/// The request field that names the span from which a request comes.
pub const TRACE_PARENT_FIELD: &str = "traceparent";

/// Length of a field of version 00, and the shortest of later versions.
const VERSION_00_BYTES: usize = 55;
/// Longest field that is looked at.
const MAX_BYTES: usize = 128;
/// Bit of the flags: the sender records the trace.
const SAMPLED: u8 = 1;

/// A span of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// ID of the trace, never 0.
    pub trace_id: u128,
    /// ID of the span, never 0.
    pub span_id: u64,
    /// Whether the peer records the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads a field; `None` for one that the Recommendation says to ignore.
    pub fn parse(value: &[u8]) -> Option<Self> {
        if value.len() < VERSION_00_BYTES || value.len() > MAX_BYTES {
            return None;
        }
        let (known, rest) = value.split_at(VERSION_00_BYTES);
        let version = hex(&known[..2])?;
        // Later versions may append fields (Section 4.1); 255 is no version.
        let may_go_on = rest.is_empty() || version > 0 && rest[0] == b'-';
        if version == 0xff || !may_go_on || [known[2], known[35], known[52]] != *b"---" {
            return None;
        }
        let parent = Self {
            trace_id: hex(&known[3..35])?,
            span_id: u64::try_from(hex(&known[36..52])?).ok()?,
            sampled: u8::try_from(hex(&known[53..])?).ok()? & SAMPLED != 0,
        };
        (parent.trace_id != 0 && parent.span_id != 0).then_some(parent)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, sampled } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*sampled))
    }
}

/// The number of at most 32 lower-case hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn field_of_the_recommendation_is_read_and_written() {
        let parent = TraceParent::parse(EXAMPLE.as_bytes()).unwrap();
        assert_eq!(parent.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(parent.span_id, 0xb7ad_6b71_6920_3331);
        assert!(parent.sampled);
        assert_eq!(parent.to_string(), EXAMPLE);
        let not = EXAMPLE.replace("-01", "-02");
        assert!(!TraceParent::parse(not.as_bytes()).unwrap().sampled);
    }

    #[test]
    fn later_version_may_have_more_fields() {
        let later = EXAMPLE.replacen("00", "cc", 1);
        let parent = TraceParent::parse(EXAMPLE.as_bytes());
        assert_eq!(TraceParent::parse(later.as_bytes()), parent);
        assert_eq!(TraceParent::parse(format!("{later}-what").as_bytes()), parent);
        assert_eq!(TraceParent::parse(format!("{later}.what").as_bytes()), None);
        assert_eq!(TraceParent::parse(format!("{later}-{}", "a".repeat(128)).as_bytes()), None);
    }

    #[test]
    fn malformed_field_is_ignored() {
        let wrong = [
            String::new(),
            "00".to_owned(),
            EXAMPLE.to_uppercase(),
            EXAMPLE.replacen("00", "ff", 1),
            format!("{EXAMPLE}-00"),
            EXAMPLE.replace("b7ad6b7169203331", "0000000000000000"),
            EXAMPLE.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            EXAMPLE.replace("-01", "_01"),
            EXAMPLE.replace("-01", "-0g"),
            "-".repeat(VERSION_00_BYTES),
        ];
        for text in wrong {
            assert_eq!(TraceParent::parse(text.as_bytes()), None, "{text}");
        }
    }
}
