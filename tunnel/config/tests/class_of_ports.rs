//! The class that the configuration gives a flow.

mod support;

use std::path::Path;

use millrace_config::{Class, parse_client};
use support::known;

#[test]
fn a_port_has_the_class_of_its_entry_or_none() {
    let text = include_str!("valid/client/class_of_ports.toml");
    let config = parse_client(text, Path::new("client.toml"), &known).unwrap();
    let [recognising, configured] = &config.listen[..] else { panic!("two listeners") };
    let ports = [
        (553, None),
        (554, Some(Class::Rtsp)),
        (8553, None),
        (8554, Some(Class::Rtsp)),
        (8560, Some(Class::Rtsp)),
        (8561, None),
        (22, Some(Class::Bulk)),
        (443, None),
    ];
    for (port, class) in ports {
        assert_eq!(recognising.class_of_port(port), class, "port {port}");
        assert_eq!(configured.class_of_port(port), Some(Class::Bulk), "port {port}");
    }
    assert!(recognising.recognise_class && !configured.recognise_class);
    let classes: Vec<_> = recognising.configured_classes().collect();
    assert_eq!(classes, [Class::Rtsp, Class::Rtsp, Class::Bulk, Class::Dash]);
}
