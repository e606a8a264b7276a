use ppp::v2::{AddressFamily, Addresses, Builder, Command, Protocol, Version};

use super::*;
use crate::test_support::assert_incremental;

fn proxied(source: &str, destination: &str) -> Header {
    Header::Proxied { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

/// A version 2 header from its bytes after the signature.
fn v2(version_command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [V2_SIGNATURE, &[version_command, family][..], &length, payload].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[kind][..], &length, value].concat()
}

const IPV4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xc0, 0x00, 0x01, 0xbb];

/// `IPV4` with a CRC32c TLV whose value was computed apart, bit by bit.
fn with_checksum(more: &[u8]) -> Vec<u8> {
    let mut header = v2(0x21, 0x11, &[&IPV4[..], &tlv(TLV_CRC32C, &[0; 4]), more].concat());
    let mut crc = !0_u32;
    for &byte in &header {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    header[31..35].copy_from_slice(&(!crc).to_be_bytes());
    header
}

#[test]
fn what_is_sent_is_what_others_read() {
    for (source, destination, read) in [
        ("192.0.2.1:5000", "198.51.100.2:80", ("192.0.2.1:5000", "198.51.100.2:80")),
        ("[2001:db8::1]:1", "[2001:db8::2]:2", ("[2001:db8::1]:1", "[2001:db8::2]:2")),
        ("192.0.2.1:5000", "[2001:db8::2]:2", ("[::ffff:192.0.2.1]:5000", "[2001:db8::2]:2")),
        ("[2001:db8::1]:1", "192.0.2.1:5000", ("[2001:db8::1]:1", "[::ffff:192.0.2.1]:5000")),
    ] {
        let header = encode_v2(source.parse().unwrap(), destination.parse().unwrap());
        assert_incremental(parse, &header, &proxied(read.0, read.1));
        let theirs = ppp::v2::Header::try_from(&header[..]).unwrap();
        assert_eq!((theirs.command, theirs.protocol), (Command::Proxy, Protocol::Stream));
        let (source, destination): (SocketAddr, SocketAddr) = match theirs.addresses {
            Addresses::IPv4(it) => (
                (it.source_address, it.source_port).into(),
                (it.destination_address, it.destination_port).into(),
            ),
            Addresses::IPv6(it) => (
                (it.source_address, it.source_port).into(),
                (it.destination_address, it.destination_port).into(),
            ),
            other => panic!("{other:?}"),
        };
        assert_eq!(proxied(read.0, read.1), Header::Proxied { source, destination });
    }
}

#[test]
fn version_1() {
    let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let worst = format!("PROXY UNKNOWN {longest} {longest} 65535 65535\r\n");
    let widest = format!("PROXY TCP6 {longest} {longest} 65535 65535\r\n");
    let widest_address = format!("[{longest}]:65535");
    assert_eq!(worst.len(), MAX_V1_BYTES);
    for (text, value) in [
        (
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n",
            proxied("192.0.2.1:56324", "198.51.100.2:443"),
        ),
        ("PROXY TCP4 0.0.0.0 255.255.255.255 0 0\r\n", proxied("0.0.0.0:0", "255.255.255.255:0")),
        (
            "PROXY TCP6 2001:db8::1 ::ffff:192.0.2.1 1 65535\r\n",
            proxied("[2001:db8::1]:1", "[::ffff:192.0.2.1]:65535"),
        ),
        (&widest, proxied(&widest_address, &widest_address)),
        ("PROXY UNKNOWN\r\n", Header::Unknown),
        ("PROXY UNKNOWN whatever this is\r\n", Header::Unknown),
        (&worst, Header::Unknown),
    ] {
        assert_incremental(parse, text.as_bytes(), &value);
    }
}

#[test]
fn version_1_refused() {
    for text in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY TCP4 1.1.1.1  2.2.2.2 1 2\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2  2\r\n",
        "PROXY TCP4 1.1.1.01 2.2.2.2 1 2\r\n",
        "PROXY TCP4 1.1.1 2.2.2.2 1 2\r\n",
        "PROXY TCP4 ::1 ::2 1 2\r\n",
        "PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY TCP6 fe80::1%1 ::2 1 2\r\n",
        "PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY tcp4 1.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY UNKNOWN\n",
        "PROXY UNKNOWN\rx",
        "PROXY TCP4 1.1.1.1\t2.2.2.2 1 2\r\n",
    ] {
        assert_eq!(parse(text.as_bytes()), Err(ProxyProtocolError::MalformedLine), "{text:?}");
    }
    assert_eq!(parse(b"PROXY TCP4 \xff\xfe\r\n"), Err(ProxyProtocolError::MalformedLine));
}

#[test]
fn version_1_is_bounded() {
    let endless = [&b"PROXY UNKNOWN "[..], &[b'x'; 4096]].concat();
    assert_eq!(parse(&endless[..MAX_V1_BYTES - 1]), Ok(Parsed::Incomplete));
    assert_eq!(parse(&endless[..MAX_V1_BYTES]), Err(ProxyProtocolError::LineTooLong));
    assert_eq!(parse(&endless), Err(ProxyProtocolError::LineTooLong));
}

#[test]
fn neither_version() {
    for bytes in [
        &b"G"[..],
        b"GET / HTTP/1.1\r\n",
        b"proxy ",
        b"PROXYTCP4",
        b"\r\n\r\n\0\r\nQUIT\r",
        &[0x16, 3, 1],
    ] {
        assert_eq!(parse(bytes), Err(ProxyProtocolError::NotProxyProtocol), "{bytes:?}");
    }
}

#[test]
fn version_2() {
    let ipv6 =
        [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1], &[0; 15], &[1], &[0, 80, 0, 81]].concat();
    let addresses = proxied("192.0.2.1:49152", "198.51.100.2:443");
    let with_tlvs = [&IPV4[..], &tlv(0x01, b"h2"), &tlv(0x04, b""), &tlv(0xee, &[7; 300])].concat();
    let largest = [&IPV4[..], &tlv(0x20, &[0; MAX_V2_PAYLOAD_BYTES - 15])].concat();
    for (header, value) in [
        (v2(0x21, 0x11, &IPV4), addresses),
        (v2(0x21, 0x11, &with_tlvs), addresses),
        (v2(0x21, 0x11, &largest), addresses),
        (v2(0x21, 0x21, &ipv6), proxied("[2001:db8::1]:80", "[::1]:81")),
        (v2(0x21, 0x12, &IPV4), Header::Unknown),
        (v2(0x21, 0x22, &ipv6), Header::Unknown),
        (v2(0x21, 0x31, &[b'/'; V2_UNIX_BYTES]), Header::Unknown),
        (v2(0x21, 0x00, b""), Header::Unknown),
        (v2(0x21, 0x00, b"ignored"), Header::Unknown),
        (v2(0x20, 0x00, b""), Header::Local),
        (v2(0x20, 0x11, &IPV4), Header::Local),
        (v2(0x20, 0xff, b"ignored"), Header::Local),
        (with_checksum(b""), addresses),
        (with_checksum(&tlv(0x05, b"unique")), addresses),
    ] {
        assert_incremental(parse, &header, &value);
    }
}

#[test]
fn version_2_refused() {
    let mut flipped = with_checksum(b"");
    flipped[16] ^= 1;
    let twice = with_checksum(&tlv(TLV_CRC32C, &[0; 4]));
    let short_checksum = [&IPV4[..], &tlv(TLV_CRC32C, &[0; 3])].concat();
    let over = [&IPV4[..], &[0x01, 0x00, 0x03, b'h', b'2']].concat();
    let cut = [&IPV4[..], &[0x01, 0x00]].concat();
    for (header, error) in [
        (v2(0x11, 0x11, &IPV4), ProxyProtocolError::UnsupportedVersion(1)),
        (v2(0x22, 0x11, &IPV4), ProxyProtocolError::UnknownCommand(2)),
        (v2(0x21, 0x10, &IPV4), ProxyProtocolError::UnknownFamily(0x10)),
        (v2(0x21, 0x41, &IPV4), ProxyProtocolError::UnknownFamily(0x41)),
        (v2(0x21, 0x11, &IPV4[..11]), ProxyProtocolError::ShortAddresses),
        (v2(0x21, 0x21, &IPV4), ProxyProtocolError::ShortAddresses),
        (v2(0x21, 0x31, &[0; 215]), ProxyProtocolError::ShortAddresses),
        (
            v2(0x21, 0x11, &[0; MAX_V2_PAYLOAD_BYTES + 1]),
            ProxyProtocolError::TooLong(MAX_V2_PAYLOAD_BYTES + 1),
        ),
        (v2(0x20, 0x00, &[0; 65535]), ProxyProtocolError::TooLong(65535)),
        (v2(0x21, 0x11, &over), ProxyProtocolError::MalformedTlv),
        (v2(0x21, 0x11, &cut), ProxyProtocolError::MalformedTlv),
        (v2(0x21, 0x11, &short_checksum), ProxyProtocolError::BadChecksum),
        (flipped, ProxyProtocolError::BadChecksum),
        (twice, ProxyProtocolError::BadChecksum),
    ] {
        assert_eq!(parse(&header), Err(error), "{header:?}");
    }
}

#[test]
fn too_long_is_said_before_the_payload_arrives() {
    let header = v2(0x21, 0x11, &[0; MAX_V2_PAYLOAD_BYTES + 1]);
    assert_eq!(parse(&header[..16]), Err(ProxyProtocolError::TooLong(MAX_V2_PAYLOAD_BYTES + 1)));
}

#[test]
fn agrees_with_another_implementations_encoder() {
    let (source, destination) = ("[2001:db8::7]:5000", "[2001:db8::8]:554");
    let built = Builder::with_addresses(
        Version::Two | Command::Proxy,
        Protocol::Stream,
        (source.parse().unwrap(), destination.parse().unwrap()) as (SocketAddr, SocketAddr),
    )
    .write_tlv(ppp::v2::Type::Authority, b"origin.example")
    .unwrap()
    .build()
    .unwrap();
    assert_incremental(parse, &built, &proxied(source, destination));

    let unix = Builder::with_addresses(
        Version::Two | Command::Proxy,
        Protocol::Stream,
        Addresses::Unix(ppp::v2::Unix::new([1; 108], [2; 108])),
    )
    .build()
    .unwrap();
    assert_incremental(parse, &unix, &Header::Unknown);

    let local = Builder::new(
        Version::Two | Command::Local,
        AddressFamily::Unspecified | Protocol::Unspecified,
    )
    .build()
    .unwrap();
    assert_incremental(parse, &local, &Header::Local);

    let line = ppp::v1::Addresses::new_tcp4([192, 0, 2, 1], [192, 0, 2, 2], 1, 2).to_string();
    assert_incremental(parse, line.as_bytes(), &proxied("192.0.2.1:1", "192.0.2.2:2"));
}
