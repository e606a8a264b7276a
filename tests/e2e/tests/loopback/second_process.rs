//! A second process on the same addresses is refused, with one worker and with two, unless it inherits the
//! socket.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, run_with};
use millrace_e2e::program::Program;
use millrace_e2e::{binaries, wait};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::Signal;

/// Starts a copy of a program whose admin listener would not stand in its way.
fn start_second(pair: &Pair, side: &str) -> (Option<i32>, String) {
    let path = pair.dir().join(format!("{side}.toml"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| match line.contains("address = ") {
        // The first is the admin listener's.
        true if line.contains(&pair.addresses.server_admin.to_string())
            || line.contains(&pair.addresses.client_admin.to_string()) =>
        {
            "address = \"none\""
        }
        _ => line,
    });
    let second = pair.dir().join(format!("second-{side}.toml"));
    std::fs::write(&second, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let program = if side == "server" { binaries::server() } else { binaries::client() };
    let ended = Program::run(side, run_with(program, &second), wait::DEFAULT_TIMEOUT);
    (ended.code, ended.output)
}

#[test]
fn second_process_on_the_same_address_is_refused() {
    for workers in [1, 2] {
        let mut pair = Pair::builder().both("runtime.workers", workers).start();
        let (code, output) = start_second(&pair, "server");
        let address = format!("can't bind tunnel.listen {}", pair.addresses.tunnel);
        assert!(code.is_some_and(|code| code != 0), "{output}");
        assert!(output.contains(&address) && output.contains("another process"), "{output}");
        assert_eq!(output.matches("os error").count(), 1, "{output}");
        let (code, output) = start_second(&pair, "client");
        assert!(code.is_some_and(|code| code != 0), "{output}");
        assert!(output.contains("another process"), "{output}");
        assert_eq!(output.matches("os error").count(), 1, "{output}");
        pair.assert_running();
    }
}

/// Starts the server as a service manager does that has bound `socket`.
fn start_with_socket(socket: &UdpSocket, config: &Path) -> Program {
    const PASS_ON: &str = "exec 3<&\"$1\"; shift; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\"";
    fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty())).expect("an open socket");
    let server = run_with(binaries::server(), config);
    let mut command = Command::new("bash");
    command.args(["-c", PASS_ON, "bash", &socket.as_raw_fd().to_string()]);
    command.arg(server.get_program()).args(server.get_args());
    Program::start("millrace-server", command)
}

fn echoes(pair: &Pair, origin: &Origin) -> bool {
    const WORDS: &[u8; 18] = b"through the tunnel";
    let Ok(mut flow) = pair.http().open(&origin.address().to_string()) else { return false };
    let mut answer = [0; 18];
    flow.write_all(WORDS).and_then(|()| flow.read_exact(&mut answer)).is_ok() && answer == *WORDS
}

#[test]
fn server_takes_over_a_socket_that_it_inherits() {
    for workers in [1, 2] {
        let mut pair = Pair::builder().both("runtime.workers", workers).start();
        let origin = Origin::echo();
        pair.server.signal(Signal::SIGTERM);
        pair.server.wait(wait::DEFAULT_TIMEOUT);
        let socket = UdpSocket::bind(pair.addresses.tunnel).expect("the server has ended");
        let (_, output) = start_second(&pair, "server");
        assert!(output.contains("another process"), "{output}");
        let config = pair.dir().join("server.toml");
        for _ in ["start", "restart"] {
            pair.server = start_with_socket(&socket, &config);
            pair.server.expect_log("the inherited socket", wait::DEFAULT_TIMEOUT, |line| {
                line.contains("\"inherited\":1").then_some(())
            });
            wait::for_true("a flow through the server", wait::DEFAULT_TIMEOUT, || {
                echoes(&pair, &origin)
            });
            pair.server.kill();
        }
        let other = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let mut refused = start_with_socket(&other, &config);
        assert!(!refused.wait(wait::DEFAULT_TIMEOUT).success());
        let address = other.local_addr().expect("bound").to_string();
        assert!(refused.log_text().contains(&address), "{}", refused.log_text());
    }
}
