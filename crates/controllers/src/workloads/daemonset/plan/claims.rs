//! Which pods are the DaemonSet's, which it takes over, and which it lets go of.

use super::super::view::View;
use super::writes;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::owners::{Claim, claim};
use coxswain_machinery::model::{Plan, Step};

/// What becomes of the pods at hand.
pub(super) struct Claims<'a> {
    /// Those that are the DaemonSet's, or are about to be.
    pub(super) kept: Vec<&'a Pod>,
    /// Those of `kept` that are about to be.
    adopted: Vec<&'a Pod>,
    /// Those that are the DaemonSet's and not selected any more.
    released: Vec<&'a Pod>,
}

impl<'a> Claims<'a> {
    pub(super) fn of(view: &'a View) -> Self {
        let mut claims = Self { kept: Vec::new(), adopted: Vec::new(), released: Vec::new() };
        for pod in view.pods.iter().map(AsRef::as_ref) {
            let matches = view.selector.matches(&pod.metadata.labels);
            match claim(&view.daemon_set.metadata, &pod.metadata, matches) {
                Claim::Keep => claims.kept.push(pod),
                Claim::Adopt => {
                    claims.kept.push(pod);
                    claims.adopted.push(pod);
                }
                Claim::Release => claims.released.push(pod),
                Claim::Ignore => {}
            }
        }
        claims.kept.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        claims
    }

    /// Returns the releases without the check and the adoptions.
    pub(super) fn releases(&self, view: &View) -> Option<Step> {
        let released: Vec<_> = self.released.iter().map(|pod| writes::release_pod(view, pod)).collect();
        (!released.is_empty()).then_some(Step::Each(released))
    }

    /// The check comes first, because its failure ends the plan; the releases follow in the plan for that failure. Each write is tried
    /// although others fail; no pod is created or deleted while one fails.
    pub(super) fn write(&self, view: &View, plan: &mut Plan) {
        if !self.adopted.is_empty() {
            plan.steps.push(writes::owner_is_alive(view));
        }
        let released = self.released.iter().map(|pod| writes::release_pod(view, pod));
        let adopted = self.adopted.iter().map(|pod| writes::adopt_pod(view, pod));
        let claims: Vec<_> = released.chain(adopted).collect();
        if !claims.is_empty() {
            plan.steps.push(Step::Each(claims));
        }
    }
}
