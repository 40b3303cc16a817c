//! What of a namespace's content is deleted, and when the namespace may go. Pure.
//!
//! Everything is deleted that is not being deleted, and another look follows at once. Where nothing is left to delete,
//! what remains is written into the conditions ([`conditions`]), and the namespace is looked at again later, or let go. What is
//! refused holds up nothing else; it is written into the conditions, too, and the key is retried.

mod conditions;

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::FINALIZER;
use super::view::{Content, Discovery, Found, View};
use crate::live_reads::NAMESPACE_STILL_THERE;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::core::EndingNamespace;
use coxswain_machinery::api::kinds::{ENDING_NAMESPACES, NAMESPACES, PODS};
use coxswain_machinery::api::meta::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ObjectMeta};
use coxswain_machinery::model::plan::{Expect, Propagation, Tolerate, Verb, Verify};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, retain_items};
use coxswain_machinery::wire::{Time, Value, WireError, field, path};

/// Finalizers by which the garbage collector holds what others wait for. In a namespace that goes nobody does: deleting
/// once more takes them off.
const OF_WAITING: [&str; 2] = [FOREGROUND_FINALIZER, ORPHAN_FINALIZER];

/// How long finalizers of others are given, in seconds, as in the original.
const FOR_FINALIZERS: i64 = 15;

/// What stands between a namespace and its end.
#[derive(Debug, Default)]
struct Remains {
    /// What could not be deleted or found out.
    errors: Vec<String>,
    /// How long until what remains may have gone, in seconds.
    estimate: i64,
}

pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let sweeps = sweeps(view);
    if !sweeps.is_empty() {
        let steps = vec![still_there(view), Step::Each(sweeps)];
        return Plan { steps, look_again: true, ..Plan::default() };
    }
    settle(view, now).unwrap_or_else(|error| malformed(view, &error))
}

/// What deletes everything that is not being deleted yet.
fn sweeps(view: &View) -> Vec<Write> {
    let namespace = &view.namespace.metadata.name;
    let propagation = Some(Propagation::Background);
    let mut sweeps = Vec::new();
    for Content { kind, at_once, objects, .. } in view.content.iter().filter(|content| !content.swept) {
        let objects: &[AnyObject] = if let Found::Objects(objects) = objects { objects } else { &[] };
        let lasting: Vec<&AnyObject> = objects.iter().filter(|object| lasts(object.meta())).collect();
        let unseen = objects.is_empty();
        let writes: Vec<(Key, Verb)> = if *at_once && (unseen || !lasting.is_empty()) {
            vec![(Key::new(namespace.clone(), ""), Verb::DeleteCollection { propagation })]
        } else {
            let delete = |uid| Verb::Delete { uid, resource_version: None, propagation, grace_period: None };
            lasting.iter().map(|object| (Key::of(object.meta()), delete(object.meta().uid.clone()))).collect()
        };
        // A collection that can't be deleted at once is deleted one by one at the next look.
        let tolerate = Tolerate { absent: true, unsupported: *at_once, ..Tolerate::default() };
        let writes = writes.into_iter().map(|(key, verb)| Write::new(kind, key, verb));
        sweeps.extend(writes.map(|write| Write { tolerate, keep_going: true, ..write }));
    }
    sweeps
}

/// Whether a delete would change something.
fn lasts(meta: &ObjectMeta) -> bool {
    // With nothing to wait for it would be gone, had not the server been interrupted when it deleted it.
    let interrupted = meta.finalizers.is_empty() && meta.deletion_grace_period_seconds.unwrap_or(0) == 0;
    let waits = || meta.finalizers.iter().any(|held| OF_WAITING.iter().any(|each| held == *each));
    !meta.is_deleting() || interrupted || waits()
}

/// A look at the namespace itself: another one of that name keeps what it has.
fn still_there(view: &View) -> Step {
    let meta = &view.namespace.metadata;
    Step::Verify(Verify {
        read: &NAMESPACE_STILL_THERE,
        kind: &NAMESPACES,
        key: Key::of(meta),
        expect: Expect::Exists(meta.uid.clone()),
    })
}

/// What can be done with nothing left to delete.
fn settle(view: &View, now: Timestamp) -> Result<Plan, WireError> {
    let remains = remains(view, now);
    let status = conditions::write(view, &remains.errors, now)?;
    let mut plan = Plan::default();
    if !remains.errors.is_empty() || view.discovery != Discovery::Whole {
        plan.steps.extend(status.map(Step::Write));
        plan.retry = Some(why(view, &remains));
        return Ok(plan);
    }
    if view.content.is_empty() {
        // Of one that goes with this finalizer, nobody reads what the conditions would say.
        let meta = &view.namespace.metadata;
        let held = view.namespace.spec.finalizers.len() > 1 || !meta.finalizers.is_empty();
        match status.filter(|_| held) {
            Some(status) => {
                plan.steps.push(Step::Write(status));
                plan.look_again = true;
            }
            None => plan.steps.push(Step::Write(finalize(view)?)),
        }
        return Ok(plan);
    }
    plan.steps.extend(status.map(Step::Write));
    let half = Duration::from_secs(u64::try_from(remains.estimate / 2 + 1).unwrap_or(1));
    plan.look_again_after(half.min(view.sync_period));
    Ok(plan)
}

fn remains(view: &View, now: Timestamp) -> Remains {
    let errors = view.failed.iter().map(|failure| failure.message.clone()).collect();
    let mut remains = Remains { errors, estimate: 0 };
    for Content { kind, objects, .. } in &view.content {
        let refused = view.failures_of(kind).next().is_some();
        let objects = match objects {
            Found::Objects(objects) => objects,
            Found::Failed { why, .. } if !refused => {
                remains.errors.push(why.clone());
                continue;
            }
            Found::Failed { .. } | Found::Unlisted => continue,
        };
        let graceful = if kind.group == PODS.group && kind.resource == PODS.resource {
            grace(view, objects, now)
        } else {
            0
        };
        let held = objects.iter().any(|object| !object.meta().finalizers.is_empty());
        if graceful > 0 {
            remains.estimate = remains.estimate.max(graceful);
        } else if held {
            remains.estimate = remains.estimate.max(FOR_FINALIZERS);
        } else if !refused {
            remains.errors.push(format!(
                "unexpected items still remain in namespace: {} for gvr: {}/{}, Resource={}",
                view.namespace.metadata.name, kind.group, kind.version, kind.resource
            ));
        }
    }
    remains.errors.sort_unstable();
    remains
}

/// How long the pods may take to end, in seconds; nothing when the namespace has been waiting for that long.
fn grace(view: &View, pods: &[AnyObject], now: Timestamp) -> i64 {
    let longest = pods.iter().filter_map(|pod| pod.meta().deletion_grace_period_seconds).max().unwrap_or(0);
    let since = view.namespace.metadata.deletion_timestamp.map_or(0, Time::seconds);
    if now.as_second().saturating_sub(since) >= longest { 0 } else { longest }
}

fn why(view: &View, remains: &Remains) -> String {
    let mut all = remains.errors.clone();
    all.extend(conditions::discovery_error(&view.discovery));
    all.join("; ")
}

/// The update that takes our finalizer off. It is on the latest state of the namespace, or is refused.
fn finalize(view: &View) -> Result<Write, WireError> {
    let raw = &view.namespace.raw;
    let spec = get(raw, path!(EndingNamespace, spec))?.map(Value::bytes).transpose()?.unwrap_or_default();
    let spec =
        retain_items(spec, field!(EndingNamespace, spec.finalizers), |held| held != FINALIZER.as_bytes())?;
    let object = Bytes::from(edit(raw, &[Edit::SetBytes(path!(EndingNamespace, spec), spec)])?);
    let verb = Verb::Update(object);
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    let write = Write::new(&ENDING_NAMESPACES, Key::of(&view.namespace.metadata), verb).on("finalize");
    Ok(Write { tolerate, ..write })
}

fn malformed(view: &View, error: &WireError) -> Plan {
    let retry = Some(format!("namespace {}: {error}", view.namespace.metadata.name));
    Plan { retry, ..Plan::default() }
}
