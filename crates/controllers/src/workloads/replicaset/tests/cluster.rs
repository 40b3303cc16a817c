//! A small model of a cluster in which everything goes wrong that can.
//!
//! [`Cluster`] is the truth, with a watch that lags behind it; its `reconcile` is the framework reduced to what the
//! room relies on. Every plan that is made is checked against the view it was made from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jiff::{SignedDuration, Timestamp};

use super::super::view::View;
use super::super::{plan, pod_keys};
use super::fixtures::{Bench, decoded, labels, now, ready, replica_set, writes};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::Selecting;
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::plan::{Expect, Patch, Step, Verb, Write};
use coxswain_machinery::model::pods::{self, Ranking};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message, Str, Time, Uid};

/// What happens to the cluster between two reconciles.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The watch delivers some of what is pending.
    Deliver(usize),
    Reconcile,
    Advance(i64),
    Schedule(usize),
    Ready(usize),
    Unready(usize),
    Finish(usize, bool),
    /// Deleted by someone else, gracefully.
    Evict(usize),
    /// Gone at once.
    Vanish(usize),
    Relabel(usize),
    Disown(usize),
    /// A bare pod that the selector matches.
    Orphan,
    Scale(i32),
    /// So many of the next creates or deletes are refused.
    Refuse(u32),
    /// The next create is carried out, but its answer is lost.
    LoseAnswer,
}

/// HTTP status code and reason.
type Refusal = (u16, &'static str);

enum Change {
    Upsert(AnyObject),
    Remove(AnyObject),
}

/// The API server, and the caches of one manager.
pub(super) struct Cluster {
    pub(super) pods: BTreeMap<Str, Pod>,
    pub(super) set: Arc<ReplicaSet>,
    bench: Bench,
    pending: VecDeque<(u64, Change)>,
    version: u64,
    /// What the caches must have seen before the next reconcile.
    barrier: u64,
    now: Timestamp,
    /// Whether some change concerned the key, by the room's own account, or a plan is to be retried.
    queued: Arc<AtomicBool>,
    timers: Vec<Timestamp>,
    refuse: u32,
    lose_answer: bool,
    pub(super) created: usize,
}

impl Cluster {
    pub(super) fn new(desired: i32, min_ready_seconds: i32) -> Self {
        let set = replica_set(|set| {
            set.spec.replicas = Some(desired);
            set.spec.min_ready_seconds = min_ready_seconds;
        });
        let bench = Bench::of(&set, &[]);
        let queued = Arc::new(AtomicBool::new(false));
        let replica_sets = Lister::<ReplicaSet>::new(Arc::clone(&bench.replica_sets));
        for (store, keys) in [
            (&bench.replica_sets, coxswain_machinery::framework::wake::own()),
            (&bench.pods, pod_keys(replica_sets, Selecting::new(&bench.replica_sets))),
        ] {
            let queued = Arc::clone(&queued);
            store.add_handler(
                "replicaset",
                Arc::new(move |delta| {
                    keys(delta, &mut |key| {
                        assert_eq!(key, Key::new("default", "web"));
                        queued.store(true, Relaxed);
                    });
                }),
            );
        }
        Self {
            pods: BTreeMap::new(),
            set,
            bench,
            pending: VecDeque::new(),
            version: 1000,
            barrier: 0,
            now: now(),
            queued,
            timers: Vec::new(),
            refuse: 0,
            lose_answer: false,
            created: 0,
        }
    }

    fn time(&self) -> Time {
        Time::from(self.now)
    }

    fn store(&mut self, mut pod: Pod) {
        self.version += 1;
        pod.metadata.resource_version = self.version.to_string().into();
        self.pods.insert(pod.metadata.name.clone(), pod.clone());
        self.pending.push_back((self.version, Change::Upsert(Arc::new(pod))));
    }

    fn remove(&mut self, name: &Str) {
        if let Some(mut pod) = self.pods.remove(name) {
            self.version += 1;
            pod.metadata.resource_version = self.version.to_string().into();
            self.pending.push_back((self.version, Change::Remove(Arc::new(pod))));
        }
    }

    fn store_set(&mut self, bytes: &[u8]) {
        self.version += 1;
        let version = Edit::SetBytes(&[1, 6], self.version.to_string().into_bytes());
        self.set = decoded(edit(bytes, &[version]).unwrap());
        self.pending.push_back((self.version, Change::Upsert(Arc::clone(&self.set) as AnyObject)));
    }

    fn change(&mut self, which: usize, change: impl FnOnce(&mut Pod, Time)) {
        let names: Vec<Str> = self.pods.keys().cloned().collect();
        if let Some(name) = names.get(which.checked_rem(names.len()).unwrap_or(0)) {
            let mut pod = self.pods[name].clone();
            change(&mut pod, self.time());
            self.store(pod);
        }
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(count) => self.deliver(count),
            Event::Reconcile => self.work(),
            Event::Advance(seconds) => self.advance(SignedDuration::from_secs(seconds)),
            Event::Schedule(which) => self.change(which, |pod, _| {
                pod.spec.node_name = format!("node-{}", which % 3).into();
            }),
            Event::Ready(which) => self.change(which, |pod, at| {
                pod.status.phase = "Running".into();
                pod.status.conditions = vec![ready(Some(at))];
            }),
            Event::Unready(which) => self.change(which, |pod, _| pod.status.conditions.clear()),
            Event::Finish(which, well) => self.change(which, |pod, _| {
                pod.status.phase = if well { "Succeeded" } else { "Failed" }.into();
                pod.status.conditions.clear();
            }),
            Event::Evict(which) => self.change(which, |pod, at| pod.metadata.deletion_timestamp = Some(at)),
            Event::Vanish(which) => {
                let names: Vec<Str> = self.pods.keys().cloned().collect();
                if let Some(name) = names.get(which.checked_rem(names.len()).unwrap_or(0)) {
                    self.remove(name);
                }
            }
            Event::Relabel(which) => self.change(which, |pod, _| {
                let app = if pod.metadata.labels.get("app").is_some_and(|app| app == "web") {
                    "api"
                } else {
                    "web"
                };
                pod.metadata.labels = pod.metadata.labels.with("app", app);
            }),
            Event::Disown(which) => self.change(which, |pod, _| pod.metadata.owner_references.clear()),
            Event::Orphan => {
                let mut pod = Pod::default();
                pod.metadata.labels = labels(&[("app", "web")]);
                self.admit(pod, "bare-");
            }
            Event::Scale(desired) => {
                let generation = self.set.metadata.generation as u64 + 1;
                let edits = [Edit::SetVarint(&[2, 1], desired as u64), Edit::SetVarint(&[1, 7], generation)];
                let scaled = edit(&self.set.raw, &edits).unwrap();
                self.store_set(&scaled);
            }
            Event::Refuse(count) => self.refuse = count,
            Event::LoseAnswer => self.lose_answer = true,
        }
    }

    fn admit(&mut self, mut pod: Pod, prefix: &str) {
        pod.metadata.name = format!("{prefix}{}", self.version).into();
        pod.metadata.namespace = "default".into();
        pod.metadata.uid = format!("uid-{}", self.version * 7919 % 10_007).into();
        pod.metadata.creation_timestamp = Some(self.time());
        pod.status.phase = "Pending".into();
        self.store(pod);
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count {
            let Some((_, change)) = self.pending.pop_front() else { return };
            let (object, gone) = match &change {
                Change::Upsert(object) => (object, false),
                Change::Remove(object) => (object, true),
            };
            let is_pod = (object.as_ref() as &dyn std::any::Any).is::<Pod>();
            let store = if is_pod { &self.bench.pods } else { &self.bench.replica_sets };
            if gone { store.remove(object) } else { store.upsert(object) }
        }
    }

    fn catch_up(&mut self, to: u64) {
        while self.pending.front().is_some_and(|(version, _)| *version <= to) {
            self.deliver(1);
        }
    }

    fn advance(&mut self, by: SignedDuration) {
        self.now += by;
        let due = self.timers.iter().any(|timer| *timer <= self.now);
        self.timers.retain(|timer| *timer > self.now);
        self.queued.fetch_or(due, Relaxed);
    }

    /// Reconciles if the key is queued: a change that concerns it and is not told by the key maps is a change missed.
    fn work(&mut self) {
        self.catch_up(self.barrier);
        if self.queued.swap(false, Relaxed) {
            self.reconcile();
        }
    }

    /// Observes, plans and executes as the framework does.
    pub(super) fn reconcile(&mut self) {
        let view = self.bench.view(&[]);
        let first = self.planned(&view);
        check(&view, &first, self.now);
        let failures = self.execute(&first);
        if !failures.is_empty() {
            let second = self.planned(&self.bench.view(&failures));
            assert!(writes(&second).iter().all(|write| write.subresource == "status"));
            self.execute(&second);
            self.queued.store(true, Relaxed);
        }
        let wait = first.requeue_after.map(|wait| SignedDuration::try_from(wait).unwrap());
        self.timers.extend(wait.map(|wait| self.now + wait));
    }

    fn planned(&self, view: &View) -> Plan {
        let plan = plan::plan(view, self.now);
        assert_eq!(format!("{plan:?}"), format!("{:?}", plan::plan(view, self.now)));
        plan
    }

    /// Performs a plan up to the first step that fails; returns what that step met.
    fn execute(&mut self, plan: &Plan) -> Vec<Failure> {
        for step in &plan.steps {
            let failures = match step {
                Step::Verify(verify) => {
                    assert_eq!(verify.expect, Expect::Alive(self.set.metadata.uid.clone()));
                    Vec::new()
                }
                Step::Write(write) => self.perform(write).into_iter().collect(),
                Step::Batch(writes) => self.perform_batch(writes),
                Step::Each(writes) => writes.iter().filter_map(|write| self.perform(write)).collect(),
                Step::Emit(_) => Vec::new(),
                other => panic!("{other:?}"),
            };
            if !failures.is_empty() {
                return failures;
            }
        }
        Vec::new()
    }

    fn perform_batch(&mut self, writes: &[Write]) -> Vec<Failure> {
        let (mut rest, mut size) = (writes, 1);
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            let failures: Vec<Failure> = batch.iter().filter_map(|write| self.perform(write)).collect();
            if !failures.is_empty() {
                return failures;
            }
            (rest, size) = (later, size * 2);
        }
        Vec::new()
    }

    fn perform(&mut self, write: &Write) -> Option<Failure> {
        let answer = self.answer(write);
        // A create whose answer was lost may be among what was written.
        if matches!(answer, Ok(()) | Err((0, _))) {
            self.barrier = self.version;
        }
        let (code, reason) = answer.err()?;
        Some(Failure {
            what: write.to_string(),
            verb: write.verb.name(),
            subresource: write.subresource,
            kind: write.kind,
            key: write.key.clone(),
            code,
            reason: reason.into(),
            message: format!("{write}: {reason}"),
            existing: None,
        })
    }

    /// Carries a write out; the code and reason of a refusal, 0 when the answer was lost.
    fn answer(&mut self, write: &Write) -> Result<(), Refusal> {
        let scales = matches!(write.verb, Verb::Create(_) | Verb::Delete { .. });
        if scales && self.refuse > 0 {
            self.refuse -= 1;
            return Err((403, "Forbidden"));
        }
        match &write.verb {
            Verb::Create(body) => {
                assert_eq!((write.kind, write.key.name.as_str()), (&PODS, ""));
                let pod = Pod::decode(body).unwrap();
                assert!(pod.metadata.is_controlled_by(&"web-uid".into()));
                let prefix = pod.metadata.generate_name.clone();
                self.admit(pod, &prefix);
                self.created += 1;
                if std::mem::take(&mut self.lose_answer) { Err((0, "")) } else { Ok(()) }
            }
            Verb::Delete { uid, .. } => match self.pods.get(&write.key.name) {
                Some(pod) if pod.metadata.uid == *uid => {
                    let mut pod = pod.clone();
                    pod.metadata.deletion_timestamp = Some(self.time());
                    if pod.spec.node_name.is_empty() {
                        self.remove(&write.key.name);
                    } else {
                        self.store(pod);
                    }
                    Ok(())
                }
                _ if write.tolerate.absent => Ok(()),
                _ => Err((404, "NotFound")),
            },
            Verb::Patch(Patch::Strategic(patch)) => self.patch(write, patch),
            Verb::Update(object) if write.subresource == "status" => {
                let update = decoded(object.to_vec());
                if update.metadata.resource_version == self.set.metadata.resource_version {
                    let status = coxswain_machinery::wire::splice::get(&update.raw, &[3])
                        .unwrap()
                        .unwrap()
                        .bytes()
                        .unwrap();
                    let stored = edit(&self.set.raw, &[Edit::SetBytes(&[3], status.to_vec())]).unwrap();
                    self.store_set(&stored);
                    Ok(())
                } else {
                    Err((409, "Conflict"))
                }
            }
            other => panic!("{other:?} is not a write of this room"),
        }
    }

    fn patch(&mut self, write: &Write, patch: &serde_json::Value) -> Result<(), Refusal> {
        let Some(pod) = self.pods.get(&write.key.name) else {
            return if write.tolerate.absent { Ok(()) } else { Err((404, "NotFound")) };
        };
        assert_eq!(patch["metadata"]["uid"], *pod.metadata.uid.to_str());
        let mut pod = pod.clone();
        let reference = &patch["metadata"]["ownerReferences"][0];
        assert_eq!(reference["uid"], "web-uid");
        let held = &mut pod.metadata.owner_references;
        if reference["$patch"] == "delete" {
            held.retain(|owner| owner.uid != "web-uid");
        } else if held.is_empty() {
            assert_eq!(
                (&reference["controller"], &reference["apiVersion"]),
                (&true.into(), &"apps/v1".into())
            );
            held.push(OwnerReference { controller: Some(true), ..super::fixtures::owner() });
        } else {
            return Err((422, "Invalid"));
        }
        self.store(pod);
        Ok(())
    }

    /// Pods that are active and managed by the set.
    pub(super) fn active(&self) -> Vec<&Pod> {
        let managed = |pod: &&Pod| pods::is_active(pod) && pod.metadata.is_controlled_by(&"web-uid".into());
        self.pods.values().filter(managed).collect()
    }

    /// Lets everything calm down: no more refusals, terminating pods go, the watch delivers, time passes.
    pub(super) fn settle(&mut self) {
        (self.refuse, self.lose_answer) = (0, false);
        for _ in 0..60 {
            let terminating = self.pods.values().filter(|pod| pod.metadata.is_deleting());
            let terminating: Vec<Str> = terminating.map(|pod| pod.metadata.name.clone()).collect();
            for name in &terminating {
                self.remove(name);
            }
            self.deliver(usize::MAX);
            if self.queued.load(Relaxed) {
                self.work();
            } else if let Some(due) = self.timers.iter().min() {
                self.advance(due.duration_since(self.now));
            } else {
                let plan = self.planned(&self.bench.view(&[]));
                assert!(plan.steps.is_empty() && plan.requeue_after.is_none(), "at rest, and yet: {plan:?}");
                return;
            }
        }
        panic!("not at rest after 60 rounds");
    }
}

/// What holds for every first plan, whatever it was made from.
fn check(view: &View, plan: &Plan, now: Timestamp) {
    let uid = &view.replica_set.metadata.uid;
    let counts = |pod: &&Arc<Pod>| {
        let free_or_ours = pod.metadata.controller().is_none_or(|owner| owner.uid == *uid);
        pods::is_active(pod) && free_or_ours && view.selector.matches(&pod.metadata.labels)
    };
    let kept: Vec<&Arc<Pod>> = view.pods.iter().filter(counts).collect();
    let desired = usize::try_from(view.replica_set.spec.replicas.unwrap()).unwrap();

    let creates = writes(plan).into_iter().filter(|write| matches!(write.verb, Verb::Create(_))).count();
    let (missing, surplus) = (desired.saturating_sub(kept.len()), kept.len().saturating_sub(desired));
    assert_eq!(creates, missing);
    let deleted: BTreeSet<&Uid> = writes(plan)
        .into_iter()
        .filter_map(|write| if let Verb::Delete { uid, .. } = &write.verb { Some(uid) } else { None })
        .collect();
    assert_eq!(deleted.len(), surplus);

    let ranking = Ranking { now, by_cost: true };
    let (goes, stays): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|pod| deleted.contains(&pod.metadata.uid));
    assert_eq!(goes.len(), deleted.len(), "only pods that count are deleted");
    let last_to_go = goes.iter().map(|pod| ranking.rank(pod, 0)).max();
    let first_to_stay = stays.iter().map(|pod| ranking.rank(pod, 0)).min();
    if let (Some(goes), Some(stays)) = (last_to_go, first_to_stay) {
        assert!(goes < stays);
    }
}
