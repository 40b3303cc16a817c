//! Private keys that sign tokens and certificates, in PEM (PKCS#1, PKCS#8 or SEC1).
//!
//! ring signs with RSA keys of 2048 to 4096 bits, on P-256 and P-384, and with Ed25519. It has no other RSA keys and no P-521, and
//! it refuses elliptic keys without their public part: the crates `rsa` and `p521` sign with the former, and the public part is
//! derived for ring. Both sign in constant time, and `rsa` blinds each signature with random numbers of the system.
//!
//! A signature by a large RSA key takes many milliseconds, so callers sign on a pool. No key is shown, not even by `Debug`, and no
//! error quotes a file.

use std::fmt;

use p521::ecdsa::signature::Signer as _;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING,
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rsa::pkcs1::{DecodeRsaPrivateKey as _, EncodeRsaPublicKey as _};
use rsa::pkcs8::DecodePrivateKey as _;
use rsa::sha2::Sha256;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

/// The private keys that sign tokens, for errors.
pub const TOKEN_KEYS: &str = "RSA (1024 to 8192 bits) or ECDSA (P-256, P-384, P-521)";
/// The private keys that sign certificates, for errors.
pub const CERTIFICATE_KEYS: &str = "RSA (1024 to 8192 bits), ECDSA (P-256, P-384, P-521) or Ed25519";

/// A private key.
pub struct PrivateKey(Inner);

enum Inner {
    Rsa(Box<RsaKeyPair>),
    /// Of a size or an exponent that ring refuses.
    OtherRsa(Box<rsa::PrivateKey>),
    P256(Box<Elliptic>),
    P384(Box<Elliptic>),
    P521(Box<p521::ecdsa::SigningKey>),
    Ed25519(Box<Ed25519KeyPair>),
}

/// A key pair of ring on a curve, for each form of its signatures.
struct Elliptic {
    fixed: EcdsaKeyPair,
    der: EcdsaKeyPair,
}

/// The algorithm of a key and of its signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rsa,
    /// ECDSA on P-256 with SHA-256.
    P256,
    /// ECDSA on P-384 with SHA-384.
    P384,
    /// ECDSA on P-521 with SHA-512.
    P521,
    /// Ed25519.
    Ed25519,
}

/// The form of signatures by elliptic keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureForm {
    /// Both numbers, each as long as the order of the curve (RFC 7518).
    Fixed,
    /// A sequence of two numbers in DER, as in certificates.
    Der,
}

/// A key that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateKeyError {
    /// The text contains no private key.
    Absent,
    /// The private key is of a kind that does not sign, or it is malformed.
    Unsupported,
}

/// A signature that could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sign with the private key: failed")]
pub struct SignError;

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("algorithm", &self.algorithm()).finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// Reads the first private key of a PEM file.
    ///
    /// # Errors
    /// There is none, or none that signs.
    pub fn from_pem(pem: &[u8]) -> Result<Self, PrivateKeyError> {
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|_| PrivateKeyError::Absent)?;
        let inner = match &der {
            PrivateKeyDer::Pkcs1(der) => {
                let der = der.secret_pkcs1_der();
                let by_ring = RsaKeyPair::from_der(der).ok().map(|key| Inner::Rsa(Box::new(key)));
                by_ring.or_else(|| other_rsa(rsa::PrivateKey::from_pkcs1_der(der).ok()))
            }
            PrivateKeyDer::Pkcs8(der) => of_pkcs8(der.secret_pkcs8_der()),
            PrivateKeyDer::Sec1(der) => {
                let der = der.secret_sec1_der();
                p256_key(p256::SecretKey::from_sec1_der(der).ok())
                    .or_else(|| p384_key(p384::SecretKey::from_sec1_der(der).ok()))
                    .or_else(|| p521_key(p521::SecretKey::from_sec1_der(der).ok()))
            }
            _ => None,
        };
        inner.map(Self).ok_or(PrivateKeyError::Unsupported)
    }

    /// The algorithm of its signatures.
    pub fn algorithm(&self) -> KeyAlgorithm {
        match &self.0 {
            Inner::Rsa(_) | Inner::OtherRsa(_) => KeyAlgorithm::Rsa,
            Inner::P256(_) => KeyAlgorithm::P256,
            Inner::P384(_) => KeyAlgorithm::P384,
            Inner::P521(_) => KeyAlgorithm::P521,
            Inner::Ed25519(_) => KeyAlgorithm::Ed25519,
        }
    }

    /// The bits of the public key, as a `SubjectPublicKeyInfo` contains them.
    pub fn public_key(&self) -> Vec<u8> {
        match &self.0 {
            Inner::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            // A key that was read always has a public part that can be encoded.
            Inner::OtherRsa(key) => {
                key.as_public_key().to_pkcs1_der().map(|der| der.as_bytes().to_vec()).unwrap_or_default()
            }
            Inner::P256(pair) | Inner::P384(pair) => pair.der.public_key().as_ref().to_vec(),
            Inner::P521(key) => key.verifying_key().to_sec1_point(false).as_bytes().to_vec(),
            Inner::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// Signs a message. The form counts for elliptic keys alone. This takes many milliseconds with a large RSA key.
    ///
    /// # Errors
    /// The system has no random numbers, or a fault was found in a signature.
    pub fn sign(&self, message: &[u8], form: SignatureForm) -> Result<Vec<u8>, SignError> {
        let random = SystemRandom::new();
        match &self.0 {
            Inner::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let signed = pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                signed.map(|()| signature).map_err(|_| SignError)
            }
            Inner::OtherRsa(key) => key.pkcs1v15_sign::<Sha256>(message).map_err(|_| SignError),
            Inner::P256(pair) | Inner::P384(pair) => {
                let pair = match form {
                    SignatureForm::Fixed => &pair.fixed,
                    SignatureForm::Der => &pair.der,
                };
                let signature = pair.sign(&random, message).map_err(|_| SignError)?;
                Ok(signature.as_ref().to_vec())
            }
            Inner::P521(key) => {
                let signature: p521::ecdsa::Signature = key.try_sign(message).map_err(|_| SignError)?;
                Ok(match form {
                    SignatureForm::Fixed => signature.to_bytes().to_vec(),
                    SignatureForm::Der => signature.to_der().as_bytes().to_vec(),
                })
            }
            Inner::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

fn of_pkcs8(der: &[u8]) -> Option<Inner> {
    let by_ring = RsaKeyPair::from_pkcs8(der).ok().map(|key| Inner::Rsa(Box::new(key)));
    by_ring
        .or_else(|| other_rsa(rsa::PrivateKey::from_pkcs8_der(der).ok()))
        .or_else(|| p256_key(p256::SecretKey::from_pkcs8_der(der).ok()))
        .or_else(|| p384_key(p384::SecretKey::from_pkcs8_der(der).ok()))
        .or_else(|| p521_key(p521::SecretKey::from_pkcs8_der(der).ok()))
        .or_else(|| {
            let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok();
            key.map(|key| Inner::Ed25519(Box::new(key)))
        })
}

fn other_rsa(key: Option<rsa::PrivateKey>) -> Option<Inner> {
    key.map(|key| Inner::OtherRsa(Box::new(key)))
}

/// A pair of ring from both of its parts, for each form.
fn elliptic(
    private: &[u8],
    public: &[u8],
    forms: [&'static EcdsaSigningAlgorithm; 2],
) -> Option<Box<Elliptic>> {
    let random = SystemRandom::new();
    let [fixed, der] =
        forms.map(|form| EcdsaKeyPair::from_private_key_and_public_key(form, private, public, &random).ok());
    Some(Box::new(Elliptic { fixed: fixed?, der: der? }))
}

fn p256_key(key: Option<p256::SecretKey>) -> Option<Inner> {
    let key = key?;
    let public = key.public_key().to_sec1_bytes();
    let forms = [&ECDSA_P256_SHA256_FIXED_SIGNING, &ECDSA_P256_SHA256_ASN1_SIGNING];
    elliptic(&key.to_bytes(), &public, forms).map(Inner::P256)
}

fn p384_key(key: Option<p384::SecretKey>) -> Option<Inner> {
    let key = key?;
    let public = key.public_key().to_sec1_bytes();
    let forms = [&ECDSA_P384_SHA384_FIXED_SIGNING, &ECDSA_P384_SHA384_ASN1_SIGNING];
    elliptic(&key.to_bytes(), &public, forms).map(Inner::P384)
}

fn p521_key(key: Option<p521::SecretKey>) -> Option<Inner> {
    key.map(|key| Inner::P521(Box::new(p521::ecdsa::SigningKey::from(key))))
}
