//! The TLS side of the port: certificates that can be rotated, client certificates asked for. What is spoken is for
//! [`ServingTls`](crate::options::ServingTls) to know.

mod certs;
mod self_signed;

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;

use super::error::ServeError;
use super::options::ServeOptions;
use crate::tls::AnyClientCert;
pub(super) use certs::{CertFiles, CertStore, certified_key};
pub(super) use self_signed::{
    SelfSigned, authority_of, generate, is_self_made, prepare, renew, replace_cert,
};

/// Protocols offered by ALPN.
const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The configuration in force: built anew when the authorities named to clients change.
pub(super) struct Tls {
    provider: Arc<CryptoProvider>,
    versions: Vec<&'static rustls::SupportedProtocolVersion>,
    pub(super) certs: Arc<CertStore>,
    alpn: Vec<Vec<u8>>,
    current: ArcSwap<ServerConfig>,
}

impl Tls {
    pub(super) fn new(
        options: &ServeOptions,
        provider: Arc<CryptoProvider>,
        certs: Arc<CertStore>,
        hints: Vec<rustls::DistinguishedName>,
    ) -> Result<Self, ServeError> {
        let versions = options.tls.spoken.versions.clone();
        let mut alpn = vec![HTTP_1_1.to_vec()];
        if !options.disable_http2 {
            alpn.insert(0, H2.to_vec());
        }
        let config = build(&provider, &versions, &certs, &alpn, hints)?;
        Ok(Self { provider, versions, certs, alpn, current: ArcSwap::from_pointee(config) })
    }

    /// What the next handshake uses.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Names other authorities to clients from now on.
    pub(super) fn set_hints(&self, hints: Vec<rustls::DistinguishedName>) -> Result<(), ServeError> {
        let config = build(&self.provider, &self.versions, &self.certs, &self.alpn, hints)?;
        self.current.store(Arc::new(config));
        Ok(())
    }
}

fn build(
    provider: &Arc<CryptoProvider>,
    versions: &[&'static rustls::SupportedProtocolVersion],
    certs: &Arc<CertStore>,
    alpn: &[Vec<u8>],
    hints: Vec<rustls::DistinguishedName>,
) -> Result<ServerConfig, ServeError> {
    let verifier = AnyClientCert::new(provider, hints);
    let resolver: Arc<dyn rustls::server::ResolvesServerCert> = Arc::clone(certs) as _;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(resolver);
    config.alpn_protocols = alpn.to_vec();
    Ok(config)
}
