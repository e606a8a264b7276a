//! Flows that begin before a dead server is noticed end in time, with every `on_failure`.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_e2e::doors::Door;
use millrace_e2e::origin::{Origin, echo};
use millrace_lab::topology::{CLIENT_EDGE, ORIGIN};
use nix::sys::signal::Signal;

use crate::world::{Options, World};

/// What docs/recovery.md promises, and what a busy machine adds.
const AT_MOST: Duration = Duration::from_millis(2000 + 700);
/// When flows begin, after the server's death.
const BEGIN_MS: [u64; 6] = [0, 300, 600, 900, 1200, 1450];

fn listeners(first_port: u16, on_failure: &str) -> String {
    format!(
        "[[listen]]\nmode = \"fixed\"\naddress = \"{CLIENT_EDGE}:{first_port}\"\n\
         destination = \"{ORIGIN}:80\"\non_failure = \"{on_failure}\"\n\
         [[listen]]\nmode = \"http_connect\"\naddress = \"{CLIENT_EDGE}:{}\"\n\
         on_failure = \"{on_failure}\"\n",
        first_port + 1
    )
}

fn doors(first_port: u16) -> [Door; 2] {
    let at = |port: u16| -> SocketAddr { format!("{CLIENT_EDGE}:{port}").parse().unwrap() };
    [Door::Fixed(at(first_port)), Door::Http(at(first_port + 1))]
}

fn start(listen: &str) -> (World, Origin) {
    let world = World::start(&Options { listen, allow: &["198.18.3.0/24"], server: "" }, |_| {});
    let origin = world.origin(80, echo);
    (world, origin)
}

/// Whether a flow carries something; it has ended in any case.
fn works(door: &Door) -> bool {
    let Ok(mut flow) = door.open(&format!("{ORIGIN}:80")) else { return false };
    let said = flow.write_all(b"ping").and_then(|()| flow.read_exact(&mut [0; 4]));
    said.is_ok()
}

/// Begins flows at each of `doors` from now on, and checks that each has an end in time.
fn all_end_in_time(world: &World, doors: &[Door]) {
    let entrance = world.topology.player.entrance().unwrap();
    let entrance = &entrance;
    let died = Instant::now();
    std::thread::scope(|scope| {
        for door in doors {
            for begin_ms in BEGIN_MS {
                scope.spawn(move || {
                    entrance.enter().unwrap();
                    let begin = Duration::from_millis(begin_ms);
                    std::thread::sleep(begin.saturating_sub(died.elapsed()));
                    let began = Instant::now();
                    let worked = works(door);
                    let took = began.elapsed();
                    println!("{door:?} after {begin_ms} ms: {took:?}, worked: {worked}");
                    assert!(took < AT_MOST, "{door:?} after {begin_ms} ms: {took:?}");
                });
            }
        }
    });
}

fn has_worked(world: &World, doors: &[Door]) {
    let each = || Ok(doors.iter().all(works));
    assert!(world.topology.player.inside(each).unwrap(), "the tunnel works at first");
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn flows_to_a_killed_server_fail_in_time_without_another_way() {
    let (mut world, _origin) = start(&listeners(8080, "reset"));
    let doors = doors(8080);
    has_worked(&world, &doors);
    world.server.kill();
    all_end_in_time(&world, &doors);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn flows_to_a_stopped_server_fail_or_bypass_in_time() {
    let allow = "[[direct.allow]]\nnetwork = \"198.18.3.0/24\"\nports = [80]\n";
    let listen = format!("{}{}{allow}", listeners(8080, "reset"), listeners(8090, "direct"));
    let (world, _origin) = start(&listen);
    let doors = [doors(8080), doors(8090)].concat();
    has_worked(&world, &doors);
    world.server.signal(Signal::SIGSTOP);
    all_end_in_time(&world, &doors);
    let direct = || Ok(works(&doors[2]) && works(&doors[3]));
    assert!(world.topology.player.inside(direct).unwrap(), "flows go past the tunnel");
    world.server.signal(Signal::SIGCONT);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn flows_fail_in_time_while_the_interface_is_down() {
    let (world, _origin) = start(&listeners(8080, "reset"));
    let doors = doors(8080);
    has_worked(&world, &doors);
    world.topology.server_edge.ip("link set wan down").unwrap();
    all_end_in_time(&world, &doors);
}
