//! The verification of servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::algorithms::SUPPORTED;
use super::handshake::{verify_tls12_signature, verify_tls13_signature};
use super::roots::{Purpose, Roots};

/// The age, in seconds, at which a CA bundle is read again.
const REREAD_AFTER: u64 = 60;

/// Verifies servers by a CA bundle.
#[derive(Debug)]
pub struct ServerVerifier {
    /// The file of the CA bundle, if the file may change. The verifier reads the file again when a handshake begins a minute or more after the
    /// last read. An unreadable file leaves the previous bundle in force.
    path: Option<PathBuf>,
    /// The bundle in force, and the time of the last read in seconds since 1970.
    current: Mutex<(Arc<Roots>, u64)>,
}

impl ServerVerifier {
    /// Returns a verifier that always uses `roots`.
    pub fn new(roots: Roots) -> Self {
        Self { path: None, current: Mutex::new((Arc::new(roots), 0)) }
    }

    /// Returns a verifier that uses `roots` until it first reads the file at `path`.
    pub fn reloading(path: PathBuf, roots: Roots) -> Self {
        Self { path: Some(path), ..Self::new(roots) }
    }

    fn roots(&self, now: UnixTime) -> Arc<Roots> {
        let mut current = self.current.lock();
        // The clock may be set back.
        if let Some(path) = &self.path
            && now.as_secs().abs_diff(current.1) >= REREAD_AFTER
        {
            match read(path) {
                Ok(roots) => current.0 = Arc::new(roots),
                Err(error) => {
                    tracing::warn!(path = %path.display(), error, "Failed to reload the CA bundle; keeping the previous one");
                }
            }
            current.1 = now.as_secs();
        }
        Arc::clone(&current.0)
    }
}

fn read(path: &Path) -> Result<Roots, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err("the file has no PEM certificate".to_owned());
    }
    Roots::from_readable(certificates).map_err(|error| error.to_string())
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.roots(now).verify(end_entity, intermediates, Purpose::Server, now)?;
        // `ParsedCertificate` rejects version 1. Such a certificate has no alternative names, and Go checks no other names.
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SUPPORTED.supported_schemes()
    }
}
