//! How many pods there should be, how many are healthy, how many must be, and who is about to be evicted.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::super::view::View;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::scales::ScaleError;
use coxswain_machinery::model::scaled::{Rounding, scaled};
use coxswain_machinery::wire::{IntOrString, Str, Time};

/// For how long a pod whose eviction was granted is expected to be deleted.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// The same while the cache of pods is too old to tell what became of it, as after a freeze.
const UNTOLD_TIMEOUT: SignedDuration = SignedDuration::from_mins(4);
/// How soon a cache of pods is looked at again that is too old.
const SOON: Duration = Duration::from_secs(1);

/// What the status should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) allowed: i32,
    pub(super) healthy: i32,
    pub(super) desired: i32,
    pub(super) expected: i32,
    /// Entries of `disruptedPods` that don't stay.
    pub(super) dropped: BTreeSet<Str>,
    /// Those of them whose pods were to be deleted and were not.
    pub(super) overdue: Vec<Str>,
    /// When the next entry expires that stays.
    pub(super) next_expiry: Option<Duration>,
    /// Whether the pod of an entry seems to be gone, to go or to stay, by a cache that is too old to tell.
    pub(super) is_untold: bool,
}

/// Why there is no count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unknown {
    /// The selector is unusable.
    #[error("{0}")]
    Pods(String),
    /// The controller of a pod is gone.
    #[error("found no controllers for pod {0:?}")]
    Gone(Str),
    /// Nobody knows how many pods a controller should have.
    #[error(transparent)]
    Replicas(#[from] ScaleError),
    /// Neither a number nor a percentage. The API server lets none pass.
    #[error("{0:?} is neither a number nor a percentage")]
    Portion(Str),
}

impl Unknown {
    /// Whether it may be over in a moment, without a change of anything.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Replicas(error) if error.may_pass())
    }
}

impl Count {
    pub(super) fn of(view: &View, now: Timestamp) -> Result<Self, Unknown> {
        let pods = view.pods.as_ref().map_err(|error| Unknown::Pods(error.clone()))?;
        let (expected, desired) = wanted(view, pods.len())?;
        let mut count = Self { desired, expected, ..Self::disrupted(view, |name| pod_of(pods, name), now) };
        let is_healthy = |pod: &Pod| {
            let name = &pod.metadata.name;
            let is_disrupted =
                view.budget.status.disrupted_pods.get(name).is_some() && !count.dropped.contains(name);
            !pod.metadata.is_deleting() && !is_disrupted && pod.is_ready()
        };
        count.healthy = number(pods.iter().filter(|pod| is_healthy(pod)).count());
        count.allowed = if expected <= 0 { 0 } else { count.healthy.saturating_sub(desired).max(0) };
        Ok(count)
    }

    /// What becomes of the entries of pods that were to be evicted. Only those of pods that are still there, and not on their
    /// way out, are waited for; what cannot be told yet counts as if they were.
    fn disrupted<'a>(view: &View, pod_of: impl Fn(&str) -> Option<&'a Pod>, now: Timestamp) -> Self {
        let mut count = Self {
            allowed: 0,
            healthy: 0,
            desired: 0,
            expected: 0,
            dropped: BTreeSet::new(),
            overdue: Vec::new(),
            next_expiry: None,
            is_untold: false,
        };
        for (name, since) in view.budget.status.disrupted_pods.iter() {
            let seems_gone = pod_of(name).is_none_or(|pod| pod.metadata.is_deleting());
            let is_judged = !view.unjudged.contains(name);
            let is_over = left(*since, DELETION_TIMEOUT, now).is_zero();
            let left = left(*since, if is_judged { DELETION_TIMEOUT } else { UNTOLD_TIMEOUT }, now);
            if left.is_zero() || seems_gone && is_judged {
                count.dropped.insert(name.clone());
                if !seems_gone {
                    count.overdue.push(name.clone());
                }
                continue;
            }
            count.is_untold |= seems_gone || is_over;
            count.next_expiry = Some(count.next_expiry.map_or(left, |next| next.min(left)));
        }
        count
    }

    /// When to look again, though nothing changes.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let next = self.next_expiry?;
        Some(if self.is_untold { next.min(SOON) } else { next })
    }
}

/// How long an eviction that was granted then is still waited for.
fn left(since: Option<Time>, patience: SignedDuration, now: Timestamp) -> Duration {
    let since = since.map_or(Timestamp::UNIX_EPOCH, Timestamp::from);
    let until = since.saturating_add(patience).unwrap_or(Timestamp::MAX);
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}

/// The pod of this name; they are sorted by name.
pub(super) fn pod_of<'a>(pods: &'a [std::sync::Arc<Pod>], name: &str) -> Option<&'a Pod> {
    let at = pods.binary_search_by(|pod| pod.metadata.name.as_str().cmp(name)).ok()?;
    Some(&pods[at])
}

/// How many pods there should be, and how many must be healthy, where the budget selects so many.
fn wanted(view: &View, pods: usize) -> Result<(i32, i32), Unknown> {
    let spec = &view.budget.spec;
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(unavailable), _) => {
            let expected = replicas(view)?;
            Ok((expected, expected.saturating_sub(portion(unavailable, expected)?).max(0)))
        }
        (None, Some(IntOrString::Int(available))) => Ok((number(pods), *available)),
        (None, Some(available @ IntOrString::Str(_))) => {
            let expected = replicas(view)?;
            Ok((expected, portion(available, expected)?))
        }
        (None, None) => Ok((0, 0)),
    }
}

/// The replicas of all controllers of the pods.
fn replicas(view: &View) -> Result<i32, Unknown> {
    let mut sum = 0_i32;
    for managed in &view.controllers {
        match managed.replicas.clone()? {
            Some(replicas) => sum = sum.saturating_add(replicas),
            None => return Err(Unknown::Gone(managed.pod.clone())),
        }
    }
    Ok(sum)
}

/// A number as it is; a percentage of `whole`, rounded up.
fn portion(value: &IntOrString, whole: i32) -> Result<i32, Unknown> {
    let text = match value {
        IntOrString::Int(number) => return Ok(*number),
        IntOrString::Str(text) => text,
    };
    let share = scaled(value, whole.max(0).into(), Rounding::Up);
    let share = share.ok_or_else(|| Unknown::Portion(text.clone()))?;
    Ok(i32::try_from(share.max(0)).unwrap_or(i32::MAX))
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
