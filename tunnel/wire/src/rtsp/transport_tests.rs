use super::*;

#[test]
fn parameters_are_read_changed_and_removed() {
    let value = "RTP/AVP/UDP; Unicast ;mode=\"PLAY,a;b\";DESTINATION = 198.18.0.9;";
    let mut transport = TransportHeader::parse(value);
    assert_eq!(transport.to_string(), value);
    let spec = transport.first_mut().unwrap();
    assert_eq!((spec.get("unicast"), spec.get("destination")), (Some(""), Some("198.18.0.9")));
    assert_eq!(spec.get("mode"), Some("\"PLAY,a;b\""));
    spec.remove("destination");
    spec.set("source", "198.18.0.1");
    spec.set("MODE", "PLAY");
    assert_eq!(transport.to_string(), "RTP/AVP/UDP; Unicast ;MODE=PLAY;source=198.18.0.1;");
    // What would come behind a quote that does not end belongs to the quoted text.
    let mut open = TransportHeader::parse("RTP/AVP;mode=\"PLAY");
    open.first_mut().unwrap().set("source", "198.18.0.1");
    assert_eq!(open.to_string(), "RTP/AVP;source=198.18.0.1;mode=\"PLAY");
    // The protocol stays the first part.
    let mut protocol = TransportHeader::parse("RTP/AVP\"");
    protocol.first_mut().unwrap().set("source", "198.18.0.1");
    assert_eq!(protocol.to_string(), "RTP/AVP\";source=198.18.0.1");
    protocol.first_mut().unwrap().remove("rtp/avp\"");
    assert_eq!(protocol.to_string(), "RTP/AVP\";source=198.18.0.1");
}

#[test]
fn a_parameter_is_set_at_its_place_or_at_the_end() {
    let set = |value: &str, name: &str, to: &str| {
        let mut transport = TransportHeader::parse(value);
        transport.first_mut().unwrap().set(name, to);
        transport.to_string()
    };
    assert_eq!(set("RTP/AVP", "ssrc", "1"), "RTP/AVP;ssrc=1");
    assert_eq!(set("RTP/AVP;unicast", "ssrc", "1"), "RTP/AVP;unicast;ssrc=1");
    assert_eq!(set("RTP/AVP;a;ssrc=2;b", "ssrc", "1"), "RTP/AVP;a;ssrc=1;b");
    assert_eq!(set("RTP/AVP;a;ssrc=2;b", "ssrc", ""), "RTP/AVP;a;ssrc;b");
    assert_eq!(set("RTP/AVP;unicast", "rtp/avp", "1"), "RTP/AVP;unicast;rtp/avp=1");
    assert_eq!(set("RTP/AVP;mode=\"PLAY\"", "ssrc", "1"), "RTP/AVP;mode=\"PLAY\";ssrc=1");
    // Three quotes: the second text does not end.
    assert_eq!(set("RTP/AVP;a=\"b\"\"c", "ssrc", "1"), "RTP/AVP;ssrc=1;a=\"b\"\"c");
}

#[test]
fn a_parameter_is_removed_however_often_it_is_there() {
    let mut transport = TransportHeader::parse("RTP/AVP;ttl=1;unicast; TTL ;ttl =2;x");
    transport.first_mut().unwrap().remove("ttl");
    assert_eq!(transport.to_string(), "RTP/AVP;unicast;x");
}

#[test]
fn ports_are_read_of_the_parameter_with_that_name() {
    let transport = TransportHeader::parse("RTP/AVP;client_port=5000-5001;server_port=x;port");
    let spec = &transport.specs()[0];
    assert_eq!(spec.ports("client_port"), Some(PortPair { rtp: 5000, rtcp: 5001 }));
    for name in ["server_port", "port", "destination", "RTP/AVP"] {
        assert_eq!(spec.ports(name), None, "{name}");
    }
}

#[test]
fn several_fields_are_one_list() {
    let fields = ["RTP/AVP;unicast,RTP/AVP/TCP", "", "MP2T/RTP/UDP;\r\n\tttl=1"];
    let joined = TransportHeader::join(fields.map(TransportHeader::parse));
    assert_eq!(joined.to_string(), "RTP/AVP;unicast,RTP/AVP/TCP,MP2T/RTP/UDP;  \tttl=1");
    assert_eq!(joined.specs()[2].get("ttl"), Some("1"));
    assert!(TransportHeader::join([]).is_empty());
}

#[test]
fn media_over_udp_are_told_from_others() {
    for (value, is_udp) in [
        ("RTP/AVP;unicast;client_port=1-2", true),
        ("rtp/avpf/udp;unicast", true),
        ("RTP/SAVP", true),
        ("MP2T/RTP/UDP;unicast", true),
        ("RAW/RAW/UDP;unicast", true),
        ("RTP/AVP/TCP;unicast;interleaved=0-1", false),
        ("RTP/AVP;interleaved=0-1", false),
        ("MP2T/RTP/TCP", false),
        ("X", false),
        ("UDP", false),
        ("RAW/UDP", true),
        (" ;unicast", false),
    ] {
        let mut transport = TransportHeader::parse(value);
        assert_eq!(transport.first_mut().unwrap().is_udp(), is_udp, "{value}");
    }
    assert!(TransportHeader::parse(" , ").is_empty());
    assert!(!TransportHeader::parse("RTP/AVP").is_empty());
    assert!(TransportHeader::parse("RTP/AVP;multicast").specs()[0].is_multicast());
    let own = TransportHeader::udp();
    assert!(own.specs()[0].is_udp() && !own.specs()[0].is_multicast());
    assert_eq!(own.to_string(), "RTP/AVP;unicast");
}

#[test]
fn transports_that_are_not_kept_are_not_written() {
    let mut transport =
        TransportHeader::parse("RTP/AVP;unicast, RTP/AVP/TCP;interleaved=0-1,RTP/AVPF");
    transport.retain(|spec| !spec.is_udp());
    assert_eq!(transport.to_string(), " RTP/AVP/TCP;interleaved=0-1");
}

#[test]
fn port_pairs() {
    let pair = |rtp, rtcp| Some(PortPair { rtp, rtcp });
    for (text, want) in [
        ("5000-5001", pair(5000, 5001)),
        (" 5000 - 5003 ", pair(5000, 5003)),
        ("5000", pair(5000, 5001)),
        ("5000-5000", pair(5000, 5000)),
        ("65534", pair(65534, 65535)),
        ("65535", None),
        ("1-65535", pair(1, 65535)),
        ("1", pair(1, 2)),
        ("5000-0", None),
        ("-5001", None),
        ("", None),
        ("1-2-3", None),
        ("5 000-5001", None),
        ("0-1", None),
        ("5000-", None),
        ("+5000-5001", None),
        ("5000-65536", None),
    ] {
        assert_eq!(PortPair::parse(text), want, "{text:?}");
    }
    assert_eq!(PortPair { rtp: 5000, rtcp: 5003 }.to_string(), "5000-5003");
}
