//! A serving certificate for [`COXSWAIN_NAME`], signed by the cluster's CA in a process that has the key of the CA.
//!
//! A client with a bearer token and the cluster's CA accepts this name and no other. The port presents the certificate only to
//! clients that ask for the name (SNI); every other client gets the default certificate. Certificate and key stay in memory.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;

use super::tls::{self, CertStore};
use crate::model::clock::SharedClock;
use crate::wire::WallTime;

/// The name in the serving certificates of Coxswain that the cluster's CA signs, and in no certificate of a node.
pub const COXSWAIN_NAME: &str = "coxswain.kube-system.svc";

/// A CA that signs serving certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningCa {
    /// The CA's certificate in DER.
    pub certificate: Arc<[u8]>,
    /// End of the CA's validity, in seconds since 1970.
    pub not_after: i64,
}

impl fmt::Debug for SigningCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningCa").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// A certificate for [`COXSWAIN_NAME`].
#[derive(Clone, Debug)]
pub struct SignedCertificate {
    /// The chain in PEM, leaf first.
    pub chain: String,
    /// The CA that signed it.
    pub ca: SigningCa,
    /// End of the certificate's validity, in seconds since 1970.
    pub not_after: i64,
}

/// Signs serving certificates with the key of the cluster's CA.
pub trait ServingSigner: Send + Sync {
    /// Returns the CA that signs now.
    fn ca(&self) -> BoxFuture<'_, Result<SigningCa, String>>;

    /// Signs a certificate for [`COXSWAIN_NAME`] and this public key (SubjectPublicKeyInfo in DER).
    fn sign(&self, public_key: Vec<u8>, now: Timestamp) -> BoxFuture<'_, Result<SignedCertificate, String>>;
}

/// Makes the certificate, and makes it again before it expires and when another CA signs.
pub(super) struct SignedRenewal {
    signer: Arc<dyn ServingSigner>,
    clock: SharedClock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// The error of the last attempt, to report an error once.
    error: Option<String>,
}

/// The certificate that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Current {
    ca: SigningCa,
    signed: Timestamp,
    /// In seconds since 1970.
    not_after: i64,
}

impl Current {
    /// Whether another certificate must take its place. A certificate is replaced at 80 percent of its life, unless it already
    /// ends with its CA.
    fn is_due(&self, ca: &SigningCa, now: Timestamp) -> bool {
        let signed = self.signed.as_second();
        let age = now.as_second().saturating_sub(signed);
        let life = self.not_after.saturating_sub(signed);
        let is_old = age >= life / 5 * 4 && self.not_after < ca.not_after;
        // A clock that was set back makes it a certificate of the future.
        self.ca != *ca || is_old || age < 0
    }
}

impl SignedRenewal {
    /// Makes nothing yet.
    pub(super) fn new(signer: Arc<dyn ServingSigner>, clock: SharedClock) -> Self {
        Self { signer, clock, state: Mutex::default() }
    }

    /// Makes a certificate if there is none or another one is due. After an error the port keeps the certificate that it has, and the
    /// next turn tries again. Open connections keep their certificate.
    pub(super) async fn turn(&self, certs: &CertStore, provider: &CryptoProvider) {
        let result = self.renewed(provider).await;
        let mut state = self.state.lock();
        match result {
            Ok(renewed) => {
                state.error = None;
                if let Some((current, key)) = renewed {
                    certs.replace_signed(key);
                    tracing::info!(
                        name = COXSWAIN_NAME,
                        not_after = %WallTime::new(current.not_after, 0),
                        "Signed a serving certificate with the cluster's CA"
                    );
                    state.current = Some(current);
                }
            }
            Err(error) => {
                if state.error.as_ref() != Some(&error) {
                    tracing::error!(
                        name = COXSWAIN_NAME,
                        error,
                        "Failed to sign a serving certificate with the cluster's CA; clients that send a token \
                         and trust only the cluster's CA cannot verify this replica unless an earlier certificate is still valid"
                    );
                    state.error = Some(error);
                }
            }
        }
    }

    async fn renewed(&self, provider: &CryptoProvider) -> Result<Option<(Current, CertifiedKey)>, String> {
        let ca = self.signer.ca().await?;
        let now = self.clock.now();
        let is_current = self.state.lock().current.as_ref().is_some_and(|current| !current.is_due(&ca, now));
        if is_current {
            return Ok(None);
        }
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let signed = self.signer.sign(key.subject_public_key_info(), now).await?;
        let certified =
            tls::certified_key(signed.chain.as_bytes(), key.serialize_pem().as_bytes(), provider)?;
        Ok(Some((Current { ca: signed.ca, signed: now, not_after: signed.not_after }, certified)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn ca(name: u8, not_after: i64) -> SigningCa {
        SigningCa { certificate: Arc::new([name]), not_after: at(not_after).as_second() }
    }

    #[test]
    fn signed_certificate_is_due_at_80_percent_of_its_life_and_with_another_ca() {
        const DAY: i64 = 24 * 3600;
        let long = ca(1, 365 * DAY);
        let current = Current { ca: long.clone(), signed: at(0), not_after: at(DAY).as_second() };
        for (now, expected) in [
            (0, false),
            (DAY / 5 * 4 - 1, false),
            (DAY / 5 * 4, true),
            (DAY, true),
            (2 * DAY, true),
            (-1, true),
        ] {
            assert_eq!(current.is_due(&long, at(now)), expected, "{now}");
        }
        assert!(current.is_due(&ca(2, 365 * DAY), at(0)), "another CA");

        // The CA ends first: no certificate by it is valid for longer.
        let short = ca(1, 3600);
        let current = Current { ca: short.clone(), signed: at(0), not_after: short.not_after };
        for now in [0, 3000, 3599, 3600, DAY] {
            assert!(!current.is_due(&short, at(now)), "{now}");
        }
        assert!(current.is_due(&ca(2, DAY), at(3000)));
    }
}
