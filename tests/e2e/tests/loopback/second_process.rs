//! A second process on the same addresses is refused, with one worker and with two.

use millrace_e2e::pair::{Pair, run_with};
use millrace_e2e::program::Program;
use millrace_e2e::{binaries, wait};

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
    let ended = Program::run(side, run_with(program, &second), wait::SOON);
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
        let (code, output) = start_second(&pair, "client");
        assert!(code.is_some_and(|code| code != 0), "{output}");
        assert!(output.contains("another process"), "{output}");
        pair.assert_running();
    }
}
