//! Enrolment: `init`, `invite` and `join` as an operator runs them, and the renewal of certificates.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use boring::x509::X509;
use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::data::{self, Pattern};
use millrace_e2e::listeners::TestListener;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::run_with;
use millrace_e2e::program::{Ended, Program};
use millrace_e2e::test_lock::{self, TestLock};
use millrace_e2e::{binaries, tcp, wait};
use nix::sys::signal::Signal;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;
use time::OffsetDateTime;

/// Longest run of a command; `join` runs the doctor.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// A server that was set up with `init`.
struct EnrolmentSite {
    directory: TempDir,
    address: SocketAddr,
    admin: SocketAddr,
    server: Option<Program>,
    _lock: Option<TestLock>,
}

/// A client that has joined it and runs.
struct JoinedClient {
    program: Program,
    listener: TestListener,
    admin: SocketAddr,
    directory: PathBuf,
}

fn run(command: Command) -> Ended {
    Program::run("command", command, COMMAND_TIMEOUT)
}

/// Adds what tests at the same time must not share.
fn add_admin(config: &Path) -> SocketAddr {
    let admin = tcp::unused(Ipv4Addr::LOCALHOST);
    let text = fs::read_to_string(config).unwrap();
    fs::write(
        config,
        format!("{text}\n[admin]\naddress = \"{admin}\"\n[log]\nformat = \"json\"\n"),
    )
    .unwrap();
    admin
}

fn is_healthy(admin: SocketAddr) -> bool {
    matches!(admin::get(admin, "/healthz"), Ok((200, _)))
}

/// Replaces the certificate that `init` has made by one for the same key that expires as soon as those of clients.
fn shorten_server_certificate(state: &Path, lifetime_s: u32) {
    let read = |name: &str| fs::read_to_string(state.join(name)).unwrap();
    let authority = KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), authority).unwrap();
    let mut parameters = CertificateParams::new([Ipv4Addr::LOCALHOST.to_string()]).unwrap();
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now - time::Duration::HOUR;
    parameters.not_after = now + Duration::from_secs(lifetime_s.into());
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::from_pem(&read("server.key")).unwrap();
    let certificate = parameters.signed_by(&key, &issuer).unwrap();
    fs::write(state.join("server.pem"), certificate.pem()).unwrap();
}

/// Serial number of a certificate.
fn serial(file: &Path) -> Vec<u8> {
    let pem = fs::read(file).unwrap();
    X509::from_pem(&pem).unwrap().serial_number().to_bn().unwrap().to_vec()
}

impl EnrolmentSite {
    /// Sets a server up for destinations on 127.0.0.1, and starts it with certificates for so long.
    fn start(origin: SocketAddr, certificate_lifetime_s: u32) -> Self {
        let mut site =
            Self::set_up(tcp::unused(Ipv4Addr::LOCALHOST), origin, Some(test_lock::shared()));
        let config = site.config();
        let text = fs::read_to_string(&config).unwrap();
        let lifetime = format!("[enrolment]\ncertificate_lifetime_s = {certificate_lifetime_s}");
        fs::write(&config, text.replace("[enrolment]", &lifetime)).unwrap();
        shorten_server_certificate(&site.state(), certificate_lifetime_s);
        site.server =
            Some(Program::start("millrace-server", run_with(binaries::server(), &config)));
        wait::for_true("the server is healthy", START_TIMEOUT, || is_healthy(site.admin));
        site
    }

    fn set_up(address: SocketAddr, origin: SocketAddr, lock: Option<TestLock>) -> Self {
        let directory = tempfile::Builder::new().prefix("millrace-e2e-").tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut command = binaries::server();
        command.args(["init", "--address", &address.to_string(), "--listen", &address.to_string()]);
        command.args(["--allow", &origin.to_string(), "--config"]).arg(path("server.toml"));
        command.arg("--state-dir").arg(path("state"));
        let ended = run(command);
        assert_eq!(ended.code, Some(0), "{}", ended.output);
        let admin = add_admin(&path("server.toml"));
        Self { directory, address, admin, server: None, _lock: lock }
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("server.toml")
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn invite(&self, name: &str) -> String {
        let mut command = binaries::server();
        command.args(["invite", name, "--config"]).arg(self.config());
        let ended = run(command);
        assert_eq!(ended.code, Some(0), "{}", ended.output);
        let token = ended.output.lines().find(|line| line.starts_with("millrace1_"));
        token.unwrap_or_else(|| panic!("{}", ended.output)).to_owned()
    }

    /// `join` with files in a directory of that name, and a proxy at `listen`.
    fn join(&self, token: &str, directory: &str, listen: SocketAddr) -> Ended {
        let directory = self.directory.path().join(directory);
        let mut command = binaries::client();
        command.args(["join", token, "--listen", &listen.to_string(), "--config"]);
        command.arg(directory.join("client.toml")).arg("--state-dir").arg(directory.join("state"));
        run(command)
    }

    /// Joins as `name` and starts the client.
    fn joined(&self, name: &str) -> JoinedClient {
        let listen = tcp::unused(Ipv4Addr::LOCALHOST);
        let ended = self.join(&self.invite(name), name, listen);
        let said = format!("joined {} as {name}", self.address);
        assert!(ended.output.contains(&said), "{}", ended.output);
        // The doctor has reached the server with the new certificate.
        assert!(!ended.output.contains("FAILED   server"), "{}", ended.output);
        let directory = self.directory.path().join(name);
        let config = directory.join("client.toml");
        let admin = add_admin(&config);
        let program = Program::start("millrace-client", run_with(binaries::client(), &config));
        let client =
            JoinedClient { program, listener: TestListener::Http(listen), admin, directory };
        client.wait_healthy();
        client
    }

    fn deny(&self, entry: &str) {
        fs::write(self.state().join("denied.txt"), entry).unwrap();
        let reloads =
            || Metrics::fetch(self.admin).sum("millrace_reloads_total", &[("result", "done")]);
        let before = reloads();
        self.server.as_ref().unwrap().signal(Signal::SIGHUP);
        wait::for_true("a reload", wait::DEFAULT_TIMEOUT, || reloads() > before);
    }
}

impl JoinedClient {
    fn wait_healthy(&self) {
        wait::for_true("the client is healthy", START_TIMEOUT, || is_healthy(self.admin));
    }

    fn echoes(&self, origin: &Origin) {
        let mut flow = self.listener.open(&origin.address().to_string()).unwrap();
        flow.write_all(b"ping").unwrap();
        flow.read_exact(&mut [0; 4]).unwrap();
    }

    fn serial(&self) -> Vec<u8> {
        serial(&self.directory.join("state/client.pem"))
    }

    fn renew(&self) -> Ended {
        let mut command = binaries::client();
        command.args(["renew", "--config"]).arg(self.directory.join("client.toml"));
        run(command)
    }
}

#[test]
fn clients_join_with_a_token_each_and_their_flows_cross_the_tunnel() {
    let origin = Origin::echo();
    let site = EnrolmentSite::start(origin.address(), 86_400);
    for name in ["edge-1", "edge-2"] {
        let client = site.joined(name);
        client.echoes(&origin);
        assert_eq!(Metrics::fetch(client.admin).sum("millrace_flows_direct_total", &[]), 0.0);
    }
    let mut command = binaries::server();
    command.args(["certificates", "--list", "--dir"]).arg(site.state());
    let list = run(command).output;
    assert!(list.contains(" name edge-1") && list.contains(" name edge-2"), "{list}");
}

#[test]
fn token_is_valid_once_and_files_are_not_overwritten() {
    let origin = Origin::echo();
    let site = EnrolmentSite::start(origin.address(), 86_400);
    let listen = tcp::unused(Ipv4Addr::LOCALHOST);
    let token = site.invite("edge-1");
    assert!(site.join(&token, "first", listen).output.contains("as edge-1"));
    let second = site.join(&token, "second", listen);
    assert_eq!(second.code, Some(1));
    assert_eq!(second.output.matches("was used already").count(), 1, "{}", second.output);
    assert!(!site.directory.path().join("second/client.toml").exists());
    // Files are looked at before the token is used up.
    let config = site.directory.path().join("first/client.toml");
    let before = fs::read(&config).unwrap();
    let token = site.invite("edge-1");
    let again = site.join(&token, "first", listen);
    assert!(again.code == Some(1) && again.output.contains("--replace"), "{}", again.output);
    assert_eq!(fs::read(&config).unwrap(), before);
    assert!(site.join(&token, "third", listen).output.contains("as edge-1"));
}

#[test]
fn expired_foreign_and_damaged_tokens_are_refused() {
    let origin = Origin::echo();
    let site = EnrolmentSite::start(origin.address(), 86_400);
    let listen = tcp::unused(Ipv4Addr::LOCALHOST);
    let token = site.invite("edge-1");
    let invites = site.state().join("invites");
    for entry in fs::read_dir(&invites).unwrap() {
        let path = entry.unwrap().path();
        let mut invite: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        invite["expires"] = 1_700_000_000.into();
        fs::write(&path, invite.to_string()).unwrap();
    }
    let expired = site.join(&token, "expired", listen);
    assert!(
        expired.code == Some(1) && expired.output.contains("has expired"),
        "{}",
        expired.output
    );
    // As if another server had the address: its authority has another fingerprint.
    let other = EnrolmentSite::set_up(site.address, origin.address(), None);
    let foreign = site.join(&other.invite("edge-1"), "foreign", listen);
    assert_eq!(foreign.code, Some(1));
    assert!(foreign.output.contains("not the one that the token names"), "{}", foreign.output);
    let token = site.invite("edge-1");
    let damaged = site.join(&token[..token.len() - 5], "damaged", listen);
    assert!(damaged.output.contains("incomplete"), "{}", damaged.output);
    for name in ["expired", "foreign", "damaged"] {
        assert!(!site.directory.path().join(name).join("client.toml").exists());
        assert!(!site.directory.path().join(name).join("state/client.key").exists());
    }
}

#[test]
fn denied_client_does_not_renew() {
    let origin = Origin::echo();
    let site = EnrolmentSite::start(origin.address(), 86_400);
    let client = site.joined("edge-1");
    let before = client.serial();
    site.deny("name edge-1\n");
    let refused = client.renew();
    assert!(refused.code == Some(1) && refused.output.contains("denied"), "{}", refused.output);
    assert_eq!(client.serial(), before);
    site.deny("");
    let renewed = client.renew();
    assert_eq!(renewed.code, Some(0), "{}", renewed.output);
    assert_ne!(client.serial(), before);
}

/// What the download of the next test sends at a time.
const CHUNK_BYTES: usize = 16 * 1024;

#[test]
fn certificates_renew_themselves_while_a_download_runs() {
    // Certificates are valid for 9 s, and are renewed after 6 s. The download takes longer.
    const LIFETIME_S: u32 = 9;
    const CHUNKS: usize = 110;
    let origin = Origin::start(|mut stream| {
        let mut pattern = Pattern::new(7);
        let mut chunk = vec![0; CHUNK_BYTES];
        for _ in 0..CHUNKS {
            pattern.fill(&mut chunk);
            if stream.write_all(&chunk).is_err() {
                return;
            }
            // The download has to last.
            std::thread::sleep(Duration::from_millis(100));
        }
        stream.shutdown(std::net::Shutdown::Write).ok();
    });
    let site = EnrolmentSite::start(origin.address(), LIFETIME_S);
    let server_certificate = site.state().join("server.pem");
    let mut client = site.joined("edge-1");
    let first = (client.serial(), serial(&server_certificate));
    let mut flow = client.listener.open(&origin.address().to_string()).unwrap();
    let mut received = Vec::new();
    flow.read_to_end(&mut received).unwrap();
    assert!(received == data::pattern(7, CHUNKS * CHUNK_BYTES), "{} bytes", received.len());
    let second = (client.serial(), serial(&server_certificate));
    assert!(second.0 != first.0 && second.1 != first.1);
    for program in [&client.program, site.server.as_ref().unwrap()] {
        for said in ["certificate renewed", "configuration reloaded"] {
            program
                .expect_log(said, wait::DEFAULT_TIMEOUT, |line| line.contains(said).then_some(()));
        }
    }
    // The first certificates have expired: a new connection needs later ones at both ends.
    client.program.kill();
    let config = client.directory.join("client.toml");
    client.program = Program::start("millrace-client", run_with(binaries::client(), &config));
    client.wait_healthy();
}
