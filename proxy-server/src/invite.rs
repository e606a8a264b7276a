//! `millrace-server invite`: a token by which a new client gets its certificate.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use boring::sha::sha256;
use boring::x509::X509;
use clap::Args;
use millrace_config::ServerConfig;
use millrace_enrolment::{EnrolmentService, Invites};
use millrace_ops::certificates::{ClientName, load_authority};
use millrace_ops::output;
use millrace_tunnel::algorithms;
use millrace_tunnel::credentials::alternative_names;
use millrace_wire::Destination;
use millrace_wire::enrolment::InviteToken;
use time::{Duration, OffsetDateTime};

/// Arguments of the command `invite`.
#[derive(Args, Clone, Debug)]
pub struct InviteArgs {
    /// Name of the client, which its certificate will have
    name: ClientName,
    /// Minutes until the invitation expires
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: u32,
    /// Configuration file of the server
    #[arg(long)]
    config: PathBuf,
}

/// Makes an invitation and prints its token.
///
/// # Errors
/// The server can't enrol clients as it is configured, the client is denied, or the invitation can't be written.
pub fn run(arguments: &InviteArgs) -> anyhow::Result<ExitCode> {
    let config = millrace_config::load_server(&arguments.config, &algorithms::check)?;
    let token = token(&config, arguments, OffsetDateTime::now_utc())?;
    // The token is all that goes to standard output. Without a reader it is lost.
    if let Err(error) = writeln!(io::stdout(), "{token}") {
        if let Some(settings) = &config.enrolment {
            Invites::new(&settings.authority_dir).discard(token.invite)?;
        }
        return Err(error).context("can't print the token; the invitation is taken back");
    }
    output::error_line(format_args!(
        "{} uses it within {} minutes, once: millrace-client join TOKEN",
        arguments.name.as_str(),
        arguments.minutes
    ));
    Ok(ExitCode::SUCCESS)
}

fn token(
    config: &ServerConfig,
    arguments: &InviteArgs,
    now: OffsetDateTime,
) -> anyhow::Result<InviteToken> {
    let file = config.source.file().display();
    let Some(settings) = &config.enrolment else {
        bail!("{file} has no [enrolment]; `millrace-server init` writes a configuration that has");
    };
    // A client could not use the token.
    EnrolmentService::new(config)?;
    let name = arguments.name.as_str();
    if let Some(entry) = config.denied_clients()?.entry(&[], &[name.to_owned()]) {
        bail!("{name} is denied by {entry} (tunnel.denied_clients)");
    }
    let authority = load_authority(&settings.authority_dir)?.certificate()?;
    let path = &config.tunnel.credentials.certificate;
    let leaf = fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
    let names = alternative_names(&*X509::from_pem(&leaf)?);
    let host = settings.public_address.host.to_string();
    let server_name = match names.iter().any(|name| name.eq_ignore_ascii_case(&host)) {
        true => None,
        false => Some(names.into_iter().next().context("the server's certificate has no names")?),
    };
    let server = Destination::from_host_port(&host, settings.public_address.port)?;
    let lifetime = Duration::minutes(arguments.minutes.into());
    let invite = Invites::new(&settings.authority_dir).create(&arguments.name, lifetime, now)?;
    Ok(InviteToken {
        invite: invite.id,
        secret: invite.secret,
        authority: sha256(&authority.to_der()?),
        expires: invite.expires,
        server,
        server_name: server_name.map(|name| name.to_ascii_lowercase()),
    })
}
