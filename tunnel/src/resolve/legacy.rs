//! Spellings of IPv4 addresses that inet_aton(3) takes, as the system's resolver does: they must
//! lead to the address that they mean, where the allow-list looks at it, and never to a name server.

use std::net::Ipv4Addr;

/// The address that one to four numbers mean (decimal, octal after 0, hexadecimal after 0x): the
/// last one fills all octets that are left.
pub(super) fn parse(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<_> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, leading) = parts.split_last()?;
    let free_octets = 4_u32.checked_sub(u32::try_from(leading.len()).ok()?).filter(|it| *it > 0)?;
    if leading.iter().any(|octet| *octet > 0xff) || *last >= 1 << (8 * free_octets) {
        return None;
    }
    let octets = leading.iter().fold(0, |value, octet| value << 8 | octet);
    Some(Ipv4Addr::from(u32::try_from(octets << (8 * free_octets) | last).ok()?))
}

fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    let all_digits = digits.chars().all(|digit| digit.is_digit(radix));
    all_digits.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_inet_aton_reads_them() {
        for text in ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "0x7f000001"] {
            assert_eq!(parse(text), Some(Ipv4Addr::LOCALHOST), "{text}");
        }
        assert_eq!(parse("10.258"), Some(Ipv4Addr::new(10, 0, 1, 2)));
        assert_eq!(parse("0"), Some(Ipv4Addr::UNSPECIFIED));
        for text in [
            "",
            "a",
            "1.",
            ".1",
            "256.1.1.1",
            "1.2.3.4.5",
            "08",
            "4294967296",
            "0x",
            "+1",
            "1.16777216",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
