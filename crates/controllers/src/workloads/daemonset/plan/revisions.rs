//! The revision of the present template, and which others are kept.
//!
//! A revision is found by its document, never by its hash: so those of the original are taken over as they are. A template that
//! was rolled out before has its revision still, and rolling back to it means that the revision gets the highest number.

use std::sync::Arc;

use super::super::view::{View, in_the_way, node_of};
use super::claims::Claims;
use super::writes;
use crate::live_reads::DAEMON_SET_ADOPTION;
use coxswain_machinery::api::apps::ControllerRevision;
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, DAEMON_SETS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::owners::{self, Claim, claim};
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::revisions::{self, Counted, NewRevision, REVISION_LABEL, TemplateDocument};
use coxswain_machinery::model::{Key, Step, Write, pods};
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::{Str, Uid, WireError};

/// The revision of the present template.
pub(super) struct Present {
    /// The hash that its pods carry.
    pub(super) hash: String,
    /// The writes of revisions, and of the labels of pods. They precede all others.
    pub(super) steps: Vec<Step>,
    /// UIDs of pods that `steps` label with `hash`.
    relabeled: HashSet<Uid>,
    /// All other revisions, the oldest first.
    pub(super) old: Vec<Arc<ControllerRevision>>,
}

impl Present {
    /// What is observed once its pods are labeled; `None` if no label changes.
    pub(super) fn relabeled(&self, view: &View) -> Option<View> {
        if self.relabeled.is_empty() {
            return None;
        }
        let mut view = view.clone();
        for pod in view.pods.iter_mut().filter(|pod| self.relabeled.contains(&pod.metadata.uid)) {
            let labels = &mut Arc::make_mut(pod).metadata.labels;
            *labels = labels.with(REVISION_LABEL, &self.hash);
        }
        Some(view)
    }
}

/// All writes of revisions are planned at once, as by kube-controller-manager. A revision that a finalizer holds or whose label is
/// dropped by a policy therefore stops nothing else.
pub(super) fn settle(
    view: &View,
    claims: &Claims<'_>,
    document: &TemplateDocument,
) -> Result<Present, WireError> {
    let owner = &view.daemon_set.metadata;
    let (mut own, mut adopted, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for revision in &view.revisions {
        let matches = view.selector.matches(&revision.metadata.labels);
        match claim(owner, &revision.metadata, matches) {
            Claim::Keep => own.push(Arc::clone(revision)),
            Claim::Adopt => {
                own.push(Arc::clone(revision));
                adopted.push(revision.as_ref());
            }
            Claim::Release => steps.push(Step::Write(release(view, revision))),
            Claim::Ignore => {}
        }
    }
    revisions::sort(&mut own);
    adopted.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    // A revision that is gone or taken would be counted, so the plan has to be made again.
    steps.extend(revisions::adoption(
        owner,
        (&DAEMON_SETS, &DAEMON_SET_ADOPTION),
        &adopted,
        Tolerate::default(),
    ));
    // The adoption changes the resource version, and its news brings the DaemonSet back.
    let adopted: HashSet<&Uid> = adopted.iter().map(|revision| &revision.metadata.uid).collect();
    let is_at_hand = |revision: &ControllerRevision| !adopted.contains(&revision.metadata.uid);
    let (mut equal, mut old): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|revision| document.is_in(revision));
    let newest = equal.pop();
    let others = old.iter().chain(&equal).filter(|revision| is_at_hand(revision));
    steps.extend(others.filter_map(|revision| amend(revision, None)).map(Step::Write));
    let mut relabeled = HashSet::default();
    let hash = match newest {
        Some(newest) => {
            let hash = hash_of(&newest);
            steps.extend(deduplicate(claims, &hash, &equal, &mut relabeled));
            let next = revisions::next_number(&old);
            let number = (newest.revision < next && !old.is_empty()).then_some(next);
            if is_at_hand(&newest) {
                steps.extend(amend(&newest, number).map(Step::Write));
            }
            hash
        }
        None => match view.failures.iter().filter_map(in_the_way).find(|held| document.is_in(held)) {
            Some(held) => {
                old.retain(|revision| revision.metadata.uid != held.metadata.uid);
                hash_of(&held)
            }
            None => create(view, document, revisions::next_number(&old), &mut steps)?,
        },
    };
    Ok(Present { hash, steps, relabeled, old })
}

/// Gives a revision the label that it lacks, and a number.
fn amend(revision: &ControllerRevision, number: Option<i64>) -> Option<Write> {
    let name = &revision.metadata.name;
    let label = (!revision.metadata.labels.contains_key(REVISION_LABEL)).then_some((REVISION_LABEL, &**name));
    (label.is_some() || number.is_some()).then(|| revisions::amend(revision, label, number))
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
        name: &revisions::name_that_fits(&daemon_set.metadata.name, &hash),
        labels: template.labels.with(REVISION_LABEL, &hash),
        document,
        number,
    };
    steps.push(Step::Write(revision.create()));
    Ok(hash)
}

/// The newest of several revisions of one template stays, with this hash. Pods of the others count as its pods from here on. Pods of
/// earlier templates do not: kube-controller-manager labels them as well, and never rolls them. One that is being deleted, and held
/// by a finalizer, is a duplicate as long as a pod carries its hash. Differs: pods-of-duplicates.
fn deduplicate(
    claims: &Claims<'_>,
    hash: &str,
    others: &[Arc<ControllerRevision>],
    relabeled: &mut HashSet<Uid>,
) -> Vec<Step> {
    let carried: HashSet<&str> = claims
        .kept
        .iter()
        .filter_map(|pod| pod.metadata.labels.get(REVISION_LABEL))
        .map(Str::as_str)
        .collect();
    let is_carried = |other: &str| other != hash && carried.contains(other);
    let counts = |revision: &&Arc<ControllerRevision>| {
        !revision.metadata.is_deleting() || is_carried(&hash_of(revision))
    };
    if !others.iter().any(|revision| counts(&revision)) {
        return Vec::new();
    }
    let duplicates: HashSet<String> = others.iter().map(|other| hash_of(other)).collect();
    let is_of_duplicate = |pod: &Pod| {
        let held = pod.metadata.labels.get(REVISION_LABEL);
        held.is_some_and(|held| held != hash && duplicates.contains(held.as_str()))
    };
    let pods = claims.kept.iter().filter(|pod| is_of_duplicate(pod));
    let relabel: Vec<Write> = pods
        .map(|pod| {
            relabeled.insert(pod.metadata.uid.clone());
            writes::relabel_pod(pod, hash)
        })
        .collect();
    let delete = others.iter().filter(|revision| !revision.metadata.is_deleting());
    let delete = delete.map(|revision| Step::Write(revisions::delete(revision)));
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
    let surplus = surplus.into_iter().filter(|revision| !revision.metadata.is_deleting());
    surplus.map(|revision| Step::Write(revisions::delete(revision))).collect()
}
