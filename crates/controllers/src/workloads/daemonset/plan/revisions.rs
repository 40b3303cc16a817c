//! The revision of the present template, and which others are kept.
//!
//! A revision is found by its document, never by its hash: so those of the original are taken over as they are. A template that
//! was rolled out before has its revision still, and rolling back to it means that the revision gets the highest number.

use coxswain_machinery::random::HashSet;
use std::sync::Arc;

use super::super::view::{View, in_the_way, node_of};
use super::claims::Claims;
use super::writes;
use coxswain_machinery::api::apps::ControllerRevision;
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, DAEMON_SETS};
use coxswain_machinery::model::owners::{self, Claim, claim};
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::revisions::{self, Counted, NewRevision, REVISION_LABEL, TemplateDocument};
use coxswain_machinery::model::{Key, Step, Write, pods};
use coxswain_machinery::wire::{Str, WireError};

/// The revision of the present template.
pub(super) struct Present {
    /// The hash that its pods carry.
    pub(super) hash: String,
    /// What comes before all else: releases, and what makes it, or makes it the newest.
    pub(super) steps: Vec<Step>,
    /// All other revisions, the oldest first.
    pub(super) old: Vec<Arc<ControllerRevision>>,
}

/// Which revision is the present one.
pub(super) enum Settled {
    /// The revision is known once these steps are done.
    Later(Vec<Step>),
    /// It is known.
    Now(Present),
}

pub(super) fn settle(
    view: &View,
    claims: &Claims<'_>,
    document: &TemplateDocument,
) -> Result<Settled, WireError> {
    let owner = &view.daemon_set.metadata;
    let (mut own, mut adopted, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for revision in &view.revisions {
        let matches = view.selector.matches(&revision.metadata.labels);
        match claim(owner, &revision.metadata, matches) {
            Claim::Keep => own.push(Arc::clone(revision)),
            Claim::Adopt => adopted.push(revision.as_ref()),
            Claim::Release => steps.push(Step::Write(release(view, revision))),
            Claim::Ignore => {}
        }
    }
    revisions::sort(&mut own);
    adopted.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let unlabelled = own.iter().filter(|revision| !revision.metadata.labels.contains_key(REVISION_LABEL));
    let labels: Vec<Step> = unlabelled
        .map(|revision| revisions::label(revision, REVISION_LABEL, &revision.metadata.name))
        .map(Step::Write)
        .collect();
    if !adopted.is_empty() || !labels.is_empty() {
        let tolerate = Tolerate { absent: true, ..Tolerate::default() };
        steps.extend(revisions::adoption(owner, &DAEMON_SETS, &adopted, tolerate));
        steps.extend(labels);
        return Ok(Settled::Later(steps));
    }
    let (mut equal, mut old): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|revision| document.is_in(revision));
    let newest = equal.pop();
    if let (Some(kept), false) = (&newest, equal.is_empty()) {
        steps.extend(deduplicate(claims, kept, &equal));
        return Ok(Settled::Later(steps));
    }
    let hash = match newest {
        Some(newest) => {
            let next = revisions::next_number(&old);
            if newest.revision < next && !old.is_empty() {
                steps.push(Step::Write(revisions::renumber(&newest, next)));
            }
            hash_of(&newest)
        }
        None => match view.failures.iter().filter_map(in_the_way).find(|held| document.is_in(held)) {
            Some(held) => {
                old.retain(|revision| revision.metadata.uid != held.metadata.uid);
                hash_of(&held)
            }
            None => create(view, document, revisions::next_number(&old), &mut steps)?,
        },
    };
    Ok(Settled::Now(Present { hash, steps, old }))
}

/// Adds the revision of a new template to the steps; its hash.
fn create(
    view: &View,
    document: &TemplateDocument,
    number: i64,
    steps: &mut Vec<Step>,
) -> Result<String, WireError> {
    let daemon_set = &view.daemon_set;
    let hash = document.hash(daemon_set.status.collision_count.unwrap_or(0));
    let template = pods::template_metadata(&daemon_set.spec.template)?;
    let revision = NewRevision {
        owner: &daemon_set.metadata,
        kind: &DAEMON_SETS,
        name: &format!("{}-{hash}", daemon_set.metadata.name),
        labels: template.labels.with(REVISION_LABEL, &hash),
        document,
        number,
    };
    steps.push(Step::Write(revision.create()));
    Ok(hash)
}

/// Of several revisions of one template the newest stays. Pods of all others, old ones too, count as its pods from here on.
fn deduplicate(
    claims: &Claims<'_>,
    kept: &ControllerRevision,
    others: &[Arc<ControllerRevision>],
) -> Vec<Step> {
    let hash = hash_of(kept);
    let pods = claims.kept.iter().filter(|pod| !writes::has_hash(pod, &hash));
    let relabel: Vec<Write> = pods.map(|pod| writes::relabel_pod(pod, &hash)).collect();
    let delete = others.iter().map(|revision| Step::Write(revisions::delete(revision)));
    (!relabel.is_empty()).then_some(Step::Each(relabel)).into_iter().chain(delete).collect()
}

/// The hash that pods of a revision carry; where it has none, its name stands for it.
fn hash_of(revision: &ControllerRevision) -> String {
    let label = revision.metadata.labels.get(REVISION_LABEL);
    label.unwrap_or(&revision.metadata.name).to_string()
}

/// A revision that is gone, or whose name another one bears by now, needs no release.
fn release(view: &View, revision: &ControllerRevision) -> Write {
    let patch = owners::release(&view.daemon_set.metadata, &revision.metadata);
    Write {
        tolerate: Tolerate { absent: true, invalid: true, ..Tolerate::default() },
        ..Write::new(&CONTROLLER_REVISIONS, Key::of(&revision.metadata), Verb::Patch(patch))
    }
}

/// The deletes of revisions that are not kept: beyond `revisionHistoryLimit`, and of no pod.
pub(super) fn clean_up(view: &View, claims: &Claims<'_>, old: &[Arc<ControllerRevision>]) -> Vec<Step> {
    let placed = claims.kept.iter().filter(|pod| node_of(pod).is_some());
    let used: HashSet<&str> =
        placed.filter_map(|pod| pod.metadata.labels.get(REVISION_LABEL)).map(Str::as_str).collect();
    let is_used = |revision: &ControllerRevision| used.contains(&*hash_of(revision));
    let limit = view.daemon_set.spec.revision_history_limit;
    let surplus = revisions::surplus(old, limit, Counted::All, is_used);
    surplus.into_iter().map(|revision| Step::Write(revisions::delete(revision))).collect()
}
