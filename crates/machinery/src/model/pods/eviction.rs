//! How a pod goes that something disrupts: the condition that says so (KEP-3329), and the delete.
//!
//! Writes as data only. Whether a pod goes is for rooms to decide.

use jiff::Timestamp;
use serde_json::json;

use crate::api::kinds::PODS;
use crate::api::pod::Pod;
use crate::model::plan::{Patch, Tolerate, Verb};
use crate::model::{Key, Write};
use crate::wire::Time;

/// The condition of a pod that something disrupts.
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Who makes pods go, as the condition tells it.
#[derive(Clone, Copy, Debug)]
pub struct Evictor {
    /// The condition's reason.
    pub reason: &'static str,
    /// The condition's message.
    pub message: &'static str,
    /// Whether the condition names the pod's generation, if it has one.
    pub names_generation: bool,
}

impl Evictor {
    /// The condition, unless the pod has it for this reason, and the delete. One of the two carries the resource version of `pod`,
    /// so nothing comes of them if the pod is no longer what was judged. A pod that is gone meanwhile is no failure.
    pub fn writes(&self, pod: &Pod, now: Timestamp) -> Vec<Write> {
        self.writes_by(pod, now, true)
    }

    /// Like [`Self::writes`] for a Pod that was read live after several conflicts. The writes name its UID alone, as those of
    /// kube-controller-manager, so a Pod that changes itself all the time cannot escape. Differs: no.
    pub fn writes_of_contended(&self, pod: &Pod, now: Timestamp) -> Vec<Write> {
        self.writes_by(pod, now, false)
    }

    fn writes_by(&self, pod: &Pod, now: Timestamp, names_version: bool) -> Vec<Write> {
        let meta = &pod.metadata;
        let held = pod.condition(DISRUPTION_TARGET).filter(|held| held.status == "True");
        let is_said = held.is_some_and(|held| held.reason == self.reason);
        let delete = if is_said && names_version {
            Verb::delete_as_seen(meta)
        } else {
            Verb::delete(meta.uid.clone())
        };
        // One that is gone, or whose name another pod bears by now, is what was wanted.
        let absent = Tolerate { absent: true, ..Tolerate::default() };
        let delete = Write { tolerate: absent, ..Write::new(&PODS, Key::of(meta), delete) };
        if is_said {
            return vec![delete];
        }
        let mut condition = json!({
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": self.reason,
            "message": self.message,
        });
        if self.names_generation && meta.generation != 0 {
            condition["observedGeneration"] = meta.generation.into();
        }
        if held.is_none() {
            condition["lastTransitionTime"] = Time::from(now).to_string().into();
        }
        let mut identity = json!({ "uid": meta.uid });
        if names_version {
            identity["resourceVersion"] = json!(meta.resource_version);
        }
        let patch = Verb::Patch(Patch::Strategic(
            json!({ "metadata": identity, "status": { "conditions": [condition] } }),
        ));
        vec![Write { tolerate: absent, ..Write::new(&PODS, Key::of(meta), patch).on("status") }, delete]
    }
}
