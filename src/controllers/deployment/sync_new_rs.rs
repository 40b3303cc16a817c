//! The ReplicaSet for the present template: its revision and annotations, and the one to make if there is none. Pure.

use std::sync::Arc;

use super::conditions::{self, PROGRESSING};
use super::draft::{Draft, Set};
use super::status;
use super::{KIND, ROLLING_UPDATE};
use crate::api::apps::{ReplicaSet, ReplicaSetStatus};
use crate::api::kinds::REPLICA_SETS;
use crate::api::meta::ObjectMeta;
use crate::model::hash::{self, POD_TEMPLATE_HASH};
use crate::model::owners::controller_reference;
use crate::model::plan::Verb;
use crate::model::revisions::{self, DESIRED_REPLICAS, MAX_REPLICAS, REVISION, REVISION_HISTORY};
use crate::model::{Key, Write};
use crate::wire::splice::{Edit, edit, get, put_bytes, put_varint_field};
use crate::wire::{Labels, Message, Str, Time, WireError};

/// The longest name that the server takes.
const LONGEST_NAME: usize = 253;

/// Brings the existing ReplicaSet's revision, annotations and `minReadySeconds` up to date; makes one if there is none
/// and `make`.
pub(super) fn sync(draft: &mut Draft<'_>, make: bool, now: Time) -> Result<(), WireError> {
    let oldest = draft.old_sets().filter_map(|set| revisions::revision(&set.annotations)).max();
    let revision = oldest.unwrap_or(0).saturating_add(1);
    match draft.current {
        Some(at) => update(draft, at, revision, now),
        None if make => make_one(draft, revision, now)?,
        None => {}
    }
    Ok(())
}

fn update(draft: &mut Draft<'_>, at: usize, revision: i64, now: Time) {
    let deployment = Arc::clone(&draft.view.deployment);
    let set = draft.change(at);
    copy_annotations(set, &deployment.metadata.annotations);
    set_revision(set, revision);
    set.min_ready_seconds = deployment.spec.min_ready_seconds;
    let name = set.object.metadata.name.clone();
    draft.revision = Some(set_revision_text(&draft.sets[at]));
    if status::deadline(&deployment.spec).is_some()
        && conditions::find(&draft.conditions, PROGRESSING).is_none()
    {
        let message = format!("Found new replica set {name:?}");
        conditions::set(
            &mut draft.conditions,
            conditions::progressing("True", "FoundNewReplicaSet", message, now),
        );
    }
}

fn set_revision_text(set: &Set) -> Str {
    set.annotations.get(REVISION).cloned().unwrap_or_default()
}

fn copy_annotations(set: &mut Set, deployment: &Labels) {
    for (key, value) in revisions::copied(deployment) {
        set.annotate(key, value);
    }
}

/// A ReplicaSet that is rolled out again gets a new revision, and its history tells the one it had.
fn set_revision(set: &mut Set, revision: i64) {
    let Some(held) = revisions::revision(&set.annotations).filter(|held| *held < revision) else { return };
    if set.annotations.contains_key(REVISION) {
        let history = set.annotations.get(REVISION_HISTORY).cloned().unwrap_or_default();
        set.annotate(REVISION_HISTORY, &revisions::append(&history, &held.to_string()));
    }
    set.annotate(REVISION, &revision.to_string());
}

fn make_one(draft: &mut Draft<'_>, revision: i64, now: Time) -> Result<(), WireError> {
    let deployment = &draft.view.deployment;
    let hash = hash::of(&draft.view.template, deployment.status.collision_count);
    let labels = hash::template_labels(&deployment.spec.template)?.with(POD_TEMPLATE_HASH, &hash);
    let mut object = ReplicaSet {
        metadata: ObjectMeta {
            name: name(&deployment.metadata.name, &hash).into(),
            namespace: deployment.metadata.namespace.clone(),
            labels,
            ..ObjectMeta::default()
        },
        // What does not exist yet has no pods that terminate.
        status: ReplicaSetStatus { terminating_replicas: Some(0), ..ReplicaSetStatus::default() },
        ..ReplicaSet::default()
    };
    object.spec.replicas = Some(0);
    object.spec.min_ready_seconds = deployment.spec.min_ready_seconds;
    let mut set = Set::of(&Arc::new(object), true);
    copy_annotations(&mut set, &deployment.metadata.annotations);
    set_revision(&mut set, revision);
    set.annotate(DESIRED_REPLICAS, &draft.fenceposts.replicas.to_string());
    set.annotate(MAX_REPLICAS, &draft.fenceposts.most().to_string());

    if status::deadline(&deployment.spec).is_some() {
        let message = format!("Created new replica set {:?}", set.object.metadata.name);
        conditions::set(
            &mut draft.conditions,
            conditions::progressing("True", "NewReplicaSetCreated", message, now),
        );
    }
    draft.revision = Some(set_revision_text(&set));
    draft.add(set);
    if let Some(at) = draft.current {
        let size = new_size(draft);
        draft.resize(at, size);
    }
    Ok(())
}

/// The Deployment's name and the hash. A name that is too long is cut before the hash.
fn name(deployment: &str, hash: &str) -> String {
    let room = LONGEST_NAME.saturating_sub(hash.len() + 1);
    let end = deployment.floor_char_boundary(room);
    format!("{}-{hash}", &deployment[..end])
}

/// The size that the new ReplicaSet may have now: in a rolling update only as much more as fits under the surge.
pub(super) fn new_size(draft: &Draft<'_>) -> i64 {
    let desired = draft.desired();
    let held = draft.new_set().map_or(0, |set| set.replicas);
    if draft.view.deployment.spec.strategy.r#type != ROLLING_UPDATE {
        return desired;
    }
    let room = draft.fenceposts.most() - draft.total();
    if room <= 0 { held } else { held + room.min(desired - held) }
}

/// The write that makes the ReplicaSet `set`. Its template is the Deployment's own bytes with one label more.
pub(super) fn create(draft: &Draft<'_>, set: &Set) -> Result<Write, WireError> {
    let deployment = &draft.view.deployment;
    let hash = set.object.metadata.labels.get(POD_TEMPLATE_HASH).cloned().unwrap_or_default();
    let metadata = ObjectMeta {
        annotations: set.annotations.clone(),
        owner_references: vec![controller_reference(&deployment.metadata, KIND)],
        ..set.object.metadata.clone()
    };
    let selector = match get(&deployment.raw, &[2, 2])? {
        Some(selector) => selector.bytes()?,
        None => &[],
    };
    let label = Edit::MapSet(vec![1], POD_TEMPLATE_HASH.to_owned(), hash.to_string());
    let mut spec = Vec::with_capacity(deployment.spec.template.len() + 256);
    put_varint_field(&mut spec, 1, set.replicas as u64);
    put_bytes(&mut spec, 2, &edit(selector, &[label])?);
    put_bytes(&mut spec, 3, &hash::labelled(&deployment.spec.template, &hash)?);
    put_varint_field(&mut spec, 4, i64::from(set.min_ready_seconds) as u64);

    let mut body = Vec::with_capacity(spec.len() + 512);
    put_bytes(&mut body, 1, &metadata.to_bytes());
    put_bytes(&mut body, 2, &spec);
    Ok(Write::new(&REPLICA_SETS, Key::of(&set.object.metadata), Verb::Create(body.into())))
}
