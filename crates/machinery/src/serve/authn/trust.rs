//! Certificate authorities that can change, and the users that their certificates name.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use ring::digest;
use rustls::DistinguishedName;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_cert::spki::ObjectIdentifier;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::model::clock::SharedClock;
use crate::serve::cache::{Digest, TtlCache};
use crate::serve::observe::ServeObserver;
use crate::serve::user::UserInfo;
use crate::tls::{Purpose, Roots};
use crate::x509::Certificate;

/// Where a certificate's subject carries the user's UID.
const UID_ATTRIBUTE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.57683.2");
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Verdicts that are remembered, each for a second: a request does not cost a verification.
const REMEMBERED: usize = 256;

/// A bundle, and the verdicts on chains by it.
struct Bundle {
    roots: Roots,
    verdicts: TtlCache<Result<(), String>>,
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
        let roots = Roots::from_pem(pem).map_err(|error| error.to_string())?;
        self.bundle.store(Some(Arc::new(Bundle { roots, verdicts: TtlCache::new(REMEMBERED) })));
        Ok(())
    }

    /// The names of the authorities, sent to clients as a hint which certificate to show.
    pub(in crate::serve) fn subjects(&self) -> Vec<DistinguishedName> {
        self.bundle.load().as_ref().map(|bundle| bundle.roots.subjects()).unwrap_or_default()
    }

    /// When the next of the authorities expires, in seconds since 1970.
    pub(in crate::serve) fn not_after(&self, now: Timestamp) -> Option<i64> {
        self.bundle.load().as_ref().and_then(|bundle| bundle.roots.not_after(now.as_second()))
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
        let key = digest_of(seconds, leaf, chain);
        let verdict = bundle.verdicts.get(&key).unwrap_or_else(|| {
            let verified = bundle.roots.verify(leaf, chain, Purpose::Client, now);
            let verdict = verified.map_err(|error| format!("{}: {error}", describe(leaf)));
            bundle.verdicts.insert(key, verdict.clone(), Duration::from_secs(1));
            verdict
        });
        verdict.map(|()| true)
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
            return Err(format!("{}: more than one UID in the subject", describe(leaf)));
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

/// The digest of a chain that is verified at a time.
fn digest_of(seconds: u64, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&seconds.to_be_bytes());
    for certificate in std::iter::once(leaf).chain(chain) {
        context.update(&(certificate.len() as u64).to_be_bytes());
        context.update(certificate);
    }
    let mut digest = Digest::default();
    digest.copy_from_slice(context.finish().as_ref());
    digest
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::ManualClock;
    use crate::tls::cases::{NOW, cases};
    use crate::x509::fixtures::to_pem;

    #[test]
    fn verdict_on_a_chain_holds_for_its_second_and_its_bundle() {
        let store =
            TrustStore::new(Arc::new(ManualClock::new(jiff::Timestamp::from_second(NOW as i64).unwrap())));
        let case = |name| cases().into_iter().find(|case| case.name == name).unwrap();
        let (good, bad) = (case("a client certificate"), case("version 1: expired"));
        let remembered = |leaf: &CertificateDer<'_>, seconds| {
            let bundle = store.bundle.load_full().unwrap();
            bundle.verdicts.get(&digest_of(seconds, leaf, &[])).map(|verdict| verdict.is_ok())
        };
        for (case, is_good) in [(good, true), (bad, false)] {
            store.load(to_pem(&case.roots[0]).as_bytes()).unwrap();
            let leaf = CertificateDer::from(case.leaf);
            assert_eq!(remembered(&leaf, NOW), None);
            for _ in 0..2 {
                assert_eq!(store.verify(&leaf, &[]).is_ok(), is_good);
                assert_eq!(remembered(&leaf, NOW), Some(is_good));
                assert_eq!(remembered(&leaf, NOW + 1), None);
            }
        }
    }
}
