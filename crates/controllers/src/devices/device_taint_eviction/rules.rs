//! A rule, and what its status says: how many pods have to go for it, or would have to. Observes and plans.
//!
//! | effect | condition `EvictionInProgress` |
//! |---|---|
//! | `NoExecute`, pods have to go | true: how many |
//! | `NoExecute`, none has to, some were deleted | false: completed |
//! | `NoExecute`, none has to and none was | false: not started |
//! | `None` | false: what would be if it were `NoExecute`; told once for each spec |
//! | any other | false |
//!
//! The status is written when it says something else, and at most every ten seconds for one spec.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::keys::{Users, devices};
use super::memory::Timers;
use super::plan::between;
use super::told::{Note, Told};
use super::verdict::{NO_EXECUTE, is_selected, selects};
use super::world::{Caches, World, newest, pool};
use coxswain_machinery::api::kinds::DEVICE_TAINT_RULES;
use coxswain_machinery::api::meta::Condition;
use coxswain_machinery::api::resource::{DeviceTaintRule, ResourceClaim};
use coxswain_machinery::framework::{Observation, ObserveError, Reads, Room};
use coxswain_machinery::model::plan::{Cooldown, Patch, Tolerate, Verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, Time, Uid};

const MANAGER: &str = "device-taint-eviction-controller";
const CONDITION: &str = "EvictionInProgress";
/// A status is written at most so often.
const LEAST_PAUSE: Duration = Duration::from_secs(10);

/// The room of rules.
pub(super) struct Rules {
    pub(super) caches: Arc<Caches>,
    pub(super) users: Users,
    pub(super) timers: Arc<Timers>,
    pub(super) told: Arc<Told>,
}

/// A rule, and what it does.
#[derive(Debug)]
pub(super) struct View {
    pub(super) rule: Arc<DeviceTaintRule>,
    /// Pods that have to go for it, or would have to, and in how many namespaces.
    pub(super) pods: usize,
    pub(super) namespaces: usize,
    /// Devices that it selects: those that slices tell of, and those that claims have.
    pub(super) published: usize,
    pub(super) allocated: usize,
    /// Pods that were deleted for it.
    pub(super) evicted: u64,
}

impl Room<Note> for Rules {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        let found = self.caches.rules.as_ref().and_then(|rules| rules.get(key));
        let Some(rule) = found.filter(|rule| !self.is_told(key, rule)) else {
            return Ok(Observation::Nothing);
        };
        let is_dry = rule.spec.taint.effect == "None";
        let counts = rule.spec.taint.effect == NO_EXECUTE || is_dry;
        let claims: Vec<Arc<ResourceClaim>> = if counts { self.claims(&rule) } else { Vec::new() };
        let pods = self.pods(&rule, &claims, read);
        let namespaces: BTreeSet<&Str> = pods.iter().map(|pod| &pod.namespace).collect();
        let selected = claims.iter().flat_map(|claim| devices(claim)).filter(|device| selects(&rule, device));
        let (allocated, namespaces, count) = (selected.count(), namespaces.len(), pods.len());
        let published = if is_dry { self.published(&rule) } else { 0 };
        let evicted = self.timers.evicted_for(&rule.metadata.uid);
        Ok(Observation::View(View { rule, pods: count, namespaces, published, allocated, evicted }))
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan(view, now)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        let (status, reason, message) = judge(view);
        let says = if message.is_empty() { String::new() } else { format!(" ({})", message.trim_end()) };
        vec![format!(
            "The effect of the rule is {}, so {CONDITION} is {status} with reason {reason}{says}.",
            view.rule.spec.taint.effect
        )]
    }
}

impl Rules {
    /// Whether it has no effect, and what it would have was told.
    fn is_told(&self, key: &Key, rule: &DeviceTaintRule) -> bool {
        let told = self.told.0.lock();
        let is_it = |(uid, generation): &(Uid, i64)| {
            *uid == rule.metadata.uid && *generation == rule.metadata.generation
        };
        rule.spec.taint.effect == "None" && told.get(key).is_some_and(is_it)
    }

    /// The claims on devices that a rule selects.
    fn claims(&self, rule: &DeviceTaintRule) -> Vec<Arc<ResourceClaim>> {
        let mut claims = self.caches.claims.list();
        claims.retain(|claim| devices(claim).any(|device| selects(rule, device)));
        claims
    }

    /// The pods that have to go for it, or would have to.
    fn pods(&self, rule: &DeviceTaintRule, claims: &[Arc<ResourceClaim>], read: &Reads) -> BTreeSet<Key> {
        let mut users = BTreeSet::new();
        for claim in claims {
            self.users.of_claim(claim, &mut |key| {
                users.insert(key);
            });
        }
        let world = World { caches: &self.caches, read, supposing: Some(&rule.metadata.uid) };
        users.retain(|key| {
            let pod = self.caches.pods.get(key);
            let pod = pod.filter(|pod| !pod.spec.node_name.is_empty() && !pod.metadata.is_deleting());
            let verdict = pod.and_then(|pod| world.verdict(&pod));
            verdict.is_some_and(|verdict| verdict.is_for(&rule.metadata.uid))
        });
        users
    }

    /// How many devices of present slices it selects.
    fn published(&self, rule: &DeviceTaintRule) -> usize {
        let mut by_pool: HashMap<Str, Vec<_>> = HashMap::default();
        for slice in self.caches.slices.list() {
            by_pool.entry(pool(&slice.spec.driver, &slice.spec.pool.name)).or_default().push(slice);
        }
        let selector = rule.spec.device_selector.as_deref();
        let in_slice = |slice: &coxswain_machinery::api::resource::ResourceSlice| {
            let spec = &slice.spec;
            let is_it = |name: &Str| is_selected(selector, &spec.driver, &spec.pool.name, name);
            spec.devices.iter().filter(|device| is_it(&device.name)).count()
        };
        by_pool.into_values().flat_map(newest).map(|slice| in_slice(&slice)).sum()
    }
}

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    let rule = &view.rule;
    let meta = &rule.metadata;
    let told = (rule.spec.taint.effect == "None").then(|| (meta.uid.clone(), meta.generation));
    let mut plan = Plan::default();
    let (status, reason, message) = judge(view);
    let held = rule.status.conditions.iter().find(|held| held.r#type == CONDITION);
    let is_of_spec = held.filter(|held| held.observed_generation == meta.generation);
    let is_same =
        |held: &Condition| held.status == status && held.reason == reason && held.message == message.as_str();
    if is_of_spec.is_some_and(is_same) {
        return plan.with_note(Note { told });
    }
    if let Some(left) = is_of_spec.and_then(|held| pause(held, now)) {
        plan.requeue_after = Some(left);
        return plan.with_note(Note::default());
    }
    let object = json!({
        "apiVersion": DEVICE_TAINT_RULES.api_version(),
        "kind": DEVICE_TAINT_RULES.kind,
        "metadata": { "name": meta.name.as_str(), "uid": meta.uid.to_string() },
        "status": { "conditions": [{
            "type": CONDITION,
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": meta.generation,
            "lastTransitionTime": Time::from(now).to_string(),
        }] },
    });
    let apply = Verb::Patch(Patch::Apply { manager: MANAGER, force: true, object });
    let write = Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&DEVICE_TAINT_RULES, Key::of(meta), apply).on("status")
    };
    plan.steps.push(Step::Write(write));
    plan.cooldown = Cooldown { at_least: LEAST_PAUSE, ..Cooldown::default() };
    plan.with_note(Note { told })
}

/// How long it is until a status may be written again.
fn pause(held: &Condition, now: Timestamp) -> Option<Duration> {
    let written = Timestamp::from(held.last_transition_time?);
    // A time that lies ahead is somebody else's, or of another clock. Waiting for it would never end.
    if written > now {
        return None;
    }
    Some(LEAST_PAUSE.saturating_sub(between(written, now))).filter(|left| !left.is_zero())
}

/// Status, reason and message of the condition.
fn judge(view: &View) -> (&'static str, &'static str, String) {
    let (status, reason, mut message) = match view.rule.spec.taint.effect.as_str() {
        NO_EXECUTE if view.pods > 0 => {
            let needs =
                if view.pods == 1 { "1 pod needs".to_owned() } else { format!("{} pods need", view.pods) };
            let message = format!("{needs} to be evicted in {}.", namespaces(view));
            ("True", "PodsPendingEviction", message)
        }
        NO_EXECUTE if view.evicted > 0 => ("False", "Completed", String::new()),
        NO_EXECUTE => ("False", "NotStarted", String::new()),
        "None" => ("False", "NoEffect", supposed(view)),
        _ => ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.".to_owned()),
    };
    if view.evicted > 0 {
        if !message.is_empty() {
            message.push(' ');
        }
        message.push_str(&number(view.evicted, "pod"));
        message.push_str(" evicted since starting the controller.");
    }
    (status, reason, message)
}

fn number(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

fn namespaces(view: &View) -> String {
    match view.namespaces {
        1 => "1 namespace".to_owned(),
        several => format!("{several} different namespaces"),
    }
}

/// What a rule without an effect would do.
fn supposed(view: &View) -> String {
    let selected = |count: usize, sort: &str| {
        let devices = if count == 1 { "device" } else { "devices" };
        format!("{count} {sort} {devices} selected. ")
    };
    let pods = if view.pods == 1 { "1 pod".to_owned() } else { format!("{} pods", view.pods) };
    format!(
        "{}{}{pods} would be evicted in {} if the effect was NoExecute. This information will not be updated again. Recreate \
         the DeviceTaintRule to trigger an update.",
        selected(view.published, "published"),
        selected(view.allocated, "allocated"),
        namespaces(view),
    )
}
