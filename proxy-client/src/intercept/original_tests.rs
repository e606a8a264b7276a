use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};

use millrace_tunnel::address_sharing::AddressSharing;

use super::*;
use crate::intercept::listen_tcp;

/// Accepts a connection that was made straight to a listener on `bind`.
fn accepted_on(bind: IpAddr, connect: IpAddr) -> (TcpStream, SocketAddr, TcpStream) {
    let listener = listen_tcp((bind, 0).into(), false, AddressSharing::Alone).unwrap();
    listener.set_nonblocking(false).unwrap();
    let listening = listener.local_addr().unwrap();
    let client = TcpStream::connect((connect, listening.port())).unwrap();
    (listener.accept().unwrap().0, listening, client)
}

const PAIRS: [(IpAddr, IpAddr); 4] = [
    (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)),
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::LOCALHOST)),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::LOCALHOST)),
];

#[test]
fn a_connection_to_a_transparent_listener_itself_is_a_loop() {
    for (bind, connect) in PAIRS {
        let (accepted, listening, _client) = accepted_on(bind, connect);
        let error =
            original_destination(KernelInterception::Tproxy, &accepted, listening).unwrap_err();
        let itself = SocketAddr::from((connect, listening.port()));
        assert!(matches!(error, OriginalDestinationError::Loop(to) if to == itself), "{error}");
    }
}

#[test]
fn a_connection_to_a_redirecting_listener_itself_is_refused() {
    for (bind, connect) in PAIRS {
        let (accepted, listening, _client) = accepted_on(bind, connect);
        // Which error depends on whether connection tracking is loaded.
        original_destination(KernelInterception::Redirect, &accepted, listening).unwrap_err();
    }
}

#[test]
fn another_port_or_another_hosts_address_is_no_loop() {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    for (original, listening, expected) in [
        ("127.0.0.1:80", "127.0.0.1:15001", false),
        ("127.0.0.1:15001", "127.0.0.1:15001", true),
        ("127.0.0.1:15001", "0.0.0.0:15001", true),
        ("198.18.0.1:15001", "0.0.0.0:15001", false),
        ("198.18.0.1:15001", "127.0.0.1:15001", false),
        ("[::1]:15001", "[::]:15001", true),
        ("[2001:db8::1]:15001", "[::]:15001", false),
        ("127.0.0.1:15001", "[::]:15001", false),
    ] {
        assert_eq!(is_listener(at(original), at(listening)), expected, "{original} {listening}");
    }
}
