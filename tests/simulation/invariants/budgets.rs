//! Rules about PodDisruptionBudgets: what they allow, and that they know who was evicted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use super::memory::is_ready;
use super::{Look, WINDOW, is_active};
use apiserver_model::{Change, Model, Stored, text};

/// Who evicts.
pub(crate) const EVICTION: &str = "eviction";
/// For how long an evicted pod that stays is waited for, less by how much clocks may be wrong.
const WAITED_FOR: SignedDuration = SignedDuration::from_secs(114);

/// What rules about budgets remember.
#[derive(Default)]
pub(crate) struct Health {
    /// Pods that are no longer healthy, or have another label: their namespaces, and since when, by UID and the label before.
    until: BTreeMap<(String, String), (Timestamp, String)>,
    /// Pods that were evicted, by UID.
    evicted: BTreeSet<String>,
}

impl Health {
    pub(super) fn note(&mut self, change: &Change) {
        let Some(before) = change.before.as_ref().filter(|held| held.place.resource == "pods") else {
            return;
        };
        let uid = text(&before.json, "/metadata/uid").to_owned();
        if change.by == EVICTION {
            self.evicted.insert(uid.clone());
        }
        let app = |pod: &Json| text(pod, "/metadata/labels/app").to_owned();
        let still = change
            .after
            .as_ref()
            .is_some_and(|after| is_healthy(&after.json) && app(&after.json) == app(&before.json));
        if is_healthy(&before.json) && !still {
            self.until.insert((uid, app(&before.json)), (change.at, before.place.namespace.clone()));
        }
    }
}

/// Whether a pod counts for its budget: whatever its phase is, as with the original.
pub(crate) fn is_healthy(pod: &Json) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && is_ready(pod)
}

/// The budget of a pod: budgets select by the label `app`, and bear its value as their names.
pub(crate) fn budget_of<'a>(model: &'a Model, pod: &Json) -> Option<&'a Arc<Stored>> {
    let (namespace, app) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/labels/app"));
    model.get(&apiserver_model::Place::new("poddisruptionbudgets", namespace, app))
}

fn pods_of<'a>(model: &'a Model, budget: &'a Json) -> impl Iterator<Item = &'a Json> {
    let name = text(budget, "/metadata/name");
    let pods = model.all("pods", text(budget, "/metadata/namespace")).map(|pod| &pod.json);
    pods.filter(move |pod| text(pod, "/metadata/labels/app") == name)
}

/// How many healthy pods a budget has.
pub(super) fn healthy(model: &Model, budget: &Json) -> i64 {
    let pending = &budget["status"]["disruptedPods"];
    let counts = |pod: &&Json| is_healthy(pod) && pending[text(pod, "/metadata/name")].is_null();
    pods_of(model, budget).filter(counts).count() as i64
}

fn is_status(look: &Look<'_>) -> bool {
    look.resource() == "poddisruptionbudgets"
        && look.change.subresource == "status"
        && look.after().is_object()
}

/// A status is written: so many pods were healthy at some time lately, none of them evicted, that so many may go.
pub(super) fn allows(look: &Look<'_>) -> Result<(), String> {
    let budget = look.after();
    let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
    if !is_status(look) || allowed <= 0 {
        return Ok(());
    }
    let (namespace, name) = (text(budget, "/metadata/namespace"), text(budget, "/metadata/name"));
    let health = &look.memory.budgets;
    let from = look.change.at - WINDOW;
    let now: BTreeSet<&str> = pods_of(look.model, budget)
        .filter(|pod| is_healthy(pod))
        .map(|pod| text(pod, "/metadata/uid"))
        .collect();
    let lately = health
        .until
        .iter()
        .filter(|((uid, app), (at, home))| {
            *at >= from && home == namespace && app == name && !now.contains(uid.as_str())
        })
        .map(|((uid, _), _)| uid.as_str());
    // Whose clock is ahead waits for less time for those who were evicted.
    let counts = |uid: &&str| look.memory.ahead.is_positive() || !health.evicted.contains(*uid);
    let count = now.iter().copied().chain(lately).filter(counts).count() as i64;
    let least =
        look.memory.wished(text(budget, "/metadata/uid"), look.change.at).map_or(0, |(least, _)| least);
    if allowed > (count - least).max(0) {
        return Err(format!(
            "{}: {allowed} may go of {count}, {least} must stay: {}, healthy {now:?}",
            look.named(),
            budget["status"]
        ));
    }
    let status = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    if allowed > status("currentHealthy") - status("desiredHealthy") {
        return Err(format!("{}: {allowed} may go by a status that does not say so", look.named()));
    }
    Ok(())
}

/// A status is written: an evicted pod that stays is waited for.
pub(super) fn remembers(look: &Look<'_>) -> Result<(), String> {
    if !is_status(look) {
        return Ok(());
    }
    let (held, kept) = (&look.before()["status"]["disruptedPods"], &look.after()["status"]["disruptedPods"]);
    for (name, time) in held.as_object().into_iter().flatten() {
        let pod = look.model.look("pods", text(look.after(), "/metadata/namespace"), name);
        let since: Timestamp = time.as_str().and_then(|time| time.parse().ok()).unwrap_or_default();
        // Another may bear its name by now.
        let made: Timestamp = text(pod, "/metadata/creationTimestamp").parse().unwrap_or_default();
        // Who is relabeled is no longer the budget's.
        let is_its =
            text(pod, "/metadata/labels/app") == text(look.after(), "/spec/selector/matchLabels/app");
        let stays = is_active(pod) && is_its && made < since;
        if kept[name].is_null() && stays && look.change.at + look.memory.ahead < since + WAITED_FOR {
            return Err(format!("{}: {name} is evicted, and forgotten", look.named()));
        }
    }
    Ok(())
}
