//! clusterrole-aggregation-controller: a ClusterRole with an `aggregationRule` has the rules of all ClusterRoles that it
//! selects. See "Aggregated ClusterRoles" in the Kubernetes documentation; `admin`, `edit` and `view` live by it.
//!
//! Keys are names of roles. A role that aggregates is looked at when it changes, and when a role does that it selects or
//! selected. Rules are written by server-side apply under the original's field manager, which takes them over from whoever had
//! them and leaves all else alone. A role whose `aggregationRule` was taken away keeps its rules. It never makes or deletes a
//! role.

mod plan;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::CLUSTER_ROLES;
use coxswain_machinery::api::rbac::ClusterRole;
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::Str;
use view::View;

/// Under which name fields are applied. It is the original's: fields that the one applied are the other's, too.
const FIELD_MANAGER: &str = "clusterrole-aggregation-controller";
/// Keys taken at the same time, as in the original.
const WORKERS: i32 = 5;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "clusterrole-aggregation-controller",
    aliases: &["clusterrole-aggregation"],
    description: "Fills aggregated ClusterRoles with the rules of the ClusterRoles that they select.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("clusterrole-aggregation-controller"),
    event_source: None,
    writes: &[Grant {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        // What it gives to others it need not hold itself.
        verbs: &["escalate", "patch"],
    }],
    build: Some(build),
};

/// The roles that aggregate, all under one value.
static AGGREGATING: Index = Index { name: "aggregating", keys: aggregating };
const ALL: &str = "all";

fn aggregating(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let aggregates = any.downcast_ref::<ClusterRole>().is_some_and(|role| role.aggregation_rule.is_some());
    aggregates.then_some(Str::from(ALL)).into_iter().collect()
}

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let roles = build.watch::<ClusterRole>(&CLUSTER_ROLES);
    let room = Controller { roles: roles.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "ClusterRoleAggregator",
            kind: Some(&CLUSTER_ROLES),
            settings: LoopSettings::with_workers(WORKERS),
            wake_ups: vec![roles.wakes(aggregates(roles.index(&AGGREGATING)))],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// A change of a role concerns itself, if it aggregates, and those that select it as it is or as it was. What is there at the
/// start is known to all of them when they are looked at.
fn aggregates(all: Indexed<ClusterRole>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<ClusterRole>();
        if let Some(role) = new.filter(|role| role.aggregation_rule.is_some()) {
            add(Key::of(&role.metadata));
        }
        let is_alike = |(old, new): (&ClusterRole, &ClusterRole)| {
            old.metadata.labels == new.metadata.labels && old.rules == new.rules
        };
        if !delta.is_news() || old.zip(new).is_some_and(is_alike) {
            return;
        }
        for aggregate in all.filed(ALL) {
            // One that can't be read is told of by its own reconcile.
            let selectors = view::selectors(&aggregate).unwrap_or_default();
            let selects =
                |role: &ClusterRole| selectors.iter().any(|selector| selector.matches(&role.metadata.labels));
            if old.into_iter().chain(new).any(selects) {
                add(Key::of(&aggregate.metadata));
            }
        }
    })
}

/// The room: what it reads.
struct Controller {
    roles: Lister<ClusterRole>,
}

impl Room for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key).map(Observation::from)
    }

    fn plan(view: &View, _: Timestamp) -> Plan {
        plan::plan(view)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}
