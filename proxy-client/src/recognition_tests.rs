use std::path::Path;

use super::*;
use crate::connection_group::Grouping;

const RTSP: &[u8] = b"OPTIONS * RTSP/1.0\r\n";

fn classes(listen: &str) -> ListenerClasses {
    let text = format!(
        "[tunnel]\nservers = [\"198.18.2.2:4433\"]\nserver_name = \"a\"\nca = \"ca.pem\"\n\
         certificate = \"a.pem\"\nprivate_key = \"a.key\"\n[[listen]]\nmode = \"tproxy\"\n\
         address = \"127.0.0.1:1\"\n{listen}\n"
    );
    let known = &millrace_tunnel::algorithms::check;
    let config = millrace_config::parse_client(&text, Path::new("client.toml"), known).unwrap();
    Grouping::new(&config.listen, &config.tunnel.transport, None).unwrap().listeners.remove(0)
}

fn classification(listen: &str, port: u16, bytes: &[u8]) -> Option<(Class, bool)> {
    let found = Classification::of_bytes(&classes(listen), port, bytes);
    found.map(|it| (it.class, it.follows_rtsp))
}

#[test]
fn first_bytes_decide_the_class_on_every_port() {
    let cases: [(&[u8], Class, bool); 7] = [
        (RTSP, Class::Rtsp, true),
        (b"GET / HTTP/1.0\r\nx-sessioncookie: a\r\n\r\n", Class::Rtsp, false),
        (b"GET /?CMCD=bl%3D1 HTTP/1.1\r\n", Class::Dash, false),
        (b"GET /a.mpd HTTP/1.1\r\n", Class::Dash, false),
        (b"GET / HTTP/1.1\r\n\r\n", Class::Bulk, false),
        (b"\x16\x03\x01\x02", Class::Bulk, false),
        (b"\0\0\0", Class::Bulk, false),
    ];
    for (bytes, class, rtsp) in cases {
        for port in [80, 443, 554, 8554] {
            assert_eq!(classification("", port, bytes), Some((class, rtsp)), "{bytes:?}");
        }
    }
    assert_eq!(classification("", 80, b"GET "), None);
    assert_eq!(classification("class = \"dash\"", 443, b"\x16\x03"), Some((Class::Dash, false)));
    // A method that is not in the list, at a listener for RTSP.
    let class = Some((Class::Rtsp, true));
    assert_eq!(classification("class = \"rtsp\"", 554, b"X-START a RTSP/1.0\r\n"), class);
}

#[test]
fn rtsp_over_tls_is_told_by_the_port_or_the_class_of_the_listener() {
    let is_rtsps = |listen, port, bytes: &[u8]| {
        Classification::of_bytes(&classes(listen), port, bytes).unwrap().is_rtsp_over_tls(port)
    };
    let tls = b"\x16\x03\x01\x02";
    assert!(is_rtsps("", 322, tls) && is_rtsps("", 8322, tls));
    assert!(is_rtsps("class = \"rtsp\"", 443, tls));
    assert!(!is_rtsps("", 443, tls) && !is_rtsps("", 322, RTSP));
}

#[test]
fn a_configured_port_is_not_recognised_and_not_waited_for() {
    let listen = "class_of_ports = [{ ports = [\"8000-8100\"], class = \"dash\" }, \
                  { ports = [554], class = \"rtsp\" }]";
    for bytes in [b"".as_slice(), RTSP] {
        let dash = Some((Class::Dash, true));
        assert_eq!(classification(listen, 8100, bytes), dash);
        assert_eq!(classification(listen, 554, bytes), Some((Class::Rtsp, true)));
        let off = format!("recognise_class = false\n{listen}");
        assert_eq!(classification(&off, 8100, bytes), Some((Class::Dash, false)));
        assert_eq!(classification(&off, 554, bytes), Some((Class::Rtsp, true)));
        assert_eq!(classification(&off, 80, bytes), Some((Class::Bulk, false)));
    }
    assert_eq!(classification(listen, 80, b""), None);
}

#[test]
fn rtsp_is_followed_later_where_the_first_bytes_came_too_late() {
    for (class, rtsp) in [(Class::Rtsp, true), (Class::Dash, true), (Class::Bulk, true)] {
        let undecided = Classification::undecided(class);
        assert_eq!((undecided.class, undecided.follows_rtsp), (class, rtsp));
        assert_eq!(undecided.by, FlowRecognition::Undecided);
    }
}

#[test]
fn the_queue_wakes_for_flows_that_are_still_held() {
    let (now, mut queue) = (Instant::now(), FirstBytesQueue::default());
    for key in 0..4 {
        queue.add(now + Duration::from_millis(key), key);
    }
    queue.remove_decided(|key| key == 1 || key == 3);
    assert_eq!(queue.next_deadline(), Some(now + Duration::from_millis(1)));
    queue.remove_decided(|key| key == 3);
    assert_eq!(queue.next_deadline(), Some(now + Duration::from_millis(3)));
    queue.remove_decided(|_| false);
    assert_eq!(queue.next_deadline(), None);
}
