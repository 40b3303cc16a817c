//! Why a pod stays, waits or goes, in words. Decides nothing.

use super::plan::Decision;
use super::verdict::Verdict;
use super::view::View;
use coxswain_machinery::api::core::Taint;
use coxswain_machinery::model::words::time;

pub(super) fn reasons(view: &View) -> Vec<String> {
    let Some(pod) = &view.pod else {
        return vec!["The pod does not exist; no eviction is pending.".to_owned()];
    };
    let node = &pod.spec.node_name;
    let why = match view.verdict() {
        None => format!("The node {node} does not exist"),
        Some(Verdict::Untainted) => format!("The node {node} has no NoExecute taint"),
        Some(Verdict::Stays) => format!("The pod tolerates every NoExecute taint of the node {node}"),
        Some(Verdict::StaysFor(for_long, taint)) => {
            let taint = name(taint);
            format!("The pod tolerates the taint {taint} of the node {node} for {}", time(for_long))
        }
        Some(Verdict::Goes(taint)) => {
            format!("The pod does not tolerate the taint {} of the node {node}", name(taint))
        }
    };
    let what = match view.decision() {
        Decision::Stay => "the pod is kept".to_owned(),
        Decision::Wait(until) => {
            format!(
                "the pod is deleted in {}, unless a change of its tolerations or of the taints lets the pod stay",
                time(until.saturating_sub(view.now))
            )
        }
        Decision::Go(_) => "the pod is deleted now".to_owned(),
    };
    let mut reasons = vec![format!("{why}; {what}.")];
    if view.taint().is_some() && view.state().is_some() {
        reasons.push(
            "The time started when this process first observed a taint that the pod does not tolerate indefinitely; \
             a later change of the taints or tolerations does not restart the time."
                .to_owned(),
        );
    }
    reasons
}

/// A taint as kubectl writes it.
fn name(taint: &Taint) -> String {
    let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
    format!("{}{value}:{}", taint.key, taint.effect)
}
