//! The verification of servers.

use std::path::PathBuf;
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

/// Accepts servers that a CA bundle vouches for.
#[derive(Debug)]
pub struct ServerVerifier {
    roots: Roots,
}

impl ServerVerifier {
    /// Trusts these.
    pub fn new(roots: Roots) -> Self {
        Self { roots }
    }
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
        self.roots.verify(end_entity, intermediates, Purpose::Server, now)?;
        // It refuses version 1, which has no alternative names, and Go looks at no others.
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

/// Accepts servers that the CA bundle in a file vouches for. The file is read again when a server is to be verified and a minute has
/// passed; if it is of no use then, the former content stays in force.
#[derive(Debug)]
pub struct ReloadingServerVerifier {
    path: PathBuf,
    /// What is in force, and when the file was read, in seconds since 1970.
    current: Mutex<(Arc<ServerVerifier>, u64)>,
}

impl ReloadingServerVerifier {
    /// Trusts these until the file is read for the first time.
    pub fn new(path: PathBuf, roots: Roots) -> Self {
        Self { path, current: Mutex::new((Arc::new(ServerVerifier::new(roots)), 0)) }
    }

    fn current(&self, now: UnixTime) -> Arc<ServerVerifier> {
        let mut current = self.current.lock();
        // The clock may be set back.
        if now.as_secs().abs_diff(current.1) >= REREAD_AFTER {
            match self.read() {
                Ok(roots) => current.0 = Arc::new(ServerVerifier::new(roots)),
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), error, "Failed to reload the CA bundle; keeping the previous one");
                }
            }
            current.1 = now.as_secs();
        }
        Arc::clone(&current.0)
    }

    fn read(&self) -> Result<Roots, String> {
        let pem = std::fs::read(&self.path).map_err(|error| error.to_string())?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let certificates = certificates.map_err(|error| error.to_string())?;
        if certificates.is_empty() {
            return Err("it holds no PEM certificate".to_owned());
        }
        Roots::from_readable(certificates).map_err(|error| error.to_string())
    }
}

impl ServerCertVerifier for ReloadingServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.current(now).verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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
