//! The ReplicaSet of the present template: its name, its annotations and its revision.
//!
//! Each template that was rolled out has a revision, counted upwards. Rolling back to a template means that its
//! ReplicaSet gets the next revision and remembers the one it had.

use super::annotations::{
    ADMITTED_TEMPLATE, DESIRED_REPLICAS, MAX_REPLICAS, REVISION, REVISION_HISTORY, ROLLBACK_TO,
};
use super::bounds::deadline;
use super::conditions;
use super::draft::Draft;
use coxswain_machinery::api::apps::ReplicaSet;

/// A Deployment's annotations that are no business of its ReplicaSets.
pub(super) const NOT_INHERITED: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ADMITTED_TEMPLATE,
    ROLLBACK_TO,
];

/// The longest history that an annotation holds, in bytes.
const HISTORY_LIMIT: usize = 2000;
/// The longest name of an object, in bytes.
const NAME_LIMIT: usize = 253;

/// Brings the annotations and `minReadySeconds` of the new ReplicaSet, if there is one, and the Deployment's revision up
/// to date.
pub(super) fn settle(draft: &mut Draft<'_>) {
    let Some(at) = draft.new else { return };
    annotate(draft, at);
    if let Some(hash) = draft.admitted.clone() {
        draft.members[at].annotate(ADMITTED_TEMPLATE, hash);
    }
    let min_ready = draft.spec().min_ready_seconds;
    if draft.members[at].object.spec.min_ready_seconds != min_ready {
        draft.members[at].min_ready_seconds = Some(min_ready);
    }
    if draft.members[at].is_changed() {
        draft.touch(at);
    }
    draft.revision = draft.members[at].annotation(REVISION).map(str::to_owned);
    if deadline(draft.spec()).is_some() && conditions::get(&draft.status, conditions::PROGRESSING).is_none() {
        let message = format!("Found new replica set {:?}", draft.members[at].name());
        let found = conditions::progressing("True", "FoundNewReplicaSet", message, draft.now);
        conditions::set(&mut draft.status, found);
    }
}

/// Adds the ReplicaSet of the present template, without pods yet. Its position.
pub(super) fn create(draft: &mut Draft<'_>) -> usize {
    let mut set = ReplicaSet::default();
    let hash = draft.template.hash(draft.status.collision_count);
    set.metadata.name = name(&draft.view.deployment.metadata.name, &hash).into();
    set.spec.replicas = Some(0);
    let at = draft.add(set);
    annotate(draft, at);
    draft.annotate_size(at);
    draft.revision = draft.members[at].annotation(REVISION).map(str::to_owned);
    if deadline(draft.spec()).is_some() {
        let message = format!("Created new replica set {:?}", draft.members[at].name());
        let created = conditions::progressing("True", "NewReplicaSetCreated", message, draft.now);
        conditions::set(&mut draft.status, created);
    }
    at
}

/// `deployment-hash`; of a deployment with a very long name only as much as leaves room for the hash.
pub(super) fn name(deployment: &str, hash: &str) -> String {
    let room = NAME_LIMIT.saturating_sub(hash.len() + 1);
    let mut stem = deployment;
    if stem.len() > room {
        // Names are ASCII; a cut that hits a dot would leave a name that the server refuses.
        stem = stem.get(..room).unwrap_or_default().trim_end_matches('.');
    }
    format!("{stem}-{hash}")
}

fn annotate(draft: &mut Draft<'_>, at: usize) {
    let old = draft.old().into_iter().filter_map(|at| draft.members[at].revision());
    let next = old.max().unwrap_or(0).max(0).saturating_add(1);
    let deployment = &draft.view.deployment.metadata;
    let member = &mut draft.members[at];
    // Somebody else's idea of a revision: leave it all alone, as the original does.
    let Some(present) = member.revision() else { return };
    for (key, value) in deployment.annotations.iter() {
        if !NOT_INHERITED.contains(&key.as_str()) {
            member.inherit(key, value);
        }
    }
    // Older ReplicaSets may have gone since, and with them the highest revision: it never goes down.
    if present >= next {
        return;
    }
    if let Some(previous) = member.annotation(REVISION).filter(|text| !text.is_empty()).map(str::to_owned)
        && let Some(history) = remember(member.annotation(REVISION_HISTORY).unwrap_or(""), &previous)
    {
        member.annotate(REVISION_HISTORY, history);
    }
    member.annotate(REVISION, next.to_string());
}

/// `history` with `revision` at its end; the oldest are forgotten where there is no room. `None` if it has none at all.
fn remember(history: &str, revision: &str) -> Option<String> {
    let mut rest = history;
    while !rest.is_empty() && rest.len() + 1 + revision.len() > HISTORY_LIMIT {
        rest = rest.split_once(',').map_or("", |(_, rest)| rest);
    }
    match (rest, revision.len()) {
        (_, length) if length > HISTORY_LIMIT => None,
        ("", _) => Some(revision.to_owned()),
        (rest, _) => Some(format!("{rest},{revision}")),
    }
}
