//! Answers ResourcePoolStatusRequests: what the pools of a driver hold. A request is a question with one answer, which is never
//! changed. See KEP-5677.
//!
//! Two loops. One answers requests ([`Answers`]). The other takes away, every ten minutes ([`Cleanup`]), what was answered an
//! hour ago or has waited for a day.
//!
//! | change of | keys |
//! |---|---|
//! | a request that has no status | its own |
//! | a slice | those of requests that have no status and ask about its driver |
//! | none: every ten minutes | the one key of the clean-up |
//!
//! What it rests on: slices and claims are read from the caches, as they are when the request is looked at. A pool of which not
//! all slices are there yet makes the request wait for them, for a minute. Then the answer has a `validationError` for the pool. The original
//! gives such a request up after a quarter of a second.
//! Differs: whole-pools.
//!
//! It never writes slices or claims, and never a second status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::{RESOURCE_CLAIMS, RESOURCE_POOL_STATUS_REQUESTS, RESOURCE_SLICES};
use coxswain_machinery::api::resource::{ResourceClaim, ResourcePoolStatusRequest, ResourceSlice};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod cleanup;
mod metrics;
mod plan;
mod reasons;
#[cfg(test)]
mod tests;
mod view;

use metrics::Metrics;
use plan::Note;
use view::{BY_DRIVER, View};

/// How long after a clean-up the next one comes, as in the original.
const CLEANUP: Duration = Duration::from_mins(10);

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "resourcepoolstatusrequest-controller",
    aliases: &[],
    description: "Writes the free devices of each pool to the status of ResourcePoolStatusRequests.",
    gates: &["DRAResourcePoolStatus"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("resourcepoolstatusrequest-controller"),
    event_source: None,
    writes: &[
        Grant {
            group: "resource.k8s.io",
            resource: "resourcepoolstatusrequests",
            verbs: &["delete", "get", "list", "watch"],
        },
        Grant { group: "resource.k8s.io", resource: "resourcepoolstatusrequests/status", verbs: &["update"] },
        Grant { group: "resource.k8s.io", resource: "resourceslices", verbs: &["list", "watch"] },
        Grant { group: "resource.k8s.io", resource: "resourceclaims", verbs: &["list", "watch"] },
        // Granted, and never used: there is nothing to tell.
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let requests = build.watch::<ResourcePoolStatusRequest>(&RESOURCE_POOL_STATUS_REQUESTS);
    let slices = build.watch::<ResourceSlice>(&RESOURCE_SLICES);
    let claims = build.watch::<ResourceClaim>(&RESOURCE_CLAIMS);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let answers =
        Answers { requests: requests.lister(), slices: slices.index(&BY_DRIVER), claims: claims.lister() };
    let cleanup = Cleanup { requests: requests.lister() };
    Ok(Built {
        loops: vec![
            Loop {
                queue: "resourcepoolstatusrequests",
                kind: Some(&RESOURCE_POOL_STATUS_REQUESTS),
                settings: LoopSettings::default(),
                wake_ups: vec![
                    requests.wakes(unanswered()),
                    slices.wakes(requests_that_wait(requests.lister())),
                ],
                reconcile: Arc::new(RoomAdapter::new(answers).counted_by(metrics)),
            },
            Loop {
                queue: "resourcepoolstatusrequests_cleanup",
                kind: None,
                settings: LoopSettings::rounds(CLEANUP),
                wake_ups: Vec::new(),
                reconcile: Arc::new(RoomAdapter::new(cleanup)),
            },
        ],
    })
}

/// A request concerns its own key as long as it has no status.
fn unanswered() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let request = delta.typed::<ResourcePoolStatusRequest>().1;
        if let Some(request) = request.filter(|request| request.status.is_none()) {
            add(Key::of(&request.metadata));
        }
    })
}

/// A slice concerns the requests that have not been answered, as they wait for slices.
fn requests_that_wait(requests: Lister<ResourcePoolStatusRequest>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<ResourceSlice>();
        let Some(slice) = new.or(old).filter(|_| delta.is_news()) else { return };
        for request in requests.list() {
            if request.status.is_none() && request.spec.driver == slice.spec.driver {
                add(Key::of(&request.metadata));
            }
        }
    })
}

/// The loop that answers.
struct Answers {
    requests: Lister<ResourcePoolStatusRequest>,
    slices: Indexed<ResourceSlice>,
    claims: Lister<ResourceClaim>,
}

impl Room<Note> for Answers {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key).into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        reasons::of_request(view, now)
    }
}

/// The loop that takes old requests away.
struct Cleanup {
    requests: Lister<ResourcePoolStatusRequest>,
}

impl Room for Cleanup {
    type View = Vec<Arc<ResourcePoolStatusRequest>>;

    fn observe(&self, _: &Key, _: &[Failure], _: &Reads) -> Result<Observation<Self::View>, ObserveError> {
        Ok(Observation::View(self.requests.list()))
    }

    fn plan(requests: &Self::View, now: Timestamp) -> Plan {
        cleanup::plan(requests, now)
    }

    fn reasons(requests: &Self::View, now: Timestamp) -> Vec<String> {
        reasons::of_cleanup(requests, now)
    }
}
