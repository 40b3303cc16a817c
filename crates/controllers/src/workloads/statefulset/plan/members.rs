//! Which pods and revisions are the StatefulSet's, which it takes over, and which pods it lets go of.

use super::super::view::{View, is_member};
use crate::live_reads::STATEFUL_SET_ADOPTION;
use coxswain_machinery::api::apps::ControllerRevision;
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, PODS, STATEFUL_SETS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::owners::{self, Claim, claim};
use coxswain_machinery::model::plan::{Expect, Tolerate, Verb, Verify};
use coxswain_machinery::model::revisions;
use coxswain_machinery::model::words::{membership, names};
use coxswain_machinery::model::{Key, Patch, Step, Write};
use coxswain_machinery::wire::Str;

/// What becomes of the pods and revisions at hand.
pub(super) struct Members<'a> {
    /// Pods that are its own and match.
    pub(super) kept: Vec<&'a Pod>,
    adopted: Vec<&'a Pod>,
    released: Vec<&'a Pod>,
    /// Revisions without a controller that match and are still to be adopted.
    free: Vec<&'a ControllerRevision>,
}

impl<'a> Members<'a> {
    pub(super) fn of(view: &'a View) -> Self {
        let set = &view.set.metadata;
        let free = view.revisions.iter().map(AsRef::as_ref);
        let mut members = Self {
            kept: Vec::new(),
            adopted: Vec::new(),
            released: Vec::new(),
            free: free.filter(|revision| revision.metadata.controller().is_none()).collect(),
        };
        let is_settled = |kind, name: &Str| view.settled.contains(&(kind, name.clone()));
        members.free.retain(|revision| !is_settled(&CONTROLLER_REVISIONS, &revision.metadata.name));
        for pod in view.pods.iter().map(AsRef::as_ref) {
            match claim(set, &pod.metadata, is_member(&set.name, &view.selector, pod)) {
                Claim::Keep => members.kept.push(pod),
                _ if is_settled(&PODS, &pod.metadata.name) => {}
                Claim::Adopt => members.adopted.push(pod),
                Claim::Release => members.released.push(pod),
                Claim::Ignore => {}
            }
        }
        members
    }

    /// Whether revisions that match have no controller any more.
    pub(super) fn lost_revisions(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether some are still to be taken over or let go.
    pub(super) fn change(&self) -> bool {
        !(self.free.is_empty() && self.adopted.is_empty() && self.released.is_empty())
    }

    /// What becomes of them, in words.
    pub(super) fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        if !self.free.is_empty() {
            let revisions = self.free.iter().map(|revision| revision.metadata.name.as_str());
            told.push(format!(
                "The ControllerRevisions {} have no controller and are adopted.",
                names(revisions)
            ));
        }
        told.extend(membership(
            self.adopted.iter().map(|pod| pod.metadata.name.as_str()),
            self.released.iter().map(|pod| pod.metadata.name.as_str()),
        ));
        told.push("Further steps follow after that.".to_owned());
        told
    }

    /// The releases. A pod that is gone, or whose name another pod bears by now, needs none.
    fn release_writes(&self, view: &View) -> impl Iterator<Item = Write> {
        let owner = &view.set.metadata;
        self.released.iter().map(move |pod| Write {
            tolerate: Tolerate { absent: true, invalid: true, ..Tolerate::default() },
            ..patch(pod, owners::release(owner, &pod.metadata))
        })
    }

    /// Returns the releases without the check and the adoptions.
    pub(super) fn releases(&self, view: &View) -> Option<Step> {
        let released: Vec<Write> = self.release_writes(view).collect();
        (!released.is_empty()).then_some(Step::Each(released))
    }

    /// The adoptions, those of revisions first, and the releases. The check precedes them, because its failure ends the plan; the releases
    /// follow in the plan for that failure.
    pub(super) fn steps(&self, view: &View) -> Vec<Step> {
        let owner = &view.set.metadata;
        let mut steps = revisions::adoption(
            owner,
            (&STATEFUL_SETS, &STATEFUL_SET_ADOPTION),
            &self.free,
            Tolerate::default(),
        );
        if !self.adopted.is_empty() && steps.is_empty() {
            let expect = Expect::Alive(owner.uid.clone());
            steps.push(Step::Verify(Verify {
                read: &STATEFUL_SET_ADOPTION,
                kind: &STATEFUL_SETS,
                key: Key::of(owner),
                expect,
            }));
        }
        let adoption = |pod: &&Pod| patch(pod, owners::adoption(owner, &STATEFUL_SETS, &pod.metadata));
        let adopted = self
            .adopted
            .iter()
            .map(|pod| Write { tolerate: Tolerate { absent: true, ..Tolerate::default() }, ..adoption(pod) });
        let claims: Vec<Write> = self.release_writes(view).chain(adopted).collect();
        if !claims.is_empty() {
            steps.push(Step::Each(claims));
        }
        steps
    }
}

fn patch(pod: &Pod, patch: Patch) -> Write {
    Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(patch))
}
