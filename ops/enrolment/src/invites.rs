//! Open invitations: a file each in the directory of the authority. A file has the digest of the secret, not the secret.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use boring::sha::sha256;
use millrace_ops::certificates::{self, CertificateError, ClientName};
use millrace_wire::enrolment::{INVITE_ID_BYTES, INVITE_SECRET_BYTES, InviteId, InviteSecret};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

/// Name of the directory of invitations, in that of the authority.
const INVITES_DIRECTORY: &str = "invites";
/// Most invitations that are open at a time.
const MAX_INVITES: usize = 1000;
/// A larger file is no invitation.
const MAX_INVITE_BYTES: u64 = 1024;

/// Why there is no invitation.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// It is unknown, was used, has expired, or the secret is another. Which of them is in the log only.
    #[error("{0}")]
    Refused(&'static str),
    /// Too many are open.
    #[error("{MAX_INVITES} invitations are open already; remove files in {}", .0.display())]
    TooMany(PathBuf),
    /// A file can't be read, written or removed.
    #[error("can't {action} {}: {error}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file can't be written.
    #[error(transparent)]
    Write(#[from] CertificateError),
    /// The system has no random numbers.
    #[error(transparent)]
    Random(#[from] boring::error::ErrorStack),
}

/// Invitations in the directory of an authority.
#[derive(Clone, Debug)]
pub struct Invites {
    directory: PathBuf,
}

/// An invitation that was made.
#[derive(Debug)]
pub struct NewInvite {
    /// Which it is.
    pub id: InviteId,
    /// Its secret, which is stored nowhere.
    pub secret: InviteSecret,
    /// Until when it is valid, in seconds since 1970-01-01T00:00:00Z.
    pub expires: u64,
}

/// An open invitation, as its file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invite {
    /// The name that the certificate will be for.
    pub name: String,
    /// Until when it is valid, in seconds since 1970-01-01T00:00:00Z.
    pub expires: u64,
    /// SHA-256 of the secret.
    secret_sha256: [u8; 32],
}

impl Invites {
    /// Those of the authority in `authority_dir`.
    pub fn new(authority_dir: &Path) -> Self {
        Self { directory: authority_dir.join(INVITES_DIRECTORY) }
    }

    /// Makes an invitation for `name`, which is valid once and for `lifetime` from `now` on. Removes those that have
    /// expired.
    ///
    /// # Errors
    /// Too many are open, or a file can't be written.
    pub fn create(
        &self,
        name: &ClientName,
        lifetime: Duration,
        now: OffsetDateTime,
    ) -> Result<NewInvite, InviteError> {
        certificates::make_directory(&self.directory)?;
        if self.remove_expired(now)? >= MAX_INVITES {
            return Err(InviteError::TooMany(self.directory.clone()));
        }
        let (mut id, mut secret) = ([0; INVITE_ID_BYTES], [0; INVITE_SECRET_BYTES]);
        boring::rand::rand_bytes(&mut id)?;
        boring::rand::rand_bytes(&mut secret)?;
        let expires = u64::try_from((now + lifetime).unix_timestamp()).unwrap_or_default();
        let invite =
            Invite { name: name.as_str().to_owned(), expires, secret_sha256: sha256(&secret) };
        let id = InviteId(id);
        let path = self.path(id);
        let text =
            serde_json::to_string(&invite).map_err(|error| failed("write", &path, error.into()))?;
        certificates::write_file(&path, &text, 0o600, false)?;
        Ok(NewInvite { id, secret: InviteSecret(secret), expires })
    }

    /// Takes an open invitation and returns the name that it is for: no other call gets it after that.
    ///
    /// # Errors
    /// It is not open, the secret is another, or its file can't be removed.
    pub fn claim(
        &self,
        id: InviteId,
        secret: InviteSecret,
        now: OffsetDateTime,
    ) -> Result<ClientName, InviteError> {
        let path = self.path(id);
        let invite = match read(&path) {
            Ok(invite) => Some(invite),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("read", &path, error)),
        };
        // An unknown invitation takes as long as a wrong secret.
        let expected = invite.as_ref().map_or([0; 32], |invite| invite.secret_sha256);
        let is_right = boring::memcmp::eq(&expected, &sha256(&secret.0));
        let invite = invite.ok_or(InviteError::Refused("no such invitation is open"))?;
        if !is_right {
            return Err(InviteError::Refused("the secret of the invitation is another"));
        }
        // Of two claims at a time one finds the file.
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(InviteError::Refused("no such invitation is open"));
            }
            Err(error) => return Err(failed("remove", &path, error)),
        }
        if invite.is_expired(now) {
            return Err(InviteError::Refused("the invitation has expired"));
        }
        Ok(invite.name.parse()?)
    }

    /// Takes back an invitation whose token could not be handed over.
    ///
    /// # Errors
    /// Its file can't be removed.
    pub fn discard(&self, id: InviteId) -> Result<(), InviteError> {
        let path = self.path(id);
        fs::remove_file(&path).map_err(|error| failed("remove", &path, error))
    }

    /// How many are open, of at most [`MAX_INVITES`].
    pub fn open(&self, now: OffsetDateTime) -> usize {
        let Ok(entries) = fs::read_dir(&self.directory) else { return 0 };
        let entries = entries.flatten().take(MAX_INVITES);
        entries.filter(|it| read(&it.path()).is_ok_and(|invite| !invite.is_expired(now))).count()
    }

    /// Removes invitations that have expired. Returns how many are left.
    fn remove_expired(&self, now: OffsetDateTime) -> Result<usize, InviteError> {
        let entries = fs::read_dir(&self.directory)
            .map_err(|error| failed("read", &self.directory, error))?;
        let mut open = 0;
        for path in entries.flatten().map(|entry| entry.path()) {
            match read(&path) {
                Ok(invite) if invite.is_expired(now) => {
                    fs::remove_file(&path).map_err(|error| failed("remove", &path, error))?;
                }
                _ => open += 1,
            }
        }
        Ok(open)
    }

    fn path(&self, id: InviteId) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }
}

impl Invite {
    fn is_expired(&self, now: OffsetDateTime) -> bool {
        u64::try_from(now.unix_timestamp()).is_ok_and(|now| now >= self.expires)
    }
}

fn read(path: &Path) -> io::Result<Invite> {
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_INVITE_BYTES).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn failed(action: &'static str, path: &Path, error: io::Error) -> InviteError {
    InviteError::File { action, path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
    }

    fn invites() -> (tempfile::TempDir, Invites) {
        let directory = tempfile::tempdir().unwrap();
        let invites = Invites::new(directory.path());
        (directory, invites)
    }

    fn create(invites: &Invites, name: &str) -> NewInvite {
        invites.create(&name.parse().unwrap(), Duration::HOUR, now()).unwrap()
    }

    #[test]
    fn invitation_is_valid_once() {
        let (_directory, invites) = invites();
        let made = create(&invites, "edge-1");
        let name = invites.claim(made.id, made.secret, now()).unwrap();
        assert_eq!(name.as_str(), "edge-1");
        let error = invites.claim(made.id, made.secret, now()).unwrap_err();
        assert!(matches!(error, InviteError::Refused(_)), "{error}");
    }

    #[test]
    fn wrong_secret_leaves_the_invitation_open() {
        let (_directory, invites) = invites();
        let (made, other) = (create(&invites, "edge-1"), create(&invites, "edge-2"));
        for secret in [other.secret, InviteSecret([0; INVITE_SECRET_BYTES])] {
            assert!(invites.claim(made.id, secret, now()).is_err());
        }
        assert!(invites.claim(InviteId([0; INVITE_ID_BYTES]), made.secret, now()).is_err());
        invites.claim(made.id, made.secret, now()).unwrap();
    }

    #[test]
    fn expired_invitation_is_refused_and_removed() {
        let (directory, invites) = invites();
        let made = create(&invites, "edge-1");
        let later = now() + Duration::HOUR;
        let error = invites.claim(made.id, made.secret, later).unwrap_err();
        assert!(error.to_string().contains("expired"), "{error}");
        let open = || fs::read_dir(directory.path().join(INVITES_DIRECTORY)).unwrap().count();
        assert_eq!(open(), 0);
        create(&invites, "edge-2");
        invites.create(&"edge-3".parse().unwrap(), Duration::HOUR, later).unwrap();
        assert_eq!(open(), 1);
    }

    #[test]
    fn one_of_many_claims_at_a_time_succeeds() {
        let (_directory, invites) = invites();
        let made = create(&invites, "edge-1");
        let claimed = std::thread::scope(|scope| {
            let claim = || invites.claim(made.id, made.secret, now()).is_ok();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().filter_map(|it| it.join().ok()).filter(|it| *it).count()
        });
        assert_eq!(claimed, 1);
    }

    #[test]
    fn file_has_the_digest_and_is_its_owners_only() {
        let (directory, invites) = invites();
        let made = create(&invites, "edge-1");
        let path = directory.path().join(INVITES_DIRECTORY).join(format!("{}.json", made.id));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let stored = read(&path).unwrap();
        assert_eq!(stored.secret_sha256, sha256(&made.secret.0));
        fs::write(&path, "{").unwrap();
        let error = invites.claim(made.id, made.secret, now()).unwrap_err();
        assert!(matches!(error, InviteError::File { action: "read", .. }), "{error}");
    }

    #[test]
    fn number_of_open_invitations_is_bounded() {
        let (directory, invites) = invites();
        create(&invites, "edge-1");
        for index in 1..MAX_INVITES {
            let path = directory.path().join(INVITES_DIRECTORY).join(format!("{index}.json"));
            fs::write(path, "").unwrap();
        }
        let error = invites.create(&"edge-2".parse().unwrap(), Duration::HOUR, now()).unwrap_err();
        assert!(matches!(error, InviteError::TooMany(_)), "{error}");
    }
}
