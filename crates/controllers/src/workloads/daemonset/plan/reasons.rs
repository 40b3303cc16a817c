//! Why the plan for one DaemonSet is what it is, in words. Decides nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::super::view::View;
use super::bounds::{Bounds, ROLLING_UPDATE};
use super::claims::Claims;
use super::daemons::Daemons;
use super::revisions;
use super::writes;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::fitting::Misfit;
use coxswain_machinery::model::pods;
use coxswain_machinery::model::revisions::{Numbers, TemplateDocument};
use coxswain_machinery::model::words::{count, names, time, verb};
use coxswain_machinery::wire::Str;

pub(in super::super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    if view.selector.is_empty() {
        return vec!["The selector is empty and would match every pod; the DaemonSet is ignored.".to_owned()];
    }
    if view.daemon_set.metadata.is_deleting() {
        return vec!["The DaemonSet is being deleted; the garbage collector deletes its pods.".to_owned()];
    }
    let claims = Claims::of(view);
    let daemons = Daemons::of(view, &claims.kept);
    let mut reasons = vec![counts(view, &daemons, now)];
    let document = match TemplateDocument::of(&view.daemon_set.spec.template, Numbers::Exact) {
        Ok(document) => document,
        Err(error) => {
            reasons.push(format!("The template cannot be decoded: {error}."));
            return reasons;
        }
    };
    let present = match revisions::settle(view, &claims, &document) {
        Ok(present) => present,
        Err(error) => {
            reasons.push(format!("The revision of the template cannot be determined: {error}."));
            return reasons;
        }
    };
    let relabeled = present.relabeled(view);
    let view = relabeled.as_ref().unwrap_or(view);
    let claims = Claims::of(view);
    let daemons = Daemons::of(view, &claims.kept);
    reasons.extend(excluded(view, &daemons));
    reasons.extend(missing(&daemons));
    reasons.extend(unwanted(&daemons));
    reasons.extend(backing_off(view));
    reasons.extend(rollout(view, &daemons, &present.hash, now));
    reasons
}

fn counts(view: &View, daemons: &Daemons<'_>, now: Timestamp) -> String {
    let min_ready = view.daemon_set.spec.min_ready_seconds;
    let first = |node: &Str| daemons.on(node).first().copied();
    let running: Vec<&Pod> =
        daemons.nodes.iter().filter(|(_, fit)| fit.runs()).filter_map(|(node, _)| first(node)).collect();
    format!(
        "{} of {} should run a pod, {} {} one: {} ready, {} available.",
        daemons.desired,
        count(daemons.nodes.len(), "node"),
        running.len(),
        verb(running.len(), "has", "have"),
        running.iter().filter(|pod| pod.is_ready()).count(),
        running.iter().filter(|pod| pods::is_available(pod, min_ready, now)).count()
    )
}

/// Why nodes get no pod.
fn excluded(view: &View, daemons: &Daemons<'_>) -> Vec<String> {
    let mut unselected = Vec::new();
    let mut tainted: BTreeMap<String, Vec<&Str>> = BTreeMap::new();
    for node in
        view.nodes.iter().filter(|node| daemons.nodes.get(&node.metadata.name).is_some_and(|fit| !fit.runs()))
    {
        match view.gates.why_not(&view.daemon_set, node) {
            None => {}
            Some(Misfit::NotSelected) => unselected.push(&node.metadata.name),
            Some(Misfit::Tainted(taint)) => {
                let taint = if taint.value.is_empty() {
                    format!("{}:{}", taint.key, taint.effect)
                } else {
                    format!("{}={}:{}", taint.key, taint.value, taint.effect)
                };
                tainted.entry(taint).or_default().push(&node.metadata.name);
            }
        }
    }
    let mut reasons = Vec::new();
    if !unselected.is_empty() {
        unselected.sort();
        reasons.push(format!(
            "The template's node name, selector or affinity {} {}.",
            verb(unselected.len(), "excludes the node", "excludes the nodes"),
            names(unselected)
        ));
    }
    for (taint, mut nodes) in tainted {
        nodes.sort();
        reasons.push(format!(
            "{} {} the taint {taint}, which the template does not tolerate.",
            names(&nodes),
            verb(nodes.len(), "has", "have")
        ));
    }
    reasons
}

fn missing(daemons: &Daemons<'_>) -> Option<String> {
    let should_run = daemons.nodes.iter().filter(|(_, fit)| fit.runs());
    let missing: Vec<_> =
        should_run.map(|(node, _)| *node).filter(|node| daemons.on(node).is_empty()).collect();
    let number = missing.len();
    (number > 0).then(|| {
        format!(
            "{} {} no pod; {} created.",
            names(&missing),
            verb(number, "has", "have"),
            verb(number, "one is", "they are")
        )
    })
}

fn unwanted(daemons: &Daemons<'_>) -> Option<String> {
    let excluded = daemons.nodes.iter().filter(|(_, fit)| !fit.keeps());
    let going: Vec<_> = excluded
        .flat_map(|(node, _)| daemons.on(node))
        .filter(|pod| !pod.metadata.is_deleting())
        .map(|pod| &pod.metadata.name)
        .collect();
    let number = going.len();
    (number > 0).then(|| {
        format!(
            "{} {} outside of the matching nodes; {} deleted.",
            names(&going),
            verb(number, "runs", "run"),
            verb(number, "it is", "they are")
        )
    })
}

/// Nodes whose failed pods are left alone for a while.
fn backing_off(view: &View) -> Vec<String> {
    let mut waiting: Vec<_> = view.backoffs.iter().map(|(node, left)| (node, *left)).collect();
    waiting.sort();
    let told = |(node, left): (&Str, Duration)| {
        format!("The pod on {node} has failed; it is replaced in {} (backoff).", time(left))
    };
    waiting.into_iter().map(told).collect()
}

/// How far the template is rolled out.
fn rollout(view: &View, daemons: &Daemons<'_>, hash: &str, now: Timestamp) -> Option<String> {
    let strategy = &view.daemon_set.spec.update_strategy;
    let is_old = |pod: &&&Pod| !pod.metadata.is_deleting() && !writes::is_new(view, pod, hash);
    let old = daemons.with_pods().flat_map(|(_, pods)| pods).filter(is_old).count();
    if old == 0 {
        return None;
    }
    let told = format!("{} {} an earlier template", count(old, "pod"), verb(old, "has", "have"));
    if strategy.r#type != ROLLING_UPDATE {
        let them = verb(old, "it", "them");
        return Some(format!("{told}; the updateStrategy is OnDelete, so you must delete {them}."));
    }
    let bounds = Bounds::of(strategy, daemons.desired);
    if bounds.surges() {
        return Some(format!(
            "{told}; new pods are created on at most {} at a time (maxSurge), and an old pod is deleted when the \
             new one is available.",
            count(bounds.surge, "node")
        ));
    }
    let min_ready = view.daemon_set.spec.min_ready_seconds;
    let available = |node: &Str| {
        // Linear: the pods of this node.
        daemons
            .on(node)
            .iter()
            .any(|pod| !pod.metadata.is_deleting() && pods::is_available(pod, min_ready, now))
    };
    let without = daemons.nodes.iter().filter(|(node, fit)| fit.runs() && !available(node)).count();
    Some(format!(
        "{told}; {} may be without an available pod (maxUnavailable), and {without} {} now{}.",
        count(bounds.unavailable, "node"),
        verb(without, "is", "are"),
        if without >= bounds.unavailable {
            ", so the next pod is replaced after an updated pod becomes available"
        } else {
            ""
        }
    ))
}
