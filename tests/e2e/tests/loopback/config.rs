//! Wrong configurations: told with file, line and what would be right, exit code 64, nothing bound.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_e2e::certificates::{Authority, Certificates, SERVER_NAME};
use millrace_e2e::program::{Ended, Program};
use millrace_e2e::{binaries, test_lock, wait};

fn program(side: &str) -> Command {
    if side == "client" { binaries::client() } else { binaries::server() }
}

fn run(side: &str, verb: &str, config: &Path) -> Ended {
    let mut command = program(side);
    command.args([verb, "--config"]).arg(config);
    Program::run(side, command, wait::DEFAULT_TIMEOUT)
}

fn samples(side: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tunnel/config/tests/invalid");
    let entries = fs::read_dir(root.join(side)).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Every sample of a wrong configuration, with both commands.
#[test]
fn wrong_files_are_refused_with_their_place() {
    let _lock = test_lock::shared();
    for side in ["client", "server"] {
        let samples = samples(side);
        assert!(samples.len() > 10, "{} samples for the {side}", samples.len());
        for path in samples {
            let text = fs::read_to_string(&path).unwrap();
            let expected = text.lines().next().and_then(|line| line.strip_prefix("# expect: "));
            let expected = expected.unwrap();
            let line_known = expected.starts_with(|c: char| c.is_ascii_digit());
            let place = format!("{}{}", path.display(), if line_known { ":" } else { "" });
            for verb in ["check", "run"] {
                let ended = run(side, verb, &path);
                assert_eq!(ended.code, Some(64), "{verb} {}: {}", path.display(), ended.output);
                let output = &ended.output;
                assert!(output.contains(&place), "{output}\nhas no place");
                assert!(output.contains(expected), "{output}\nexpected {expected}");
            }
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let _lock = test_lock::shared();
    for side in ["client", "server"] {
        for verb in ["check", "run"] {
            let ended = run(side, verb, Path::new("/no/such/file.toml"));
            assert_eq!(ended.code, Some(64), "{}", ended.output);
            assert!(ended.output.contains("/no/such/file.toml"), "{}", ended.output);
        }
    }
}

/// Good configurations whose addresses are all taken: if anything were bound before everything had
/// been checked, that would be the complaint.
struct Taken {
    dir: tempfile::TempDir,
    _sockets: (Vec<TcpListener>, UdpSocket),
}

impl Taken {
    fn write() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Certificates::make(dir.path());
        let [listener, client_admin, server_admin] =
            std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let tunnel = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let client = format!(
            "[tunnel]\nservers = [\"127.0.0.1:1\"]\nserver_name = \"{SERVER_NAME}\"\n\
             ca = \"ca.pem\"\ncertificate = \"client.pem\"\nprivate_key = \"client.key\"\n\
             mark = 0\n[[listen]]\nmode = \"socks5\"\naddress = \"{}\"\n\
             [admin]\naddress = \"{}\"\n",
            address(&listener),
            address(&client_admin)
        );
        let server = format!(
            "[tunnel]\nlisten = [\"{}\"]\nclient_ca = \"ca.pem\"\ncertificate = \"server.pem\"\n\
             private_key = \"server.key\"\n[admin]\naddress = \"{}\"\n",
            tunnel.local_addr().unwrap(),
            address(&server_admin)
        );
        fs::write(dir.path().join("client.toml"), client).unwrap();
        fs::write(dir.path().join("server.toml"), server).unwrap();
        Self { dir, _sockets: (vec![listener, client_admin, server_admin], tunnel) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The configuration with one text replaced, and its path.
    fn spoilt(&self, side: &str, from: &str, to: &str) -> PathBuf {
        let text = fs::read_to_string(self.path(&format!("{side}.toml"))).unwrap();
        assert!(text.contains(from), "{text}");
        let path = self.path("spoilt.toml");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        path
    }
}

#[test]
fn nothing_is_bound_before_everything_is_checked() {
    let _lock = test_lock::shared();
    let taken = Taken::write();
    for (side, from, to, key) in [
        ("client", "mark = 0", "mark = -1", "mark"),
        ("client", "client.key", "absent.key", "tunnel.private_key"),
        ("client", "ca.pem", "client.key", "tunnel.ca"),
        ("server", "server.pem", "absent.pem", "tunnel.certificate"),
        ("server", "[admin]", "[dial]\ntimeout_s = 0\n[admin]", "timeout_s"),
    ] {
        let path = taken.spoilt(side, from, to);
        for verb in ["check", "run"] {
            let ended = run(side, verb, &path);
            assert_eq!(ended.code, Some(64), "{side} {verb} with {to}: {}", ended.output);
            assert!(ended.output.contains("spoilt.toml:"), "{}", ended.output);
            assert!(ended.output.contains(key), "{}", ended.output);
        }
    }
}

/// That the test above can tell: `check` binds nothing and is content, `run` complains about an
/// address, and that is no configuration error.
#[test]
fn addresses_that_are_taken_are_named() {
    let _lock = test_lock::shared();
    let taken = Taken::write();
    for side in ["client", "server"] {
        let path = taken.path(&format!("{side}.toml"));
        let checked = run(side, "check", &path);
        assert_eq!(checked.code, Some(0), "{}", checked.output);
        let ran = run(side, "run", &path);
        assert_eq!(ran.code, Some(1), "{}", ran.output);
        assert!(ran.output.contains("127.0.0.1:"), "{}", ran.output);
        assert!(ran.output.to_lowercase().contains("address already in use"), "{}", ran.output);
    }
}

/// A key that does not belong to the certificate is found by `check` too.
#[test]
fn a_key_of_another_certificate_is_refused() {
    let _lock = test_lock::shared();
    let taken = Taken::write();
    let path = taken.spoilt("server", "server.key", "client.key");
    for verb in ["check", "run"] {
        let ended = run("server", verb, &path);
        assert_eq!(ended.code, Some(64), "{verb}: {}", ended.output);
        assert!(ended.output.contains("private_key"), "{}", ended.output);
    }
}

/// What peers would refuse is found by `check`; a start only warns of it, since clocks may be wrong for a while.
#[test]
fn certificate_that_peers_refuse_is_reported_by_check() {
    let _lock = test_lock::shared();
    let taken = Taken::write();
    let as_server = |name: &str| {
        let path = taken.spoilt("server", "server.pem", &format!("{name}.pem"));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("server.key", &format!("{name}.key"))).unwrap();
        path
    };
    let checked = run("server", "check", &as_server("client"));
    assert_eq!(checked.code, Some(64), "{}", checked.output);
    assert!(checked.output.contains("client.pem is a client's certificate"), "{}", checked.output);
    assert!(checked.output.contains("tunnel.certificate"), "{}", checked.output);
    let authority = Authority::make(taken.dir.path());
    let soon = authority.sign(SERVER_NAME, -1..10);
    let soon = soon.certificate.file_stem().unwrap().to_str().unwrap().to_owned();
    let checked = run("server", "check", &as_server(&soon));
    assert_eq!(checked.code, Some(0), "{}", checked.output);
    assert!(checked.output.contains("warning: tunnel.certificate"), "{}", checked.output);
    assert!(checked.output.contains("less than 30 days"), "{}", checked.output);
    let expired = authority.sign(SERVER_NAME, -30..-1);
    let expired = expired.certificate.file_stem().unwrap().to_str().unwrap().to_owned();
    let checked = run("server", "check", &as_server(&expired));
    assert_eq!(checked.code, Some(64), "{}", checked.output);
    assert!(checked.output.contains("has expired on"), "{}", checked.output);
}

/// Such a listener is valid, and does not carry RTP over UDP.
#[test]
fn a_listener_that_does_not_recognise_rtsp_is_reported_by_check() {
    let _lock = test_lock::shared();
    let taken = Taken::write();
    let mode = "mode = \"socks5\"";
    let path = taken.spoilt("client", mode, &format!("{mode}\nrecognise_class = false"));
    let checked = run("client", "check", &path);
    assert_eq!(checked.code, Some(0), "{}", checked.output);
    let warning =
        "warning: listen[0].recognise_class: is off, and flows to port 554 have class bulk";
    assert!(checked.output.contains(warning), "{}", checked.output);
    let checked = run("client", "check", &taken.path("client.toml"));
    assert!(!checked.output.contains("warning"), "{}", checked.output);
}

#[test]
fn wrong_deny_list_is_refused_with_its_line() {
    let _lock = test_lock::shared();
    let taken = Taken::write();
    fs::write(taken.path("denied.txt"), "name edge-1\nserial x\n").unwrap();
    let path = taken.spoilt("server", "[tunnel]", "[tunnel]\ndenied_clients = \"denied.txt\"");
    for verb in ["check", "run"] {
        let ended = run("server", verb, &path);
        assert_eq!(ended.code, Some(64), "{}", ended.output);
        assert!(ended.output.contains("denied.txt:2: a serial number is"), "{}", ended.output);
    }
}

#[test]
fn wrong_arguments_are_explained() {
    let _lock = test_lock::shared();
    for side in ["client", "server"] {
        for arguments in [&["run", "client.toml"][..], &["fly"], &[]] {
            let mut command = program(side);
            command.args(arguments);
            let ended = Program::run(side, command, wait::DEFAULT_TIMEOUT);
            assert!(ended.code.is_some_and(|code| code != 0), "{arguments:?}");
            assert!(ended.output.contains("Usage"), "{}", ended.output);
        }
        let mut command = program(side);
        command.arg("--help");
        let ended = Program::run(side, command, wait::DEFAULT_TIMEOUT);
        assert_eq!(ended.code, Some(0));
        assert!(ended.output.contains("run") && ended.output.contains("check"), "{}", ended.output);
    }
}
