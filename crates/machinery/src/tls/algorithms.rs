//! The signatures that are verified.

use p521::ecdsa::signature::hazmat::PrehashVerifier as _;
use p521::ecdsa::{Signature, VerifyingKey};
use ring::digest;
use ring::signature::{
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RsaParameters, UnparsedPublicKey,
};
use rustls::SignatureScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};
use webpki::ring::{
    ECDSA_P256_SHA256, ECDSA_P256_SHA384, ECDSA_P384_SHA256, ECDSA_P384_SHA384, ED25519,
    RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS, RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    RSA_PSS_2048_8192_SHA256_LEGACY_KEY, RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
};

/// ECDSA on P-521, which ring does not have.
#[derive(Debug)]
struct P521 {
    digest: &'static digest::Algorithm,
    signature: AlgorithmIdentifier,
}

impl SignatureVerificationAlgorithm for P521 {
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
        let key = VerifyingKey::from_sec1_bytes(public_key).map_err(|_| InvalidSignature)?;
        let signature = Signature::from_der(signature).map_err(|_| InvalidSignature)?;
        let digest = digest::digest(self.digest, message);
        key.verify_prehash(digest.as_ref(), &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P521
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }
}

/// RSA with PKCS #1 1.5 by keys from 1024 bits, the shortest that Go allows. rustls has 2048 and more.
#[derive(Debug)]
struct Rsa {
    parameters: &'static RsaParameters,
    signature: AlgorithmIdentifier,
}

impl SignatureVerificationAlgorithm for Rsa {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = UnparsedPublicKey::new(self.parameters, public_key);
        key.verify(message, signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }
}

static ECDSA_P521_SHA256: &dyn SignatureVerificationAlgorithm =
    &P521 { digest: &digest::SHA256, signature: alg_id::ECDSA_SHA256 };
static ECDSA_P521_SHA384: &dyn SignatureVerificationAlgorithm =
    &P521 { digest: &digest::SHA384, signature: alg_id::ECDSA_SHA384 };
static ECDSA_P521_SHA512: &dyn SignatureVerificationAlgorithm =
    &P521 { digest: &digest::SHA512, signature: alg_id::ECDSA_SHA512 };
static RSA_PKCS1_SHA256: &dyn SignatureVerificationAlgorithm =
    &Rsa { parameters: &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, signature: alg_id::RSA_PKCS1_SHA256 };
static RSA_PKCS1_SHA512: &dyn SignatureVerificationAlgorithm =
    &Rsa { parameters: &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, signature: alg_id::RSA_PKCS1_SHA512 };

/// The algorithms of certificates, and those of handshakes in the order of preference.
pub(super) static SUPPORTED: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        ECDSA_P256_SHA256,
        ECDSA_P256_SHA384,
        ECDSA_P384_SHA256,
        ECDSA_P384_SHA384,
        ECDSA_P521_SHA256,
        ECDSA_P521_SHA384,
        ECDSA_P521_SHA512,
        ED25519,
        RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        RSA_PKCS1_SHA256,
        RSA_PKCS1_2048_8192_SHA384,
        RSA_PKCS1_SHA512,
        RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS,
        RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
        RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    ],
    mapping: &[
        // TLS 1.3 uses the first curve of each, TLS 1.2 any.
        (SignatureScheme::ECDSA_NISTP384_SHA384, &[ECDSA_P384_SHA384, ECDSA_P256_SHA384, ECDSA_P521_SHA384]),
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[ECDSA_P256_SHA256, ECDSA_P384_SHA256, ECDSA_P521_SHA256]),
        (SignatureScheme::ECDSA_NISTP521_SHA512, &[ECDSA_P521_SHA512]),
        (SignatureScheme::ED25519, &[ED25519]),
        (SignatureScheme::RSA_PSS_SHA512, &[RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA384, &[RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA256, &[RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[RSA_PKCS1_SHA512]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[RSA_PKCS1_2048_8192_SHA384]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[RSA_PKCS1_SHA256]),
    ],
};
