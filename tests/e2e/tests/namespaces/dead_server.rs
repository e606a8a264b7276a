//! Flows that begin before a dead server is noticed end in time, with every `fail_mode`.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_e2e::listeners::TestListener;
use millrace_e2e::origin::{Origin, echo};
use millrace_lab::topology::{CLIENT_EDGE, ORIGIN};
use nix::sys::signal::Signal;

use crate::world::{Options, World};

/// What docs/operate/failover.md promises, and what a busy machine adds.
const MAX_SWITCH_TIME: Duration = Duration::from_millis(2000 + 700);
/// When flows begin, after the server's death.
const BEGIN_MS: [u64; 6] = [0, 300, 600, 900, 1200, 1450];

fn listen_sections(first_port: u16, fail_mode: &str) -> String {
    format!(
        "[[listen]]\nmode = \"static\"\naddress = \"{CLIENT_EDGE}:{first_port}\"\n\
         destination = \"{ORIGIN}:80\"\nfail_mode = \"{fail_mode}\"\n\
         [[listen]]\nmode = \"http_connect\"\naddress = \"{CLIENT_EDGE}:{}\"\n\
         fail_mode = \"{fail_mode}\"\n",
        first_port + 1
    )
}

fn test_listeners(first_port: u16) -> [TestListener; 2] {
    let at = |port: u16| -> SocketAddr { format!("{CLIENT_EDGE}:{port}").parse().unwrap() };
    [TestListener::Static(at(first_port)), TestListener::Http(at(first_port + 1))]
}

fn start(listen: &str) -> (World, Origin) {
    let world = World::start(&Options { listen, allow: &["198.18.3.0/24"], server: "" }, |_| {});
    let origin = world.origin(80, echo);
    (world, origin)
}

/// Whether a flow carries something; it has ended in any case.
fn works(listener: &TestListener) -> bool {
    let Ok(mut flow) = listener.open(&format!("{ORIGIN}:80")) else { return false };
    let said = flow.write_all(b"ping").and_then(|()| flow.read_exact(&mut [0; 4]));
    said.is_ok()
}

/// Begins flows at each of `listeners` from now on, and checks that each has an end in time.
fn all_end_in_time(world: &World, listeners: &[TestListener]) {
    let handle = world.topology.player.handle().unwrap();
    let handle = &handle;
    let died = Instant::now();
    std::thread::scope(|scope| {
        for listener in listeners {
            for begin_ms in BEGIN_MS {
                scope.spawn(move || {
                    handle.enter().unwrap();
                    let begin = Duration::from_millis(begin_ms);
                    std::thread::sleep(begin.saturating_sub(died.elapsed()));
                    let began = Instant::now();
                    let worked = works(listener);
                    let took = began.elapsed();
                    println!("{listener:?} after {begin_ms} ms: {took:?}, worked: {worked}");
                    assert!(took < MAX_SWITCH_TIME, "{listener:?} after {begin_ms} ms: {took:?}");
                });
            }
        }
    });
}

fn has_worked(world: &World, listeners: &[TestListener]) {
    let each = || Ok(listeners.iter().all(works));
    assert!(world.topology.player.inside(each).unwrap(), "the tunnel works at first");
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn flows_to_a_killed_server_fail_in_time_without_another_way() {
    let (mut world, _origin) = start(&listen_sections(8080, "closed"));
    let listeners = test_listeners(8080);
    has_worked(&world, &listeners);
    world.server.kill();
    all_end_in_time(&world, &listeners);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn flows_to_a_stopped_server_fail_or_bypass_in_time() {
    let allow = "[[direct.allow]]\nnetwork = \"198.18.3.0/24\"\nports = [80]\n";
    let listen =
        format!("{}{}{allow}", listen_sections(8080, "closed"), listen_sections(8090, "open"));
    let (world, _origin) = start(&listen);
    let listeners = [test_listeners(8080), test_listeners(8090)].concat();
    has_worked(&world, &listeners);
    world.server.signal(Signal::SIGSTOP);
    all_end_in_time(&world, &listeners);
    let direct = || Ok(works(&listeners[2]) && works(&listeners[3]));
    assert!(world.topology.player.inside(direct).unwrap(), "flows bypass the tunnel");
    world.server.signal(Signal::SIGCONT);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn flows_fail_in_time_while_the_interface_is_down() {
    let (world, _origin) = start(&listen_sections(8080, "closed"));
    let listeners = test_listeners(8080);
    has_worked(&world, &listeners);
    world.topology.server_edge.ip("link set wan down").unwrap();
    all_end_in_time(&world, &listeners);
}
