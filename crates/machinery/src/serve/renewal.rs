//! A serving certificate that this process has made and keeps in memory: a new one is made before the old one expires.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;

use super::error::ServeError;
use super::options::ServeOptions;
use super::tls::{self, CertStore};
use crate::latest;
use crate::model::clock::SharedClock;

/// Age at which a certificate is replaced: 80 percent of its 365 days.
const AGE: SignedDuration = SignedDuration::from_hours(292 * 24);

/// Replaces the certificate.
pub(super) struct Renewal {
    options: ServeOptions,
    clock: SharedClock,
    made: Mutex<Timestamp>,
    /// The authority to trust, in PEM.
    authority: latest::Sender<Option<String>>,
}

impl Renewal {
    /// Creates the renewal of a certificate that was just made for these options.
    pub(super) fn new(options: ServeOptions, clock: SharedClock, authority: Option<String>) -> Self {
        let made = Mutex::new(clock.now());
        Self { options, clock, made, authority: latest::Sender::new(authority) }
    }

    /// Follows the authority of the certificate.
    pub(super) fn authority(&self) -> latest::Receiver<Option<String>> {
        self.authority.subscribe()
    }

    /// Makes a new certificate if the old one is due. Connections that are open keep the old one.
    pub(super) fn turn(&self, certs: &CertStore, provider: &CryptoProvider) -> Result<(), ServeError> {
        let now = self.clock.now();
        let mut made = self.made.lock();
        if now.duration_since(*made) < AGE {
            return Ok(());
        }
        let (cert, key) = tls::generate(&self.options, now)?;
        let certified = tls::certified_key(cert.as_bytes(), key.as_bytes(), provider);
        certs.replace(0, certified.map_err(ServeError::SelfSigned)?);
        *made = now;
        self.authority.send_replace(tls::authority_of(&cert));
        tracing::info!("Made a new self-signed serving certificate");
        Ok(())
    }
}
