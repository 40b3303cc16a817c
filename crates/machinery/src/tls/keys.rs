//! Private keys that sign handshakes.

use std::sync::Arc;

use p521::ecdsa::signature::Signer as _;
use p521::ecdsa::{DerSignature, SigningKey as EcdsaKey};
use p521::pkcs8::DecodePrivateKey as _;
use rustls::crypto::{CryptoProvider, KeyProvider};
use rustls::sign::{CertifiedKey, Signer, SigningKey, public_key_to_spki};
use rustls::{SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer, alg_id};

use crate::x509::{Certificate, Malformed};

/// Reads private keys.
#[derive(Debug)]
pub(super) struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        if let Some(key) = P521::read(&key) {
            return Ok(Arc::new(key));
        }
        rustls::crypto::ring::default_provider().key_provider.load_private_key(key)
    }
}

/// A key on P-521, which ring does not have.
#[derive(Clone)]
struct P521(Arc<EcdsaKey>);

impl std::fmt::Debug for P521 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("P521").finish_non_exhaustive()
    }
}

impl P521 {
    fn read(key: &PrivateKeyDer<'_>) -> Option<Self> {
        let key = match key {
            PrivateKeyDer::Pkcs8(der) => p521::SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok()?,
            PrivateKeyDer::Sec1(der) => p521::SecretKey::from_sec1_der(der.secret_sec1_der()).ok()?,
            _ => return None,
        };
        Some(Self(Arc::new(key.into())))
    }
}

impl SigningKey for P521 {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&self.scheme()).then(|| Box::new(self.clone()) as _)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        let point = self.0.verifying_key().to_sec1_point(false);
        Some(public_key_to_spki(&alg_id::ECDSA_P521, point.as_bytes()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for P521 {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let signature: Result<DerSignature, _> = self.0.try_sign(message);
        let signature = signature.map_err(|_| rustls::Error::General("signing failed".to_owned()))?;
        Ok(signature.as_bytes().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP521_SHA512
    }
}

/// A chain and a key that cannot be used together.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no certificate.
    #[error("there is no certificate")]
    Empty,
    /// The key has another type or size.
    #[error(
        "the private key is unreadable or of an unsupported kind: use RSA (2048 to 4096 bits), ECDSA (P-256, P-384, P-521) or Ed25519"
    )]
    Kind,
    /// The certificate cannot be read.
    #[error("certificate: {0}")]
    Certificate(#[from] Malformed),
    /// The key is that of another certificate.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
}

/// Returns a chain with the key of its first certificate, which may be of X.509 version 1.
pub fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, KeyError> {
    let key = provider.key_provider.load_private_key(key).map_err(|_| KeyError::Kind)?;
    let certificate = Certificate::read(chain.first().ok_or(KeyError::Empty)?)?;
    let is_its_own = key.public_key().is_some_and(|public| public.as_ref() == certificate.public_key);
    if is_its_own { Ok(CertifiedKey::new(chain, key)) } else { Err(KeyError::Mismatch) }
}
