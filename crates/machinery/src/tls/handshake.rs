//! Signatures of handshakes. A handshake proves that the peer has the key of its certificate, whatever else is in that, so the key is taken
//! from certificates that webpki does not read: of X.509 version 1, or with a critical extension that it does not know.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use webpki::RawPublicKeyEntity;

use super::algorithms::SUPPORTED;
use super::refusal::convert;
use crate::x509::Certificate;

/// Verifies the signature of a client or a server in TLS 1.2.
pub fn verify_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let Some(key) = key_of(certificate) else {
        return rustls::crypto::verify_tls12_signature(message, certificate, signature, &SUPPORTED);
    };
    let key = RawPublicKeyEntity::try_from(&key).map_err(convert)?;
    let known = SUPPORTED.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
    let (_, algorithms) = known.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    // The curve is that of the key, so at most one of them fits.
    let is_good = |algorithm: &&dyn rustls_pki_types::SignatureVerificationAlgorithm| {
        key.verify_signature(*algorithm, message, signature.signature()).is_ok()
    };
    if algorithms.iter().any(is_good) {
        Ok(HandshakeSignatureValid::assertion())
    } else {
        Err(CertificateError::BadSignature.into())
    }
}

/// Verifies the signature of a client or a server in TLS 1.3.
pub fn verify_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    match key_of(certificate) {
        Some(key) => {
            rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, &SUPPORTED)
        }
        None => rustls::crypto::verify_tls13_signature(message, certificate, signature, &SUPPORTED),
    }
}

/// Returns the key of a certificate; `None` if the certificate is malformed.
fn key_of(certificate: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let certificate = Certificate::read(certificate).ok()?;
    Some(SubjectPublicKeyInfoDer::from(certificate.public_key.to_vec()))
}
