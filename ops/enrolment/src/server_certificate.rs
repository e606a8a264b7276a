//! Renewal of the server's own certificate, by its authority.

use std::fs;

use anyhow::{Context, anyhow, ensure};
use boring::x509::X509;
use millrace_config::{Host, ServerConfig};
use millrace_ops::certificates::{self, Identity, load_authority};
use millrace_tunnel::credentials::alternative_names;
use time::OffsetDateTime;

use crate::service::validity;

/// Replaces the file of the server's certificate by a new one with the same names and key.
///
/// # Errors
/// There is no `[enrolment]`, the certificate does not come from its authority alone, or a file can't be read or
/// written.
pub fn renew_server_certificate(config: &ServerConfig, now: OffsetDateTime) -> anyhow::Result<()> {
    let settings = config.enrolment.as_ref().context("the configuration has no [enrolment]")?;
    let path = &config.tunnel.credentials.certificate;
    let pem = fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
    let chain = X509::stack_from_pem(&pem)?;
    let authority = load_authority(&settings.authority_dir)?;
    let issuer = authority.certificate()?;
    let [current] = &chain[..] else {
        return Err(anyhow!("{} has intermediate certificates", path.display()));
    };
    let is_own = current.verify(&*issuer.public_key()?)?;
    ensure!(is_own, "{} does not come from the authority", path.display());
    let names: Result<Vec<Host>, _> =
        alternative_names(current).iter().map(|it| it.parse()).collect();
    let names = names.with_context(|| format!("{} has unusual names", path.display()))?;
    ensure!(!names.is_empty(), "{} has no names", path.display());
    let validity = validity(settings, &issuer, now).map_err(|error| anyhow!(error))?;
    let key = current.public_key()?.public_key_to_der()?;
    let renewed = authority.certify(&Identity::Server { names }, &validity, &key)?;
    certificates::record(&settings.authority_dir, "server", &renewed)?;
    certificates::write_file(path, &renewed, 0o644, true)?;
    Ok(())
}
