//! This end's certificates, and the clock that they are judged by.

use std::fs;
use std::path::Path;

use boring::asn1::{Asn1Time, Asn1TimeRef};
use boring::nid::Nid;
use boring::stack::Stack;
use boring::x509::store::X509StoreBuilder;
use boring::x509::{X509, X509StoreContext};
use millrace_config::Credentials;

use super::Report;

/// Days before the end at which it is time to renew.
const RENEW_DAYS: u32 = 30;
const RENEW: &str = "`millrace-server certificates --renew` with the names of before";

/// Whose certificates they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Known by its common name.
    Client,
    /// Known by the names that clients give as `server_name`.
    Server,
}

/// Looks at all files that `credentials` names.
pub fn certificates(report: &mut Report, end: End, credentials: &Credentials) {
    let ca_key = if end == End::Client { "tunnel.ca" } else { "tunnel.client_ca" };
    let authorities = read(report, ca_key, &credentials.ca);
    let chain = read(report, "tunnel.certificate", &credentials.certificate);
    for authority in &authorities {
        validity(report, ca_key, authority);
    }
    let Some((own, more)) = chain.split_first() else { return };
    validity(report, "tunnel.certificate", own);
    names(report, end, own);
    trust(report, ca_key, own, more, &authorities);
}

fn read(report: &mut Report, key: &str, path: &Path) -> Vec<X509> {
    let certificates = fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|pem| X509::stack_from_pem(&pem).map_err(|error| error.to_string()));
    match certificates {
        Ok(certificates) if !certificates.is_empty() => certificates,
        Ok(_) => {
            report.fail(key, format!("{} has no PEM certificate", path.display()), RENEW);
            Vec::new()
        }
        Err(error) => {
            let remedy = "the file must be there, be readable for the user, and hold PEM";
            report.fail(key, format!("{}: {error}", path.display()), remedy);
            Vec::new()
        }
    }
}

/// Whether the clock is between the two ends.
fn validity(report: &mut Report, key: &str, certificate: &X509) {
    let (from, until) = (certificate.not_before(), certificate.not_after());
    let (Ok(now), Ok(soon)) = (Asn1Time::days_from_now(0), Asn1Time::days_from_now(RENEW_DAYS))
    else {
        return report.skip(key, "the clock can't be read", "set it");
    };
    let (now, soon): (&Asn1TimeRef, &Asn1TimeRef) = (&now, &soon);
    if from > now {
        let found =
            format!("is valid from {from} on only, and it is {now} by this machine's clock");
        report.fail(key, found, "set the clock (`timedatectl`), or make the certificate anew");
    } else if until < now {
        let found = format!("has expired on {until}, and it is {now} by this machine's clock");
        report.fail(key, found, format!("{RENEW}; or set the clock (`timedatectl`)"));
    } else if until < soon {
        report.warn(key, expires(until), RENEW);
    } else {
        report.ok(key, expires(until));
    }
}

fn expires(until: &Asn1TimeRef) -> String {
    format!("is valid until {until}")
}

fn names(report: &mut Report, end: End, own: &X509) {
    let check = "names";
    match end {
        End::Server => {
            let names = alternative_names(own);
            if names.is_empty() {
                let found = "the certificate is for no name, so that every client refuses it";
                return report.fail(check, found, RENEW);
            }
            report.ok(check, format!("clients may give as server_name: {}", names.join(", ")));
        }
        End::Client => {
            let mut entries = own.subject_name().entries_by_nid(Nid::COMMONNAME);
            match entries.next().and_then(|entry| entry.data().as_utf8().ok()) {
                Some(name) => report.ok(check, format!("the server knows it as {name}")),
                None => report.warn(
                    check,
                    "the certificate has no common name, so that its successor counts as another \
                     client in the server's limits",
                    RENEW,
                ),
            }
        }
    }
}

/// The names and addresses that a certificate is for.
pub(super) fn alternative_names(certificate: &X509) -> Vec<String> {
    let names = certificate.subject_alt_names().into_iter().flatten();
    let name = |name: boring::x509::GeneralName| {
        let address = |bytes: &[u8]| match bytes.len() {
            4 => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
            _ => Some(std::net::IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        };
        let ip = || Some(address(name.ipaddress()?)?.to_string());
        name.dnsname().map(str::to_owned).or_else(ip)
    };
    names.filter_map(name).collect()
}

/// Whether the authorities would take our own certificate: they need not be the ones that the peer
/// has, but nearly always are.
fn trust(report: &mut Report, ca_key: &str, own: &X509, more: &[X509], authorities: &[X509]) {
    let verify = || -> Result<Result<(), String>, boring::error::ErrorStack> {
        let mut store = X509StoreBuilder::new()?;
        for authority in authorities {
            store.add_cert(authority)?;
        }
        let mut chain = Stack::new()?;
        for certificate in more {
            chain.push(certificate.clone())?;
        }
        let mut context = X509StoreContext::new()?;
        context.init(&store.build(), own, &chain, |context| {
            Ok(match context.verify_cert()? {
                true => Ok(()),
                false => {
                    Err(context.verify_result().err().map_or_else(String::new, |it| it.to_string()))
                }
            })
        })
    };
    match verify() {
        Ok(Ok(())) => report.ok("chain", format!("the certificate comes from {ca_key}")),
        Ok(Err(problem)) => report.warn(
            "chain",
            format!("by {ca_key} the certificate would not be taken: {problem}"),
            "right only if the peer trusts another authority than this end does; else use \
             certificates of one authority",
        ),
        Err(error) => report.skip("chain", error.to_string(), "see the points above"),
    }
}
