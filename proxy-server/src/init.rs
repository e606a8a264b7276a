//! `millrace-server init`: a configuration, an authority and a certificate for a new server.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use millrace_cli::config_argument;
use millrace_config::{Host, HostPort};
use millrace_enrolment::{ensure_absent, toml_string, write_config};
use millrace_ops::certificates::{self, CertificatesArgs, write_file};
use millrace_ops::output;
use millrace_tunnel::algorithms;
use time::OffsetDateTime;

use crate::settings::DEFAULT_CONFIG;

/// Port of the tunnel and of enrolment where none is given.
const DEFAULT_PORT: u16 = 4433;
/// Days until the server's certificate expires; it renews itself.
const CERTIFICATE_DAYS: u32 = 90;
/// The file that `tunnel.denied_clients` names.
const DENIED_CLIENTS: &str = "denied.txt";

/// Arguments of the command `init`.
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    /// Name or address by which clients reach this server; the port, 4433 if none is given, is UDP for the tunnel and TCP
    /// for enrolment
    #[arg(long, value_name = "HOST[:PORT]", value_parser = public_address)]
    address: HostPort,
    /// Destination that flows may have: name, address or network, and port; repeatable
    #[arg(long, value_name = "HOST:PORT", required = true)]
    allow: Vec<AllowedDestination>,
    /// Address to listen on; all IPv4 addresses if none is given, or all IPv6 addresses if `--address` is one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Congestion control for what the server sends
    #[arg(long, value_name = "NAME", default_value = "vivace-latency")]
    congestion_control: String,
    /// Configuration file to write
    #[arg(long)]
    config: PathBuf,
    /// Directory for the authority, certificates and state; created if missing
    #[arg(long, value_name = "DIR", default_value = "/var/lib/millrace-server")]
    state_dir: PathBuf,
    /// Replace the configuration and the server's certificate; the authority stays
    #[arg(long)]
    replace: bool,
    /// Run the server afterwards
    #[arg(long)]
    run: bool,
}

/// An entry of `[[destinations.allow]]` for one port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AllowedDestination {
    key: &'static str,
    host: String,
    port: u16,
}

impl FromStr for AllowedDestination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} must be as origin.example:80, 198.18.3.10:80 or 198.18.3.0/24:80");
        if let Ok(HostPort { host, port }) = text.parse() {
            let key = if matches!(host, Host::Ip(_)) { "network" } else { "name" };
            return Ok(Self { key, host: host.to_string(), port });
        }
        // The configuration checks what a network looks like.
        let (network, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let network = network.replace(['[', ']'], "");
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        if !network.contains('/') {
            return Err(wrong());
        }
        Ok(Self { key: "network", host: network, port })
    }
}

fn public_address(text: &str) -> Result<HostPort, String> {
    let with_default = || text.parse().map(|host| HostPort { host, port: DEFAULT_PORT });
    text.parse().or_else(|_| with_default()).map_err(|error| error.to_string())
}

/// Writes all files, and runs the server if that is wanted.
///
/// # Errors
/// A file exists or can't be written, or an argument is wrong; no configuration is written then.
pub fn run(arguments: &InitArgs) -> anyhow::Result<ExitCode> {
    let path = &arguments.config;
    let state_dir = absolute(&arguments.state_dir)?;
    ensure_absent(&[path], arguments.replace)?;
    let text = configuration(arguments, &state_dir)?;
    millrace_config::parse_server(&text, path, &algorithms::check)
        .context("these arguments make no valid configuration")?;
    let certificates = CertificatesArgs {
        dir: state_dir.clone(),
        server_name: vec![arguments.address.host.clone()],
        client: Some(Vec::new()),
        days: CERTIFICATE_DAYS,
        renew: arguments.replace,
        list: false,
    };
    let reports = certificates::run(&certificates, OffsetDateTime::now_utc())?;
    let denied = state_dir.join(DENIED_CLIENTS);
    if !denied.exists() {
        let comment = "# Clients that are refused, a line each: serial HEX, or name TEXT. SIGHUP reads it again.\n";
        write_file(&denied, comment, 0o644, false)?;
    }
    write_config(path, &text, arguments.replace)?;
    // After all files: where it can't be printed, they are complete.
    for report in reports {
        output::line(report)?;
    }
    output::line(format_args!("created {}", path.display()))?;
    let config = millrace_config::load_server(path, &algorithms::check)?;
    crate::run::check(&config)?;
    if arguments.run {
        return crate::run::run(&config);
    }
    let config = config_argument(path, DEFAULT_CONFIG);
    output::line(format_args!(
        "start: millrace-server run{config}; then for each client: millrace-server invite{config} NAME"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn configuration(arguments: &InitArgs, state_dir: &Path) -> anyhow::Result<String> {
    let HostPort { host, port } = &arguments.address;
    let any: IpAddr = match host {
        Host::Ip(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let listen = toml_string(arguments.listen.unwrap_or(SocketAddr::new(any, *port)));
    let file = |name: &str| toml_string(state_dir.join(name).display());
    let mut text = format!(
        "# Written by `millrace-server init`. All keys: docs/reference/configuration-server.md, and\n\
         # /usr/share/doc/millrace-server/examples/server.example.toml where the package is installed.\n\
         \n\
         [tunnel]\n\
         listen = [{listen}]\n\
         client_ca = {}\n\
         certificate = {}\n\
         private_key = {}\n\
         denied_clients = {}\n\
         state_dir = {state}\n\
         congestion_control = {}\n\
         \n\
         [enrolment]\n\
         listen = [{listen}]\n\
         public_address = {}\n\
         authority_dir = {state}\n",
        file("ca.pem"),
        file("server.pem"),
        file("server.key"),
        file(DENIED_CLIENTS),
        toml_string(&arguments.congestion_control),
        toml_string(&arguments.address),
        state = toml_string(state_dir.display()),
    );
    for AllowedDestination { key, host, port } in &arguments.allow {
        let host = toml_string(host);
        write!(text, "\n[[destinations.allow]]\n{key} = {host}\nports = [{port}]\n")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct InitCli {
        #[command(flatten)]
        init: InitArgs,
    }

    fn arguments(directory: &Path, more: &[&str]) -> InitArgs {
        let paths = ["--config", "server.toml", "--state-dir", "state"];
        let paths = paths.map(|it| match it.starts_with('-') {
            true => it.to_owned(),
            false => directory.join(it).display().to_string(),
        });
        let first = ["init", "--address", "server.example", "--allow", "origin.example:80"];
        let first = first.iter().chain(more).map(ToString::to_string);
        InitCli::try_parse_from(first.chain(paths)).unwrap().init
    }

    #[test]
    fn configuration_is_complete_and_not_written_twice() {
        let directory = tempfile::tempdir().unwrap();
        let more = [
            "--allow",
            "198.18.3.0/24:443",
            "--allow",
            "[2001:db8::]/32:554",
            "--allow",
            "198.18.3.1:80",
        ];
        let mut arguments = arguments(directory.path(), &more);
        run(&arguments).unwrap();
        let path = directory.path().join("server.toml");
        let config = millrace_config::load_server(&path, &algorithms::check).unwrap();
        let enrolment = config.enrolment.unwrap();
        assert_eq!(enrolment.public_address.to_string(), "server.example:4433");
        assert_eq!(enrolment.listen, config.tunnel.listen);
        assert_eq!(config.allow.len(), 4);
        let error = run(&arguments).unwrap_err().to_string();
        assert!(error.contains("--replace"), "{error}");
        let authority = std::fs::read(directory.path().join("state/ca.pem")).unwrap();
        arguments.replace = true;
        arguments.address = "other.example:4434".parse().unwrap();
        run(&arguments).unwrap();
        assert_eq!(std::fs::read(directory.path().join("state/ca.pem")).unwrap(), authority);
    }

    #[test]
    fn wrong_arguments_write_nothing() {
        let directory = tempfile::tempdir().unwrap();
        for more in [["--allow", "198.18.3.1/24:80"], ["--congestion-control", "fastest"]] {
            let error = run(&arguments(directory.path(), &more)).unwrap_err();
            assert!(format!("{error:#}").contains("no valid configuration"), "{error:#}");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        for text in ["origin.example", "origin.example:0", "a b:80", "198.18.3.1/24"] {
            assert!(text.parse::<AllowedDestination>().is_err(), "{text}");
        }
    }
}
