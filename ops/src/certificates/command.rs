//! The command `certificates`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use millrace_config::Host;
use time::{Duration, OffsetDateTime};

use super::authority::{AUTHORITY, Authority, Identity, Validity};
use super::error::CertificateError;
use super::files::{self, CertificateFiles, StoredPair};
use super::issued;
use super::report::{CertificateOutcome, CertificateReport};

/// How long an authority is valid, unless its certificates are to last longer.
const AUTHORITY_DAYS: u32 = 3650;
/// The client whose certificate is made where none is named.
const DEFAULT_CLIENT: &str = "client";

/// Arguments of the command `certificates`.
#[derive(Clone, Debug, clap::Args)]
pub struct CertificatesArgs {
    /// Directory for the files; created if missing
    #[arg(long)]
    pub dir: PathBuf,
    /// Name or address of the server that clients expect (`server_name` in client.toml); repeatable
    #[arg(long, required_unless_present = "list")]
    pub server_name: Vec<Host>,
    /// Name of a client, also used for its files; repeatable. Without it: `client`, which `--renew` only makes again
    /// where it is there
    #[arg(long)]
    pub client: Option<Vec<ClientName>>,
    /// Days until the certificates expire
    #[arg(long, default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: u32,
    /// Replace the certificates and keys of the server and of the clients named; the authority
    /// stays
    #[arg(long)]
    pub renew: bool,
    /// Create nothing; list serial number, expiry and name of every certificate that was made in the directory
    #[arg(long, conflicts_with_all = ["server_name", "renew"])]
    pub list: bool,
}

/// A client's name: 1 to 64 letters, digits, `.`, `_` and `-`, and none of our own file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientName(String);

impl FromStr for ClientName {
    type Err = CertificateError;

    fn from_str(name: &str) -> Result<Self, CertificateError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_valid = (1..=64).contains(&name.len())
            && name.bytes().all(is_plain)
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && !["ca", "server"].contains(&name);
        if is_valid { Ok(Self(name.to_owned())) } else { Err(CertificateError::ClientName) }
    }
}

impl ClientName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Makes what is missing in `arguments.dir`, at the time `now`.
///
/// Files that exist are kept, and checked: each certificate must belong to its key, come from the
/// authority and be for the right name. Only `renew` replaces any, and never the authority, which
/// all others hang on. Each file appears under its name whole or not at all.
///
/// # Errors
/// The first thing that failed; what was made before stays, so that the command can be repeated.
pub fn run(
    arguments: &CertificatesArgs,
    now: OffsetDateTime,
) -> Result<Vec<CertificateReport>, CertificateError> {
    let directory = arguments.dir.as_path();
    files::make_directory(directory)?;
    let validity = Validity::days(now, arguments.days);
    let (authority, outcome) = authority_in(directory, now, &validity)?;
    let mut reports = vec![CertificateFiles::new(directory, AUTHORITY).report(outcome)];
    let server = Identity::Server { names: arguments.server_name.clone() };
    let named = arguments.client.as_ref();
    let clients = named.map_or_else(|| default_clients(arguments), Clone::clone);
    let clients = clients
        .iter()
        .map(|client| (client.as_str(), Identity::Client { name: client.as_str().to_owned() }));
    let mut done = Vec::new();
    for (name, identity) in std::iter::once(("server", server)).chain(clients) {
        if done.contains(&name) {
            continue;
        }
        done.push(name);
        let pair = CertificateFiles::new(directory, name);
        let outcome = match pair.load()? {
            Some(stored) if !arguments.renew => {
                check(&pair, &stored, &authority, &identity)?;
                CertificateOutcome::Kept
            }
            stored => {
                let issued = authority.issue(&identity, &validity)?;
                // Before the certificate is there: none may exist that the list does not have.
                issued::record(directory, name, &issued.certificate)?;
                pair.store(&issued, arguments.renew)?;
                if stored.is_some() {
                    CertificateOutcome::Renewed
                } else {
                    CertificateOutcome::Created
                }
            }
        };
        reports.push(pair.report(outcome));
    }
    Ok(reports)
}

/// The clients where none is named.
fn default_clients(arguments: &CertificatesArgs) -> Vec<ClientName> {
    let default = ClientName(DEFAULT_CLIENT.to_owned());
    // Otherwise the renewal of a server's certificate would make one of a client that does not exist.
    let is_wanted =
        !arguments.renew || CertificateFiles::new(&arguments.dir, DEFAULT_CLIENT).is_there();
    if is_wanted { vec![default] } else { Vec::new() }
}

/// The authority that is there, or a new one. It must outlast what it is to sign.
fn authority_in(
    directory: &Path,
    now: OffsetDateTime,
    validity: &Validity,
) -> Result<(Authority, CertificateOutcome), CertificateError> {
    let pair = CertificateFiles::new(directory, AUTHORITY);
    let Some(stored) = pair.load()? else {
        let long = Validity::days(now, AUTHORITY_DAYS);
        // A day more, so that certificates made with the same `--days` tomorrow still fit in.
        let not_after = long.not_after.max(validity.not_after) + Duration::DAY;
        let authority = Authority::generate(&Validity { not_after, ..long })?;
        pair.store(authority.issued(), false)?;
        return Ok((authority, CertificateOutcome::Created));
    };
    let problem = |problem: String| pair.unusable(problem);
    if !stored.key_matches() {
        return Err(problem("the private key beside it is another certificate's".to_owned()));
    }
    if !stored.is_valid_until(validity.not_after)? {
        return Err(problem(format!(
            "the authority expires on {}, before the certificates would; choose fewer --days, or \
             a new directory for a new authority",
            stored.certificate.not_after()
        )));
    }
    let authority = Authority::from_pem(&stored.issued.certificate, &stored.issued.private_key)
        .map_err(|error| problem(format!("is no authority's certificate: {error}")))?;
    Ok((authority, CertificateOutcome::Kept))
}

fn check(
    pair: &CertificateFiles,
    stored: &StoredPair,
    authority: &Authority,
    identity: &Identity,
) -> Result<(), CertificateError> {
    let renew = "; --renew replaces it";
    if !stored.key_matches() {
        return Err(pair.unusable(format!("the key beside it is another certificate's{renew}")));
    }
    if !stored.comes_from(authority)? {
        return Err(pair.unusable(format!("doesn't come from the authority in ca.pem{renew}")));
    }
    match stored.missing_name(identity) {
        Some(name) => Err(pair.unusable(format!("isn't for {name:?}{renew}"))),
        None => Ok(()),
    }
}
