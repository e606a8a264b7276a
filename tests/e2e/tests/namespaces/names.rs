//! Names as the system's files say: hosts, search and ndots, and files that change.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;

use millrace_e2e::dns::{Answer, NameServer};
use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::echo;
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use millrace_lab::netns::Namespace;
use millrace_lab::topology::ORIGIN;

use crate::world::{Options, World, listen_section};

/// Files that `ip netns exec` puts in place of those of /etc (ip-netns(8)); removed when dropped.
struct Etc(PathBuf);

impl Etc {
    fn of(namespace: &Namespace) -> Self {
        let etc = Self(PathBuf::from("/etc/netns").join(namespace.name()));
        fs::create_dir_all(&etc.0).unwrap();
        etc
    }

    /// In place: the file is bound over the other one.
    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Etc {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
        // Only if it is empty.
        fs::remove_dir("/etc/netns").ok();
    }
}

fn name_server(namespace: &Namespace, ip: &str, names: &[(&str, Answer)]) -> NameServer {
    let address: SocketAddr = format!("{ip}:53").parse().unwrap();
    let socket = namespace.inside(|| Ok(UdpSocket::bind(address)?)).unwrap();
    NameServer::on(socket, names)
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn hosts_search_and_ndots_are_followed_and_changes_are_seen() {
    let listen = listen_section("http_connect", 3128);
    let options = Options { listen: &listen, allow: &["198.18.0.0/15"], server: "" };
    let (mut etc, mut servers) = (None, Vec::new());
    let world = World::start(&options, |topology| {
        let edge = &topology.server_edge;
        let files = Etc::of(edge);
        files.write("hosts", &format!("127.0.0.1 localhost\n{ORIGIN} origin-by-hosts\n"));
        files.write("resolv.conf", "search corp.test\noptions ndots:2\nnameserver 127.0.0.1\n");
        etc = Some(files);
        servers.push(name_server(
            edge,
            "127.0.0.1",
            &[
                ("origin.corp.test", Answer::address(ORIGIN)),
                ("a.b.corp.test", Answer::address(ORIGIN)),
                ("absolute.test", Answer::address(ORIGIN)),
            ],
        ));
        servers.push(name_server(edge, "127.0.0.2", &[("moved.test", Answer::address(ORIGIN))]));
    });
    let (etc, servers) = (etc.unwrap(), servers);
    let origin = world.origin(8080, echo);
    let http = TestListener::Http("198.18.2.1:3128".parse().unwrap());
    let open = |name: &str| {
        let opened = || Ok(http.open(&format!("{name}:8080")).map(drop));
        world.topology.player.inside(opened).unwrap()
    };
    for name in ["origin-by-hosts", "ORIGIN-by-hosts", "origin", "a.b", "absolute.test"] {
        open(name).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    assert_eq!(origin.accepted(), 5);
    assert_eq!(servers[0].asked("origin-by-hosts"), 0, "what hosts has is not asked for");
    // ndots: with fewer dots the search list comes first, and the name itself is not asked for.
    assert_eq!(servers[0].asked("a.b"), 0);
    assert!(servers[0].asked("a.b.corp.test") > 0);
    assert!(matches!(open("moved.test"), Err(Refusal::Http { status: 502, .. })));

    etc.write("resolv.conf", "nameserver 127.0.0.2\n");
    wait::for_true("the changed resolv.conf is used", DEFAULT_TIMEOUT, || {
        open("moved.test").is_ok()
    });
    etc.write("hosts", &format!("{ORIGIN} added-to-hosts\n"));
    wait::for_true("the changed hosts file is used", DEFAULT_TIMEOUT, || {
        open("added-to-hosts").is_ok()
    });
}
