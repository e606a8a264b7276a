//! A path that changes under a running download: the client's own address is another one, or a NAT
//! loses its mappings.

use std::io::Read;

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::source;
use millrace_e2e::{data, wait};
use millrace_lab::process::output_of;
use millrace_lab::topology::{CLIENT_EDGE, CLIENT_EDGE_INSIDE, ORIGIN, SERVER_EDGE, Topology};

use crate::world::{Options, World};

const BYTES: usize = 20_000_000;
const SEED: u64 = 51;
/// Another address of the client edge towards the link.
const MOVED: &str = "198.18.2.77";

fn options(listen: &str) -> Options<'_> {
    let server = "congestion_control = { name = \"constant\", rate_mbps = 40 }\n";
    Options { listen, allow: &["198.18.3.0/24"], server }
}

/// How flows share connections: one that only carries a flow is watched in another way.
const CONNECTIONS: [&str; 2] = ["shared", "per_flow"];

fn listen(connections: &str) -> String {
    format!(
        "connections = \"{connections}\"\n\
         [[listen]]\nmode = \"static\"\naddress = \"{CLIENT_EDGE_INSIDE}:8080\"\n\
         destination = \"{ORIGIN}:80\"\n"
    )
}

/// Downloads everything, with `change` after each but the last of `parts`; the server must see the
/// client move each time. A flow stays on its connection: that it goes on shows that this one does.
fn survives(world: &World, parts: usize, change: impl Fn(&Topology)) {
    let _origin = world.origin(80, source(SEED, BYTES as u64));
    let to = format!("{CLIENT_EDGE_INSIDE}:8080");
    let mut flow = World::connect(&world.topology.player, &to).unwrap();
    flow.set_read_timeout(Some(wait::DEFAULT_TIMEOUT)).unwrap();
    let mut whole = vec![0; BYTES];
    let moves = || world.server.log_text().matches("peer migrated").count();
    for (index, part) in whole.chunks_mut(BYTES / parts).enumerate() {
        if index > 0 {
            let before = moves();
            change(&world.topology);
            wait::for_true("the server follows", wait::DEFAULT_TIMEOUT, || moves() > before);
        }
        let read = flow.read_exact(part);
        read.unwrap_or_else(|error| panic!("after {index} changes: {error}"));
    }
    assert!(whole == data::pattern(SEED, BYTES), "other bytes after the change");
    assert_eq!(flow.read(&mut [0]).unwrap(), 0);
    let admin = "127.0.0.1:9464".parse().unwrap();
    let client = world.topology.client_edge.inside(|| Ok(Metrics::fetch(admin))).unwrap();
    assert_eq!(client.failed_flows(), 0.0);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_download_goes_on_when_the_clients_address_changes() {
    CONNECTIONS.into_iter().for_each(goes_on_when_the_clients_address_changes);
}

fn goes_on_when_the_clients_address_changes(connections: &str) {
    let listen = listen(connections);
    let world = World::start(&options(&listen), |topology| {
        // As for the address before: nothing may be asked on the link but what the tunnel sends.
        let shown = topology.client_edge.ip("-br link show dev wan").unwrap();
        let mac = shown.split_ascii_whitespace().nth(2).unwrap();
        topology
            .server_edge
            .ip(&format!("neigh replace {MOVED} lladdr {mac} dev wan nud permanent"))
            .unwrap();
    });
    survives(&world, 2, |topology| {
        let edge = &topology.client_edge;
        edge.ip(&format!("addr del {CLIENT_EDGE}/24 dev wan")).unwrap();
        edge.ip(&format!("addr add {MOVED}/24 dev wan")).unwrap();
        edge.ip(&format!("route replace 198.18.0.0/15 via {SERVER_EDGE}")).unwrap();
    });
}

/// Each time the NAT maps the client's port to another one, of which the client sees nothing. More
/// often than a connection has paths and connection IDs.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_download_goes_on_when_a_nat_loses_its_mappings() {
    CONNECTIONS.into_iter().for_each(goes_on_when_a_nat_loses_its_mappings);
}

fn goes_on_when_a_nat_loses_its_mappings(connections: &str) {
    let listen = listen(connections);
    let world = World::start(&options(&listen), |topology| {
        for command in [
            "add table ip nat",
            "add chain ip nat out { type nat hook postrouting priority srcnat; }",
            "add rule ip nat out udp dport 4433 masquerade to :50000-60000 fully-random",
        ] {
            output_of(topology.client_edge.command("nft").arg(command)).unwrap();
        }
    });
    survives(&world, 9, |topology| {
        let mut forget = topology.client_edge.command("conntrack");
        output_of(forget.args(["--delete", "--proto", "udp", "--orig-port-dst", "4433"])).unwrap();
    });
}
