//! The Pods that empty volumes: what they are made from, and how long they have. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::facts::size;
use super::reclaiming::Recyclable;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::PersistentVolume;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::clock::SteadyTime;
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::model::revisions::{NotATemplate, template_of_held};
use coxswain_machinery::wire::{Str, Uid};

/// What names of such Pods begin with.
const PREFIX: &str = "recycler-for-";
const GIBI: i64 = 1 << 30;
const IMAGE: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6";
const EMPTY: &str =
    "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1";

/// How volumes of one sort are emptied.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recipe {
    /// The Pod, of which name, deadline and the first volume are replaced.
    pub(super) template: Value,
    /// Seconds that it has at least.
    pub(super) minimum: i32,
    /// Seconds that it has for each Gi.
    pub(super) increment: i32,
}

/// How volumes are emptied.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recipes {
    pub(super) host_path: Recipe,
    pub(super) nfs: Recipe,
}

impl Recipes {
    pub(super) fn of(&self, sort: Recyclable) -> &Recipe {
        match sort {
            Recyclable::HostPath => &self.host_path,
            Recyclable::Nfs => &self.nfs,
        }
    }
}

/// One release of a volume: the volume, and the claim that it was released from. A volume that was bound again and released again has
/// another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    volume: Uid,
    claim: Str,
}

impl Release {
    /// The release that a Released volume shows; `None` if it is linked to no claim.
    pub(super) fn of(volume: &PersistentVolume) -> Option<Self> {
        let link = volume.spec.claim_ref.as_ref().filter(|link| !link.uid.is_empty())?;
        Some(Self { volume: volume.metadata.uid.clone(), claim: link.uid.clone() })
    }
}

/// The recycling of a volume that this process has begun. The Pod counts for the release that it was created for, and for no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recycler {
    release: Release,
    at: Key,
    /// When this process created the Pod.
    begun: SteadyTime,
    pod: Option<Uid>,
    has_succeeded: bool,
}

impl Recycler {
    /// A Pod is created at this key for this release; its UID is not known yet.
    pub(super) fn begins(release: Release, at: Key, now: SteadyTime) -> Self {
        Self { release, at, begun: now, pod: None, has_succeeded: false }
    }

    /// When this process created the Pod.
    pub(super) fn begun(&self) -> SteadyTime {
        self.begun
    }

    /// The same, with the UID of its Pod.
    pub(super) fn with_pod(self, pod: Uid) -> Self {
        Self { pod: Some(pod), ..self }
    }

    /// Notes that its Pod has succeeded.
    pub(super) fn succeed(&mut self) {
        self.has_succeeded = true;
    }

    /// Whether its Pod has emptied the volume, even if the Pod is gone.
    pub(super) fn has_succeeded(&self) -> bool {
        self.has_succeeded
    }

    /// Whether it was begun for this release.
    pub(super) fn is_for(&self, release: Option<&Release>) -> bool {
        release == Some(&self.release)
    }

    /// The Pod that empties the volume for this release.
    pub(super) fn pod_for(&self, release: &Release) -> Option<&Uid> {
        self.pod.as_ref().filter(|_| self.is_for(Some(release)))
    }

    /// Where its Pod is.
    pub(super) fn at(&self) -> &Key {
        &self.at
    }
}

/// A recycling that has begun, and its Pod as far as that is known.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) recycler: Recycler,
    /// Time since this process created the Pod.
    pub(super) age: Duration,
    /// The Pod of that name, as the cache has it. The framework reconciles no volume before the cache shows what was written about it.
    pub(super) cached: Option<Arc<Pod>>,
    /// The Pod that this reconcile has created.
    pub(super) created: Option<Uid>,
    /// Whether this reconcile has deleted the Pod.
    pub(super) is_deleted: bool,
}

/// The Pod of a recycling whose release is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leftover {
    Gone,
    /// It has this key and UID, and is to be deleted.
    Running(Key, Uid),
    /// It is being deleted, and should be gone by this time, if that is known.
    Leaving(Option<Timestamp>),
}

/// How long a Pod that is being deleted is waited for beyond its grace period. A Pod on a dead node stays.
const LATE: SignedDuration = SignedDuration::from_secs(30);

impl Begun {
    /// Returns the time that its Pod has left. `deadline` is the `activeDeadlineSeconds` of a Pod that has started.
    pub(super) fn time_left(&self, deadline: Option<i64>) -> Duration {
        let deadline = deadline.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
        PATIENCE.saturating_add(Duration::from_secs(deadline)).saturating_sub(self.age)
    }

    /// Returns the state of the Pod that was created, for whichever release.
    pub(super) fn leftover(&self) -> Leftover {
        if self.is_deleted {
            return Leftover::Leaving(None);
        }
        let at = &self.recycler.at;
        if let Some(created) = &self.created {
            return Leftover::Running(at.clone(), created.clone());
        }
        let Some(pod) = self.pod() else { return Leftover::Gone };
        match pod.metadata.deletion_timestamp {
            None => Leftover::Running(at.clone(), pod.metadata.uid.clone()),
            Some(ends) => Leftover::Leaving(Timestamp::from(ends).checked_add(LATE).ok()),
        }
    }

    /// Whether the Pod has run to its end, so that it empties the volume no longer. Its `activeDeadlineSeconds` ends it.
    pub(super) fn has_ended(&self) -> bool {
        self.created.is_none() && self.pod().is_none_or(|pod| pod.is_finished())
    }

    fn pod(&self) -> Option<&Arc<Pod>> {
        let is_it =
            |pod: &&Arc<Pod>| self.recycler.pod.as_ref().is_none_or(|expected| *expected == pod.metadata.uid);
        self.cached.as_ref().filter(is_it)
    }
}

/// The Pod that is made where no file says another.
pub(super) fn built_in() -> Value {
    json!({
        "metadata": { "namespace": "default" },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "pv-recycler",
                "image": IMAGE,
                "command": ["/bin/sh"],
                "args": ["-c", EMPTY],
                "volumeMounts": [{ "name": "vol", "mountPath": "/scrub" }],
            }],
            "volumes": [{ "name": "vol" }],
        },
    })
}

/// Where the Pod is that empties a volume.
pub(super) fn pod_key(recipe: &Recipe, volume: &str) -> Key {
    let namespace = recipe.template["metadata"]["namespace"].as_str().unwrap_or_default();
    Key::new(namespace, format!("{PREFIX}{volume}"))
}

/// Longest time from the creation of a Pod to its end. A Pod that has started has the time of its deadline in addition.
/// `activeDeadlineSeconds` counts from the start, and the kubelet applies it, so it ends neither an unscheduled Pod nor a Pod on a dead node.
/// kube-controller-manager gives up when the API server ends its watches, after 30 to 60 minutes.
/// Differs: recycler-time-limit.
const PATIENCE: Duration = Duration::from_hours(1);

/// The volume that a Pod of this name empties.
pub(super) fn volume_of(pod: &str) -> Option<Str> {
    pod.strip_prefix(PREFIX).map(Str::from)
}

/// How long the Pod has.
pub(super) fn deadline(recipe: &Recipe, capacity: Quantity) -> i64 {
    let whole = capacity.milli() / 1000 / GIBI;
    whole.saturating_mul(recipe.increment.into()).max(recipe.minimum.into())
}

/// The encoded Pod that empties a volume.
///
/// # Errors
/// What the file has is no Pod.
pub(super) fn pod(recipe: &Recipe, volume: &PersistentVolume) -> Result<Vec<u8>, NotATemplate> {
    let mut pod = recipe.template.clone();
    pod["metadata"]["name"] = json!(pod_key(recipe, &volume.metadata.name).name.as_str());
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("generateName");
    }
    pod["spec"]["activeDeadlineSeconds"] = json!(deadline(recipe, size(volume)));
    let source = &volume.spec.persistent_volume_source;
    let name = pod["spec"]["volumes"][0]["name"].clone();
    let first = match (&source.host_path, &source.nfs) {
        (Some(held), _) => json!({ "name": name, "hostPath": { "path": held.path.as_str() } }),
        (None, Some(held)) => {
            json!({ "name": name, "nfs": { "server": held.server.as_str(), "path": held.path.as_str() } })
        }
        (None, None) => return Err(NotATemplate::Absent),
    };
    if let Some(slot) = pod["spec"]["volumes"].get_mut(0) {
        *slot = first;
    }
    template_of_held(&json!({ "spec": { "template": pod } }))
}
