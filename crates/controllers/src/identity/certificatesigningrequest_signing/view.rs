//! What is known of a request before it is signed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::identity::requests::{CertificateRequest, VERIFIER, VerifiedRequest, VerifyError};
use crate::identity::signers::Signer;
use coxswain_machinery::api::certificates::CertificateSigningRequest;
use coxswain_machinery::framework::{DeclaredRead, Observation, ObserveError, ParserInput, Reads, Room};
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
    /// It is to be signed if the signer's rules allow it, and its own key has not signed it.
    Unsigned(Signer, Box<CertificateRequest>, String),
    /// It is to be signed if the signer's rules allow it.
    Waits(Signer, Box<CertificateRequest>),
}

impl Signing {
    /// The signer of a request that is to be signed, or where the request stands.
    fn signer(&self, request: &CertificateSigningRequest) -> Result<Signer, Standing> {
        if !request.status.certificate.is_empty() {
            return Err(Standing::Idle("The request has a certificate"));
        }
        let mut is_approved = false;
        for condition in &request.status.conditions {
            match (condition.r#type.as_str(), condition.status.as_str()) {
                ("Approved", _) => is_approved = true,
                ("Denied", _) => return Err(Standing::Idle("The request is denied")),
                ("Failed", "True" | "") => return Err(Standing::Idle("The request has failed")),
                _ => {}
            }
        }
        if !is_approved {
            return Err(Standing::Idle("The request is not approved"));
        }
        let Some(signer) = Signer::named(&request.spec.signer_name) else {
            return Err(Standing::Idle("The request is for a signer outside of this controller"));
        };
        if !self.signers.contains(&signer) {
            return Err(Standing::Idle("The request's signer has no CA (--cluster-signing-*)"));
        }
        Ok(signer)
    }
}

/// Where a request stands that is to be signed.
fn standing(signer: Signer, verified: &VerifiedRequest) -> Standing {
    match &verified.0 {
        Ok(asked) => Standing::Waits(signer, Box::new(asked.clone())),
        Err(VerifyError::Unreadable(error)) => Standing::Unreadable(error.to_string()),
        Err(VerifyError::Unsigned(asked, error)) => {
            Standing::Unsigned(signer, asked.clone(), error.to_string())
        }
    }
}

impl Room for Signing {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        let Some(request) = self.requests.get(key) else { return Ok(Observation::Nothing) };
        let standing = match self.signer(&request) {
            Err(standing) => standing,
            Ok(signer) => {
                let input = ParserInput::of(&request.spec.request.0);
                match read.parsed::<VerifiedRequest>(&VERIFIER, &input) {
                    Some(verified) => standing(signer, &verified),
                    None => return Ok(Observation::Needs(vec![DeclaredRead::parsed(&VERIFIER, input)])),
                }
            }
        };
        Ok(Observation::View(View { standing, request, longest: self.longest }))
    }

    fn plan(view: &View, now: Timestamp) -> Plan {
        super::plan::plan(view, now)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        super::plan::reasons(view)
    }
}
