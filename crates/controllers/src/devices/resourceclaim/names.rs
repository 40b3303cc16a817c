//! Names of claims: those that an owner names, and what the API server makes names of.

use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::scheduling::PodGroup;
use coxswain_machinery::wire::Str;

/// What a prefix of a random name may be long.
const LONGEST: usize = 57;

/// Names of the claims that a pod uses: those that it names itself, and those that were made for it.
pub(super) fn of_pod(pod: &Pod) -> impl Iterator<Item = &Str> {
    let named = pod.shape.resource_claims.iter().filter_map(|entry| entry.claim.as_ref());
    let made = pod.status.resource_claim_statuses.iter().filter_map(|made| made.resource_claim_name.as_ref());
    let extended = pod.status.extended_resource_claim_status.as_deref();
    named.chain(made).chain(extended.map(|extended| &extended.resource_claim_name))
}

/// The same of a PodGroup.
pub(super) fn of_group(group: &PodGroup) -> impl Iterator<Item = &Str> {
    let named = group.spec.resource_claims.iter().filter_map(|entry| entry.resource_claim_name.as_ref());
    let made =
        group.status.resource_claim_statuses.iter().filter_map(|made| made.resource_claim_name.as_ref());
    named.chain(made)
}

/// What the name of a claim begins with that is made for an entry: both names; of long ones as much of each as their lengths allow,
/// and no hyphen then.
pub(super) fn prefix(owner: &str, entry: &str) -> String {
    let whole = format!("{owner}-{entry}-");
    let length = whole.len();
    if length <= LONGEST {
        return whole;
    }
    let share = |name: &str| {
        let share = name.len() * LONGEST / length;
        name.get(..share).unwrap_or(name).to_owned()
    };
    format!("{}-{}", share(owner), share(entry))
}
