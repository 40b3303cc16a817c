//! Why a pod stays, waits or goes, in words. Decides nothing.

use super::plan::Decision;
use super::verdict::Verdict;
use super::view::View;
use coxswain_machinery::api::core::Taint;
use coxswain_machinery::model::words::time;

pub(super) fn reasons(view: &View) -> Vec<String> {
    let Some(pod) = &view.pod else {
        return vec!["The pod is gone: there is nothing to wait for any more.".to_owned()];
    };
    let node = &pod.spec.node_name;
    let why = match view.verdict() {
        None => format!("The node {node} is gone"),
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
        Decision::Stay => "it stays".to_owned(),
        Decision::Wait(until) => {
            format!("it is deleted in {}, unless it may stay then", time(until.saturating_sub(view.now)))
        }
        Decision::Go(_) => "it is deleted now".to_owned(),
    };
    let mut reasons = vec![format!("{why}: {what}.")];
    if view.taint().is_some() && view.state().is_some() {
        reasons.push(
            "The time runs from when this process first saw a reason, and other taints or tolerations do not move it."
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
