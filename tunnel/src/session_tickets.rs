//! Session tickets of a server (RFC 8446, Section 4.6.1): sealed with keys that all workers share and that
//! replace themselves, and opened only for clients whose certificate is still accepted.
//!
//! A ticket that is not opened costs the client a round trip: the handshake becomes a full one, in which the
//! certificate is verified as always, and early data is rejected.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::slice;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use boring::error::ErrorStack;
use boring::ex_data::Index;
use boring::rand::rand_bytes;
use boring::ssl::{SslContext, SslContextBuilder, SslRef, SslSession};
use boring::symm::{Cipher, decrypt_aead, encrypt_aead};
use boring_sys as ffi;
use foreign_types::ForeignTypeRef;
use millrace_config::SessionTickets;

use crate::peer_verification::PeerVerifier;

/// Name of the key of a ticket (RFC 5077, Section 4).
const NAME_BYTES: usize = 16;
/// NIST SP 800-38D, Section 8.2.2: random ones do for 2^32 tickets of a key.
const NONCE_BYTES: usize = 12;
/// Authentication tag of AES-GCM (NIST SP 800-38D, Section 5.2.1.2: the longest).
const TAG_BYTES: usize = 16;
/// Bytes of a ticket beside the encrypted session.
const OVERHEAD_BYTES: usize = NAME_BYTES + NONCE_BYTES + TAG_BYTES;

/// The keys of a process.
pub struct TicketKeys(Mutex<Keys>);

struct Keys {
    settings: SessionTickets,
    /// The newest first; bounded by the configuration's check of lifetime and rotation.
    keys: VecDeque<Key>,
}

struct Key {
    name: [u8; NAME_BYTES],
    secret: [u8; 32],
    made: Instant,
}

impl TicketKeys {
    /// No key yet: the first ticket makes one.
    #[must_use]
    pub fn new(settings: SessionTickets) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Keys { settings, keys: VecDeque::new() })))
    }

    /// Other settings from now on, for the keys that exist too.
    pub fn set(&self, settings: SessionTickets) {
        self.keys().settings = settings;
    }

    // Keys are right whatever thread panicked beside them.
    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lifetime(&self) -> Duration {
        self.keys().settings.lifetime
    }

    /// `name | nonce | ciphertext | tag`.
    fn seal(&self, now: Instant, session: &[u8]) -> Result<Vec<u8>, ErrorStack> {
        let mut keys = self.keys();
        let key = keys.newest(now)?;
        let (mut nonce, mut tag) = ([0; NONCE_BYTES], [0; TAG_BYTES]);
        rand_bytes(&mut nonce)?;
        let cipher = Cipher::aes_256_gcm();
        let sealed = encrypt_aead(cipher, &key.secret, Some(&nonce), &key.name, session, &mut tag)?;
        Ok([&key.name[..], &nonce, &sealed, &tag].concat())
    }

    fn open(&self, now: Instant, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let (sealed, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        let mut keys = self.keys();
        keys.forget_old(now);
        let key = keys.keys.iter().find(|key| key.name == *name)?;
        decrypt_aead(Cipher::aes_256_gcm(), &key.secret, Some(nonce), name, sealed, tag).ok()
    }
}

impl Keys {
    /// The key that tickets are sealed with.
    fn newest(&mut self, now: Instant) -> Result<&Key, ErrorStack> {
        self.forget_old(now);
        let rotation = self.settings.rotation;
        let is_due = |key: &Key| now.saturating_duration_since(key.made) >= rotation;
        if self.keys.front().is_none_or(is_due) {
            let mut key = Key { name: [0; NAME_BYTES], secret: [0; 32], made: now };
            rand_bytes(&mut key.name)?;
            rand_bytes(&mut key.secret)?;
            self.keys.push_front(key);
        }
        Ok(self.keys.front().expect("one was made if there was none"))
    }

    /// A key has sealed its last ticket after `rotation`, and that one is of use for `lifetime`.
    fn forget_old(&mut self, now: Instant) {
        let SessionTickets { lifetime, rotation } = self.settings;
        self.keys.retain(|key| now.saturating_duration_since(key.made) < rotation + lifetime);
    }
}

/// What the callbacks of a TLS context need.
struct Tickets {
    keys: Arc<TicketKeys>,
    verifier: PeerVerifier,
}

static TICKETS: LazyLock<Index<SslContext, Tickets>> =
    LazyLock::new(|| SslContext::new_ex_index().expect("an index is a number and some bytes"));

static METHOD: ffi::SSL_TICKET_AEAD_METHOD = ffi::SSL_TICKET_AEAD_METHOD {
    max_overhead: Some(max_overhead),
    seal: Some(seal),
    open: Some(open),
};

/// Lets a server's context seal its tickets with `keys`, and open those of clients that `verifier` accepts.
pub(crate) fn install(tls: &mut SslContextBuilder, keys: Arc<TicketKeys>, verifier: PeerVerifier) {
    let lifetime_s = u32::try_from(keys.lifetime().as_secs()).unwrap_or(u32::MAX);
    tls.set_ex_data(*TICKETS, Tickets { keys, verifier });
    // SAFETY: the context is valid, and the method lives as long as the process.
    unsafe {
        ffi::SSL_CTX_set_session_psk_dhe_timeout(tls.as_ptr(), lifetime_s);
        ffi::SSL_CTX_set_ticket_aead_method(tls.as_ptr(), &raw const METHOD);
    }
}

impl Tickets {
    /// The session in a ticket, if its client would be accepted in a full handshake now.
    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let session = self.keys.open(Instant::now(), ticket)?;
        let parsed = SslSession::from_der(&session).ok()?;
        match self.verifier.verify_session(&parsed, None) {
            Ok(()) => Some(session),
            Err(refusal) => {
                tracing::debug!(%refusal, "session not resumed: client certificate not accepted");
                None
            }
        }
    }
}

/// # Safety
/// `ssl` is that of a callback.
unsafe fn tickets<'a>(ssl: *mut ffi::SSL) -> Option<&'a Tickets> {
    // SAFETY: BoringSSL passes a valid connection, and its context outlives the callback.
    let ssl: &'a SslRef = unsafe { SslRef::from_ptr(ssl) };
    ssl.ssl_context().ex_data(*TICKETS)
}

unsafe extern "C" fn max_overhead(_ssl: *mut ffi::SSL) -> usize {
    OVERHEAD_BYTES
}

unsafe extern "C" fn seal(
    ssl: *mut ffi::SSL,
    out: *mut u8,
    out_len: *mut usize,
    max_out_len: usize,
    session: *const u8,
    session_len: usize,
) -> c_int {
    // SAFETY: BoringSSL passes `session_len` readable bytes.
    let (tickets, session) = unsafe { (tickets(ssl), slice::from_raw_parts(session, session_len)) };
    let sealed = tickets.and_then(|it| it.keys.seal(Instant::now(), session).ok());
    // SAFETY: BoringSSL passes room for `max_out_len` bytes.
    c_int::from(unsafe { put(sealed.as_deref(), out, out_len, max_out_len) })
}

unsafe extern "C" fn open(
    ssl: *mut ffi::SSL,
    out: *mut u8,
    out_len: *mut usize,
    max_out_len: usize,
    ticket: *const u8,
    ticket_len: usize,
) -> ffi::ssl_ticket_aead_result_t {
    // SAFETY: BoringSSL passes `ticket_len` readable bytes.
    let (tickets, ticket) = unsafe { (tickets(ssl), slice::from_raw_parts(ticket, ticket_len)) };
    let session = tickets.and_then(|it| it.open(ticket));
    // What is left in the thread's queue of errors would end the handshake that goes on.
    drop(ErrorStack::get());
    // SAFETY: BoringSSL passes room for `max_out_len` bytes.
    match unsafe { put(session.as_deref(), out, out_len, max_out_len) } {
        true => ffi::ssl_ticket_aead_result_t::ssl_ticket_aead_success,
        false => ffi::ssl_ticket_aead_result_t::ssl_ticket_aead_ignore_ticket,
    }
}

/// # Safety
/// `out` has room for `max_out_len` bytes, and `out_len` is valid.
unsafe fn put(bytes: Option<&[u8]>, out: *mut u8, out_len: *mut usize, max_out_len: usize) -> bool {
    let Some(bytes) = bytes.filter(|bytes| bytes.len() <= max_out_len) else { return false };
    // SAFETY: they fit, and a buffer of BoringSSL does not overlap one of ours.
    unsafe {
        out.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        *out_len = bytes.len();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn keys(lifetime_s: u64, rotation_s: u64) -> Arc<TicketKeys> {
        let [lifetime, rotation] = [lifetime_s, rotation_s].map(Duration::from_secs);
        TicketKeys::new(SessionTickets { lifetime, rotation })
    }

    #[test]
    fn ticket_opens_for_one_lifetime_after_its_key_was_replaced() {
        let (keys, start) = (keys(100, 10), Instant::now());
        let first = keys.seal(start, b"session").unwrap();
        let last = keys.seal(start + 9 * SECOND, b"last").unwrap();
        let other = keys.seal(start + 10 * SECOND, b"other").unwrap();
        let name = |ticket: &[u8]| ticket[..NAME_BYTES].to_vec();
        assert_eq!(name(&first), name(&last));
        assert_ne!(name(&first), name(&other));
        for at in [start, start + 109 * SECOND] {
            assert_eq!(keys.open(at, &first).unwrap(), b"session");
            assert_eq!(keys.open(at, &last).unwrap(), b"last");
        }
        assert_eq!(keys.open(start + 110 * SECOND, &last), None);
        assert_eq!(keys.open(start + 110 * SECOND, &other).unwrap(), b"other");
    }

    #[test]
    fn number_of_keys_is_bounded() {
        let (keys, start) = (keys(100, 10), Instant::now());
        for second in 0..1000 {
            keys.seal(start + second * SECOND, b"session").unwrap();
        }
        assert_eq!(keys.keys().keys.len(), 11);
    }

    #[test]
    fn changed_or_foreign_ticket_does_not_open() {
        let (keys, now) = (keys(100, 10), Instant::now());
        let ticket = keys.seal(now, b"session").unwrap();
        assert_eq!(ticket.len(), b"session".len() + OVERHEAD_BYTES);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(keys.open(now, &changed), None, "byte {at}");
            assert_eq!(keys.open(now, &ticket[..at]), None, "{at} bytes");
        }
        assert_eq!(self::keys(100, 10).open(now, &ticket), None);
    }

    #[test]
    fn shorter_lifetime_applies_to_existing_keys() {
        let (keys, start) = (keys(100, 10), Instant::now());
        let ticket = keys.seal(start, b"session").unwrap();
        keys.set(SessionTickets { lifetime: SECOND, rotation: 2 * SECOND });
        assert_eq!(keys.open(start + 3 * SECOND, &ticket), None);
    }
}
