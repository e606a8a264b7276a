//! Few local ports at the server: destinations share them, and a shortage is reported as such.

use std::io::{Read, Write};

use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::echo;
use millrace_e2e::wait;
use millrace_lab::topology::{ORIGIN, SERVER_EDGE_INSIDE};
use socket2::Socket;

use crate::world::{Options, World, listen_section};

const PORTS: usize = 20;
const FLOWS_OF_EACH: usize = 12;

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn flows_to_several_origins_share_local_ports_and_their_shortage_is_reported() {
    let server = format!("[dial]\nbind_source = [\"{SERVER_EDGE_INSIDE}\"]\n");
    let listen = listen_section("http_connect", 3128);
    let options = Options { listen: &listen, allow: &["198.18.3.0/24"], server: &server };
    let world = World::start(&options, |topology| {
        let range = format!("40000 {}", 40_000 + PORTS - 1);
        let edge = &topology.server_edge;
        // One argument of its own: the value has a space.
        edge.sysctl("net.ipv4.ip_local_port_range", &range).unwrap();
    });
    let _origins = [80, 81].map(|port| world.origin(port, echo));
    let http = TestListener::Http("198.18.2.1:3128".parse().unwrap());
    let open = |port: u16| {
        let to = format!("{ORIGIN}:{port}");
        world.topology.player.inside(|| Ok(http.open(&to))).unwrap()
    };
    let works = |mut flow: &Socket| {
        flow.write_all(b"x").unwrap();
        flow.read_exact(&mut [0]).unwrap();
    };
    let mut flows = Vec::new();
    for port in [80, 81] {
        for number in 0..FLOWS_OF_EACH {
            let flow = open(port).unwrap_or_else(|it| panic!("flow {number} to {port}: {it:?}"));
            works(&flow);
            flows.push(flow);
        }
    }
    let refusal = (0..PORTS).find_map(|_| match open(80) {
        Ok(flow) => {
            flows.push(flow);
            None
        }
        Err(refusal) => Some(refusal),
    });
    match refusal.expect("more flows to one origin than ports") {
        Refusal::Http { status: 503, head } => {
            assert!(head.contains("local resources exhausted"), "{head}");
        }
        other => panic!("{other:?}"),
    }
    world.server.expect_log("the shortage", wait::DEFAULT_TIMEOUT, |line| {
        line.contains("ip_local_port_range").then_some(())
    });
    // The other origin is not concerned, and neither are the flows that run.
    flows.push(open(81).unwrap());
    flows.iter().for_each(works);
}
