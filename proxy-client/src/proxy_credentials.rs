//! Who may use an explicit proxy: user names and passwords, compared in constant time.

use std::fmt;

use boring::base64::decode_block;
use boring::sha::sha256;
use millrace_config::ProxyUsers;

/// SHA-256 of a user name with its password.
type Digest = [u8; 32];

/// The users of a listener. It keeps digests, so that a comparison takes the same time whatever the lengths and
/// wherever two of them differ.
pub struct ProxyCredentials(Vec<Digest>);

impl ProxyCredentials {
    /// Those of a file.
    pub fn new(users: &ProxyUsers) -> Self {
        let digest = |(name, password): (&str, &str)| digest(name.as_bytes(), password.as_bytes());
        Self(users.iter().map(digest).collect())
    }

    /// Whether a user has this name and this password. All users are compared, whichever it is.
    pub fn admit(&self, name: &[u8], password: &[u8]) -> bool {
        // A name of SOCKS5 may have a colon: it would be read as the beginning of the password.
        let may_be_known = !name.contains(&b':');
        let shown = digest(name, password);
        let compare = |found, known: &Digest| found | boring::memcmp::eq(known, &shown);
        self.0.iter().fold(false, compare) & may_be_known
    }

    /// As [`Self::admit`], of `NAME:PASSWORD` in Base64 (RFC 7617, Section 2).
    pub fn admit_basic(&self, encoded: &str) -> bool {
        let Ok(shown) = decode_block(encoded) else { return false };
        let Some(colon) = shown.iter().position(|byte| *byte == b':') else { return false };
        self.admit(&shown[..colon], &shown[colon + 1..])
    }
}

/// A name has no colon, so that two pairs never give the same text.
fn digest(name: &[u8], password: &[u8]) -> Digest {
    sha256(&[name, b":", password].concat())
}

impl fmt::Debug for ProxyCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyCredentials({})", self.0.len())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The users of a file with this text.
    pub(crate) fn credentials(text: &str) -> ProxyCredentials {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
        ProxyCredentials::new(&ProxyUsers::read(file.path()).unwrap())
    }

    #[test]
    fn each_user_is_admitted_with_the_own_password_only() {
        let known = credentials("anna:secret\nbert:other:word\n");
        for (name, password, is_admitted) in [
            ("anna", "secret", true),
            ("bert", "other:word", true),
            ("anna", "other:word", false),
            ("anna", "secre", false),
            ("anna", "secret ", false),
            ("Anna", "secret", false),
            ("bert:other", "word", false),
            ("", "", false),
        ] {
            let admitted = known.admit(name.as_bytes(), password.as_bytes());
            assert_eq!(admitted, is_admitted, "{name}:{password}");
        }
        assert!(!format!("{known:?}").contains("anna"));
    }

    #[test]
    fn basic_credentials_are_decoded() {
        let known = credentials("anna:secret\nbert:other:word\n");
        for (shown, is_admitted) in
            [("anna:secret", true), ("bert:other:word", true), ("anna:", false), ("anna", false)]
        {
            let encoded = boring::base64::encode_block(shown.as_bytes());
            assert_eq!(known.admit_basic(&encoded), is_admitted, "{shown}");
        }
        for malformed in ["", "=", "====", "YW5uYTpzZWNyZXQ", "\u{e9}", "YW5u YTpz"] {
            assert!(!known.admit_basic(malformed), "{malformed:?}");
        }
    }
}
