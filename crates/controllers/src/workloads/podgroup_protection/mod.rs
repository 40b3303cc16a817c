//! Keeps a PodGroup that is being deleted until no active pod names it, by a finalizer that the API server's admission puts on.
//! See "Workload API" in the Kubernetes documentation (KEP-4671).
//!
//! | change of | keys |
//! |---|---|
//! | a PodGroup that is being deleted with the finalizer | its own |
//! | a pod that is new, has changed and not finished, has just finished, or is gone | the PodGroup that it names |
//!
//! Active is a pod that has not finished, even if it is being deleted or not bound. Pods belong to a group by its name alone.
//!
//! What it rests on: active pods are looked for in the cache, where one is enough; that there is none is what a live list of the
//! namespace's pods says. The original goes by its cache alone.
//! Differs: podgroups-read-live.
//!
//! It never puts the finalizer on, and never writes a pod.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::{POD_GROUPS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::scheduling::PodGroup;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Grant, KeyMap, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter, UnheardNote, UnheardUsers,
};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::finalizers::{Due, due};
use coxswain_machinery::model::{Failure, Key, Plan};

mod plan;
#[cfg(test)]
mod tests;
mod view;

use view::{ACTIVE_BY_GROUP, View, group_of};

/// What keeps a PodGroup.
const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "podgroup-protection-controller",
    aliases: &[],
    description: "Prevents deletion of a PodGroup while Pods belong to it.",
    gates: &["GenericWorkload"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("podgroup-protection-controller"),
    event_source: None,
    writes: &[
        Grant {
            group: "scheduling.k8s.io",
            resource: "podgroups",
            verbs: &["get", "list", "update", "watch"],
        },
        Grant { group: "", resource: "pods", verbs: &["list", "watch"] },
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let groups = build.watch::<PodGroup>(&POD_GROUPS);
    let pods = build.watch::<Pod>(&PODS);
    let unheard = Arc::new(UnheardUsers::default());
    let room = Controller {
        groups: groups.lister(),
        pods: pods.index(&ACTIVE_BY_GROUP),
        unheard: Arc::clone(&unheard),
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "podgroupprotection",
            kind: Some(&POD_GROUPS),
            settings: LoopSettings::default(),
            wake_ups: vec![groups.wakes(groups_that_go()), pods.wakes(groups_of_pods(groups.lister()))],
            reconcile: Arc::new(RoomAdapter::new(room).remembered_by(unheard)),
        }],
    })
}

fn goes(group: &PodGroup) -> bool {
    due(&group.metadata, FINALIZER) == Some(Due::Take)
}

fn groups_that_go() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if let Some(group) = delta.typed::<PodGroup>().1.filter(|group| goes(group)) {
            add(Key::of(&group.metadata));
        }
    })
}

/// A pod that was active and is so no longer, by whatever way, concerns the group that it named; and so does one that has come
/// or changed, for what that costs: groups that are not being deleted bring their own keys when they are.
fn groups_of_pods(groups: Lister<PodGroup>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        for group in [old, new].into_iter().flatten().filter_map(group_of) {
            if groups.get(&group).is_some_and(|group| goes(&group)) {
                add(group);
            }
        }
    })
}

/// The room: what it reads.
struct Controller {
    groups: Lister<PodGroup>,
    pods: Indexed<Pod>,
    unheard: Arc<UnheardUsers>,
}

impl Room<UnheardNote> for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, read)
    }

    fn plan(view: &View, _: Timestamp) -> Plan<UnheardNote> {
        plan::plan(view)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}
