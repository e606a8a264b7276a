//! The file that `credentials_file` of a `[[listen]]` names: who may use an explicit proxy.
//!
//! One user a line: `NAME:PASSWORD`. Lines that begin with `#` and empty lines count for nothing.

use std::fmt;
use std::io;
use std::path::Path;

use crate::secret_file;

/// Most users of one file: each attempt is compared with all of them.
const MAX_USERS: usize = 1000;
/// Longest name and longest password, in bytes (RFC 1929).
const MAX_CREDENTIAL_BYTES: usize = 255;
/// A larger file holds more users than there may be.
const MAX_FILE_BYTES: u64 = (MAX_USERS * (2 * MAX_CREDENTIAL_BYTES + 2)) as u64;

/// Names and passwords of an explicit proxy's users. They are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUsers(Vec<(String, String)>);

impl ProxyUsers {
    /// Reads the users from a file that not every user of this host can read.
    ///
    /// # Errors
    /// What is wrong with the file, and what would be right.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = secret_file::read(path, MAX_FILE_BYTES)?.text;
        let users: Result<Vec<_>, _> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .map(|(index, line)| user_of(line).ok_or(index + 1))
            .collect();
        let users = users.map_err(|line| {
            // The line itself is not shown: it is a secret.
            let expected =
                "expected NAME:PASSWORD, 1 to 255 bytes each, without control characters";
            secret_file::wrong(path, format!("line {line}: {expected}"))
        })?;
        match users.len() {
            0 => Err(secret_file::wrong(path, "has no line NAME:PASSWORD")),
            1..=MAX_USERS => Ok(Self(users)),
            _ => Err(secret_file::wrong(path, format!("has more than {MAX_USERS} users"))),
        }
    }

    /// Names and passwords.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, password)| (name.as_str(), password.as_str()))
    }
}

/// The name and the password of a line; a name has no colon (RFC 7617, Section 2).
fn user_of(line: &str) -> Option<(String, String)> {
    let (name, password) = line.split_once(':')?;
    let is_good = |text: &str| {
        (1..=MAX_CREDENTIAL_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
    };
    (is_good(name) && is_good(password)).then(|| (name.to_owned(), password.to_owned()))
}

impl fmt::Debug for ProxyUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyUsers({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn users_of(text: &str, mode: u32) -> io::Result<ProxyUsers> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        ProxyUsers::read(file.path())
    }

    #[test]
    fn names_and_passwords_are_read_and_not_printed() {
        let users = users_of("# players\n\nanna:pass:word\r\nbert: \n", 0o640).unwrap();
        assert_eq!(users.iter().collect::<Vec<_>>(), [("anna", "pass:word"), ("bert", " ")]);
        assert_eq!(format!("{users:?}"), "ProxyUsers(2)");
    }

    #[test]
    fn wrong_files_are_refused_without_showing_them() {
        let long = format!("anna:{}", "x".repeat(256));
        let many = "anna:x\n".repeat(MAX_USERS + 1);
        for (text, mode, problem) in [
            ("anna:secret", 0o644, "chmod 600"),
            ("", 0o600, "no line NAME:PASSWORD"),
            ("# anna:secret\n", 0o600, "no line NAME:PASSWORD"),
            ("anna:x\nsecret\n", 0o600, "line 2: expected NAME:PASSWORD"),
            ("anna:", 0o600, "line 1: expected"),
            (":secret", 0o600, "line 1: expected"),
            ("anna:se\tcret", 0o600, "line 1: expected"),
            (&long, 0o600, "line 1: expected"),
            (&many, 0o600, "more than 1000 users"),
        ] {
            let error = users_of(text, mode).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
