//! ControllerRevisions: frozen copies of the pod templates of a StatefulSet or a DaemonSet.
//!
//! A revision holds a document, the JSON of a template ([`TemplateDocument`]), whose bytes are a contract: the original compares them,
//! and makes a new revision, and with it a roll-out of all pods, when they differ by one. Which revision is the present one
//! is told by comparing documents; of a cached revision only their digest is there. What is here is pure and knows neither of
//! the two kinds but by what they pass in.
//! Differs: no.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::hash;
use super::live_reads::LiveRead;
use super::owners::controller_reference;
use super::plan::{Tolerate, Verb, Verify};
use super::{Key, Patch, Step, Write, owners, plan::Expect};
use crate::api::Kind;
use crate::api::apps::{ControllerRevision, RawExtension, RevisionDocument};
use crate::api::kinds::CONTROLLER_REVISIONS;
use crate::api::meta::ObjectMeta;
use crate::wire::{Labels, Message as _};

mod defaults;
mod document;
mod template;
#[cfg(test)]
mod tests;

pub use document::{Numbers, TemplateDocument};
pub use template::{NotATemplate, template_of, template_of_held};

/// Label of a StatefulSet's revisions: the hash in their name.
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// Label of pods, and of a DaemonSet's revisions: the revision. Of a StatefulSet's pods its name, of a DaemonSet's the hash.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// Old revisions that are kept if it is not said how many.
const HISTORY_LIMIT: i32 = 10;

/// The oldest first: by number, then by creation time, then by name.
pub fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| by_age(a, b));
}

fn by_age(a: &ControllerRevision, b: &ControllerRevision) -> Ordering {
    let age = |revision: &ControllerRevision| (revision.revision, revision.metadata.creation_timestamp);
    age(a).cmp(&age(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// The number after all of these: 1 if there are none.
pub fn next_number<'a>(revisions: impl IntoIterator<Item = &'a Arc<ControllerRevision>>) -> i64 {
    revisions.into_iter().map(|revision| revision.revision).max().unwrap_or(0).saturating_add(1)
}

/// A revision that is to be made.
#[derive(Debug)]
pub struct NewRevision<'a> {
    /// Whose it is.
    pub owner: &'a ObjectMeta,
    /// The owner's kind.
    pub kind: &'static Kind,
    /// Its name.
    pub name: &'a str,
    /// Its labels: those of the template, and one with the hash.
    pub labels: Labels,
    /// What it is a revision of.
    pub document: &'a TemplateDocument,
    /// Its number.
    pub number: i64,
}

impl NewRevision<'_> {
    /// The create. It has all annotations of its owner as they are now. When the name is taken, the failure shows by what.
    pub fn create(self) -> Write {
        let revision = RevisionDocument {
            metadata: ObjectMeta {
                name: self.name.into(),
                namespace: self.owner.namespace.clone(),
                labels: self.labels,
                annotations: self.owner.annotations.clone(),
                owner_references: vec![controller_reference(self.owner, self.kind)],
                ..ObjectMeta::default()
            },
            data: RawExtension { raw: Bytes::copy_from_slice(self.document.as_bytes()).into() },
            revision: self.number,
            ..RevisionDocument::default()
        };
        let key = Key::new(self.owner.namespace.clone(), self.name);
        Write::new(&CONTROLLER_REVISIONS, key, Verb::Create(revision.to_bytes().into()))
    }
}

/// Gives a revision another number. A patch, since its document is not at hand.
pub fn renumber(revision: &ControllerRevision, number: i64) -> Write {
    amend(revision, None, Some(number))
}

/// Gives a revision a label and another number, in one patch: each patch rests on the resource version.
pub fn amend(revision: &ControllerRevision, label: Option<(&str, &str)>, number: Option<i64>) -> Write {
    let mut patch = json!({ "metadata": precondition(revision) });
    if let Some((name, value)) = label {
        patch["metadata"]["labels"] = json!({ name: value });
    }
    if let Some(number) = number {
        patch["revision"] = number.into();
    }
    let patch = Verb::Patch(Patch::Merge(patch));
    Write::new(&CONTROLLER_REVISIONS, Key::of(&revision.metadata), patch)
}

fn precondition(revision: &ControllerRevision) -> serde_json::Value {
    let ObjectMeta { uid, resource_version, .. } = &revision.metadata;
    json!({"uid": uid, "resourceVersion": resource_version})
}

/// The steps by which an owner takes these over, after a live look at it; none if there are none.
pub fn adoption(
    owner: &ObjectMeta,
    (kind, read): (&'static Kind, &'static LiveRead),
    revisions: &[&ControllerRevision],
    tolerate: Tolerate,
) -> Vec<Step> {
    if revisions.is_empty() {
        return Vec::new();
    }
    let expect = Expect::Alive(owner.uid.clone());
    let verify = Step::Verify(Verify { read, kind, key: Key::of(owner), expect });
    let adopt = |revision: &&ControllerRevision| {
        let patch = owners::adoption(owner, kind, &revision.metadata);
        let key = Key::of(&revision.metadata);
        Step::Write(Write { tolerate, ..Write::new(&CONTROLLER_REVISIONS, key, Verb::Patch(patch)) })
    };
    std::iter::once(verify).chain(revisions.iter().map(adopt)).collect()
}

/// The delete of a revision that is not kept, or not needed.
pub fn delete(revision: &ControllerRevision) -> Write {
    let verb = Verb::delete(revision.metadata.uid.clone());
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&CONTROLLER_REVISIONS, Key::of(&revision.metadata), verb)
    }
}

/// Which revisions count against `revisionHistoryLimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those that nobody carries: a StatefulSet's.
    Unused,
    /// All old ones: a DaemonSet's.
    All,
}

/// Which of the `old` revisions, sorted, are not kept: those with the lowest numbers beyond `limit`, but none that is in use.
/// A negative limit keeps all.
pub fn surplus(
    old: &[Arc<ControllerRevision>],
    limit: Option<i32>,
    counted: Counted,
    is_used: impl Fn(&ControllerRevision) -> bool,
) -> Vec<&Arc<ControllerRevision>> {
    let Ok(limit) = usize::try_from(limit.unwrap_or(HISTORY_LIMIT)) else { return Vec::new() };
    let unused: Vec<_> = old.iter().filter(|revision| !is_used(revision)).collect();
    let count = match counted {
        Counted::Unused => unused.len(),
        Counted::All => old.len(),
    };
    let mut surplus = unused;
    surplus.truncate(count.saturating_sub(limit));
    surplus
}

/// `OWNER-HASH`, as a StatefulSet's revisions are named: of its name at most 223 bytes.
pub fn cut_name(owner: &str, hash: &str) -> String {
    const LONGEST: usize = 223;
    format!("{}-{hash}", beginning(owner, LONGEST))
}

/// Returns `OWNER-HASH`, the name of a DaemonSet's revision, with the owner's name cut to fit into the name of an object.
/// kube-controller-manager does not cut it, so the API server refuses the revision of a DaemonSet with a long name.
pub fn name_that_fits(owner: &str, hash: &str) -> String {
    const LONGEST: usize = 253;
    let room = LONGEST.saturating_sub(hash.len() + 1);
    let begins = beginning(owner, room);
    // A label of a DNS name does not begin with a dash.
    let begins = if begins.len() < owner.len() { begins.trim_end_matches('.') } else { begins };
    format!("{begins}-{hash}")
}

/// Returns the first `most` bytes of a name, or a few less where these are no whole characters.
fn beginning(name: &str, most: usize) -> &str {
    let mut end = name.len().min(most);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Returns the value of a pod's label for the name of a StatefulSet's revision. A name that is too long for a label is cut before its hash:
/// the API server refuses the pods that kube-controller-manager creates of such a StatefulSet.
pub fn label_value(name: &str) -> Cow<'_, str> {
    const LONGEST: usize = 63;
    /// A number of 32 bits, each digit one character.
    const LONGEST_HASH: usize = 10;
    if name.len() <= LONGEST {
        return Cow::Borrowed(name);
    }
    match name.rsplit_once('-') {
        Some((_, hash)) if hash.len() <= LONGEST_HASH => {
            Cow::Owned(format!("{}-{hash}", beginning(name, LONGEST - 1 - hash.len())))
        }
        _ => Cow::Borrowed(beginning(name, LONGEST)),
    }
}

impl TemplateDocument {
    /// Whether a cached revision is of this very document.
    pub fn is_in(&self, revision: &ControllerRevision) -> bool {
        revision.digest == Some(self.digest())
    }

    /// 128 bits by which it is told from others.
    pub fn digest(&self) -> u128 {
        hash::digest(self.as_bytes())
    }

    /// The hash in the name of its revision: that of a StatefulSet is the original's. The original hashes a DaemonSet's in a way
    /// of its own, by which nobody finds it.
    pub fn hash(&self, collisions: i32) -> String {
        hash::encode(hash::fnv1([self.as_bytes(), collisions.to_string().as_bytes()]))
    }

    /// Whether `held`, the document of a revision, means the same: apart from its layout, from nulls, from members that this
    /// program doesn't know and from those that say what holds without them.
    pub fn means_the_same_as(&self, held: &[u8]) -> bool {
        let plain = |document: &[u8]| {
            let template = template_of(document).ok()?;
            let mut tree = document::tree(&template).ok()?;
            defaults::strip(&mut tree);
            Some(tree)
        };
        let ours = plain(self.as_bytes());
        ours.is_some() && ours == plain(held)
    }
}
