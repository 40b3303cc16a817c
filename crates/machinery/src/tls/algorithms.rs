//! The signatures that are verified: each that Go verifies in a certificate or a handshake.
//!
//! ring verifies most of them. The crates of the curves verify ECDSA on P-224 and P-521, and with SHA-512 on the others. The crate `rsa`
//! verifies what ring refuses for keys of 1024 to 2047 bits.

use p521::ecdsa::signature::hazmat::PrehashVerifier as _;
use ring::digest;
use ring::signature::{
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA384, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, UnparsedPublicKey,
};
use rsa::pkcs1::{DecodeRsaPublicKey as _, RsaPublicKeyRef};
use rsa::pkcs8::der::Decode as _;
use rsa::sha2::{Sha256, Sha384, Sha512};
use rsa::traits::PublicKeyParts as _;
use rustls::SignatureScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};
use webpki::ring::{
    ECDSA_P256_SHA256, ECDSA_P256_SHA384, ECDSA_P384_SHA256, ECDSA_P384_SHA384, ED25519,
    RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS, RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
    RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
};

/// The smallest RSA key, in bits, whose signatures ring verifies in all forms.
const RING_MIN_BITS: u32 = 2048;
/// The smallest RSA key, in bits, whose signatures Go verifies.
const MIN_RSA_BITS: usize = 1024;
/// The longest exponent of an RSA key, in bits, with which Go verifies.
const MAX_EXPONENT_BITS: usize = 31;

/// The `AlgorithmIdentifier` of keys on P-224, without its tag and length: id-ecPublicKey and secp224r1.
const ECDSA_P224: AlgorithmIdentifier = AlgorithmIdentifier::from_slice(&[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x21,
]);

/// Verifies the signature of a digest by a key: the key, the digest and the signature.
type VerifyDigest = fn(&[u8], &[u8], &[u8]) -> Option<()>;

/// A curve and a digest that ring does not combine.
#[derive(Debug)]
struct Ecdsa {
    verify: VerifyDigest,
    digest: &'static digest::Algorithm,
    key: AlgorithmIdentifier,
    signature: AlgorithmIdentifier,
}

impl SignatureVerificationAlgorithm for Ecdsa {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        // Go reads uncompressed points alone.
        if public_key.first() != Some(&4) {
            return Err(InvalidSignature);
        }
        let digest = digest::digest(self.digest, message);
        (self.verify)(public_key, digest.as_ref(), signature).ok_or(InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.key
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }
}

/// An algorithm of RSA: by ring, and for keys that ring refuses because they are short.
macro_rules! rsa {
    ($by_ring:ident, $by_short_key:expr, $signature:expr) => {
        &RsaOfGo {
            algorithm: &Rsa { by_ring: &$by_ring, by_short_key: $by_short_key, signature: $signature },
        }
    };
}

macro_rules! ecdsa {
    ($curve:ident, $key:expr, $digest:ident, $signature:ident) => {
        &Ecdsa {
            verify: |key, digest, signature| {
                let key = $curve::ecdsa::VerifyingKey::from_sec1_bytes(key).ok()?;
                let signature = $curve::ecdsa::Signature::from_der(signature).ok()?;
                key.verify_prehash(digest, &signature).ok()
            },
            digest: &digest::$digest,
            key: $key,
            signature: alg_id::$signature,
        }
    };
}

/// Returns whether Go verifies signatures by an RSA key, an `RSAPublicKey` in DER. ring rounds the size of a key up to bytes and allows
/// longer exponents, so this function checks both. It leaves the upper bound of the size to ring.
pub fn is_rsa_key_of_go(public_key: &[u8]) -> bool {
    RsaPublicKeyRef::from_der(public_key).is_ok_and(|key| {
        bit_length(key.modulus.as_bytes()) >= MIN_RSA_BITS
            && bit_length(key.public_exponent.as_bytes()) <= MAX_EXPONENT_BITS
    })
}

/// Returns the length of a number without leading zero bytes.
pub(super) fn bit_length(number: &[u8]) -> usize {
    number.first().map_or(0, |first| 8 * number.len() - first.leading_zeros() as usize)
}

/// Verifies with an algorithm for RSA, by the keys that Go allows.
#[derive(Debug)]
struct RsaOfGo {
    algorithm: Algorithm,
}

impl SignatureVerificationAlgorithm for RsaOfGo {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        if !is_rsa_key_of_go(public_key) {
            return Err(InvalidSignature);
        }
        self.algorithm.verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

/// RSA by keys of 1024 bits and more. rustls requires 2048.
#[derive(Debug)]
struct Rsa {
    by_ring: &'static RsaParameters,
    /// Verifies a signature of a message by a shorter key than ring allows.
    by_short_key: fn(&rsa::PublicKey, &[u8], &[u8]) -> rsa::errors::Result<()>,
    signature: AlgorithmIdentifier,
}

impl SignatureVerificationAlgorithm for Rsa {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        if UnparsedPublicKey::new(self.by_ring, public_key).verify(message, signature).is_ok() {
            return Ok(());
        }
        let key = rsa::PublicKey::from_pkcs1_der(public_key).map_err(|_| InvalidSignature)?;
        if key.n().bit_width_vartime() >= RING_MIN_BITS {
            return Err(InvalidSignature);
        }
        (self.by_short_key)(&key, message, signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }
}

/// An algorithm for the table of rustls.
type Algorithm = &'static dyn SignatureVerificationAlgorithm;

static ECDSA_P224_SHA256: Algorithm = ecdsa!(p224, ECDSA_P224, SHA256, ECDSA_SHA256);
static ECDSA_P224_SHA384: Algorithm = ecdsa!(p224, ECDSA_P224, SHA384, ECDSA_SHA384);
static ECDSA_P224_SHA512: Algorithm = ecdsa!(p224, ECDSA_P224, SHA512, ECDSA_SHA512);
static ECDSA_P256_SHA512: Algorithm = ecdsa!(p256, alg_id::ECDSA_P256, SHA512, ECDSA_SHA512);
static ECDSA_P384_SHA512: Algorithm = ecdsa!(p384, alg_id::ECDSA_P384, SHA512, ECDSA_SHA512);
static ECDSA_P521_SHA256: Algorithm = ecdsa!(p521, alg_id::ECDSA_P521, SHA256, ECDSA_SHA256);
static ECDSA_P521_SHA384: Algorithm = ecdsa!(p521, alg_id::ECDSA_P521, SHA384, ECDSA_SHA384);
static ECDSA_P521_SHA512: Algorithm = ecdsa!(p521, alg_id::ECDSA_P521, SHA512, ECDSA_SHA512);
static RSA_PKCS1_SHA256: Algorithm = rsa!(
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    rsa::PublicKey::pkcs1v15_verify::<Sha256>,
    alg_id::RSA_PKCS1_SHA256
);
static RSA_PKCS1_SHA384: Algorithm =
    rsa!(RSA_PKCS1_2048_8192_SHA384, rsa::PublicKey::pkcs1v15_verify::<Sha384>, alg_id::RSA_PKCS1_SHA384);
static RSA_PKCS1_SHA512: Algorithm = rsa!(
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    rsa::PublicKey::pkcs1v15_verify::<Sha512>,
    alg_id::RSA_PKCS1_SHA512
);
static RSA_PSS_SHA256: Algorithm =
    rsa!(RSA_PSS_2048_8192_SHA256, rsa::PublicKey::pss_verify::<Sha256>, alg_id::RSA_PSS_SHA256);
static RSA_PSS_SHA384: Algorithm =
    rsa!(RSA_PSS_2048_8192_SHA384, rsa::PublicKey::pss_verify::<Sha384>, alg_id::RSA_PSS_SHA384);
static RSA_PSS_SHA512: Algorithm =
    rsa!(RSA_PSS_2048_8192_SHA512, rsa::PublicKey::pss_verify::<Sha512>, alg_id::RSA_PSS_SHA512);

/// The algorithms of certificates, and those of handshakes in the order of preference.
pub(super) static SUPPORTED: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        ECDSA_P224_SHA256,
        ECDSA_P224_SHA384,
        ECDSA_P224_SHA512,
        ECDSA_P256_SHA256,
        ECDSA_P256_SHA384,
        ECDSA_P256_SHA512,
        ECDSA_P384_SHA256,
        ECDSA_P384_SHA384,
        ECDSA_P384_SHA512,
        ECDSA_P521_SHA256,
        ECDSA_P521_SHA384,
        ECDSA_P521_SHA512,
        ED25519,
        RSA_PSS_SHA256,
        RSA_PSS_SHA384,
        RSA_PSS_SHA512,
        RSA_PKCS1_SHA256,
        RSA_PKCS1_SHA384,
        RSA_PKCS1_SHA512,
        &RsaOfGo { algorithm: RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS },
        &RsaOfGo { algorithm: RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS },
        &RsaOfGo { algorithm: RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS },
    ],
    mapping: &[
        // TLS 1.3 uses the first curve of each, TLS 1.2 any.
        (
            SignatureScheme::ECDSA_NISTP384_SHA384,
            &[ECDSA_P384_SHA384, ECDSA_P256_SHA384, ECDSA_P521_SHA384, ECDSA_P224_SHA384],
        ),
        (
            SignatureScheme::ECDSA_NISTP256_SHA256,
            &[ECDSA_P256_SHA256, ECDSA_P384_SHA256, ECDSA_P521_SHA256, ECDSA_P224_SHA256],
        ),
        (
            SignatureScheme::ECDSA_NISTP521_SHA512,
            &[ECDSA_P521_SHA512, ECDSA_P256_SHA512, ECDSA_P384_SHA512, ECDSA_P224_SHA512],
        ),
        (SignatureScheme::ED25519, &[ED25519]),
        (SignatureScheme::RSA_PSS_SHA512, &[RSA_PSS_SHA512]),
        (SignatureScheme::RSA_PSS_SHA384, &[RSA_PSS_SHA384]),
        (SignatureScheme::RSA_PSS_SHA256, &[RSA_PSS_SHA256]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[RSA_PKCS1_SHA512]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[RSA_PKCS1_SHA384]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[RSA_PKCS1_SHA256]),
    ],
};
