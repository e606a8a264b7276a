use super::*;

const CONNECT: [(&str, &str); 2] = [(":method", "CONNECT"), (":authority", "origin.example:443")];

type Fields<'a> = &'a [(&'a str, &'a str)];

fn request(fields: Fields) -> Result<ConnectRequest, H3ConnectError> {
    parse_request(fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())))
}

fn response(fields: Fields) -> Result<Response, H3ConnectError> {
    parse_response(fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())))
}

fn plain(authority: &str) -> ConnectRequest {
    ConnectRequest {
        carries: Carries::Tcp,
        destination: authority.parse().unwrap(),
        class: None,
        congestion_control: None,
        client_address: None,
        trace_parent: None,
    }
}

#[test]
fn traceparent_is_read_once_and_never_fails_a_request() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let with = |parents: &[&'static str]| {
        let fields = parents.iter().map(|it| ("traceparent", *it));
        let fields: Vec<_> = CONNECT.into_iter().chain(fields).collect();
        request(&fields).unwrap()
    };
    let traced = with(&[parent]);
    assert_eq!(traced.trace_parent.unwrap().to_string(), parent);
    assert!(traced.fields().contains(&("traceparent", parent.to_owned())));
    for ignored in [&[][..], &["00-0-0-01"], &[""], &[parent, parent], &["x", parent]] {
        assert_eq!(with(ignored), plain("origin.example:443"), "{ignored:?}");
    }
}

#[test]
fn accepted() {
    assert_eq!(request(&CONNECT), Ok(plain("origin.example:443")));
    let other_order = [(":authority", "[2001:db8::1]:80"), (":method", "CONNECT")];
    assert_eq!(request(&other_order), Ok(plain("[2001:db8::1]:80")));
    let more = [
        CONNECT[0],
        CONNECT[1],
        ("host", "origin.example:443"),
        ("te", "trailers"),
        ("millrace-class", "live-4k.v2_a"),
        ("millrace-congestion-control", "vivace-latency"),
        ("millrace-client-address", "192.0.2.9:5000"),
        ("user-agent", "x"),
        ("empty", ""),
    ];
    let want = ConnectRequest {
        class: Some("live-4k.v2_a".into()),
        congestion_control: Some("vivace-latency".into()),
        client_address: Some("192.0.2.9:5000".parse().unwrap()),
        ..plain("origin.example:443")
    };
    assert_eq!(request(&more), Ok(want));
}

#[test]
fn own_requests_are_accepted() {
    for (class, congestion_control, client_address) in [
        (None, None, None),
        (Some("video"), None, Some("[2001:db8::1]:5000")),
        (None, Some("copa"), Some("192.0.2.1:0")),
    ] {
        let sent = ConnectRequest {
            class: class.map(str::to_owned),
            congestion_control: congestion_control.map(str::to_owned),
            client_address: client_address.map(|a| a.parse().unwrap()),
            ..plain("[::1]:554")
        };
        let fields = sent.fields();
        let read = parse_request(fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
        assert_eq!(read, Ok(sent));
    }
}

#[test]
fn refused_heads() {
    use H3ConnectError::*;
    let [method, authority] = CONNECT;
    let a = |text: &str| UnexpectedPseudo(text.into());
    let cases: &[(Fields, H3ConnectError, u16)] = &[
        (&[], Missing(":method"), 400),
        (&[authority], Missing(":method"), 400),
        (&[method], Missing(":authority"), 400),
        (&[method, method, authority], Repeated(":method"), 400),
        (&[method, authority, authority], Repeated(":authority"), 400),
        (&[method, authority, (":scheme", "https")], a(":scheme"), 400),
        (&[method, authority, (":path", "/")], a(":path"), 400),
        (&[method, authority, (":status", "200")], a(":status"), 400),
        (&[method, authority, (":new", "x")], a(":new"), 400),
        (&[method, ("a", "b"), authority], PseudoAfterRegular(":authority".into()), 400),
        (&[(":method", "connect"), authority], MethodNotAllowed, 405),
        (
            &[(":method", "GET"), authority, (":scheme", "https"), (":path", "/")],
            MethodNotAllowed,
            405,
        ),
        (
            &[method, (":protocol", "connect-ip"), (":scheme", "https"), (":path", "/"), authority],
            ExtendedConnect("connect-ip".into()),
            501,
        ),
        (&[method, authority, ("host", "other.example:443")], HostDiffers, 400),
        (&[method, authority, ("content-length", "0")], HasContent, 400),
        (
            &[method, authority, ("millrace-class", "a"), ("millrace-class", "a")],
            Repeated("millrace-class"),
            400,
        ),
        (
            &[
                method,
                authority,
                ("millrace-client-address", "192.0.2.1:1"),
                ("millrace-client-address", "192.0.2.1:1"),
            ],
            Repeated("millrace-client-address"),
            400,
        ),
    ];
    for (fields, error, status) in cases {
        assert_eq!(request(fields), Err(error.clone()), "{fields:?}");
        assert_eq!(error.status(), *status, "{fields:?}");
        assert_eq!(error.is_malformed(), *status == 400, "{fields:?}");
    }
}

#[test]
fn refused_authorities() {
    for (authority, error) in [
        ("", AuthorityError::MissingPort),
        ("origin.example", AuthorityError::MissingPort),
        ("origin.example:0", AuthorityError::BadPort),
        ("user@origin.example:443", AuthorityError::UserInfo),
        ("https://origin.example:443", AuthorityError::BadByte(b':')),
    ] {
        let fields = [CONNECT[0], (":authority", authority)];
        assert_eq!(request(&fields), Err(H3ConnectError::BadAuthority(error)), "{authority:?}");
    }
    let not_text: [(&[u8], &[u8]); 2] =
        [(b":method", b"CONNECT"), (b":authority", b"a\xff.example:443")];
    assert!(matches!(parse_request(not_text), Err(H3ConnectError::BadAuthority(_))));
}

#[test]
fn refused_fields() {
    for (name, value) in [
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
    ] {
        let got = request(&[CONNECT[0], CONNECT[1], (name, value)]);
        assert_eq!(got, Err(H3ConnectError::ConnectionSpecific(name.into())), "{name}: {value}");
    }
    for name in ["", ":", "Host", "X-a", "a b", "a:b", "a\n", "\u{e4}", "::method"] {
        let got = request(&[CONNECT[0], CONNECT[1], (name, "x")]);
        assert_eq!(got, Err(H3ConnectError::BadName), "{name:?}");
    }
    for value in ["a\0b", "a\rb", "a\nb", " a", "a ", "\ta", "a\t"] {
        let got = request(&[CONNECT[0], CONNECT[1], ("x", value)]);
        assert_eq!(got, Err(H3ConnectError::BadValue("x".into())), "{value:?}");
        let got = request(&[CONNECT[0], (":authority", value)]);
        assert_eq!(got, Err(H3ConnectError::BadValue(":authority".into())), "{value:?}");
    }
}

#[test]
fn refused_names_and_client_address() {
    let long = "a".repeat(MAX_NAME_BYTES + 1);
    for field in [CLASS_FIELD, CONGESTION_CONTROL_FIELD] {
        for name in ["", "a b", "a/b", "\u{e4}", &long] {
            let got = request(&[CONNECT[0], CONNECT[1], (field, name)]);
            assert_eq!(got, Err(H3ConnectError::BadToken(field)), "{name:?}");
        }
        let got = request(&[CONNECT[0], CONNECT[1], (field, "a"), (field, "a")]);
        assert_eq!(got, Err(H3ConnectError::Repeated(field)));
    }
    let longest = &long[1..];
    let got = request(&[CONNECT[0], CONNECT[1], (CLASS_FIELD, longest)]);
    assert_eq!(got.unwrap().class.as_deref(), Some(longest));
    for address in ["", "192.0.2.1", "192.0.2.1:65536", "::1:80", "host:80", "127.1:80"] {
        let got = request(&[CONNECT[0], CONNECT[1], (CLIENT_ADDRESS_FIELD, address)]);
        assert_eq!(got, Err(H3ConnectError::BadClientAddress), "{address:?}");
    }
}

#[test]
fn bounded() {
    let mut fields = CONNECT.to_vec();
    fields.extend(vec![("x", "y"); MAX_FIELDS - 2]);
    assert!(request(&fields).is_ok());
    fields.push(("x", "y"));
    assert_eq!(request(&fields), Err(H3ConnectError::TooLarge));
    assert_eq!(H3ConnectError::TooLarge.status(), 431);

    // Three fields, each counted with 32 bytes more, beside the third's value.
    let used = ":methodCONNECT:authorityorigin.example:443x".len() + 3 * 32;
    let fitting = "y".repeat(MAX_FIELD_SECTION_BYTES - used);
    assert!(request(&[CONNECT[0], CONNECT[1], ("x", &fitting)]).is_ok());
    let above = format!("{fitting}y");
    assert_eq!(request(&[CONNECT[0], CONNECT[1], ("x", &above)]), Err(H3ConnectError::TooLarge));

    // An endless list is given up on.
    let endless = std::iter::repeat((&b"x"[..], &b"y"[..]));
    assert_eq!(parse_request(endless), Err(H3ConnectError::TooLarge));
}

#[test]
fn responses() {
    assert_eq!(response(&[(":status", "200")]), Ok(Response::Established));
    assert_eq!(response(&[(":status", "299"), ("x", "y")]), Ok(Response::Established));
    assert_eq!(response(&[(":status", "103")]), Ok(Response::Interim));
    for failure in ConnectFailure::ALL {
        let fields = failure_fields(failure);
        let read = parse_response(fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
        assert_eq!(read, Ok(Response::Failed { status: failure.status(), failure }));
    }
    let bare = Response::Failed { status: 504, failure: ConnectFailure::TimedOut };
    assert_eq!(response(&[(":status", "504")]), Ok(bare));
}

#[test]
fn responses_refused() {
    for status in ["", "20", "2000", "099", "600", "2x0", "+20", "abc"] {
        assert_eq!(response(&[(":status", status)]), Err(H3ConnectError::BadStatus), "{status:?}");
    }
    assert_eq!(response(&[]), Err(H3ConnectError::Missing(":status")));
    assert_eq!(response(&[("x", "y")]), Err(H3ConnectError::Missing(":status")));
    let twice = [(":status", "200"), (":status", "200")];
    assert_eq!(response(&twice), Err(H3ConnectError::Repeated(":status")));
    let request_field = [(":status", "200"), (":path", "/")];
    assert_eq!(response(&request_field), Err(H3ConnectError::UnexpectedPseudo(":path".into())));
    let late = [("x", "y"), (":status", "200")];
    assert_eq!(response(&late), Err(H3ConnectError::PseudoAfterRegular(":status".into())));
}

const UDP: [(&str, &str); 5] = [
    (":method", "CONNECT"),
    (":protocol", "connect-udp"),
    (":scheme", "https"),
    (":authority", "proxy.example:4433"),
    (":path", "/.well-known/masque/udp/192.0.2.6/53/"),
];

#[test]
fn connect_udp() {
    let want = ConnectRequest {
        carries: Carries::Udp {
            proxy: "proxy.example:4433".into(),
            rtsp_stream: None,
            repair: RepairMethods::default(),
        },
        ..plain("192.0.2.6:53")
    };
    assert_eq!(request(&UDP), Ok(want.clone()));
    let fields = want.fields();
    assert!(fields.contains(&("capsule-protocol", "?1".into())), "{fields:?}");
    let read = parse_request(fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
    assert_eq!(read, Ok(want.clone()));
    let of_rtsp = |repair| ConnectRequest {
        carries: Carries::Udp { proxy: "proxy.example:4433".into(), rtsp_stream: Some(4), repair },
        ..want.clone()
    };
    let repaired = of_rtsp(RepairMethods { retransmission: true, fec: true, in_order: false });
    let offer = ("millrace-datagram-repair", "retransmission, fec");
    assert_eq!(
        request(&[&UDP[..], &[("millrace-rtsp", "4"), offer]].concat()),
        Ok(repaired.clone())
    );
    assert!(repaired.fields().contains(&(offer.0, offer.1.into())));
    let of_rtsp = of_rtsp(RepairMethods::default());
    assert!(of_rtsp.fields().iter().all(|(name, _)| *name != offer.0));
    assert_eq!(request(&[&UDP[..], &[("millrace-rtsp", "4")]].concat()), Ok(of_rtsp.clone()));
    assert!(of_rtsp.fields().contains(&("millrace-rtsp", "4".into())));
    // RFC 9297 §3.4: any other value counts as if the field were not there.
    for value in ["?0", "1", ""] {
        assert_eq!(request(&[&UDP[..], &[("capsule-protocol", value)]].concat()), Ok(want.clone()));
    }
}

#[test]
fn whether_a_server_follows_rtsp() {
    for (value, follows) in [("?1", true), ("?0", false), ("1", false)] {
        let fields = [(":status", "200"), ("millrace-rtsp", value)];
        assert_eq!(response(&fields), Ok(Response::Established));
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        assert_eq!(follows_rtsp(fields), follows, "{value}");
    }
}

#[test]
fn refused_connect_udp() {
    use H3ConnectError::*;
    for value in ["", "?1", "-4", "4611686018427387904"] {
        let error = request(&[&UDP[..], &[(RTSP_FIELD, value)]].concat()).unwrap_err();
        assert_eq!((&error, error.status(), error.is_malformed()), (&BadRtspStream, 400, false));
    }
    assert_eq!(request(&[CONNECT[0], CONNECT[1], (RTSP_FIELD, "4")]), Err(BadRtspStream));
    for missing in 2..UDP.len() {
        let mut fields = UDP.to_vec();
        let (name, _) = fields.remove(missing);
        let error = request(&fields).unwrap_err();
        assert!(matches!(error, Missing(of) if of == name), "{name}: {error}");
        assert!(error.is_malformed(), "{error}");
    }
    let with = |index: usize, value| {
        let mut fields = UDP.to_vec();
        fields[index].1 = value;
        let error = request(&fields).unwrap_err();
        (error.clone(), error.status(), error.is_malformed())
    };
    assert_eq!(with(1, "connect-ip"), (ExtendedConnect("connect-ip".into()), 501, false));
    assert_eq!(with(2, ""), (Empty(":scheme"), 400, true));
    assert_eq!(with(3, ""), (Empty(":authority"), 400, true));
    assert_eq!(with(4, "/other"), (BadPath(PathError::OtherPath), 404, false));
    let (_, status, malformed) = with(4, "/.well-known/masque/udp/192.0.2.6/0/");
    assert_eq!((status, malformed), (400, false));
}
