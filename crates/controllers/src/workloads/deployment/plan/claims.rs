//! Which ReplicaSets are the Deployment's, which it takes over, and which it lets go of.

use std::sync::Arc;

use super::super::view::View;
use crate::live_reads::DEPLOYMENT_ADOPTION;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::api::kinds::{DEPLOYMENTS, REPLICA_SETS};
use coxswain_machinery::model::owners::{self, Claim, claim};
use coxswain_machinery::model::plan::{Expect, Tolerate, Verb, Verify};

use coxswain_machinery::model::{Key, Patch, Plan, Step, Write, words};

/// What becomes of the ReplicaSets at hand.
pub(super) struct Claims<'a> {
    /// Those that are the Deployment's, oldest first.
    pub(super) kept: Vec<&'a Arc<ReplicaSet>>,
    adopted: Vec<&'a ReplicaSet>,
    released: Vec<&'a ReplicaSet>,
}

impl<'a> Claims<'a> {
    pub(super) fn of(view: &'a View) -> Self {
        let mut claims = Self { kept: Vec::new(), adopted: Vec::new(), released: Vec::new() };
        for set in &view.replica_sets {
            let matches = view.selector.matches(&set.metadata.labels);
            match claim(&view.deployment.metadata, &set.metadata, matches) {
                Claim::Keep => claims.kept.push(set),
                Claim::Adopt => claims.adopted.push(set),
                Claim::Release => claims.released.push(set),
                Claim::Ignore => {}
            }
        }
        claims.kept.sort_by(|a, b| by_age(a, b));
        claims.adopted.sort_by(|a, b| by_age(a, b));
        claims.released.sort_by(|a, b| by_age(a, b));
        claims
    }

    /// Whether some are to be taken over.
    pub(super) fn adopts(&self) -> bool {
        !self.adopted.is_empty()
    }

    /// What becomes of them, in words.
    pub(super) fn told(&self) -> Vec<String> {
        words::membership(
            self.adopted.iter().map(|set| set.metadata.name.as_str()),
            self.released.iter().map(|set| set.metadata.name.as_str()),
        )
    }

    /// All releases and adoptions, and nothing else. A ReplicaSet that changed hands brings the Deployment back.
    pub(super) fn plan(&self, view: &View) -> Plan {
        let owner = &view.deployment.metadata;
        let mut steps: Vec<Step> = self.releases(view).into_iter().map(Step::Write).collect();
        if self.adopts() {
            let expect = Expect::Alive(owner.uid.clone());
            steps.push(Step::Verify(Verify {
                read: &DEPLOYMENT_ADOPTION,
                kind: &DEPLOYMENTS,
                key: Key::of(owner),
                expect,
            }));
            // Nothing is tolerated here: one that is gone or taken may have told nobody, so the plan is made again.
            let adoption =
                |set: &&ReplicaSet| patch(set, owners::adoption(owner, &DEPLOYMENTS, &set.metadata));
            steps.extend(self.adopted.iter().map(adoption).map(Step::Write));
        }
        Plan { steps, ..Plan::default() }
    }

    /// The releases.
    pub(super) fn releases(&self, view: &View) -> Vec<Write> {
        let release = |set: &&ReplicaSet| Write {
            tolerate: Tolerate { absent: true, invalid: true, ..Tolerate::default() },
            ..patch(set, owners::release(&view.deployment.metadata, &set.metadata))
        };
        self.released.iter().map(release).collect()
    }
}

fn patch(set: &ReplicaSet, patch: Patch) -> Write {
    Write::new(&REPLICA_SETS, Key::of(&set.metadata), Verb::Patch(patch))
}

/// Older before newer, by name where they are of the same age.
pub(super) fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> std::cmp::Ordering {
    let age = |set: &ReplicaSet| set.metadata.creation_timestamp;
    age(a).cmp(&age(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}
