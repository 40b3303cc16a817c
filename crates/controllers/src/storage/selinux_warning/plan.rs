//! What is told of a pod and of those that mount the same volumes. Pure.

use super::conflict::{Property, conflicts};
use super::record::Note;
use super::view::{Other, Shared, View};
use coxswain_machinery::api::kinds::SELINUX_PODS;
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::model::{Key, Plan, Step};
use coxswain_machinery::wire::Str;

const TAIL: &str = "If both pods land on the same node, only one of them may access the volume.";

pub(super) fn plan(view: &View) -> Plan<Note> {
    let Some(pod) = &view.pod else { return Plan::default().with_note(Note::Forget) };
    let about = Regarding::of(&SELINUX_PODS, &pod.metadata);
    let mut plan = Plan::default();
    for volume in &view.several {
        plan.steps.push(Step::Emit(EventSpec {
            regarding: about.clone(),
            warning: true,
            reason: "MultipleSELinuxLabels",
            message: format!(
                "Volume {:?} is mounted twice with different SELinux labels inside this pod",
                volume.as_str()
            ),
        }));
    }
    for volume in view.volumes.iter().filter(|volume| !volume.is_told) {
        plan.steps.extend(told(&about, volume));
    }
    let labeled =
        view.several.iter().map(|volume| format!("volume {volume} is mounted with several SELinux labels"));
    let wrong: Vec<String> = labeled.chain(view.unresolved.iter().cloned()).collect();
    plan.retry = (!wrong.is_empty()).then(|| wrong.join("; "));
    let seen = view.volumes.iter().map(|volume| volume.mount.clone()).collect();
    plan.with_note(Note::Seen(pod.metadata.uid.clone(), seen))
}

/// The conflicts on a volume, each told to both pods. Of one that is gone nothing is told, nor of those behind it.
fn told(about: &Regarding, volume: &Shared) -> Vec<Step> {
    let mut steps = Vec::new();
    for Other { key, mounted, regarding } in &volume.others {
        for property in conflicts(&volume.mount.mounted, mounted) {
            let [mine, theirs] = [&volume.mount.mounted, mounted].map(|mounted| property.of(mounted));
            steps.push(event(about, property, mine, key, theirs));
            let Some(other) = regarding else { return steps };
            steps.push(event(other, property, theirs, &about.key, mine));
        }
    }
    steps
}

fn event(about: &Regarding, property: Property, has: &Str, other: &Key, others: &Str) -> Step {
    let (name, has, others) = (property.name(), has.as_str(), others.as_str());
    let message = if about.key.namespace == other.namespace {
        format!(
            "{name} {has:?} conflicts with pod {} that uses the same volume as this pod with {name} {others:?}. {TAIL}",
            other.name
        )
    } else {
        // Without the blank, as the original has it; pods of other namespaces are not named.
        format!(
            "{name}{has:?} conflicts with another pod that uses the same volume as this pod with a different {name}. {TAIL}"
        )
    };
    Step::Emit(EventSpec { regarding: about.clone(), warning: false, reason: property.reason(), message })
}
