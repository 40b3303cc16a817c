//! Signs legacy service-account tokens with the key of `--service-account-private-key-file`.
//!
//! RSA keys sign with RS256, P-256, P-384 and P-521 keys with ES256, ES384 and ES512, as the API server verifies them. The key id in the
//! header is the URL-safe base64 of the SHA-256 of the public key's DER encoding, by which the API server finds the key. The
//! private key is never shown, not even by `Debug`.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use serde_json::Value;

use coxswain_machinery::api::core::Secret;
use coxswain_machinery::executor::{FinishError, Finisher};
use coxswain_machinery::framework::BlockingPool;
use coxswain_machinery::private_key::{KeyAlgorithm, PrivateKey, PrivateKeyError, SignatureForm, TOKEN_KEYS};
use coxswain_machinery::wire::path;
use coxswain_machinery::wire::splice::{Edit, edit};

/// A key that signs tokens.
pub struct PrivateKeySigner {
    key: PrivateKey,
    /// Its algorithm in the header.
    algorithm: &'static str,
    key_id: String,
}

/// A signing key that can't be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// There is no private key in the file.
    #[error("no PEM private key (PKCS#1, PKCS#8 or SEC1)")]
    NoKey,
    /// It is of no kind that signs tokens.
    #[error("unsupported private key; supported: {TOKEN_KEYS}")]
    Unsupported,
}

impl fmt::Debug for PrivateKeySigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKeySigner").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl PrivateKeySigner {
    /// Reads the key from the content of a PEM file.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SigningKeyError> {
        let key = PrivateKey::from_pem(pem).map_err(|error| match error {
            PrivateKeyError::Absent => SigningKeyError::NoKey,
            PrivateKeyError::Unsupported => SigningKeyError::Unsupported,
        })?;
        let (algorithm, identifier) = match key.algorithm() {
            KeyAlgorithm::Rsa => ("RS256", der_sequence(&[&der(0x06, OID_RSA), &der(0x05, &[])])),
            KeyAlgorithm::P256 => ("ES256", elliptic(OID_P256)),
            KeyAlgorithm::P384 => ("ES384", elliptic(OID_P384)),
            KeyAlgorithm::P521 => ("ES512", elliptic(OID_P521)),
            KeyAlgorithm::Ed25519 => return Err(SigningKeyError::Unsupported),
        };
        let bits = [&[0], &key.public_key()[..]].concat();
        let public = der_sequence(&[&identifier, &der(0x03, &bits)]);
        let key_id = URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, &public));
        Ok(Self { key, algorithm, key_id })
    }
}

const OID_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const OID_EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const OID_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const OID_P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const OID_P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

/// One DER element.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    match length {
        0..=0x7f => out.push(length as u8),
        0x80..=0xff => out.extend([0x81, length as u8]),
        _ => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend_from_slice(content);
    out
}

fn der_sequence(parts: &[&[u8]]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

/// The `AlgorithmIdentifier` of keys on a curve.
fn elliptic(curve: &[u8]) -> Vec<u8> {
    der_sequence(&[&der(0x06, OID_EC_PUBLIC_KEY), &der(0x06, curve)])
}

/// The data key of a token in its secret.
const TOKEN_KEY: &str = "token";

/// Puts signed tokens into Secrets. It signs on a pool, because a signature by a large key takes long.
#[derive(Debug)]
pub struct TokenFinisher {
    signer: Arc<PrivateKeySigner>,
    pool: BlockingPool,
}

impl TokenFinisher {
    /// Signs with this key on this pool.
    pub fn new(signer: PrivateKeySigner, pool: BlockingPool) -> Self {
        Self { signer: Arc::new(signer), pool }
    }
}

impl Finisher for TokenFinisher {
    fn finish<'a>(
        &'a self,
        secret: &'a [u8],
        claims: &'a Value,
    ) -> BoxFuture<'a, Result<Vec<u8>, FinishError>> {
        Box::pin(async move {
            let (signer, claims) = (Arc::clone(&self.signer), claims.clone());
            let token = self.pool.run(move || signer.sign(&claims)).await.map_err(FinishError::Unfit)?;
            edit(secret, &[Edit::MapSetBytes(path!(Secret, data), TOKEN_KEY.to_owned(), token.into_bytes())])
                .map_err(|error| FinishError::Unfit(error.to_string()))
        })
    }
}

impl PrivateKeySigner {
    /// The compact JWT of `claims`.
    pub(super) fn sign(&self, claims: &Value) -> Result<String, String> {
        let header = serde_json::json!({ "alg": self.algorithm, "kid": self.key_id });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = self.key.sign(signed.as_bytes(), SignatureForm::Fixed);
        let signature = signature.map_err(|error| error.to_string())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
