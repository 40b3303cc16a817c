//! A serving certificate that was given by no flag, and that this process or kube-controller-manager has made: a new one is made before
//! the old one expires.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::error::ServeError;
use super::options::ServeOptions;
use super::tls::{self, CertFiles, CertStore};
use crate::latest;
use crate::model::clock::SharedClock;

/// Replaces the certificate.
pub(super) struct Renewal {
    options: ServeOptions,
    clock: SharedClock,
    /// The files in `--cert-dir`; `None` for a certificate that is kept in memory.
    files: Option<CertFiles>,
    /// The authority to trust, in PEM.
    authority: latest::Sender<Option<String>>,
    /// Whether the last attempt to write a certificate failed, to log a failure once.
    has_failed: AtomicBool,
}

impl Renewal {
    /// Creates the renewal of a certificate with this chain in PEM.
    pub(super) fn new(
        options: ServeOptions,
        clock: SharedClock,
        files: Option<CertFiles>,
        chain: &[u8],
    ) -> Self {
        let authority = latest::Sender::new(authority(chain));
        Self { options, clock, files, authority, has_failed: AtomicBool::new(false) }
    }

    /// Follows the authority of the certificate.
    pub(super) fn authority(&self) -> latest::Receiver<Option<String>> {
        self.authority.subscribe()
    }

    /// Takes note of a chain in PEM that was read from the file.
    pub(super) fn follow(&self, chain: &[u8]) {
        let read = authority(chain);
        self.authority.send_if_modified(|held| {
            let is_new = *held != read;
            *held = read;
            is_new
        });
    }

    /// Makes a new certificate if the old one is due. Connections that are open keep the old one.
    pub(super) async fn turn(&self, certs: &CertStore, provider: &CryptoProvider) -> Result<(), ServeError> {
        let (now, old) = (self.clock.now(), certs.default_key());
        let Some(leaf) = old.cert.first().filter(|leaf| is_due(leaf, now)) else { return Ok(()) };
        let Some(files) = &self.files else {
            let (cert, key) = tls::generate(&self.options, now)?;
            let certified = tls::certified_key(cert.as_bytes(), key.as_bytes(), provider);
            certs.replace(0, certified.map_err(ServeError::SelfSigned)?);
            self.follow(cert.as_bytes());
            tracing::info!("Created a new self-signed serving certificate");
            return Ok(());
        };
        if !tls::is_self_made(&old.cert) {
            return Ok(());
        }
        let path = files.cert.display();
        // Clients that trust the CA in the file would refuse a certificate that exists in this process alone.
        let keep_old = |error: &std::io::Error| {
            let is_valid = is_valid(leaf, now);
            if is_valid && !self.has_failed.swap(true, Ordering::Relaxed) {
                tracing::warn!(%path, %error, "Failed to write the renewed serving certificate; serving the previous one while it is valid");
            }
            is_valid
        };
        let checked = check_own_pair(files, &old, provider).await;
        if checked.as_ref().is_err_and(&keep_old) {
            return Ok(());
        }
        let cert = tls::renew(&self.options, now, leaf)?;
        let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<_, _>>();
        let chain = chain.map_err(|error| ServeError::SelfSigned(error.to_string()))?;
        let replaced = match checked {
            Ok(()) => tls::replace_cert(files, &cert).await,
            Err(error) => Err(error),
        };
        match replaced {
            Ok(()) => tracing::info!(%path, "Renewed the self-signed serving certificate"),
            Err(error) if keep_old(&error) => return Ok(()),
            Err(error) => tracing::warn!(
                %path, %error,
                "The self-signed serving certificate in --cert-dir has expired and was not renewed; serving a new one from memory"
            ),
        }
        self.has_failed.store(false, Ordering::Relaxed);
        certs.replace(0, CertifiedKey::new(chain, Arc::clone(&old.key)));
        self.follow(cert.as_bytes());
        Ok(())
    }
}

/// Checks that the files hold a self-made certificate and the served key. An operator replaces the files one at a time, so renewal must not
/// overwrite a half-replaced pair.
///
/// # Errors
/// A file was not read, the files do not match each other, or they hold another pair.
async fn check_own_pair(
    files: &CertFiles,
    served: &CertifiedKey,
    provider: &CryptoProvider,
) -> std::io::Result<()> {
    let (cert, key) = (tokio::fs::read(&files.cert).await?, tokio::fs::read(&files.key).await?);
    let held = tls::certified_key(&cert, &key, provider).map_err(std::io::Error::other)?;
    if tls::is_self_made(&held.cert) && held.key.public_key() == served.key.public_key() {
        Ok(())
    } else {
        Err(std::io::Error::other("the certificate in the files differs from the served certificate"))
    }
}

/// The CA of a chain in PEM, if it is self-signed.
fn authority(chain: &[u8]) -> Option<String> {
    std::str::from_utf8(chain).ok().and_then(tls::authority_of)
}

/// Whether a certificate is valid now.
fn is_valid(leaf: &CertificateDer<'_>, now: Timestamp) -> bool {
    let now = now.as_second();
    X509Certificate::from_der(leaf).is_ok_and(|(_, leaf)| {
        let validity = leaf.validity();
        (validity.not_before.timestamp()..validity.not_after.timestamp()).contains(&now)
    })
}

/// Whether 80 percent of a certificate's validity have passed. A certificate that is not valid yet is not due: like kube-controller-manager,
/// Coxswain serves it, because either clock, the one at its creation or the current one, may have been wrong.
fn is_due(leaf: &CertificateDer<'_>, now: Timestamp) -> bool {
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return false };
    let validity = leaf.validity();
    let (begin, end) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let now = now.as_second();
    now.saturating_sub(begin).saturating_mul(5) >= end.saturating_sub(begin).saturating_mul(4)
}
