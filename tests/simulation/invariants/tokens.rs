//! Rules about tokens that are cleaned up: none goes that is still of use.
//!
//! Writes of tokens are protected by the version that was judged. So what is noted in the token itself counts at the very moment
//! of the write; only clocks may differ.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use super::{Look, WINDOW};
use crate::actors::{is_bootstrap, names};
use apiserver_model::text;

/// The label in which the API server notes on which day a token was used last.
pub(crate) const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// For how long an old token must not have been used: the manager's flag.
const UNUSED: SignedDuration = SignedDuration::from_hours(24);
/// By how much a manager's clock may be ahead.
const SKEW: SignedDuration = SignedDuration::from_secs(6);

/// What a bootstrap token says of its end; `None` if it says nothing.
pub(crate) fn expiration_of(secret: &Json) -> Option<String> {
    let text = text(secret, "/data/expiration");
    let text = BASE64_STANDARD.decode(text).ok().filter(|text| is_bootstrap(secret) && !text.is_empty())?;
    String::from_utf8(text).ok()
}

/// A bootstrap token goes: it says that it has ended.
pub(super) fn ended(look: &Look<'_>) -> Result<(), String> {
    if !look.deletes("secrets") {
        return Ok(());
    }
    let Some(end) = expiration_of(look.before()) else {
        return Err(format!("{} goes, which never ends", look.named()));
    };
    match end.parse::<Timestamp>() {
        Ok(end) if end > look.change.at + SKEW + look.memory.ahead => {
            Err(format!("{} goes, and is good until {end}", look.named()))
        }
        _ => Ok(()),
    }
}

/// The old token that goes, or is marked as invalid; `Null` if none is.
fn given_up<'a>(look: &'a Look<'_>) -> &'a Json {
    if look.resource() == "secrets" { look.before() } else { &Json::Null }
}

/// An old token is given up: it was not used for the period, by what the API server has noted.
pub(super) fn unused(look: &Look<'_>) -> Result<(), String> {
    let secret = given_up(look);
    let used = text(&secret["metadata"]["labels"], &format!("/{}", LAST_USED.replace('/', "~1")));
    let limit =
        (look.change.at + SKEW + look.memory.ahead - UNUSED).to_zoned(TimeZone::UTC).date().to_string();
    if used >= limit.as_str() {
        return Err(format!("{} is given up, and was used on {used}", look.named()));
    }
    if secret.is_object() && is_bootstrap(secret) {
        return Err(format!("{} is none of an account", look.named()));
    }
    Ok(())
}

/// An old token is given up: no pod names it, but for pods that a manager may not know of yet.
pub(super) fn unmounted(look: &Look<'_>) -> Result<(), String> {
    let secret = given_up(look);
    let name = text(secret, "/metadata/name");
    let is_known = |pod: &Json| {
        let made: Option<Timestamp> = text(pod, "/metadata/creationTimestamp").parse().ok();
        made.is_some_and(|made| made < look.change.at - WINDOW)
    };
    let pods = look.model.all("pods", text(secret, "/metadata/namespace"));
    let mut holding =
        pods.filter(|pod| secret.is_object() && names(&pod.json["spec"], name) && is_known(&pod.json));
    match holding.next() {
        Some(pod) => Err(format!("{} is given up, and {} mounts it", look.named(), pod.place.name)),
        None => Ok(()),
    }
}
