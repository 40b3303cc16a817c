//! Client certificates of any form by the authority of a control plane, and requests with them.

use std::sync::Arc;

use coxswain_machinery::tls::key_cases::KEY_CASES;
use coxswain_machinery::tls::{Roots, ServerVerifier, provider, signing_key};
use coxswain_machinery::x509::Certificate;
use coxswain_machinery::x509::fixtures::{Draft, to_pem};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::controlplane::{ControlPlane, Manager};

/// Returns the key of a case in PEM. Panics if there is no such case.
pub(crate) fn key_case(name: &str) -> &'static str {
    KEY_CASES.iter().find(|case| case.name == name).expect("a case").pem
}

/// A client certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// An answer of a secure port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

fn private_key(pem: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("a private key")
}

impl Identity {
    /// Issues a certificate for a key. `subject` is the content of its name, and `version` that of [`Draft`].
    pub(crate) fn issue(plane: &ControlPlane, key: &str, subject: Vec<u8>, version: Option<u8>) -> Self {
        let ca = CertificateDer::from_pem_file(&plane.report.ca_file).expect("the authority");
        let issuer = Certificate::read(&ca).expect("a certificate").raw_subject;
        let ca_key = std::fs::read_to_string(plane.report.ca_file.with_extension("key")).expect("its key");
        let signer = signing_key(private_key(&ca_key), &provider()).expect("a key that signs");
        let signer = signer.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]).expect("a key on P-256");
        let own = signing_key(private_key(key), &provider()).expect("a key that signs");
        let public_key = own.public_key().expect("its public part").as_ref().to_vec();
        let draft = Draft { version, ..Draft::new(public_key, subject) };
        let der = draft.sign(issuer, |message| signer.sign(message).expect("a signature"));
        Self { cert: to_pem(&der), key: key.to_owned() }
    }

    fn certified(&self) -> CertifiedKey {
        let chain = vec![CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate")];
        // The certificate may be one that nobody reads.
        CertifiedKey::new(chain, signing_key(private_key(&self.key), &provider()).expect("a key that signs"))
    }

    /// The answer of a manager's secure port to a GET; `None` if the connection ends without one.
    pub(crate) async fn get(
        &self,
        plane: &ControlPlane,
        manager: &Manager<'_>,
        path: &str,
        accept: Option<&str>,
    ) -> Option<Answer> {
        let roots = std::fs::read(&plane.report.ca_file).expect("the authority");
        let roots = Roots::from_pem(&roots).expect("a certificate");
        let config = ClientConfig::builder_with_provider(provider());
        let config = config.with_safe_default_protocol_versions().expect("versions of TLS").dangerous();
        let config = config.with_custom_certificate_verifier(Arc::new(ServerVerifier::new(roots)));
        let config = config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(self.certified())));
        let address = manager.url.trim_start_matches("https://");
        let stream = TcpStream::connect(address).await.ok()?;
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
        let accept = accept.map(|accept| format!("Accept: {accept}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{accept}\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut bytes = Vec::new();
        // A server may end the connection without saying so.
        let _ = stream.read_to_end(&mut bytes).await;
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let (line, headers) = head.split_once("\r\n")?;
        let content_type = headers.lines().find_map(|header| {
            let (name, value) = header.split_once(':')?;
            name.eq_ignore_ascii_case("content-type").then(|| value.trim().to_owned())
        });
        Some(Answer {
            status: line.split(' ').nth(1)?.parse().ok()?,
            content_type: content_type.unwrap_or_default(),
            body: body.to_owned(),
        })
    }
}
