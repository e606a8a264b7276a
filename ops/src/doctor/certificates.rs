//! This end's certificates, and the clock that they are judged by.

use boring::asn1::Asn1TimeRef;
use boring::nid::Nid;
use boring::stack::Stack;
use boring::x509::store::X509StoreBuilder;
use boring::x509::{X509, X509StoreContext};
use millrace_config::Credentials;

use super::report::Report;
use millrace_tunnel::credentials::{CertificateOwner, Contents, Severity, alternative_names};
use millrace_tunnel::tls_words;

const RENEW: &str = "`millrace-server certificates --renew` with the same names";

/// Checks all files that `credentials` names.
pub fn certificates(report: &mut Report, end: CertificateOwner, credentials: &Credentials) {
    let Ok(contents) = Contents::read(end, credentials) else {
        return report.skip("tunnel.certificate", "the clock can't be read", "set it");
    };
    let files = [
        (end.ca_key(), contents.authorities.first()),
        ("tunnel.certificate", contents.chain.first()),
        ("tunnel.private_key", None),
    ];
    for (key, certificate) in files {
        let mut found = contents.problems.iter().filter(|problem| problem.key == key).peekable();
        if found.peek().is_none() {
            report.ok(
                key,
                certificate.map_or_else(|| "belongs to the certificate".to_owned(), expires),
            );
        }
        for problem in found {
            let what = format!("{} {}", problem.file.display(), problem.what);
            match problem.severity {
                Severity::Warning => report.warn(key, what, &problem.right),
                Severity::Refused | Severity::Unusable => report.fail(key, what, &problem.right),
            }
        }
    }
    let Some((own, more)) = contents.chain.split_first() else { return };
    names(report, end, own);
    trust(report, end.ca_key(), own, more, &contents.authorities);
}

fn expires(certificate: &X509) -> String {
    let until: &Asn1TimeRef = certificate.not_after();
    format!("is valid until {until}")
}

fn names(report: &mut Report, end: CertificateOwner, own: &X509) {
    let check = "names";
    match end {
        CertificateOwner::Server => {
            let names = alternative_names(own);
            if !names.is_empty() {
                let names = names.join(", ");
                report.ok(check, format!("clients may give as server_name: {names}"));
            }
        }
        CertificateOwner::Client => {
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
                    Err(context.verify_result().err().map_or_else(String::new, tls_words::refusal))
                }
            })
        })
    };
    match verify() {
        Ok(Ok(())) => report.ok("chain", format!("the certificate comes from {ca_key}")),
        Ok(Err(problem)) => report.warn(
            "chain",
            format!("by {ca_key} the certificate would not be taken: {problem}"),
            "correct only if the peer trusts another authority than this end; otherwise use \
             certificates of one authority",
        ),
        Err(_) => report.skip("chain", "could not be checked", "see the checks above"),
    }
}
