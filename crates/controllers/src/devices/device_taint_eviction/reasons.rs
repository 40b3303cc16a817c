//! Why a pod stays, waits or goes, in words. Decides nothing.

use jiff::Timestamp;

use super::plan::between;
use super::verdict::{Source, Verdict};
use super::view::View;
use coxswain_machinery::model::words::time;

pub(super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    if view.pod.is_none() {
        return vec!["The pod does not exist or is not bound to a node; no eviction is pending.".to_owned()];
    }
    if view.is_evicted {
        return vec!["The pod was evicted because of device taints and is terminating.".to_owned()];
    }
    let Some(Verdict { at, sources, .. }) = &view.verdict else {
        return vec![
            "The pod is kept: its devices have no NoExecute taint, or its claims tolerate each of these taints \
             indefinitely."
                .to_owned(),
        ];
    };
    let mut reasons: Vec<String> = sources.iter().map(reason).collect();
    reasons.push(if *at > now {
        format!(
            "The pod is deleted in {} unless the taint is removed; the time started when the taint was added.",
            time(between(now, *at))
        )
    } else {
        "No toleration applies, or the toleration time has expired; the pod is deleted now.".to_owned()
    });
    reasons
}

fn reason(source: &Source) -> String {
    match source {
        Source::Rule { name, .. } => {
            format!(
                "The DeviceTaintRule {name} taints a device of the pod; the claim tolerates the taint for a limited \
                 time or not at all."
            )
        }
        Source::Slice { driver, pool, device, .. } => format!(
            "The pod uses the device {device} of pool {pool} of {driver}, which has a NoExecute taint; the claim \
             tolerates the taint for a limited time or not at all."
        ),
    }
}
