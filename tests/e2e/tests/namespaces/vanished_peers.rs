//! Viewers and origins that disappear without FIN or RST are given up, paused ones stay.

use std::io::Read;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::data;
use millrace_e2e::origin::source;
use millrace_e2e::tcp::End;
use millrace_e2e::wait;
use millrace_lab::netns::Namespace;
use millrace_lab::topology::{CLIENT_EDGE, ORIGIN};

use crate::world::{Options, World};

/// Seconds, the least that the configuration takes.
const LIMITS: &str = "[limits]\ntcp_user_timeout_s = 1\ntcp_probe_timeout_s = 5\n";
/// Both time-outs, and what the checks and a busy machine add.
const GIVEN_UP: Duration = Duration::from_secs(15);
const ADMINS: [&str; 2] = ["127.0.0.1:9464", "127.0.0.1:9465"];
/// More than the buffers of both edges and of the viewer hold.
const PAUSED_BYTES: u64 = 96 << 20;
/// More than a test lives to see.
const ENDLESS: u64 = 1 << 40;

fn fixed(port: u16, to: u16, more: &str) -> String {
    format!(
        "[[listen]]\nmode = \"static\"\naddress = \"{CLIENT_EDGE}:{port}\"\n\
         destination = \"{ORIGIN}:{to}\"\n{more}\n"
    )
}

fn start() -> World {
    let listen = format!(
        "{}{}{}{LIMITS}",
        fixed(8080, 80, "fail_mode = \"open\""),
        fixed(8081, 81, "fail_mode = \"open\""),
        fixed(8082, 82, ""),
    );
    World::start(&Options { listen: &listen, allow: &["198.18.3.0/24"], server: LIMITS }, |_| {})
}

fn metric(edge: &Namespace, admin: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let admin: SocketAddr = admin.parse().unwrap();
    edge.inside(|| Ok(Metrics::fetch(admin))).unwrap().sum(name, labels)
}

fn vanished(edge: &Namespace, admin: &str) -> f64 {
    metric(edge, admin, "millrace_flows_finished_total", &[("outcome", "tcp_timeout")])
}

fn listener_address(port: u16) -> String {
    format!("{CLIENT_EDGE}:{port}")
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn vanished_viewers_are_given_up_and_a_paused_one_stays() {
    let world = start();
    let [client, server] = [&world.topology.client_edge, &world.topology.server_edge];
    let player = &world.topology.player;
    let _endless = world.origin(80, source(1, ENDLESS));
    let _idle_origin = world.origin(81, |mut stream| drop(stream.read(&mut [0])));
    let _paused_origin = world.origin(82, source(2, PAUSED_BYTES));

    // Its host answers the kernel's zero-window probes.
    let stays = World::connect(client, &listener_address(8082)).unwrap();
    let paused = World::connect(player, &listener_address(8082)).unwrap();
    let idle = World::connect(player, &listener_address(8081)).unwrap();
    let mut download = World::connect(player, &listener_address(8080)).unwrap();
    download.read_exact(&mut vec![0; 1 << 20]).unwrap();
    let reading = download.try_clone().unwrap();
    let reader = std::thread::spawn(move || data::receive_until_error(&reading).0.bytes);
    wait::for_true("all flows run", wait::DEFAULT_TIMEOUT, || {
        metric(server, ADMINS[1], "millrace_flows_active", &[]) == 4.0
    });

    player.ip("link set eth0 down").unwrap();
    wait::for_true("the vanished viewers are given up", GIVEN_UP, || {
        vanished(client, ADMINS[0]) == 3.0
    });
    wait::for_true("the server has the paused flow only", wait::DEFAULT_TIMEOUT, || {
        metric(server, ADMINS[1], "millrace_flows_active", &[]) == 1.0
    });
    assert_eq!(metric(client, ADMINS[0], "millrace_flows_active", &[]), 1.0);
    assert_eq!(vanished(server, ADMINS[1]), 0.0, "all origins are there");
    let sum = data::receive(&stays).unwrap();
    assert_eq!(sum, data::send(std::io::sink(), 2, PAUSED_BYTES).unwrap());
    drop((paused, idle));
    download.shutdown(Shutdown::Both).unwrap();
    reader.join().unwrap();
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn vanished_origins_are_given_up_in_an_upload() {
    let mut world = start();
    let origin = world.origin(80, |stream| drop(data::receive_until_error(&stream)));
    let upload = |world: &World| {
        let flow = World::connect(&world.topology.player, &listener_address(8080)).unwrap();
        data::send(&flow, 3, 1 << 20).unwrap();
        std::thread::spawn(move || End::of(data::send(&flow, 4, ENDLESS).err().as_ref()))
    };
    let link = |world: &World, state: &str| {
        world.topology.origin.ip(&format!("link set eth0 {state}")).unwrap();
        if state == "up" {
            // Routes go with the interface.
            let route = "route replace 198.18.0.0/15 via 198.18.3.1";
            world.topology.origin.ip(route).unwrap();
        }
    };
    let through_tunnel = upload(&world);
    wait::for_true("the upload runs", wait::DEFAULT_TIMEOUT, || origin.accepted() == 1);
    link(&world, "down");
    assert_eq!(through_tunnel.join().unwrap(), End::Reset);
    assert_eq!(vanished(&world.topology.server_edge, ADMINS[1]), 1.0);
    link(&world, "up");

    // The same for bypassed flows.
    world.server.kill();
    let client = |world: &World, name| metric(&world.topology.client_edge, ADMINS[0], name, &[]);
    let mut bypassed = None;
    wait::for_true("a flow goes direct", wait::DEFAULT_TIMEOUT, || {
        let flow = upload(&world);
        let is_direct = wait::until(Duration::from_secs(2), || {
            (client(&world, "millrace_flows_direct_total") > 0.0).then_some(())
        });
        bypassed = is_direct.map(|()| flow);
        bypassed.is_some()
    });
    link(&world, "down");
    assert_eq!(bypassed.unwrap().join().unwrap(), End::Reset);
    wait::for_true("no flow is left", wait::DEFAULT_TIMEOUT, || {
        client(&world, "millrace_flows_active") == 0.0
    });
    assert!(vanished(&world.topology.client_edge, ADMINS[0]) >= 1.0);
}

/// Of bypassed flows the viewer's socket and the origin's are in one process.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn vanished_viewers_of_bypassed_flows_are_given_up() {
    let mut world = start();
    let _endless = world.origin(80, source(5, ENDLESS));
    world.server.kill();
    let client = &world.topology.client_edge;
    let mut byte = [0];
    let download = wait::until(wait::DEFAULT_TIMEOUT, || {
        let mut flow = World::connect(&world.topology.player, &listener_address(8080)).ok()?;
        flow.read_exact(&mut byte).is_ok().then_some(flow)
    });
    let download = download.expect("a bypassed flow");
    let reading = download.try_clone().unwrap();
    let reader = std::thread::spawn(move || data::receive_until_error(&reading).0.bytes);
    let before = vanished(client, ADMINS[0]);
    world.topology.player.ip("link set eth0 down").unwrap();
    wait::for_true("the viewer is given up", GIVEN_UP, || {
        vanished(client, ADMINS[0]) == before + 1.0
    });
    wait::for_true("no flow is left", wait::DEFAULT_TIMEOUT, || {
        metric(client, ADMINS[0], "millrace_flows_active", &[]) == 0.0
    });
    download.shutdown(Shutdown::Both).unwrap();
    reader.join().unwrap();
}
