//! What TLS says, in words.

use std::ffi::CStr;

use boring::x509::X509VerifyError;
use boring_sys as ffi;

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

/// What became of early data, from quiche's `early_data_reason`: `accepted`, or why not.
pub(crate) fn early_data(reason: u32) -> &'static str {
    // SAFETY: any number may be asked for; the answer is null or a static string with a zero at its end.
    let text = unsafe {
        let text = ffi::SSL_early_data_reason_string(ffi::ssl_early_data_reason_t(reason));
        (!text.is_null()).then(|| CStr::from_ptr(text))
    };
    text.and_then(|text| text.to_str().ok()).unwrap_or("unknown")
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
    fn outcomes_of_early_data_have_names() {
        let [accepted, none] = [
            ffi::ssl_early_data_reason_t::ssl_early_data_accepted,
            ffi::ssl_early_data_reason_t::ssl_early_data_no_session_offered,
        ];
        assert_eq!(early_data(accepted.0), "accepted");
        assert_eq!(early_data(none.0), "no_session_offered");
        assert_eq!(early_data(u32::MAX), "unknown");
    }

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
