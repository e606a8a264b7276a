//! Fields of a head: which of them belong to one connection, and how heads are written again.

use httparse::Header;

/// The name of this proxy in `Via` fields (RFC 9110 §7.6.3): a pseudonym, so that no host name shows.
pub const VIA_PSEUDONYM: &str = "millrace";

/// Whether a field has this name.
pub(super) fn is_named(field: &Header<'_>, name: &str) -> bool {
    field.name.eq_ignore_ascii_case(name)
}

/// The values of all fields of a name.
pub(super) fn values_of<'a>(
    fields: &'a [Header<'a>],
    name: &'a str,
) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| is_named(field, name)).map(|field| field.value)
}

/// The names that `Connection` lists: their fields belong to the connection (RFC 9110 §7.6.1).
pub(super) fn nominated<'a>(fields: &'a [Header<'a>]) -> Vec<&'a str> {
    values_of(fields, "connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .filter_map(|option| std::str::from_utf8(option.trim_ascii()).ok())
        .collect()
}

/// Writes one field line.
pub(super) fn write(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// Writes the fields of this proxy and the end of the head. `Via` has the version of the message that came in.
pub(super) fn end_head(head: &mut Vec<u8>, is_http_10: bool) {
    let version = if is_http_10 { "1.0" } else { "1.1" };
    write(head, "Via", format!("{version} {VIA_PSEUDONYM}").as_bytes());
    write(head, "Connection", b"close");
    head.extend_from_slice(b"\r\n");
}
