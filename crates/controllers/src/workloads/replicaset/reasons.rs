//! Why the plan for one ReplicaSet is what it is, in words. Decides nothing.

use jiff::Timestamp;

use super::plan::{BURST, Claims, choose};
use super::view::View;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::pods;
use coxswain_machinery::model::words::{count, membership, names, time, verb};

pub(super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    let claims = Claims::of(view);
    let (desired, held) = (view.desired(), claims.kept.len());
    let mut reasons = vec![counts(view, &claims.kept, now)];
    reasons.extend(members(&claims));
    if view.replica_set.metadata.is_deleting() {
        reasons.push(format!("The {} is being deleted; no pod is created or deleted.", view.kind.kind));
        return reasons;
    }
    if held < desired {
        let missing = desired - held;
        reasons.push(format!(
            "{} {} missing and {} created from the template{}.",
            count(missing, "pod"),
            verb(missing, "is", "are"),
            verb(missing, "is", "are"),
            burst(missing)
        ));
    } else if held > desired {
        let surplus = held - desired;
        let chosen = choose(view, &claims.kept, surplus.min(BURST), now);
        reasons.push(format!(
            "{} too many: {} {} deleted{}. Order of deletion: not scheduled, not ready, lower deletion cost, more \
             such pods on the node, ready for a shorter time, more restarts, newer.",
            count(surplus, "pod"),
            names(chosen.iter().map(|pod| &pod.metadata.name)),
            verb(chosen.len(), "is", "are"),
            burst(surplus)
        ));
    }
    reasons.extend(waiting(view, &claims.kept, now));
    reasons
}

fn burst(number: usize) -> String {
    if number > BURST { format!(", {BURST} per reconcile") } else { String::new() }
}

fn counts(view: &View, kept: &[&Pod], now: Timestamp) -> String {
    let min_ready = view.replica_set.spec.min_ready_seconds;
    let ready = kept.iter().filter(|pod| pod.is_ready()).count();
    let available = kept.iter().filter(|pod| pods::is_available(pod, min_ready, now)).count();
    format!(
        "{} desired, {} existing: {ready} ready, {available} available.",
        count(view.desired(), "replica"),
        kept.len()
    )
}

fn members(claims: &Claims<'_>) -> Vec<String> {
    membership(
        claims.adopted.iter().map(|pod| pod.metadata.name.as_str()),
        claims.released.iter().map(|pod| pod.metadata.name.as_str()),
    )
}

/// What time alone will change.
fn waiting(view: &View, kept: &[&Pod], now: Timestamp) -> Option<String> {
    let min_ready = view.replica_set.spec.min_ready_seconds;
    let wait = pods::next_availability(kept.iter().copied(), min_ready, now)?;
    Some(format!("A ready pod becomes available in {} (minReadySeconds is {min_ready}).", time(wait)))
}
