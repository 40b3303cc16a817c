//! Private keys that sign handshakes.
//!
//! ring signs with most RSA keys of 2048 to 4096 bits, on P-256 and P-384, and with Ed25519. The crate `rsa` signs with other RSA keys of 1024 to
//! 8192 bits, the sizes whose signatures Go verifies. The crates of the curves sign on P-521, and by keys on P-256 and P-384 that lack
//! their public part. Nothing signs on P-224: TLS 1.3 lacks that curve, so no API server and no client of today accepts the handshake.

use std::fmt;
use std::sync::Arc;

use p521::ecdsa::signature::hazmat::PrehashSigner as _;
use p521::pkcs8::DecodePrivateKey as _;
use ring::digest;
use rsa::pkcs1::{DecodeRsaPrivateKey as _, EncodeRsaPublicKey as _, RsaPrivateKeyRef, RsaPublicKeyRef};
use rsa::pkcs8::PrivateKeyInfoRef;
use rsa::pkcs8::der::Decode as _;
use rsa::sha2::{Sha256, Sha384, Sha512};
use rustls::crypto::{CryptoProvider, KeyProvider};
use rustls::sign::{CertifiedKey, Signer, SigningKey, public_key_to_spki};
use rustls::{SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer, alg_id};
use x509_cert::der::Tag;

use super::algorithms::bit_length;
use crate::x509::{Certificate, Elements, Malformed};

/// The private keys that sign handshakes, for errors.
pub const TLS_KEYS: &str = "RSA (1024 to 8192 bits), ECDSA (P-256, P-384, P-521) or Ed25519";

/// The smallest RSA key, in bits. Go signs nothing with a smaller one.
const MIN_RSA_BITS: usize = 1024;
/// The largest RSA key, in bits. Go verifies no handshake that is signed by a larger one.
const MAX_RSA_BITS: usize = 8192;

/// The largest RSA key, in bits, that signs on the thread of its connection. One signature, in a release build on a busy core, takes 1.1 ms
/// with 2048 bits, 2.6 ms with 3072 and 5.4 ms with 4096 (ring), 15 ms with 4104 and 136 ms with 8192 (`rsa`).
const FAST_RSA_BITS: usize = 2048;

/// Reads private keys.
#[derive(Debug)]
pub(super) struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        let by_ring = rustls::crypto::ring::default_provider().key_provider.load_private_key(key.clone_key());
        by_ring.or_else(|error| {
            let elliptic = Elliptic::read(&key).map(|key| Arc::new(key) as Arc<dyn SigningKey>);
            elliptic.or_else(|| Some(Arc::new(OtherRsa::read(&key)?))).ok_or(error)
        })
    }
}

/// Signs a message.
type Sign = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;

/// A key on a curve, in a form that ring does not read.
#[derive(Clone)]
struct Elliptic {
    sign: Arc<Sign>,
    public_key: SubjectPublicKeyInfoDer<'static>,
    scheme: SignatureScheme,
}

impl fmt::Debug for Elliptic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elliptic").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl Elliptic {
    fn read(key: &PrivateKeyDer<'_>) -> Option<Self> {
        macro_rules! read_on {
            ($curve:ident, $id:expr, $digest:ident, $scheme:ident) => {
                let read = match key {
                    PrivateKeyDer::Pkcs8(der) => {
                        $curve::SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok()
                    }
                    PrivateKeyDer::Sec1(der) => $curve::SecretKey::from_sec1_der(der.secret_sec1_der()).ok(),
                    _ => None,
                };
                if let Some(key) = read {
                    let key = $curve::ecdsa::SigningKey::from(key);
                    let point = key.verifying_key().to_sec1_point(false);
                    let sign = move |message: &[u8]| {
                        let digest = digest::digest(&digest::$digest, message);
                        let signature: $curve::ecdsa::Signature = key.sign_prehash(digest.as_ref()).ok()?;
                        Some(signature.to_der().as_bytes().to_vec())
                    };
                    return Some(Self {
                        public_key: public_key_to_spki(&$id, point.as_bytes()),
                        scheme: SignatureScheme::$scheme,
                        sign: Arc::new(sign),
                    });
                }
            };
        }
        read_on!(p256, alg_id::ECDSA_P256, SHA256, ECDSA_NISTP256_SHA256);
        read_on!(p384, alg_id::ECDSA_P384, SHA384, ECDSA_NISTP384_SHA384);
        read_on!(p521, alg_id::ECDSA_P521, SHA512, ECDSA_NISTP521_SHA512);
        None
    }
}

impl SigningKey for Elliptic {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&self.scheme).then(|| Box::new(self.clone()) as _)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.public_key.clone())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for Elliptic {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        (self.sign)(message).ok_or_else(signing_failed)
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

/// An RSA key of a size that ring does not sign with.
#[derive(Clone)]
struct OtherRsa {
    key: Arc<rsa::PrivateKey>,
    public_key: SubjectPublicKeyInfoDer<'static>,
    bits: usize,
}

impl fmt::Debug for OtherRsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherRsa").field("bits", &self.bits).finish_non_exhaustive()
    }
}

/// The schemes of RSA keys in the order of preference, with the bytes that a message has once it is padded.
const RSA_SCHEMES: [(SignatureScheme, usize); 6] = [
    (SignatureScheme::RSA_PSS_SHA512, 2 * 64 + 2),
    (SignatureScheme::RSA_PSS_SHA384, 2 * 48 + 2),
    (SignatureScheme::RSA_PSS_SHA256, 2 * 32 + 2),
    // PKCS #1 1.5 fits in the smallest key.
    (SignatureScheme::RSA_PKCS1_SHA512, 0),
    (SignatureScheme::RSA_PKCS1_SHA384, 0),
    (SignatureScheme::RSA_PKCS1_SHA256, 0),
];

impl OtherRsa {
    fn read(key: &PrivateKeyDer<'_>) -> Option<Self> {
        let bits = rsa_bits(key).filter(|bits| (MIN_RSA_BITS..=MAX_RSA_BITS).contains(bits))?;
        let read = match key {
            PrivateKeyDer::Pkcs1(der) => rsa::PrivateKey::from_pkcs1_der(der.secret_pkcs1_der()).ok()?,
            PrivateKeyDer::Pkcs8(der) => rsa::PrivateKey::from_pkcs8_der(der.secret_pkcs8_der()).ok()?,
            _ => return None,
        };
        let public_key = read.as_public_key().to_pkcs1_der().ok()?;
        let public_key = public_key_to_spki(&alg_id::RSA_ENCRYPTION, public_key.as_bytes());
        Some(Self { key: Arc::new(read), public_key, bits })
    }
}

/// Returns the size of an RSA key in bits; `None` for other keys.
fn rsa_bits(key: &PrivateKeyDer<'_>) -> Option<usize> {
    let der = match key {
        PrivateKeyDer::Pkcs1(der) => der.secret_pkcs1_der(),
        PrivateKeyDer::Pkcs8(der) => {
            PrivateKeyInfoRef::from_der(der.secret_pkcs8_der()).ok()?.private_key.as_bytes()
        }
        _ => return None,
    };
    Some(bit_length(RsaPrivateKeyRef::from_der(der).ok()?.modulus.as_bytes()))
}

impl SigningKey for OtherRsa {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let room = (self.bits - 1).div_ceil(8);
        let fits = |(scheme, length): &&(SignatureScheme, usize)| *length <= room && offered.contains(scheme);
        let (scheme, _) = RSA_SCHEMES.iter().find(fits)?;
        Some(Box::new(RsaSigner { key: Arc::clone(&self.key), scheme: *scheme }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.public_key.clone())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

struct RsaSigner {
    key: Arc<rsa::PrivateKey>,
    scheme: SignatureScheme,
}

impl fmt::Debug for RsaSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RsaSigner").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl Signer for RsaSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let signed = match self.scheme {
            SignatureScheme::RSA_PSS_SHA512 => self.key.pss_sign::<Sha512>(message),
            SignatureScheme::RSA_PSS_SHA384 => self.key.pss_sign::<Sha384>(message),
            SignatureScheme::RSA_PSS_SHA256 => self.key.pss_sign::<Sha256>(message),
            SignatureScheme::RSA_PKCS1_SHA512 => self.key.pkcs1v15_sign::<Sha512>(message),
            SignatureScheme::RSA_PKCS1_SHA384 => self.key.pkcs1v15_sign::<Sha384>(message),
            SignatureScheme::RSA_PKCS1_SHA256 => self.key.pkcs1v15_sign::<Sha256>(message),
            _ => return Err(signing_failed()),
        };
        signed.map_err(|_| signing_failed())
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

fn signing_failed() -> rustls::Error {
    rustls::Error::General("signing failed".to_owned())
}

/// A chain and a key that cannot be used together.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no certificate.
    #[error("no certificate")]
    Empty,
    /// The key has another type, or it is malformed.
    #[error("the private key is invalid or unsupported; supported: {TLS_KEYS}")]
    Kind,
    /// The key is too small or too large.
    #[error("the private key has {0} bits; supported: {TLS_KEYS}")]
    RsaSize(usize),
    /// The certificate cannot be read.
    #[error("certificate: {0}")]
    Certificate(#[from] Malformed),
    /// The key is that of another certificate.
    #[error("the private key does not match the certificate")]
    Mismatch,
}

/// Returns a private key that signs handshakes.
///
/// # Errors
/// The key is of another kind or size, or it is malformed.
pub fn signing_key(
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<Arc<dyn SigningKey>, KeyError> {
    match rsa_bits(&key) {
        Some(bits) if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) => Err(KeyError::RsaSize(bits)),
        _ => provider.key_provider.load_private_key(key).map_err(|_| KeyError::Kind),
    }
}

/// Returns whether signing blocks a shared thread too long: with RSA keys above 2048 bits.
pub fn signs_slowly(key: &dyn SigningKey) -> bool {
    let Some(key) = key.public_key() else { return false };
    public_rsa_bits(key.as_ref()).is_some_and(|bits| bits > FAST_RSA_BITS)
}

/// Returns the size of the RSA key in a `SubjectPublicKeyInfo` in bits; `None` for other keys.
fn public_rsa_bits(key: &[u8]) -> Option<usize> {
    const PART: &str = "public key";
    let mut outer = Elements::new(key, PART).ok()?;
    let mut parts = Elements::new(outer.content(Tag::Sequence).ok()?, PART).ok()?;
    parts.element(Tag::Sequence).ok()?;
    let key = RsaPublicKeyRef::from_der(parts.bytes_of_bits().ok()?).ok()?;
    Some(bit_length(key.modulus.as_bytes()))
}

/// Returns a chain with the key of its first certificate, which may be of X.509 version 1.
pub fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, KeyError> {
    let key = signing_key(key, provider)?;
    let certificate = Certificate::read(chain.first().ok_or(KeyError::Empty)?)?;
    let is_its_own = key.public_key().is_some_and(|public| public.as_ref() == certificate.public_key);
    if is_its_own { Ok(CertifiedKey::new(chain, key)) } else { Err(KeyError::Mismatch) }
}
