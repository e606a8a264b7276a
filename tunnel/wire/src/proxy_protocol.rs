//! PROXY protocol: versions 1 and 2 received, version 2 sent.
//!
//! After `doc/proxy-protocol.txt` of HAProxy 2.x ("the specification" below; its section numbers
//! are used). The parsers are our own, for crates that were considered give no strict incremental
//! answer: `ppp` 2.3 calls the prefix `PROXY TCP4 1.1.1.1 2.2.2.2 80 ` of a good header an error,
//! takes `+80` for a port and refuses a LOCAL header of an address family that it does not know,
//! which §2.2 wants skipped; `proxy-header` 0.1.3 reports wrong bytes only once 15 or 16 have
//! arrived, and neither verifies the checksum. Tests and the fuzz target hold these parsers against
//! `ppp`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use crate::Parsed;

/// Longest version 1 header with its CRLF, in bytes (§2.1: 107 characters suffice).
pub const MAX_V1_BYTES: usize = 107;

/// Longest version 2 payload (addresses and TLVs) accepted, in bytes. The format allows 65,535;
/// senders use a few hundred, and a client certificate's names fit well.
pub const MAX_V2_PAYLOAD_BYTES: usize = 4096;

/// The 12 bytes that begin a version 2 header (§2.2).
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family and protocol, length (§2.2).
const V2_FIXED_BYTES: usize = 16;

/// Two `sockaddr_un` paths of 108 bytes (§2.2).
const V2_UNIX_BYTES: usize = 216;

/// `PP2_TYPE_CRC32C` (§2.2.3).
const TLV_CRC32C: u8 = 0x03;

/// What a PROXY header said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The connection was relayed, and the addresses are known.
    Proxied {
        /// The address that connected to the sender of the header. The port may be 0.
        source: SocketAddr,
        /// The address that it connected to. The port may be 0. Of the same family as `source`.
        destination: SocketAddr,
    },
    /// The connection was relayed, but its source is unknown or not expressible as TCP over IP
    /// (`UNKNOWN`, AF_UNSPEC, AF_UNIX, datagrams).
    Unknown,
    /// The sender speaks for itself, as for a health check (version 2 `LOCAL`).
    Local,
}

/// Why the bytes are no PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyProtocolError {
    /// Neither version's first bytes.
    #[error("the connection does not begin with a PROXY protocol header of version 1 or 2")]
    NotProxyProtocol,
    /// A version 1 line without CRLF within [`MAX_V1_BYTES`].
    #[error("the version 1 header has no CRLF within {MAX_V1_BYTES} bytes")]
    LineTooLong,
    /// A version 1 line that is not of the specified form.
    #[error(
        "the version 1 header is malformed; \
         expected \"PROXY TCP4|TCP6 source destination source-port destination-port\" or \
         \"PROXY UNKNOWN\""
    )]
    MalformedLine,
    /// A version 2 header of a version that is not 2.
    #[error("the binary header has version {0}; expected 2")]
    UnsupportedVersion(u8),
    /// A version 2 command that is neither LOCAL nor PROXY.
    #[error("the version 2 header has command {0}; expected 0 (LOCAL) or 1 (PROXY)")]
    UnknownCommand(u8),
    /// A version 2 family and protocol byte that the specification does not list.
    #[error("the version 2 header has the unknown family and protocol {0:#04x}")]
    UnknownFamily(u8),
    /// A version 2 payload above [`MAX_V2_PAYLOAD_BYTES`].
    #[error(
        "the version 2 header announces {0} bytes; at most {MAX_V2_PAYLOAD_BYTES} are accepted"
    )]
    TooLong(usize),
    /// A version 2 payload shorter than its family's addresses.
    #[error("the version 2 header is too short for the addresses of its family")]
    ShortAddresses,
    /// Version 2 TLVs that do not end where the header ends.
    #[error("a TLV of the version 2 header reaches beyond its end")]
    MalformedTlv,
    /// The CRC32c TLV is repeated, not four bytes, or does not match (§2.2.3 wants the connection
    /// dropped).
    #[error("the CRC32c of the version 2 header does not match")]
    BadChecksum,
}

/// Parses a PROXY header of either version at the front of `buf`.
///
/// # Errors
/// The bytes are no valid header. All errors are final, and the connection is to be dropped (§2: a
/// receiver must not guess whether a header is there).
pub fn parse(buf: &[u8]) -> Result<Parsed<Header>, ProxyProtocolError> {
    if buf.is_empty() {
        return Ok(Parsed::Incomplete);
    }
    if begins_as(buf, b"PROXY ") {
        parse_v1(buf)
    } else if begins_as(buf, V2_SIGNATURE) {
        parse_v2(buf)
    } else {
        Err(ProxyProtocolError::NotProxyProtocol)
    }
}

/// Whether `buf` begins with `prefix`, as far as both go.
fn begins_as(buf: &[u8], prefix: &[u8]) -> bool {
    buf.iter().zip(prefix).all(|(a, b)| a == b)
}

fn parse_v1(buf: &[u8]) -> Result<Parsed<Header>, ProxyProtocolError> {
    let window = &buf[..buf.len().min(MAX_V1_BYTES)];
    let Some(end) = window.iter().position(|&b| b == b'\n') else {
        // Only a CR that the LF has yet to follow may end an incomplete line.
        let line = window.strip_suffix(b"\r").unwrap_or(window);
        if line.contains(&b'\r') {
            return Err(ProxyProtocolError::MalformedLine);
        }
        if window.len() == MAX_V1_BYTES {
            return Err(ProxyProtocolError::LineTooLong);
        }
        return Ok(Parsed::Incomplete);
    };
    let line = window[..end].strip_suffix(b"\r").ok_or(ProxyProtocolError::MalformedLine)?;
    let line = std::str::from_utf8(line).map_err(|_| ProxyProtocolError::MalformedLine)?;
    let value = parse_v1_line(line).ok_or(ProxyProtocolError::MalformedLine)?;
    Ok(Parsed::Complete { value, consumed: end + 1 })
}

/// §2.1: exactly one space between fields, canonical addresses, ports in decimal without leading
/// zeros. After UNKNOWN anything may follow and is ignored.
fn parse_v1_line(line: &str) -> Option<Header> {
    if line.contains('\r') {
        return None;
    }
    let rest = line.strip_prefix("PROXY ")?;
    if rest == "UNKNOWN" || rest.starts_with("UNKNOWN ") {
        return Some(Header::Unknown);
    }
    let mut fields = rest.split(' ');
    let protocol = fields.next()?;
    let (source, destination) = match protocol {
        "TCP4" => (v1_ip::<Ipv4Addr>(fields.next()?)?, v1_ip::<Ipv4Addr>(fields.next()?)?),
        "TCP6" => (v1_ip::<Ipv6Addr>(fields.next()?)?, v1_ip::<Ipv6Addr>(fields.next()?)?),
        _ => return None,
    };
    let (source_port, destination_port) = (v1_port(fields.next()?)?, v1_port(fields.next()?)?);
    if fields.next().is_some() {
        return None;
    }
    Some(Header::Proxied {
        source: (source, source_port).into(),
        destination: (destination, destination_port).into(),
    })
}

fn v1_ip<A: FromStr + Into<IpAddr>>(text: &str) -> Option<IpAddr> {
    text.parse::<A>().ok().map(Into::into)
}

fn v1_port(text: &str) -> Option<u16> {
    let canonical =
        text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

fn parse_v2(buf: &[u8]) -> Result<Parsed<Header>, ProxyProtocolError> {
    let Some(&version_command) = buf.get(12) else {
        return Ok(Parsed::Incomplete);
    };
    if version_command >> 4 != 2 {
        return Err(ProxyProtocolError::UnsupportedVersion(version_command >> 4));
    }
    let local = match version_command & 0xf {
        0 => true,
        1 => false,
        command => return Err(ProxyProtocolError::UnknownCommand(command)),
    };
    let Some(&family) = buf.get(13) else {
        return Ok(Parsed::Incomplete);
    };
    // §2.2: a LOCAL header's family and addresses are to be ignored, whatever they are.
    let addresses_bytes = match (local, family) {
        (true, _) | (false, 0x00) => 0,
        (false, 0x11 | 0x12) => 12,
        (false, 0x21 | 0x22) => 36,
        (false, 0x31 | 0x32) => V2_UNIX_BYTES,
        (false, family) => return Err(ProxyProtocolError::UnknownFamily(family)),
    };
    let Some(&[high, low]) = buf.get(14..V2_FIXED_BYTES) else {
        return Ok(Parsed::Incomplete);
    };
    let payload_bytes = usize::from(u16::from_be_bytes([high, low]));
    if payload_bytes > MAX_V2_PAYLOAD_BYTES {
        return Err(ProxyProtocolError::TooLong(payload_bytes));
    }
    if payload_bytes < addresses_bytes {
        return Err(ProxyProtocolError::ShortAddresses);
    }
    let consumed = V2_FIXED_BYTES + payload_bytes;
    let Some(header) = buf.get(..consumed) else {
        return Ok(Parsed::Incomplete);
    };
    let payload = &header[V2_FIXED_BYTES..];
    // Without known addresses the start of the TLVs is unknown.
    if !local && family != 0x00 {
        check_tlvs(header, V2_FIXED_BYTES + addresses_bytes)?;
    }
    let value = match (local, family) {
        (true, _) => Header::Local,
        (false, 0x11) => v2_addresses(payload, |ip: [u8; 4]| ip.into()),
        (false, 0x21) => v2_addresses(payload, |ip: [u8; 16]| ip.into()),
        (false, _) => Header::Unknown,
    };
    Ok(Parsed::Complete { value, consumed })
}

/// Source and destination address of `N` bytes each, then both ports. The caller has checked that
/// the payload is long enough.
fn v2_addresses<const N: usize>(payload: &[u8], to_ip: impl Fn([u8; N]) -> IpAddr) -> Header {
    let ip = |at: usize| {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&payload[at..at + N]);
        to_ip(bytes)
    };
    let port = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    Header::Proxied {
        source: (ip(0), port(2 * N)).into(),
        destination: (ip(N), port(2 * N + 2)).into(),
    }
}

/// Walks the TLVs from `at` to the end of the header; verifies the CRC32c if there is one (§2.2.3:
/// over the whole header, the checksum's own four bytes taken as zero).
fn check_tlvs(header: &[u8], mut at: usize) -> Result<(), ProxyProtocolError> {
    let mut checksum_at = None;
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else {
            return Err(ProxyProtocolError::MalformedTlv);
        };
        let value_at = at + 3;
        let value_bytes = usize::from(u16::from_be_bytes([high, low]));
        at = value_at + value_bytes;
        if at > header.len() {
            return Err(ProxyProtocolError::MalformedTlv);
        }
        if kind == TLV_CRC32C && (value_bytes != 4 || checksum_at.replace(value_at).is_some()) {
            return Err(ProxyProtocolError::BadChecksum);
        }
    }
    let Some(at) = checksum_at else {
        return Ok(());
    };
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    let mut digest = crc.digest();
    digest.update(&header[..at]);
    digest.update(&[0; 4]);
    digest.update(&header[at + 4..]);
    if digest.finalize().to_be_bytes() == header[at..at + 4] {
        Ok(())
    } else {
        Err(ProxyProtocolError::BadChecksum)
    }
}

/// A version 2 header for a TCP flow from `source` to `destination` (§2.2). The format knows one
/// family for both: where they differ, the IPv4 one is written as an IPv4-mapped IPv6 address.
pub fn encode_v2(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut header = V2_SIGNATURE.to_vec();
    // Version 2, PROXY.
    header.push(0x21);
    let (family, addresses) = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            (0x11, [source.octets(), destination.octets()].concat())
        }
        (source, destination) => (0x21, [mapped(source), mapped(destination)].concat()),
    };
    header.push(family);
    // 12 or 36: two addresses and two ports.
    header.extend([0, addresses.len() as u8 + 4]);
    header.extend(addresses);
    header.extend(source.port().to_be_bytes());
    header.extend(destination.port().to_be_bytes());
    header
}

fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
#[path = "proxy_protocol_tests.rs"]
mod tests;
