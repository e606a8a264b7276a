//! `millrace-client join`: enrols this client with the token of an invitation. `millrace-client renew`: renews its certificate.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use boring::nid::Nid;
use boring::x509::X509;
use clap::Args;
use millrace_cli::config_argument;
use millrace_config::{ClientConfig, Host, HostPort};
use millrace_enrolment::{
    ClientSide, SigningKey, ensure_absent, prepare_directory, toml_string, write_config,
};
use millrace_ops::certificates::{make_directory, write_file};
use millrace_ops::doctor::DoctorArgs;
use millrace_ops::output;
use millrace_tunnel::algorithms;
use millrace_wire::enrolment::{InviteToken, MAX_TOKEN_CHARS};

use crate::settings::DEFAULT_CONFIG;

/// Names of the files in the state directory.
const AUTHORITY: &str = "ca.pem";
const CERTIFICATE: &str = "client.pem";
const PRIVATE_KEY: &str = "client.key";
/// The key until there is a certificate for it.
const NEW_PRIVATE_KEY: &str = "client-new.key";

/// Arguments of the command `join`.
#[derive(Args, Clone, Debug)]
pub struct JoinArgs {
    /// What `millrace-server invite` has printed; - reads it from standard input
    token: String,
    /// Address of the HTTP proxy (CONNECT, and requests for http:// URLs) that the configuration has
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3128")]
    listen: SocketAddr,
    /// Configuration file to write
    #[arg(long)]
    config: PathBuf,
    /// Directory for the certificate and its key; created if missing
    #[arg(long, value_name = "DIR", default_value = "/var/lib/millrace-client")]
    state_dir: PathBuf,
    /// Replace the configuration, certificate and key of an earlier enrolment
    #[arg(long)]
    replace: bool,
    /// Run the client afterwards
    #[arg(long)]
    run: bool,
}

/// Enrols, writes certificate, key and configuration, and runs `doctor`; then the client, if that is wanted.
///
/// # Errors
/// The token or an argument is wrong, a file exists or can't be written, or the server refuses.
pub fn join(arguments: &JoinArgs) -> anyhow::Result<ExitCode> {
    let token = read_token(&arguments.token)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    ensure!(
        now.as_secs() < token.expires,
        "the token has expired, or the clock of this host is wrong; `millrace-server invite` makes another token"
    );
    let path = &arguments.config;
    let state_dir = absolute(&arguments.state_dir)?;
    let [authority, certificate, private_key, new_key] =
        [AUTHORITY, CERTIFICATE, PRIVATE_KEY, NEW_PRIVATE_KEY].map(|name| state_dir.join(name));
    ensure_absent(&[path, &authority, &certificate, &private_key], arguments.replace)?;
    let side = client_side(&token)?;
    let text = configuration(arguments, &side, &state_dir);
    let config = millrace_config::parse_client(&text, path, &algorithms::check)
        .context("these arguments make no valid configuration")?;
    // All that can fail here fails before the token is spent.
    prepare_directory(path)?;
    make_directory(&state_dir)?;
    let key = SigningKey::generate()?;
    write_file(&new_key, &key.to_pem(), 0o600, true)?;
    let side = ClientSide { mark: config.tunnel.mark, ..side };
    let enrolled = millrace_enrolment::enrol(&side, &token, &key);
    let enrolled = enrolled.inspect_err(|_| {
        // It is of no use.
        let _ = fs::remove_file(&new_key);
    })?;
    fs::rename(&new_key, &private_key)
        .with_context(|| format!("can't write {}", private_key.display()))?;
    write_file(&authority, &enrolled.authority, 0o644, arguments.replace)?;
    write_file(&certificate, &enrolled.certificate, 0o644, arguments.replace)?;
    write_config(path, &text, arguments.replace)?;
    output::line(summary(&enrolled.certificate, &side)?)?;
    output::line(format_args!("created {} and {}", path.display(), certificate.display()))?;
    check_and_run(arguments)
}

fn check_and_run(arguments: &JoinArgs) -> anyhow::Result<ExitCode> {
    let path = &arguments.config;
    let config = millrace_config::load_client(path, &algorithms::check)?;
    crate::run::check(&config)?;
    let verdict = crate::doctor::run(&DoctorArgs { config: path.clone(), json: false })?;
    output::line(format_args!("use: curl -x http://{} http://ORIGIN/", arguments.listen))?;
    if arguments.run {
        return crate::run::run(&config);
    }
    output::line(format_args!(
        "start: millrace-client run{}",
        config_argument(path, DEFAULT_CONFIG)
    ))?;
    Ok(verdict)
}

/// Renews the certificate of the configuration in the file `path`.
///
/// # Errors
/// It is not valid, or there is no certificate.
pub fn renew(path: &Path) -> anyhow::Result<ExitCode> {
    let config: ClientConfig = millrace_config::load_client(path, &algorithms::check)?;
    millrace_enrolment::renew(&config)?;
    let certificate = &config.tunnel.credentials.certificate;
    output::line(format_args!(
        "renewed {}; SIGHUP lets a running client use it",
        certificate.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn read_token(argument: &str) -> anyhow::Result<InviteToken> {
    let mut text = argument.to_owned();
    if text == "-" {
        text.clear();
        let most = 2 * MAX_TOKEN_CHARS as u64;
        std::io::stdin().take(most).read_to_string(&mut text).context("can't read the token")?;
    }
    Ok(text.trim().parse()?)
}

fn client_side(token: &InviteToken) -> anyhow::Result<ClientSide> {
    let server: HostPort = token.server.to_string().parse()?;
    let server_name = match &token.server_name {
        Some(name) => name.parse::<Host>()?,
        None => server.host.clone(),
    };
    Ok(ClientSide { server, server_name, mark: None })
}

fn configuration(arguments: &JoinArgs, side: &ClientSide, state_dir: &Path) -> String {
    let file = |name: &str| toml_string(state_dir.join(name).display());
    format!(
        "# Written by `millrace-client join`. All keys: docs/reference/configuration-client.md, and\n\
         # /usr/share/doc/millrace-client/examples/client.example.toml where the package is installed.\n\
         \n\
         [tunnel]\n\
         servers = [{server}]\n\
         server_name = {}\n\
         ca = {}\n\
         certificate = {}\n\
         private_key = {}\n\
         \n\
         [enrolment]\n\
         server = {server}\n\
         \n\
         [[listen]]\n\
         mode = \"http_connect\"\n\
         address = {}\n",
        toml_string(&side.server_name),
        file(AUTHORITY),
        file(CERTIFICATE),
        file(PRIVATE_KEY),
        toml_string(arguments.listen),
        server = toml_string(&side.server),
    )
}

/// The name of the client, and until when its certificate is valid.
fn summary(certificate: &str, side: &ClientSide) -> anyhow::Result<String> {
    let certificate = X509::from_pem(certificate.as_bytes())?;
    let mut names = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    let name = names.next().and_then(|it| it.data().as_utf8().ok()).map(|it| it.to_string());
    let (name, until) = (name.unwrap_or_default(), certificate.not_after());
    Ok(format!(
        "joined {} as {name}; the certificate is valid until {until} and renews itself",
        side.server
    ))
}
