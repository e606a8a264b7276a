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
        ("65535", None),
        ("0-1", None),
        ("5000-", None),
        ("+5000-5001", None),
        ("5000-65536", None),
    ] {
        assert_eq!(PortPair::parse(text), want, "{text:?}");
    }
    assert_eq!(PortPair { rtp: 5000, rtcp: 5003 }.to_string(), "5000-5003");
}
