//! What TLS says, in words.

use boring::x509::X509VerifyError;

/// The name of an alert (RFC 8446, Section 6.2).
pub(crate) fn alert(code: u64) -> &'static str {
    match code {
        40 => "handshake failure: the ends have no algorithm in common",
        42 => "bad certificate",
        43 => "unsupported certificate",
        44 => "certificate revoked: it is on the deny-list",
        45 => "certificate expired, or not valid yet",
        46 => "certificate not accepted",
        47 => "illegal parameter",
        48 => "unknown authority",
        49 => "access denied",
        51 => "signature wrong",
        70 => "protocol version",
        80 => "internal error",
        109 => "missing extension",
        112 => "unknown name",
        116 => "certificate required",
        120 => "no application protocol in common",
        _ => "see RFC 8446, Section 6.2",
    }
}

/// Why a certificate is not accepted.
pub fn refusal(error: X509VerifyError) -> String {
    let words = match error {
        X509VerifyError::CERT_HAS_EXPIRED => {
            "the peer's certificate, or one that it comes from, has expired"
        }
        X509VerifyError::CERT_NOT_YET_VALID => {
            "the peer's certificate, or one that it comes from, is not valid yet by this machine's clock"
        }
        X509VerifyError::UNABLE_TO_GET_ISSUER_CERT
        | X509VerifyError::UNABLE_TO_GET_ISSUER_CERT_LOCALLY
        | X509VerifyError::UNABLE_TO_VERIFY_LEAF_SIGNATURE => {
            "the peer's certificate comes from an authority that this end does not trust"
        }
        X509VerifyError::DEPTH_ZERO_SELF_SIGNED_CERT
        | X509VerifyError::SELF_SIGNED_CERT_IN_CHAIN => {
            "the peer's certificate is self-signed, and not one that this end trusts"
        }
        X509VerifyError::CERT_SIGNATURE_FAILURE => {
            "the signature of the peer's certificate is wrong: another authority of the same name made it"
        }
        X509VerifyError::CERT_REVOKED => "the peer's certificate is on the deny-list",
        X509VerifyError::INVALID_CA | X509VerifyError::KEYUSAGE_NO_CERTSIGN => {
            "the peer's certificate comes from one that may not issue certificates"
        }
        X509VerifyError::PATH_LENGTH_EXCEEDED | X509VerifyError::CERT_CHAIN_TOO_LONG => {
            "the peer's certificate comes from an authority too many"
        }
        X509VerifyError::INVALID_PURPOSE => {
            "the peer's certificate is for another use: a server's at a client, or a client's at a server"
        }
        X509VerifyError::HOSTNAME_MISMATCH | X509VerifyError::IP_ADDRESS_MISMATCH => {
            "the peer's certificate is for another name"
        }
        other => return format!("the peer's certificate is not valid (code {})", other.as_raw()),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_refusal_has_words_of_its_own() {
        let said = [
            X509VerifyError::CERT_HAS_EXPIRED,
            X509VerifyError::CERT_NOT_YET_VALID,
            X509VerifyError::UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
            X509VerifyError::SELF_SIGNED_CERT_IN_CHAIN,
            X509VerifyError::CERT_REVOKED,
            X509VerifyError::INVALID_CA,
            X509VerifyError::INVALID_PURPOSE,
            X509VerifyError::HOSTNAME_MISMATCH,
        ]
        .map(refusal);
        for (index, words) in said.iter().enumerate() {
            assert!(!words.contains("code") && !said[..index].contains(words), "{words}");
        }
        assert!(refusal(X509VerifyError::OUT_OF_MEM).contains("code"));
    }
}
