//! The members of a list of keys and values, each for itself: a malformed one does not hide those after it.
//!
//! Players write titles into `cid` without escaping quotes. A parser of dictionaries (RFC 8941, Section 4.2.2) discards
//! everything for that. Here, reading goes on after the first comma of the malformed member.
//! `nginx-conf/lua/cmcd.lua` finds the same members.

/// One member, without the spaces around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member<'a> {
    /// A key, and what follows it: nothing, `=` with a value, or parameters.
    Pair { key: &'a str, rest: &'a [u8] },
    /// Neither; its quotes may be wrong.
    Malformed,
}

/// Splits `data` at its commas.
pub(super) fn members(data: &[u8]) -> impl Iterator<Item = Member<'_>> {
    let mut left = (!trim(data).is_empty()).then_some(data);
    std::iter::from_fn(move || {
        let data = left?;
        let (end, are_strings_whole) = match end_of_member(data) {
            Some(end) => (end, true),
            None => (data.iter().position(|byte| *byte == b',').unwrap_or(data.len()), false),
        };
        left = data.get(end + 1..);
        let pair = are_strings_whole.then(|| pair(trim(&data[..end]))).flatten();
        Some(pair.unwrap_or(Member::Malformed))
    })
}

/// Where the first comma outside of strings is, or the end. `None` if a string is malformed: characters directly before
/// or after its quotes, a control character, another escape than `\"` and `\\`, or no end.
fn end_of_member(data: &[u8]) -> Option<usize> {
    let mut bytes = data.iter().copied().enumerate();
    let mut before = b',';
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b',' => return Some(at),
            // After `%`: display strings (RFC 9651, Section 3.3.8), which CMCD does not have.
            b'"' if !matches!(before, b'=' | b'(' | b'%' | b' ' | b'\t') => return None,
            b'"' => {
                let end = end_of_string(&data[at + 1..])?;
                let follows = data.get(at + end + 2).copied().unwrap_or(b',');
                if !matches!(follows, b',' | b';' | b')' | b' ' | b'\t') {
                    return None;
                }
                bytes.nth(end);
            }
            _ => {}
        }
        before = byte;
    }
    Some(data.len())
}

/// Where the quote is that ends a string; `data` begins after the first one.
fn end_of_string(data: &[u8]) -> Option<usize> {
    let mut bytes = data.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at),
            b'\\' if !matches!(bytes.next()?.1, b'"' | b'\\') => return None,
            byte if byte.is_ascii_control() => return None,
            _ => {}
        }
    }
    None
}

fn pair(member: &[u8]) -> Option<Member<'_>> {
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.*".contains(byte);
    let end = member.iter().position(|byte| !is_key(byte)).unwrap_or(member.len());
    let (key, rest) = member.split_at(end);
    let key = str::from_utf8(key).ok().filter(|key| !key.is_empty())?;
    matches!(rest.first(), None | Some(b'=' | b';')).then_some(Member::Pair { key, rest })
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', left @ ..] | [left @ .., b' ' | b'\t'] = text {
        text = left;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &str) -> Vec<String> {
        let text = |member| match member {
            Member::Pair { key, rest } => format!("{key}{}", str::from_utf8(rest).unwrap()),
            Member::Malformed => "malformed".to_owned(),
        };
        // No more members than commas and one.
        members(data.as_bytes()).take(data.len() + 1).map(text).collect()
    }

    #[test]
    fn members_end_at_commas_outside_of_strings() {
        assert_eq!(
            read(r#"a="x,\",y" , b,c=(1;v "z,"),d;e"#),
            [r#"a="x,\",y""#, "b", r#"c=(1;v "z,")"#, "d;e"]
        );
        assert_eq!(read(" \t"), [""; 0]);
        assert_eq!(read("a,,"), ["a", "malformed", "malformed"]);
    }

    #[test]
    fn a_string_ends_before_a_delimiter() {
        for after in ["", ";v", ")", " x", "\tx"] {
            let member = format!("a=\"x,\"{after}");
            assert_eq!(read(&format!("{member},b")), [&*member, "b"], "{after:?}");
        }
        for before in ["=", "=(", "=%", "= ", "=\t"] {
            let member = format!("a{before}\"x,\"");
            assert_eq!(read(&format!("{member},b")), [&*member, "b"], "{before:?}");
        }
        assert_eq!(read("\"x\",b"), ["malformed", "b"]);
        assert_eq!(read("a=\"x\"\"y\",b"), ["malformed", "b"]);
    }

    #[test]
    fn strings_have_two_escapes_and_no_control_characters() {
        assert_eq!(read(r#"a="\\",b"#), [r#"a="\\""#, "b"]);
        assert_eq!(read(r#"a="\\"",b"#), ["malformed", "b"]);
        for text in ["\\n", "\\", "\\,", "\0", "\t", "\u{1f}", "\u{7f}"] {
            assert_eq!(read(&format!("a=\"{text}\",b")).last().unwrap(), "b", "{text:?}");
            assert_eq!(read(&format!("a=\"{text}\",b"))[0], "malformed", "{text:?}");
        }
        assert_eq!(read("a=\"\u{80} ~\",b"), ["a=\"\u{80} ~\"", "b"]);
    }

    #[test]
    fn a_key_has_letters_digits_and_four_signs() {
        assert_eq!(read("aZ09_-.*=1"), ["aZ09_-.*=1"]);
        for member in ["a:b", "a+b=1", "\u{e4}=1", "=1", ";a", "a b", "a(1)"] {
            assert_eq!(read(member), ["malformed"], "{member}");
        }
    }

    #[test]
    fn reading_goes_on_after_the_first_comma_of_a_malformed_member() {
        for title in [r#"12" vinyl"#, r#"a "b", c"#, r"a\x", "a\nb"] {
            let found = read(&format!("a=1,cid=\"{title}\",sid=\"s\",z"));
            assert_eq!((&*found[0], &*found[1]), ("a=1", "malformed"), "{title}");
            assert_eq!(found[found.len() - 2..], [r#"sid="s""#, "z"], "{title}");
        }
        assert_eq!(read(r#"cid="a,b=2"#), ["malformed", "b=2"]);
        assert_eq!(read(r#"cid="ab"cd,z"#), ["malformed", "z"], "characters after a quote");
        assert_eq!(read(r#"cid=ab"cd",z"#), ["malformed", "z"], "characters before a quote");
    }
}
