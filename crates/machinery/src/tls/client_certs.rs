//! Client certificates: asked for, not demanded.
//!
//! Whose a certificate is, and whether it is good, is judged with each request, by authorities that may have been
//! rotated since the handshake. The handshake only proves that the client holds the key. So a certificate that nobody
//! vouches for gets a readable 401 instead of a broken connection, as from the original.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::{verify_tls12_signature, verify_tls13_signature};

/// Accepts each client certificate whose key the client holds, and clients without one.
pub struct AnyClientCert {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
}

impl AnyClientCert {
    /// Creates a verifier that names these issuers to clients.
    pub fn new(provider: &Arc<CryptoProvider>, hints: Vec<DistinguishedName>) -> Self {
        Self { provider: Arc::clone(provider), hints }
    }
}

impl fmt::Debug for AnyClientCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyClientCert").field("hints", &self.hints.len()).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for AnyClientCert {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
