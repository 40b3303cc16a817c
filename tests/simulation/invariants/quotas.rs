//! Rules about quotas: what is counted was there.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value as Json};

use super::{Look, WINDOW};
use apiserver_model::{CPU, Change, Model, Stored, amount, charges, text};

/// How many objects there were, or how much they asked for, at least and at most, by namespace and by the name that quotas have for them, and since when.
/// Pods that are to be gone by now may be counted or not.
#[derive(Default)]
pub(super) struct Census(BTreeMap<(String, &'static str), Vec<Count>>);

type Count = (Timestamp, i64, i64);

/// What an object counts for, how much, and whether it must be counted.
fn counted(stored: Option<&Arc<Stored>>) -> Vec<(&'static str, i64, bool)> {
    let Some(stored) = stored else { return Vec::new() };
    let is_going = stored.json["metadata"]["deletionTimestamp"].is_string();
    let names = charges(stored.place.resource, &stored.json).into_iter();
    names.map(|(name, by)| (name, by, !matches!(name, "pods" | CPU) || !is_going)).collect()
}

impl Census {
    /// Takes a change in.
    pub(super) fn note(&mut self, change: &Change) {
        let Some(stored) = change.after.as_ref().or(change.before.as_ref()) else { return };
        let namespace = &stored.place.namespace;
        let (before, after) = (counted(change.before.as_ref()), counted(change.after.as_ref()));
        if namespace.is_empty() || before == after {
            return;
        }
        for (names, sign) in [(before, -1), (after, 1)] {
            for (name, by, must) in names {
                let by = by * sign;
                let held = self.0.entry((namespace.clone(), name)).or_default();
                let (_, least, most) = held.last().copied().unwrap_or((change.at, 0, 0));
                held.push((change.at, least + if must { by } else { 0 }, most + by));
            }
        }
    }

    /// The smallest and the largest number that there was lately.
    fn lately(&self, namespace: &str, name: &str, now: Timestamp) -> (i64, i64) {
        let held = self.0.iter().find(|((home, of), _)| home == namespace && *of == name);
        let held = held.map_or(&[][..], |(_, held)| held.as_slice());
        let from = now - WINDOW;
        let first = held.iter().rposition(|(at, ..)| *at <= from);
        let before = first.map_or((0, 0), |at| (held[at].1, held[at].2));
        let counts = held[first.unwrap_or(0)..].iter().map(|(_, least, most)| (*least, *most));
        counts.fold(before, |(least, most), count| (least.min(count.0), most.max(count.1)))
    }
}

/// A count is written: so many there were at some time lately.
pub(super) fn counts(look: &Look<'_>) -> Result<(), String> {
    if look.resource() != "resourcequotas" || look.change.subresource != "status" || look.after().is_null() {
        return Ok(());
    }
    let (before, after) = (&look.before()["status"]["used"], &look.after()["status"]["used"]);
    let namespace = text(look.after(), "/metadata/namespace");
    for name in after.as_object().into_iter().flat_map(Map::keys) {
        let Some(used) = amount(after, name).filter(|_| before[name] != after[name]) else { continue };
        let (least, most) = look.memory.census.lately(namespace, name, look.change.at);
        if !(least..=most).contains(&used) {
            return Err(format!("{}: {used} {name} are counted, of {least} to {most} lately", look.named()));
        }
    }
    Ok(())
}

/// In the end all is counted, and no more.
pub(super) fn end(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "resourcequotas" {
        return None;
    }
    let (spec, status) = (&object["spec"]["hard"], &object["status"]);
    if *spec != status["hard"] {
        return Some(format!("its limits are {spec}, and its status says {}", status["hard"]));
    }
    let namespace = text(object, "/metadata/namespace");
    spec.as_object()?.keys().find_map(|name| {
        let all = model.everything().filter(|stored| stored.place.namespace == namespace);
        let charged = all.flat_map(|stored| charges(stored.place.resource, &stored.json));
        let count: i64 = charged.filter(|(held, _)| held == name).map(|(_, by)| by).sum();
        let used = amount(&status["used"], name);
        (used != Some(count)).then(|| format!("{used:?} {name} are counted, there are {count}"))
    })
}
