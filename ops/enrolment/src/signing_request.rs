//! The key of a client, and the certificate signing request (PKCS #10, RFC 2986) by which it asks for a certificate.

use boring::error::ErrorStack;
use boring::nid::Nid;
use boring::pkey::{HasPublic, Id, PKeyRef};
use boring::x509::X509Req;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

/// A new private key, ECDSA on P-256.
#[derive(Debug)]
pub struct SigningKey(KeyPair);

impl SigningKey {
    /// Makes a key.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, rcgen::Error> {
        KeyPair::generate().map(Self)
    }

    /// The private key, PKCS #8 in PEM.
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// A signing request in DER, without a name: the server knows for whom the certificate is.
    ///
    /// # Errors
    /// The request can't be signed.
    pub(crate) fn request(&self) -> Result<Vec<u8>, rcgen::Error> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        Ok(parameters.serialize_request(&self.0)?.der().to_vec())
    }
}

/// The public key of a signing request (SubjectPublicKeyInfo in DER); `None` if it is not valid, its signature is not by
/// this key, or the key is not on P-256. Names and extensions of the request do not count.
pub(crate) fn public_key(request: &[u8]) -> Option<Vec<u8>> {
    let request = X509Req::from_der(request).ok()?;
    let key = request.public_key().ok()?;
    let is_signed = is_p256(&key) && request.verify(&key).unwrap_or(false);
    // What is left in the queue of errors would be taken for a later one.
    drop(ErrorStack::get());
    if is_signed { key.public_key_to_der().ok() } else { None }
}

/// Whether it is an ECDSA key on P-256, as all keys that this crate makes.
pub(crate) fn is_p256<T: HasPublic>(key: &PKeyRef<T>) -> bool {
    key.id() == Id::EC
        && key.ec_key().is_ok_and(|key| key.group().curve_name() == Some(Nid::X9_62_PRIME256V1))
}

#[cfg(test)]
mod tests {
    use boring::ec::{EcGroup, EcKey};
    use boring::hash::MessageDigest;
    use boring::pkey::{PKey, Private};
    use boring::rsa::Rsa;
    use proptest::prelude::*;

    use super::*;

    fn request_of(key: &PKey<Private>) -> Vec<u8> {
        let mut builder = X509Req::builder().unwrap();
        builder.set_pubkey(key).unwrap();
        builder.sign(key, MessageDigest::sha256()).unwrap();
        builder.build().to_der().unwrap()
    }

    fn ec(curve: Nid) -> PKey<Private> {
        let group = EcGroup::from_curve_name(curve).unwrap();
        PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
    }

    #[test]
    fn key_of_a_request_is_that_of_its_maker() {
        let key = SigningKey::generate().unwrap();
        let public = public_key(&key.request().unwrap()).unwrap();
        let private = PKey::private_key_from_pem(key.to_pem().as_bytes()).unwrap();
        assert_eq!(public, private.public_key_to_der().unwrap());
        assert!(public_key(&request_of(&ec(Nid::X9_62_PRIME256V1))).is_some());
    }

    #[test]
    fn other_keys_are_refused() {
        let rsa = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
        for key in [rsa, ec(Nid::SECP384R1)] {
            assert_eq!(public_key(&request_of(&key)), None);
        }
    }

    #[test]
    fn request_with_a_foreign_signature_is_refused() {
        let mut builder = X509Req::builder().unwrap();
        builder.set_pubkey(&ec(Nid::X9_62_PRIME256V1)).unwrap();
        builder.sign(&ec(Nid::X9_62_PRIME256V1), MessageDigest::sha256()).unwrap();
        assert_eq!(public_key(&builder.build().to_der().unwrap()), None);
    }

    proptest! {
        #[test]
        fn damaged_request_is_refused_or_has_the_same_key(at: prop::sample::Index, bit in 0..8_u32) {
            let key = SigningKey::generate().unwrap();
            let mut request = key.request().unwrap();
            let before = public_key(&request);
            let at = at.index(request.len());
            request[at] ^= 1 << bit;
            let after = public_key(&request);
            prop_assert!(after.is_none() || after == before);
        }

        #[test]
        fn other_bytes_are_no_request(bytes: Vec<u8>) {
            prop_assert_eq!(public_key(&bytes), None);
        }
    }
}
