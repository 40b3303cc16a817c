//! The TLS configuration of connections to an API server.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::client::ConfigExt as _;
use kube::config::AuthInfo;
use rustls::ClientConfig;
use rustls::sign::SingleCertAndKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::ExposeSecret;

use super::config::describe_kube;
use crate::tls::{self, Roots, ServerVerifier, certified_key, provider};

/// Returns the TLS configuration for a cluster: whom it trusts and the client certificate. kube makes it for the system's trust store
/// and for credential plugins, which it may run.
pub fn tls_config(config: &kube::Config) -> Result<ClientConfig, String> {
    tls::install();
    let mut others = config.clone();
    others.root_cert_file = None;
    others.root_cert = config.root_cert.as_ref().map(|_| Vec::new());
    let mut identity = None;
    if config.auth_info.exec.is_none() {
        identity = read_identity(&config.auth_info)?;
        let user = &mut others.auth_info;
        (user.client_certificate, user.client_certificate_data) = (None, None);
        (user.client_key, user.client_key_data) = (None, None);
    }
    let mut made = others.rustls_client_config().map_err(|error| describe_kube(&error))?;
    if let Some(certificates) = config.root_cert.as_ref().filter(|_| !config.accept_invalid_certs) {
        let certificates = certificates.iter().map(|der| CertificateDer::from(der.clone()));
        let roots =
            Roots::from_readable(certificates).map_err(|error| format!("certificate-authority: {error}"))?;
        made.dangerous().set_certificate_verifier(match &config.root_cert_file {
            Some(path) => Arc::new(ServerVerifier::reloading(path.clone(), roots)),
            None => Arc::new(ServerVerifier::new(roots)),
        });
    }
    if let Some((certificate, key)) = identity {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
        let chain = chain.map_err(|error| format!("client-certificate: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| format!("client-key: {error}"))?;
        let key = certified_key(chain, key, &provider());
        let key = key.map_err(|error| format!("client-certificate and client-key: {error}"))?;
        made.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(key));
    }
    Ok(made)
}

/// A client certificate and its key, in PEM.
type Identity = (Vec<u8>, Vec<u8>);

fn read_identity(user: &AuthInfo) -> Result<Option<Identity>, String> {
    let data = user.client_certificate_data.as_deref();
    let certificate = read("client-certificate", data, user.client_certificate.as_deref())?;
    let data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    match (certificate, read("client-key", data, user.client_key.as_deref())?) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err("client-certificate is set without client-key: set both or neither".to_owned())
        }
        (None, Some(_)) => {
            Err("client-key is set without client-certificate: set both or neither".to_owned())
        }
    }
}

/// Reads a field: its data, in base64 with any ends of lines, or the file that it names.
fn read(field: &str, data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        (Some(data), _) => {
            let data: String = data.chars().filter(|each| !matches!(each, '\r' | '\n')).collect();
            let decoded = BASE64_STANDARD.decode(data).map_err(|error| format!("{field}-data: {error}"))?;
            Ok(Some(decoded))
        }
        (None, Some(path)) => {
            std::fs::read(path).map(Some).map_err(|error| format!("{field} {path}: {error}"))
        }
        (None, None) => Ok(None),
    }
}
