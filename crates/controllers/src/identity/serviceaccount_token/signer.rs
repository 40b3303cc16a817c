//! Signs legacy service-account tokens with the key of `--service-account-private-key-file`.
//!
//! RSA keys sign with RS256, P-256, P-384 and P-521 keys with ES256, ES384 and ES512, as the API server verifies them. All
//! but the last are ring's; ring has no P-521, so that is left to a crate of its own (RustCrypto's). The key id in the
//! header is the URL-safe base64 of the SHA-256 of the public key's DER encoding, by which the API server finds the key. The
//! private key is never shown, not even by `Debug`.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use p521::ecdsa::SigningKey as P521Key;
use p521::ecdsa::signature::Signer as _;
use p521::pkcs8::DecodePrivateKey as _;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;

use coxswain_machinery::api::core::Secret;
use coxswain_machinery::executor::{FinishError, Finisher};
use coxswain_machinery::framework::BlockingPool;
use coxswain_machinery::wire::path;
use coxswain_machinery::wire::splice::{Edit, edit};

/// A key that signs tokens.
pub struct PrivateKeySigner {
    key: Key,
    key_id: String,
    random: SystemRandom,
}

enum Key {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(&'static str, Box<EcdsaKeyPair>),
    P521(Box<P521Key>),
}

/// A signing key that can't be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// There is no private key in the file.
    #[error("holds no private key in PEM (PKCS#1, PKCS#8 or SEC1)")]
    NoKey,
    /// It is neither RSA of 2048 to 4096 bits nor on P-256, P-384 or P-521.
    #[error("holds a key that is neither RSA (2048 to 4096 bits) nor ECDSA on P-256, P-384 or P-521")]
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
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|_| SigningKeyError::NoKey)?;
        let random = SystemRandom::new();
        let key = match &der {
            PrivateKeyDer::Pkcs1(der) => rsa(RsaKeyPair::from_der(der.secret_pkcs1_der())),
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                rsa(RsaKeyPair::from_pkcs8(der))
                    .or_else(|| ecdsa(|algorithm| EcdsaKeyPair::from_pkcs8(algorithm, der, &random).ok()))
                    .or_else(|| p521(der))
            }
            PrivateKeyDer::Sec1(der) => {
                let der = pkcs8_of_sec1(der.secret_sec1_der());
                ecdsa(|algorithm| {
                    // Linear: a file has one key, or two blocks of it.
                    der.iter().find_map(|der| EcdsaKeyPair::from_pkcs8(algorithm, der, &random).ok())
                })
                .or_else(|| der.iter().find_map(|der| p521(der)))
            }
            _ => None,
        }
        .ok_or(SigningKeyError::Unsupported)?;
        let key_id = URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, &key.public_der()));
        Ok(Self { key, key_id, random })
    }
}

fn rsa(parsed: Result<RsaKeyPair, ring::error::KeyRejected>) -> Option<Key> {
    parsed.ok().map(|key| Key::Rsa(Box::new(key)))
}

fn ecdsa(
    parse: impl Fn(&'static ring::signature::EcdsaSigningAlgorithm) -> Option<EcdsaKeyPair>,
) -> Option<Key> {
    let p256 = parse(&ECDSA_P256_SHA256_FIXED_SIGNING).map(|key| Key::Ecdsa("ES256", Box::new(key)));
    p256.or_else(|| parse(&ECDSA_P384_SHA384_FIXED_SIGNING).map(|key| Key::Ecdsa("ES384", Box::new(key))))
}

fn p521(pkcs8: &[u8]) -> Option<Key> {
    P521Key::from_pkcs8_der(pkcs8).ok().map(|key| Key::P521(Box::new(key)))
}

/// A SEC1 key (`EC PRIVATE KEY`, as openssl writes it) in PKCS#8, once for each curve that it may be on.
fn pkcs8_of_sec1(sec1: &[u8]) -> [Vec<u8>; 3] {
    [OID_P256, OID_P384, OID_P521]
        .map(|curve| der_sequence(&[&der(0x02, &[0]), &elliptic(curve), &der(0x04, sec1)]))
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

impl Key {
    /// The public key as `SubjectPublicKeyInfo`.
    fn public_der(&self) -> Vec<u8> {
        let (algorithm, key) = match self {
            Self::Rsa(pair) => {
                (der_sequence(&[&der(0x06, OID_RSA), &der(0x05, &[])]), pair.public_key().as_ref().to_vec())
            }
            Self::Ecdsa(name, pair) => {
                let curve = if *name == "ES256" { OID_P256 } else { OID_P384 };
                (elliptic(curve), pair.public_key().as_ref().to_vec())
            }
            Self::P521(key) => {
                (elliptic(OID_P521), key.verifying_key().to_sec1_point(false).as_bytes().to_vec())
            }
        };
        let mut bits = vec![0];
        bits.extend(key);
        der_sequence(&[&algorithm, &der(0x03, &bits)])
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Ecdsa(name, _) => name,
            Self::P521(_) => "ES512",
        }
    }
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
        let header = serde_json::json!({ "alg": self.key.algorithm(), "kid": self.key_id });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = match &self.key {
            Key::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &self.random, signed.as_bytes(), &mut signature)
                    .map_err(|_| "the RSA key refused to sign".to_owned())?;
                signature
            }
            Key::Ecdsa(_, pair) => pair
                .sign(&self.random, signed.as_bytes())
                .map_err(|_| "the ECDSA key refused to sign".to_owned())?
                .as_ref()
                .to_vec(),
            Key::P521(key) => {
                let signature: p521::ecdsa::Signature = key
                    .try_sign(signed.as_bytes())
                    .map_err(|_| "the P-521 key refused to sign".to_owned())?;
                signature.to_bytes().to_vec()
            }
        };
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
