//! What is known of a request before it is signed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::identity::requests::CertificateRequest;
use crate::identity::signers::Signer;
use coxswain_machinery::api::certificates::CertificateSigningRequest;
use coxswain_machinery::framework::{Observation, ObserveError, Reads, Room};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan};

/// Reads requests. Keys are requests.
pub(super) struct Signing {
    pub(super) requests: Lister<CertificateSigningRequest>,
    /// The signers that have an authority.
    pub(super) signers: Vec<Signer>,
    /// The longest validity, and that of requests which ask for none.
    pub(super) longest: Duration,
}

/// A request, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) request: Arc<CertificateSigningRequest>,
    pub(super) standing: Standing,
    pub(super) longest: Duration,
}

/// Where a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is nothing to sign, for this reason.
    Idle(&'static str),
    /// It is to be signed, and can't be read.
    Unreadable(String),
    /// It is to be signed, and bears no signature by its own key.
    Unsigned(String),
    /// It is to be signed, if the signer's rules let it.
    Waits(Signer, Box<CertificateRequest>),
}

impl Signing {
    fn standing(&self, request: &CertificateSigningRequest) -> Standing {
        if !request.status.certificate.is_empty() {
            return Standing::Idle("It has its certificate");
        }
        let mut is_approved = false;
        for condition in &request.status.conditions {
            match (condition.r#type.as_str(), condition.status.as_str()) {
                ("Approved", _) => is_approved = true,
                ("Denied", _) => return Standing::Idle("It is denied"),
                ("Failed", "True" | "") => return Standing::Idle("It has failed"),
                _ => {}
            }
        }
        if !is_approved {
            return Standing::Idle("It is not approved");
        }
        let Some(signer) = Signer::named(&request.spec.signer_name) else {
            return Standing::Idle("Somebody else signs it");
        };
        if !self.signers.contains(&signer) {
            return Standing::Idle("Its signer has no authority by --cluster-signing-*");
        }
        match CertificateRequest::from_pem(&request.spec.request) {
            Err(error) => Standing::Unreadable(error.to_string()),
            Ok(asked) => match asked.verify() {
                Err(error) => Standing::Unsigned(error.to_string()),
                Ok(()) => Standing::Waits(signer, Box::new(asked)),
            },
        }
    }
}

impl Room for Signing {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        let view = self.requests.get(key).map(|request| View {
            standing: self.standing(&request),
            request,
            longest: self.longest,
        });
        Ok(view.into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        super::plan::plan(view, now)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        super::plan::reasons(view)
    }
}
