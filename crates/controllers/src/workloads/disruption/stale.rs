//! Pods that were said to be disrupted and were not: two minutes later the condition `DisruptionTarget` is taken back.
//!
//! It never touches what the kubelet has said, or a pod that is finished or on its way out: of these it stays true.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::{Pod, PodCondition};
use coxswain_machinery::framework::{KeyMap, Observation, ObserveError, Reads, Room};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::model::pods::{self, DISRUPTION_TARGET};
use coxswain_machinery::model::words::time;
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::wire::Time;

/// For how long it is believed.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// A pod concerns itself, if it is to be disrupted.
pub(super) fn of_pods() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if let (_, Some(pod)) = delta.typed::<Pod>()
            && target(pod).is_some()
        {
            add(Key::of(&pod.metadata));
        }
    })
}

/// The condition of a pod that lives on although it is to be disrupted.
fn target(pod: &Pod) -> Option<&PodCondition> {
    let is_believed = |held: &&PodCondition| held.status == "True" && held.reason != "TerminationByKubelet";
    pod.condition(DISRUPTION_TARGET).filter(|_| pods::is_active(pod)).filter(is_believed)
}

/// The room.
pub(super) struct Controller {
    pub(super) pods: Lister<Pod>,
}

impl Room for Controller {
    type View = Arc<Pod>;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<Arc<Pod>>, ObserveError> {
        Ok(self.pods.get(key).filter(|pod| target(pod).is_some()).into())
    }

    fn plan(pod: &Arc<Pod>, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        match target(pod).and_then(|condition| left(condition, now)) {
            Some(left) => plan.look_again_after(left),
            None => plan.steps.push(Step::Write(taken_back(pod, now))),
        }
        plan
    }

    fn reasons(pod: &Arc<Pod>, now: Timestamp) -> Vec<String> {
        let Some(condition) = target(pod) else { return Vec::new() };
        let until = match left(condition, now) {
            Some(left) => format!("the condition is removed in {} if the pod still exists", time(left)),
            None => "the condition is older than 2 minutes and is removed".to_owned(),
        };
        vec![format!(
            "The pod has the condition DisruptionTarget ({}) and was not deleted; {until}.",
            condition.reason
        )]
    }
}

/// How much longer a condition is believed; `None` if no longer.
fn left(condition: &PodCondition, now: Timestamp) -> Option<Duration> {
    let since = condition.last_transition_time.map_or(Timestamp::UNIX_EPOCH, Timestamp::from);
    let until = since.saturating_add(TIMEOUT).unwrap_or(Timestamp::MAX);
    Duration::try_from(until.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// A patch of the one condition: so no bytes of pods need be kept. It carries the version that it was made from.
fn taken_back(pod: &Pod, now: Timestamp) -> Write {
    let patch = json!({
        "metadata": { "uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version },
        "status": { "conditions": [{
            "type": DISRUPTION_TARGET,
            "status": "False",
            "reason": null,
            "message": null,
            "lastProbeTime": null,
            "lastTransitionTime": Time::from(now).to_string(),
            "observedGeneration": pod.metadata.generation,
        }] },
    });
    let patch = Verb::Patch(Patch::Strategic(patch));
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&PODS, Key::of(&pod.metadata), patch).on("status")
    }
}
