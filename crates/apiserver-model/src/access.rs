//! Who may have what, as far as anybody asks: reviews of access, answered by rights that are given and taken.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::{items, text};

/// Where reviews are asked for.
pub(super) const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// What rights are about.
const RESOURCE: &str = "certificatesigningrequests";

/// A time in which somebody had a right; to the present if it has no end.
type Held = (Timestamp, Option<Timestamp>);

/// Rights to subresources of requests for certificates, by who has them (a user or a group), and while they had them.
#[derive(Default)]
pub struct Access(BTreeMap<(String, String), Vec<Held>>);

impl Access {
    /// Somebody has a right from now on, or no longer.
    pub fn set(&mut self, who: &str, subresource: &str, has: bool, now: Timestamp) {
        let held = self.0.entry((who.to_owned(), subresource.to_owned())).or_default();
        match held.last_mut().filter(|(_, to)| to.is_none()) {
            Some((_, to)) if !has => *to = Some(now),
            None if has => held.push((now, None)),
            _ => {}
        }
    }

    /// Whether somebody had a right at any time since then.
    pub fn had(&self, who: &str, subresource: &str, since: Timestamp) -> bool {
        let held = self.0.get(&(who.to_owned(), subresource.to_owned()));
        held.into_iter().flatten().any(|(_, to)| to.is_none_or(|to| to >= since))
    }

    /// The answer to a review.
    pub(super) fn answer(&self, review: &Json, now: Timestamp) -> Json {
        let spec = &review["spec"];
        let attributes = &spec["resourceAttributes"];
        let is_known = text(attributes, "/verb") == "create"
            && text(attributes, "/group") == "certificates.k8s.io"
            && text(attributes, "/resource") == RESOURCE;
        let subresource = text(attributes, "/subresource");
        let groups = items(spec, "/groups").iter().filter_map(Json::as_str);
        // What ends now has ended.
        let has = |who: &str| {
            let held = self.0.get(&(who.to_owned(), subresource.to_owned()));
            held.and_then(|held| held.last()).is_some_and(|(from, to)| *from <= now && to.is_none())
        };
        let allowed = is_known && groups.chain([text(spec, "/user")]).any(has);
        let mut answer = review.clone();
        answer["status"] = json!({ "allowed": allowed });
        answer
    }
}
