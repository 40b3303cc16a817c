//! Files that are rotated under a running server, and what becomes of a change.
//!
//! The content is compared, by its hash, at every turn; a change that is of no use is reported once, and what was in
//! force stays. A pair of files changed one after the other is met half-way at worst once: the next turn mends it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ring::digest;
use rustls::crypto::CryptoProvider;

use super::authn::trust::TrustStore;
use super::authn::{ClusterTrust, RequestHeader};
use super::error::ServeError;
use super::observe::ServeObserver;
use super::renewal::Renewal;
use super::signed::SignedRenewal;
use super::tls::{CertFiles, CertStore, Tls};
use crate::model::clock::SharedClock;
use crate::wire::WallTime;

/// Sources of client CAs: the flags, and the keys of the ConfigMap `extension-apiserver-authentication`, have these names.
const CLIENT_CA: &str = "client-ca-file";
const REQUEST_HEADER_CA: &str = "requestheader-client-ca-file";

/// What a file is put to.
enum Use {
    /// A serving certificate: its place in the store, and the key's file.
    Cert { index: usize, key: PathBuf },
    /// Certificate authorities.
    Authorities(Arc<TrustStore>),
}

struct Watched {
    what: &'static str,
    path: PathBuf,
    used: Use,
    /// The hash of the content that was applied, or refused, last.
    seen: Mutex<Option<digest::Digest>>,
}

/// Everything that may change under the server.
pub(super) struct Reloader {
    provider: Arc<CryptoProvider>,
    certs: Arc<CertStore>,
    files: Vec<Watched>,
    client_ca: Option<Arc<TrustStore>>,
    request_header: Option<Arc<RequestHeader>>,
    cluster: Option<ClusterTrust>,
    renewal: Option<Renewal>,
    signed: Option<SignedRenewal>,
    reports: Reports,
}

/// Reports of a port about the end of certificates.
pub(super) struct Reports {
    observer: Arc<dyn ServeObserver>,
    port: u16,
    clock: SharedClock,
    /// The end of the expired serving certificate that was logged last.
    expired: Mutex<Option<i64>>,
}

impl Reports {
    pub(super) fn new(observer: Arc<dyn ServeObserver>, port: u16, clock: SharedClock) -> Self {
        Self { observer, port, clock, expired: Mutex::default() }
    }
}

impl Reloader {
    pub(super) fn new(
        provider: Arc<CryptoProvider>,
        certs: Arc<CertStore>,
        client_ca: Option<Arc<TrustStore>>,
        request_header: Option<Arc<RequestHeader>>,
        cluster: Option<ClusterTrust>,
        reports: Reports,
    ) -> Self {
        let (files, renewal, signed) = (Vec::new(), None, None);
        let reloader =
            Self { provider, certs, files, client_ca, request_header, cluster, renewal, signed, reports };
        reloader.report_expiry();
        reloader
    }

    /// Replaces the certificates that were made for this process before they expire.
    pub(super) fn renew(&mut self, renewal: Option<Renewal>, signed: Option<SignedRenewal>) {
        (self.renewal, self.signed) = (renewal, signed);
    }

    /// Reports when the certificates of the port and the client CAs expire, and logs once that one has expired.
    fn report_expiry(&self) {
        let Reports { observer, port, clock, expired } = &self.reports;
        let now = clock.now();
        let sources = [
            (CLIENT_CA, self.client_ca.as_ref()),
            (REQUEST_HEADER_CA, self.request_header.as_ref().map(|method| &method.trust)),
        ];
        for (source, store) in sources {
            if let Some(not_after) = store.and_then(|store| store.not_after(now)) {
                observer.client_ca(source, not_after);
            }
        }
        let Some(not_after) = self.certs.not_after() else { return };
        observer.serving_certificate(*port, not_after);
        let is_expired = not_after < now.as_second();
        let mut logged = expired.lock();
        if is_expired && *logged != Some(not_after) {
            *logged = Some(not_after);
            let expired_at = WallTime::new(not_after, 0);
            tracing::warn!(
                port,
                %expired_at,
                "A serving certificate has expired; clients that verify it cannot connect. Replace its files; they \
                 are read every minute"
            );
        }
    }

    /// Watches a serving certificate that was loaded already.
    pub(super) fn watch_cert(
        &mut self,
        what: &'static str,
        index: usize,
        files: &CertFiles,
        loaded: &Content,
    ) {
        self.files.push(Watched {
            what,
            path: files.cert.clone(),
            used: Use::Cert { index, key: files.key.clone() },
            seen: Mutex::new(Some(loaded.hash)),
        });
    }

    /// Watches a bundle of authorities that was loaded already.
    pub(super) fn watch_authorities(
        &mut self,
        what: &'static str,
        path: PathBuf,
        store: Arc<TrustStore>,
        loaded: &Content,
    ) {
        let seen = Mutex::new(Some(loaded.hash));
        self.files.push(Watched { what, path, used: Use::Authorities(store), seen });
    }

    /// The names of all authorities in force.
    pub(super) fn hints(&self) -> Vec<rustls::DistinguishedName> {
        let stores = [self.client_ca.as_ref(), self.request_header.as_ref().map(|method| &method.trust)];
        stores.into_iter().flatten().flat_map(|store| store.subjects()).collect()
    }

    /// One turn: looks at everything and puts changes in force.
    pub(super) async fn turn(&self, tls: &Tls) {
        let mut authorities_changed = false;
        for file in &self.files {
            match self.look(file).await {
                Ok(true) => {
                    tracing::info!(flag = file.what, path = %file.path.display(), "Reloaded a file");
                    authorities_changed |= matches!(file.used, Use::Authorities(_));
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, "Failed to load a rotated file; keeping the previous content");
                }
            }
        }
        if let Some(renewal) = &self.renewal
            && let Err(error) = renewal.turn(&self.certs, &self.provider).await
        {
            tracing::error!(%error, "Failed to create a new serving certificate; keeping the previous one");
        }
        if let Some(signed) = &self.signed {
            signed.turn(&self.certs, &self.provider).await;
        }
        if let Some(cluster) = &self.cluster {
            match cluster.refresh().await {
                Ok(changed) => authorities_changed |= changed,
                Err(error) => tracing::warn!(
                    %error,
                    "Failed to read the cluster's authentication configuration; keeping the previous one"
                ),
            }
        }
        self.report_expiry();
        if authorities_changed && let Err(error) = tls.set_hints(self.hints()) {
            tracing::error!(%error, "Failed to announce the new client CAs in TLS handshakes");
        }
    }

    async fn look(&self, file: &Watched) -> Result<bool, ServeError> {
        let content = match &file.used {
            Use::Cert { key, .. } => Content::read_pair(file.what, &file.path, key).await?,
            Use::Authorities(_) => Content::read(file.what, &file.path).await?,
        };
        {
            let mut seen = file.seen.lock();
            if seen.as_ref().is_some_and(|held| held.as_ref() == content.hash.as_ref()) {
                return Ok(false);
            }
            *seen = Some(content.hash);
        }
        match &file.used {
            Use::Cert { index, .. } => {
                let key = content.certified_key(file.what, &file.path, &self.provider)?;
                self.certs.replace(*index, key);
                if *index == 0
                    && let Some(renewal) = &self.renewal
                {
                    renewal.follow(&content.first);
                }
            }
            Use::Authorities(store) => content.authorities(file.what, &file.path, store)?,
        }
        Ok(true)
    }
}

/// What was read from a file, or from a certificate's and its key's.
pub(super) struct Content {
    first: Vec<u8>,
    second: Vec<u8>,
    hash: digest::Digest,
}

impl Content {
    pub(super) fn of(first: Vec<u8>, second: Vec<u8>) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&(first.len() as u64).to_be_bytes());
        context.update(&first);
        context.update(&second);
        Self { first, second, hash: context.finish() }
    }

    /// The first file.
    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }

    pub(super) async fn read(what: &'static str, path: &Path) -> Result<Self, ServeError> {
        Ok(Self::of(read(what, path).await?, Vec::new()))
    }

    pub(super) async fn read_pair(what: &'static str, cert: &Path, key: &Path) -> Result<Self, ServeError> {
        Ok(Self::of(read(what, cert).await?, read(what, key).await?))
    }

    pub(super) fn certified_key(
        &self,
        what: &'static str,
        path: &Path,
        provider: &CryptoProvider,
    ) -> Result<rustls::sign::CertifiedKey, ServeError> {
        super::tls::certified_key(&self.first, &self.second, provider).map_err(|reason| ServeError::Content {
            what,
            path: path.to_owned(),
            reason,
        })
    }

    pub(super) fn authorities(
        &self,
        what: &'static str,
        path: &Path,
        store: &TrustStore,
    ) -> Result<(), ServeError> {
        store.load(&self.first).map_err(|reason| ServeError::Content { what, path: path.to_owned(), reason })
    }
}

async fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, ServeError> {
    tokio::fs::read(path).await.map_err(|source| ServeError::Read { what, path: path.to_owned(), source })
}
