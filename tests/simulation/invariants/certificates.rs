//! Rules about certificates: who vouches for them, and who has allowed them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{Look, WINDOW};
use crate::actors::{BAD, KUBELET, has};
use apiserver_model::{items, text};

/// How long it may take from when a manager reads the authority's files until what it has signed arrives.
const FLIGHT: SignedDuration = SignedDuration::from_secs(30);
/// A manager looks at the files this often: what they hold for a shorter time may be missed.
const NOTICED: SignedDuration = SignedDuration::from_secs(6);

/// What the authority's files have held: a certificate (DER) with its key, or what is of no use, each since when.
#[derive(Default)]
pub(super) struct Published(Vec<(Timestamp, Option<Vec<u8>>)>);

impl Published {
    pub(super) fn note(&mut self, at: Timestamp, certificate: Option<Vec<u8>>) {
        self.0.push((at, certificate));
    }

    /// Who may have signed what arrives now. What is of no use leaves in force what was there before; what was there long enough
    /// to be noticed has replaced all that came before.
    fn may_sign(&self, now: Timestamp) -> Vec<&[u8]> {
        let read = now - FLIGHT;
        let (mut all, mut until) = (Vec::new(), now);
        for (from, certificate) in self.0.iter().rev() {
            if let Some(certificate) = certificate {
                all.push(certificate.as_slice());
                if until.min(read).duration_since(*from) >= NOTICED {
                    break;
                }
            }
            until = *from;
        }
        all
    }
}

/// Whether an authority (DER) has signed what PEM holds.
fn has_signed(authority: &[u8], pem: &Pem) -> bool {
    let Ok((_, authority)) = X509Certificate::from_der(authority) else { return false };
    let Ok((_, certificate)) = X509Certificate::from_der(&pem.contents) else { return false };
    certificate.issuer() == authority.subject()
        && certificate.verify_signature(Some(authority.public_key())).is_ok()
}

/// The certificate that a request gets by this change, as it stands there; empty if it gets none.
fn issued<'a>(look: &'a Look<'_>) -> &'a str {
    let (had, has) = (text(look.before(), "/status/certificate"), text(look.after(), "/status/certificate"));
    if look.resource() == "certificatesigningrequests" && had != has { has } else { "" }
}

/// A certificate is issued: an authority vouches for it that is published, or was a moment ago.
pub(super) fn vouched_for(look: &Look<'_>) -> Result<(), String> {
    let issued = issued(look);
    if issued.is_empty() {
        return Ok(());
    }
    let text = BASE64_STANDARD.decode(issued).unwrap_or_default();
    let Some(Ok(pem)) = Pem::iter_from_buffer(&text).next() else {
        return Err(format!("{} gets what is no certificate", look.named()));
    };
    let authorities = look.memory.published.may_sign(look.change.at);
    if authorities.iter().any(|authority| has_signed(authority, &pem)) {
        return Ok(());
    }
    Err(format!(
        "{} gets a certificate that none of {} authorities has signed",
        look.named(),
        authorities.len()
    ))
}

/// A certificate is issued: somebody has approved it and nobody denied it, and its signer gives such certificates.
pub(super) fn allowed(look: &Look<'_>) -> Result<(), String> {
    let request = look.before();
    if issued(look).is_empty() {
        return Ok(());
    }
    if !has(request, "Approved") || has(request, "Denied") || has(request, "Failed") {
        return Err(format!("{} gets a certificate that nobody has approved", look.named()));
    }
    if text(request, "/metadata/name").starts_with(BAD) {
        return Err(format!("{} gets a certificate against its signer's rules", look.named()));
    }
    Ok(())
}

/// For whom a request is.
fn common_name(request: &Json) -> Option<String> {
    let pem = BASE64_STANDARD.decode(text(request, "/spec/request")).ok()?;
    let pem = Pem::iter_from_buffer(&pem).next()?.ok()?;
    let (_, asked) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let name = asked.certification_request_info.subject.iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

/// A request is approved by a controller: it is a kubelet's, for what it logs in with, nobody has decided it, and who asks had the
/// right to it lately.
pub(super) fn permitted(look: &Look<'_>) -> Result<(), String> {
    let (before, after) = (look.before(), look.after());
    if look.resource() != "certificatesigningrequests" || !has(after, "Approved") || has(before, "Approved") {
        return Ok(());
    }
    if has(before, "Denied") {
        return Err(format!("{} is approved, and was denied", look.named()));
    }
    if text(before, "/spec/signerName") != KUBELET || text(before, "/metadata/name").starts_with(BAD) {
        return Err(format!("{} is approved, and is nothing that a kubelet logs in with", look.named()));
    }
    let groups = items(before, "/spec/groups").iter().filter_map(Json::as_str);
    let mut who = groups.chain([text(before, "/spec/username")]);
    let since = look.change.at - WINDOW;
    let is_own = common_name(before).as_deref() == before["spec"]["username"].as_str();
    let may = |who: &str, right: &str| look.model.access.had(who, right, since);
    if who.any(|who| may(who, "nodeclient") || (is_own && may(who, "selfnodeclient"))) {
        return Ok(());
    }
    Err(format!("{} is approved, and {} had no right to it", look.named(), before["spec"]["username"]))
}
