//! Why a pod stays, waits or goes, in words. Decides nothing.

use jiff::Timestamp;

use super::plan::between;
use super::verdict::{Source, Verdict};
use super::view::View;
use coxswain_machinery::model::words::time;

pub(super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    if view.pod.is_none() {
        return vec!["The pod is gone, or not bound: there is nothing to wait for any more.".to_owned()];
    }
    if view.is_evicted {
        return vec!["The pod was deleted for taints of its devices, and is on its way out.".to_owned()];
    }
    let Some(Verdict { at, sources, .. }) = &view.verdict else {
        return vec![
            "No device that the pod uses has a NoExecute taint that its claim does not tolerate: it stays."
                .to_owned(),
        ];
    };
    let mut reasons: Vec<String> = sources.iter().map(reason).collect();
    reasons.push(if *at > now {
        format!(
            "It is deleted in {}, unless that changes: the time counts from when the taint came.",
            time(between(now, *at))
        )
    } else {
        "Its time is over: it is deleted now.".to_owned()
    });
    reasons
}

fn reason(source: &Source) -> String {
    match source {
        Source::Rule { name, .. } => {
            format!(
                "The DeviceTaintRule {name} taints a device that the pod uses, which its claim does not tolerate for ever."
            )
        }
        Source::Slice { driver, pool, device, .. } => format!(
            "The device {device} of pool {pool} of {driver}, which the pod uses, has a NoExecute taint that its claim does not \
             tolerate for ever."
        ),
    }
}
