//! Certificate authorities that can change, and the users that their certificates name.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use ring::digest;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_cert::spki::ObjectIdentifier;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::model::clock::SharedClock;
use crate::serve::observe::ServeObserver;
use crate::serve::user::UserInfo;
use crate::x509::Certificate;

/// Where a certificate's subject carries the user's UID.
const UID_ATTRIBUTE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.57683.2");
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A bundle that was read and understood.
struct Bundle {
    verifier: Arc<dyn ClientCertVerifier>,
    subjects: Vec<DistinguishedName>,
}

/// The authorities in force; none until some were loaded.
pub(in crate::serve) struct TrustStore {
    bundle: ArcSwapOption<Bundle>,
    clock: SharedClock,
}

impl TrustStore {
    pub(in crate::serve) fn new(clock: SharedClock) -> Self {
        Self { bundle: ArcSwapOption::empty(), clock }
    }

    /// Puts a PEM bundle in force. One that is of no use is refused, and what is in force stays.
    pub(in crate::serve) fn load(&self, pem: &[u8]) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        for (index, cert) in CertificateDer::pem_slice_iter(pem).enumerate() {
            let cert = cert.map_err(|error| format!("certificate {index}: {error}"))?;
            roots.add(cert).map_err(|error| format!("certificate {index}: {error}"))?;
        }
        if roots.is_empty() {
            return Err("it holds no PEM certificate".to_owned());
        }
        let subjects = roots.subjects();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        self.bundle.store(Some(Arc::new(Bundle { verifier, subjects })));
        Ok(())
    }

    /// The names of the authorities, sent to clients as a hint which certificate to show.
    pub(in crate::serve) fn subjects(&self) -> Vec<DistinguishedName> {
        self.bundle.load().as_ref().map(|bundle| bundle.subjects.clone()).unwrap_or_default()
    }

    /// Whether a chain leads to an authority, now and for client authentication. `Ok(false)`: there are no
    /// authorities yet.
    pub(in crate::serve) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
    ) -> Result<bool, String> {
        let Some(bundle) = self.bundle.load_full() else { return Ok(false) };
        let seconds = u64::try_from(self.clock.now().as_second()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        match bundle.verifier.verify_client_cert(leaf, chain, now) {
            Ok(_verified) => Ok(true),
            Err(error) => Err(format!("{}: {error}", describe(leaf))),
        }
    }

    /// The user whom a certificate names: common name, organizations as groups. `Ok(None)`: no authorities yet, or
    /// no common name. Go refuses a certificate whose names have other values than texts, and so does this. The observer hears how long the certificate is still valid.
    pub(super) fn user(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        observer: &dyn ServeObserver,
    ) -> Result<Option<UserInfo>, String> {
        if !self.verify(leaf, chain)? {
            return Ok(None);
        }
        let cert = Certificate::read(leaf).map_err(|error| format!("{}: {error}", describe(leaf)))?;
        let valid_for = cert.not_after - self.clock.now().as_second();
        observer.certificate_trusted(Duration::from_secs(u64::try_from(valid_for).unwrap_or(0)));
        let name = cert.subject.common_name();
        if name.is_empty() {
            return Ok(None);
        }
        let mut uids = cert.subject.values(&UID_ATTRIBUTE);
        let uid = uids.next().unwrap_or_default().to_owned();
        if uids.next().is_some() {
            return Err(format!("{}: more than one UID in its subject", describe(leaf)));
        }
        let mut id = String::from("X509SHA256=");
        id.extend(digest::digest(&digest::SHA256, leaf).as_ref().iter().map(|byte| format!("{byte:02x}")));
        Ok(Some(UserInfo {
            name: name.to_owned(),
            uid,
            groups: cert.subject.organizations().map(str::to_owned).collect(),
            extra: [(CREDENTIAL_ID.to_owned(), vec![id])].into(),
        }))
    }
}

/// Which certificate it is about, for the log.
fn describe(cert: &CertificateDer<'_>) -> String {
    match X509Certificate::from_der(cert) {
        Ok((_, cert)) => {
            format!("subject {:?}, serial {}", cert.subject().to_string(), cert.raw_serial_as_string())
        }
        Err(error) => format!("unreadable ({error})"),
    }
}
