use std::os::unix::net::UnixStream;

use super::*;
use crate::proxy_credentials::tests::credentials;

/// A handshake of a mode in which the connection itself says nothing.
fn begin(mode: &Mode) -> Handshake {
    let (accepted, _) = UnixStream::pair().unwrap();
    Handshake::begin(mode, &accepted, None).unwrap()
}

/// The same, of a listener whose only user is `anna` with the password `secret`.
fn begin_with_credentials(mode: &Mode) -> Handshake {
    begin(mode).with_credentials(Some(Arc::new(credentials("anna:secret"))))
}

fn destination(authority: &str) -> Destination {
    authority.parse().unwrap()
}

/// Brings `input` in pieces of `size` bytes, as the event loop does; returns how it ended, all
/// replies, and what was left over.
fn drive(mode: &Mode, input: &[u8], size: usize) -> (Result<Step, Reject>, Vec<u8>, Vec<u8>) {
    drive_handshake(begin(mode), input, size)
}

fn drive_handshake(
    mut handshake: Handshake,
    input: &[u8],
    size: usize,
) -> (Result<Step, Reject>, Vec<u8>, Vec<u8>) {
    let (mut buffer, mut replies) = (Vec::new(), Vec::new());
    let mut pieces = input.chunks(size);
    loop {
        match handshake.on_bytes(&buffer) {
            Ok(Step::NeedMore) => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None => return (Ok(Step::NeedMore), replies, buffer),
            },
            Ok(Step::Reply { bytes, consumed }) => {
                replies.extend(bytes);
                buffer.drain(..consumed);
            }
            Ok(Step::Replace { bytes, consumed }) => {
                buffer.splice(..consumed, bytes);
            }
            end => {
                if let Ok(Step::Ready { consumed, .. }) = &end {
                    buffer.drain(..consumed);
                }
                pieces.for_each(|piece| buffer.extend_from_slice(piece));
                return (end, replies, buffer);
            }
        }
    }
}

fn assert_ready(mode: &Mode, head: &[u8], authority: &str, client: Option<&str>, replies: &[u8]) {
    let payload = b"GET / HTTP/1.1\r\n\r\n\x05\x01\x00PROXY ";
    let input = [head, payload].concat();
    for size in 1..=input.len() {
        let (end, sent, rest) = drive(mode, &input, size);
        let Ok(Step::Ready { destination: got, client: from, .. }) = end else {
            panic!("{mode:?} in pieces of {size}: {end:?}");
        };
        assert_eq!(got, destination(authority), "{mode:?}");
        assert_eq!(from, client.map(|a| a.parse().unwrap()), "{mode:?}");
        assert_eq!(sent, replies, "{mode:?}");
        assert_eq!(rest, payload, "{mode:?} in pieces of {size}: the flow's bytes are all there");
    }
}

const SOCKS_REQUEST: &[u8] = b"\x05\x01\x00\x05\x01\x00\x03\x0eorigin.example\x01\xbb";
const HTTP_REQUEST: &[u8] = b"CONNECT origin.example:443 HTTP/1.1\r\nHost: origin.example\r\n\r\n";
const PROXY_HEADER: &[u8] = b"PROXY TCP4 192.0.2.9 198.51.100.1 5000 443\r\n";

#[test]
fn ready_with_any_fragmentation_and_nothing_lost() {
    assert_ready(&Mode::HttpConnect, HTTP_REQUEST, "origin.example:443", None, b"");
    assert_ready(&Mode::Socks5, SOCKS_REQUEST, "origin.example:443", None, &[5, 0]);
    let client = Some("192.0.2.9:5000");
    assert_ready(&Mode::ProxyProtocol, PROXY_HEADER, "198.51.100.1:443", client, b"");
    assert_ready(&Mode::Static(destination("[::1]:80")), b"", "[::1]:80", None, b"");
}

#[test]
fn request_in_absolute_form_is_ready_with_its_head_for_the_origin() {
    let head = "POST http://origin.example/x HTTP/1.1\r\nHost: y\r\nContent-Length: 7\r\n\r\n";
    let input = [head.as_bytes(), b"payload"].concat();
    for size in 1..=input.len() {
        let (end, sent, rest) = drive(&Mode::HttpConnect, &input, size);
        let Ok(Step::Ready { destination: got, client: None, consumed: 0 }) = end else {
            panic!("in pieces of {size}: {end:?}");
        };
        assert_eq!((got, sent), (destination("origin.example:80"), vec![]));
        let rest = String::from_utf8(rest).unwrap();
        assert_eq!(
            rest,
            "POST /x HTTP/1.1\r\nHost: origin.example\r\nContent-Length: 7\r\n\
             Via: 1.1 millrace\r\nConnection: close\r\n\r\npayload"
        );
    }
}

#[test]
fn fixed_is_ready_before_the_client_says_anything() {
    let mode = Mode::Static(destination("origin.example:80"));
    let ready =
        Step::Ready { destination: destination("origin.example:80"), client: None, consumed: 0 };
    assert_eq!(begin(&mode).on_bytes(b""), Ok(ready));
    for mode in [Mode::ProxyProtocol, Mode::HttpConnect, Mode::Socks5] {
        assert_eq!(begin(&mode).on_bytes(b""), Ok(Step::NeedMore), "{mode:?}");
    }
}

fn assert_rejected(mode: &Mode, input: &[u8], reply: &[u8], reason: RejectReason) {
    for size in [1, input.len()] {
        let (end, ..) = drive(mode, input, size);
        let rejected = end.expect_err("must be rejected");
        assert!(rejected.reply.starts_with(reply), "{rejected:?}");
        assert_eq!(rejected.reply.is_empty(), reply.is_empty(), "{rejected:?}");
        assert_eq!(rejected.reason, reason);
    }
}

#[test]
fn rejected_with_the_protocols_own_words() {
    assert_rejected(
        &Mode::HttpConnect,
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HTTP/1.1 400 ",
        HttpForwardError::NotAbsolute.into(),
    );
    assert_rejected(
        &Mode::HttpConnect,
        b"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 400 ",
        HttpForwardError::TwoFramings.into(),
    );
    assert_rejected(
        &Mode::HttpConnect,
        b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HTTP/1.1 400 ",
        http_connect::HttpConnectError::BadAuthority(AuthorityError::MissingPort).into(),
    );
    assert_rejected(
        &Mode::Socks5,
        b"\x05\x01\x02",
        &socks5::METHOD_UNACCEPTABLE,
        RejectReason::NoAcceptableMethod,
    );
    assert_rejected(
        &Mode::Socks5,
        b"\x05\x01\x00\x05\x02\x00\x01",
        &[5, 7, 0, 1],
        socks5::Socks5Error::UnsupportedCommand(2).into(),
    );
    assert_rejected(
        &Mode::Socks5,
        b"\x05\x01\x00\x05\x01\x00\x09",
        &[5, 8, 0, 1],
        socks5::Socks5Error::UnsupportedAddressType(9).into(),
    );
    assert_rejected(
        &Mode::Socks5,
        b"\x04\x01",
        b"",
        socks5::Socks5Error::UnsupportedVersion(4).into(),
    );
    assert_rejected(
        &Mode::ProxyProtocol,
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
        proxy_protocol::ProxyProtocolError::NotProxyProtocol.into(),
    );
}

#[test]
fn proxy_headers_without_a_usable_destination() {
    let mode = Mode::ProxyProtocol;
    assert_rejected(&mode, b"PROXY UNKNOWN\r\n", b"", RejectReason::NoDestination);
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    assert_rejected(&mode, local, b"", RejectReason::NoDestination);
    assert_rejected(
        &mode,
        b"PROXY TCP4 192.0.2.9 198.51.100.1 5000 0\r\n",
        b"",
        RejectReason::BadDestination(AuthorityError::BadPort),
    );
}

#[test]
fn socks_client_with_the_right_password_is_let_in() {
    let input = b"\x05\x02\x00\x02\x01\x04anna\x06secret\x05\x01\x00\x03\x0eorigin.example\x01\xbb";
    for size in 1..=input.len() {
        let (end, sent, rest) = drive_handshake(begin_with_credentials(&Mode::Socks5), input, size);
        let Ok(Step::Ready { destination: got, .. }) = end else { panic!("{end:?}") };
        assert_eq!(
            (got, sent, rest),
            (destination("origin.example:443"), vec![5, 2, 1, 0], vec![])
        );
    }
    // Without credentials in the configuration the password is not asked for.
    let (end, sent, _) = drive(&Mode::Socks5, b"\x05\x02\x00\x02", 4);
    assert_eq!((end, sent), (Ok(Step::NeedMore), vec![5, 0]));
}

#[test]
fn socks_client_without_the_right_password_is_refused() {
    use RejectReason::*;
    for (input, replied, reply, reason) in [
        (&b"\x05\x01\x00"[..], &b""[..], socks5::METHOD_UNACCEPTABLE, MissingCredentials),
        (
            b"\x05\x01\x02\x01\x04anna\x06secreT",
            &[5, 2],
            socks5::PASSWORD_REFUSED,
            WrongCredentials,
        ),
        (
            b"\x05\x01\x02\x01\x04bert\x06secret",
            &[5, 2],
            socks5::PASSWORD_REFUSED,
            WrongCredentials,
        ),
        (b"\x05\x01\x02\x01\x00\x00", &[5, 2], socks5::PASSWORD_REFUSED, WrongCredentials),
    ] {
        for size in [1, input.len()] {
            let (end, sent, _) =
                drive_handshake(begin_with_credentials(&Mode::Socks5), input, size);
            let rejected = end.expect_err("must be refused");
            assert_eq!((sent.as_slice(), rejected.reply.as_slice()), (replied, &reply[..]));
            assert_eq!(rejected.reason, reason);
        }
    }
    // The request does not come before the password.
    let (end, ..) = drive_handshake(begin_with_credentials(&Mode::Socks5), SOCKS_REQUEST, 3);
    assert_eq!(end.unwrap_err().reason, MissingCredentials);
    let input = b"\x05\x01\x02\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50";
    let (end, ..) = drive_handshake(begin_with_credentials(&Mode::Socks5), input, 3);
    assert_eq!(end.unwrap_err().reason, socks5::Socks5Error::UnsupportedPasswordVersion(5).into());
}

#[test]
fn http_client_without_the_right_credentials_is_challenged() {
    use RejectReason::*;
    for start in ["CONNECT a:1 HTTP/1.1\r\nHost: a\r\n", "GET http://a:1/ HTTP/1.1\r\nHost: a\r\n"]
    {
        for (field, reason) in [
            ("", Some(MissingCredentials)),
            // anna:wrong, and another scheme.
            ("Proxy-Authorization: Basic YW5uYTp3cm9uZw==\r\n", Some(WrongCredentials)),
            ("Proxy-Authorization: Bearer YW5uYTpzZWNyZXQ=\r\n", Some(WrongCredentials)),
            // anna:secret
            ("Proxy-Authorization: Basic YW5uYTpzZWNyZXQ=\r\n", None),
        ] {
            let input = format!("{start}{field}\r\n");
            let handshake = begin_with_credentials(&Mode::HttpConnect);
            let (end, _, rest) = drive_handshake(handshake, input.as_bytes(), 7);
            match reason {
                None => {
                    assert!(matches!(end, Ok(Step::Ready { .. })), "{end:?}");
                    assert!(!String::from_utf8(rest).unwrap().contains("YW5uYTpzZWNyZXQ"));
                }
                Some(reason) => {
                    let rejected = end.expect_err("must be refused");
                    assert!(rejected.reply.starts_with(b"HTTP/1.1 407 "), "{rejected:?}");
                    assert_eq!(rejected.reason, reason);
                }
            }
        }
    }
    let head = b"HEAD http://a/ HTTP/1.1\r\nHost: a\r\n\r\n";
    let (end, ..) = drive_handshake(begin_with_credentials(&Mode::HttpConnect), head, 64);
    assert!(end.unwrap_err().reply.ends_with(b"\r\n\r\n"));
}

#[test]
fn a_full_buffer_never_waits_for_more() {
    let socks = [&b"\x05\x01\x00\x05\x01\x00\x03\xff"[..], &[b'a'; MAX_HANDSHAKE_BYTES]].concat();
    let v2 = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff"[..], &[0; MAX_HANDSHAKE_BYTES]].concat();
    for (mode, input) in [
        (Mode::HttpConnect, vec![b'A'; MAX_HANDSHAKE_BYTES]),
        (Mode::HttpConnect, [&HTTP_REQUEST[..40], &[b'a'; MAX_HANDSHAKE_BYTES]].concat()),
        (Mode::ProxyProtocol, [b"PROXY UNKNOWN ", &[b'a'; MAX_HANDSHAKE_BYTES][..]].concat()),
        (Mode::ProxyProtocol, v2),
        (Mode::Socks5, socks),
    ] {
        let (end, ..) = drive(&mode, &input[..MAX_HANDSHAKE_BYTES], 1024);
        assert_ne!(end, Ok(Step::NeedMore), "{mode:?}");
    }
}

#[test]
fn outcomes_are_told_in_the_protocols_words() {
    let at_end = |mode: &Mode, input: &[u8]| {
        let mut handshake = begin(mode);
        let mut rest = input;
        while let Step::Reply { consumed, .. } | Step::Replace { consumed, .. } =
            handshake.on_bytes(rest).unwrap()
        {
            rest = &rest[consumed..];
        }
        handshake
    };
    let http = at_end(&Mode::HttpConnect, HTTP_REQUEST);
    assert!(http.success_reply().starts_with(b"HTTP/1.1 200 "));
    let refused = http.failure_reply(ConnectFailure::Refused).unwrap();
    let refused = String::from_utf8(refused).unwrap();
    assert!(refused.starts_with("HTTP/1.1 502 "), "{refused}");
    assert!(refused.contains("\r\nProxy-Status: millrace; error=connection_refused\r\n"));

    let forwarded = at_end(&Mode::HttpConnect, b"HEAD http://a/ HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(forwarded.is_forwarding() && forwarded.success_reply().is_empty());
    let refused = forwarded.failure_reply(ConnectFailure::Refused).unwrap();
    assert!(refused.starts_with(b"HTTP/1.1 502 ") && refused.ends_with(b"\r\n\r\n"));

    let socks = at_end(&Mode::Socks5, SOCKS_REQUEST);
    assert_eq!(socks.success_reply()[..2], [5, 0]);
    assert_eq!(socks.failure_reply(ConnectFailure::Refused).unwrap()[..2], [5, 5]);
    assert_eq!(socks.failure_reply(ConnectFailure::Forbidden).unwrap()[..2], [5, 2]);

    for (mode, input) in
        [(Mode::ProxyProtocol, PROXY_HEADER), (Mode::Static(destination("a:1")), &b""[..])]
    {
        let handshake = at_end(&mode, input);
        assert!(handshake.success_reply().is_empty());
        assert_eq!(handshake.failure_reply(ConnectFailure::Refused), None, "{mode:?}");
    }
}

#[test]
fn transparent_modes_need_a_tcp_listener() {
    let (accepted, _) = UnixStream::pair().unwrap();
    for mode in [Mode::Tproxy, Mode::Redirect] {
        assert!(Handshake::begin(&mode, &accepted, None).is_err(), "{mode:?}");
    }
}
