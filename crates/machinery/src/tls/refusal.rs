//! Reasons for which a certificate is refused.

use std::fmt;
use std::sync::Arc;

use rustls::{CertificateError, Error, OtherError};

use crate::x509::Malformed;

/// A reason that rustls has no error for.
#[derive(thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    Malformed(Malformed),
    #[error("a critical extension is not supported")]
    CriticalExtension,
    #[error("the issuer is not allowed to sign certificates")]
    Issuer,
    #[error("more intermediate certificates than the CA allows")]
    PathLength,
    #[error("a certificate of X.509 version 1 must be signed directly by a CA certificate in the bundle")]
    VersionOne,
    #[error(
        "unsupported key or signature algorithm; use ECDSA on P-224, P-256, P-384 or P-521, Ed25519, or RSA from 1024 to 8192 bits"
    )]
    Algorithm,
    #[error(
        "a server or client certificate with CA:TRUE must be in the CA bundle, or be signed directly by another CA certificate in the bundle"
    )]
    Ca,
    #[error("policy constraints are not supported")]
    Policies,
    #[error(
        "the CA has name constraints, which are not supported for email addresses, URIs and unusual DNS names"
    )]
    Names,
    #[error("{0} intermediate certificates presented; the limit is 8")]
    TooMany(usize),
    #[error("CA certificate: {0}")]
    Authority(String),
    #[error("{0}")]
    Other(webpki::Error),
}

/// rustls shows the debug form of other errors than its own.
impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Refusal> for CertificateError {
    fn from(refusal: Refusal) -> Self {
        Self::Other(OtherError(Arc::new(refusal)))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        CertificateError::from(refusal).into()
    }
}

/// Returns an error of webpki as rustls shows it.
pub(super) fn convert(error: webpki::Error) -> Error {
    match error {
        webpki::Error::BadDer | webpki::Error::BadDerTime | webpki::Error::TrailingData(_) => {
            CertificateError::BadEncoding
        }
        webpki::Error::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }
        }
        webpki::Error::CertExpired { time, not_after } => {
            CertificateError::ExpiredContext { time, not_after }
        }
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        webpki::Error::UnsupportedSignatureAlgorithmContext(_)
        | webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => Refusal::Algorithm.into(),
        other => Refusal::Other(other).into(),
    }
    .into()
}
