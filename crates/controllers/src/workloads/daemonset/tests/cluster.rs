//! A small model of a cluster: nodes that come, go and change, pods that become what they become, and a server that refuses.
//!
//! Its `reconcile` is the framework reduced to what the room relies on: a plan is carried out up to its first failure, a second
//! one records that, and caches have seen all writes before the key is planned again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jiff::{SignedDuration, Timestamp};

use super::super::memory::{FailedPods, Note};
use super::super::view::{self, Gates, View, node_of};
use super::super::{Controller, keys, plan};
use super::fixtures::{ago, daemon_set, decoded, node, now, ready, refused, taint, template};
use coxswain_machinery::api::apps::{ControllerRevision, DaemonSet};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::indexes::BY_CONTROLLER;
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::framework::{Memory as _, Selecting, wake};
use coxswain_machinery::informer::{Indexed, Lister, Store, downcast};
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Str, Time};

/// What happens between two reconciles.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Reconcile,
    Advance(i64),
    Ready(usize),
    Unready(usize),
    Fail(usize),
    Succeed(usize),
    /// Deleted by somebody else, gracefully.
    Evict(usize),
    Vanish(usize),
    /// A node joins, or goes.
    Join(usize),
    Leave(usize),
    /// A node has this taint and no other: none, `NoSchedule`, `NoExecute`.
    Taint(usize, usize),
    /// Another template, of a few.
    Roll(usize),
    /// So many of the next creates and deletes of pods are refused.
    Refuse(u32),
}

/// The API server and the caches of one manager, which lag behind nothing here.
pub(super) struct Cluster {
    stores: [Arc<Store>; 4],
    room: Controller,
    version: u64,
    pub(super) now: Timestamp,
    queued: Arc<AtomicBool>,
    timers: Vec<Timestamp>,
    refuse: u32,
    /// Revisions that were made so far.
    pub(super) revisions_made: usize,
}

const KINDS: [&Kind; 4] = [&DAEMON_SETS, &PODS, &CONTROLLER_REVISIONS, &NODES];
const EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

fn key() -> Key {
    Key::new("default", "agent")
}

impl Cluster {
    pub(super) fn new(change: impl FnOnce(&mut DaemonSet), nodes: usize) -> Self {
        let stores = KINDS.map(|kind| Arc::new(Store::new(kind)));
        let [sets, pods, revisions, held_nodes] = &stores;
        let gates = Gates { comparing_tolerations: false };
        let room = Controller {
            daemon_sets: Lister::new(Arc::clone(sets)),
            pods: Indexed::new(pods, &BY_CONTROLLER),
            revisions: Indexed::new(revisions, &BY_CONTROLLER),
            nodes: Lister::new(Arc::clone(held_nodes)),
            failed_pods: Arc::new(FailedPods::default()),
            gates,
        };
        let queued = Arc::new(AtomicBool::new(true));
        let lister = || Lister::new(Arc::clone(sets));
        for (store, keys) in [
            (sets, wake::own()),
            (pods, keys::of_pods(lister(), Selecting::new(sets))),
            (revisions, keys::of_revisions(lister(), Selecting::new(sets))),
            (held_nodes, keys::of_nodes(lister(), gates)),
        ] {
            let queued = Arc::clone(&queued);
            store.add_handler(
                "daemonset",
                Arc::new(move |delta| keys(delta, &mut |_| queued.store(true, Relaxed))),
            );
        }
        let set: AnyObject = daemon_set(change);
        sets.upsert(&set);
        let mut cluster = Self {
            stores,
            room,
            version: 1000,
            now: now(),
            queued,
            timers: Vec::new(),
            refuse: 0,
            revisions_made: 0,
        };
        (0..nodes).for_each(|at| cluster.happen(Event::Join(at)));
        cluster
    }

    fn store(&self, kind: &Kind) -> &Arc<Store> {
        let at = KINDS.iter().position(|held| *held == kind).expect("a kind of this room");
        &self.stores[at]
    }

    pub(super) fn set(&self) -> Arc<DaemonSet> {
        self.room.daemon_sets.get(&key()).unwrap()
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.room.nodes.list()
    }

    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.stores[1].list().into_iter().filter_map(downcast).collect();
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pods
    }

    pub(super) fn revisions(&self) -> Vec<Arc<ControllerRevision>> {
        self.stores[2].list().into_iter().filter_map(downcast).collect()
    }

    fn next_version(&mut self) -> Str {
        self.version += 1;
        self.version.to_string().into()
    }

    fn put<T: Object>(&mut self, kind: &Kind, object: Arc<T>) {
        let object: AnyObject = object;
        self.store(kind).upsert(&object);
    }

    fn put_pod(&mut self, mut pod: Pod) {
        pod.metadata.resource_version = self.next_version();
        self.put(&PODS, Arc::new(pod));
    }

    fn change(&mut self, which: usize, change: impl FnOnce(&mut Pod, Time)) {
        let pods = self.pods();
        if let Some(pod) =
            pods.get(which.checked_rem(pods.len()).unwrap_or(0)).filter(|pod| self.has_node(pod))
        {
            let mut pod = (**pod).clone();
            // Whoever does anything with it is the node that it was bound to meanwhile.
            if let Some(node) = pod.target_node().cloned().filter(|_| pod.spec.node_name.is_empty()) {
                pod.spec.node_name = node;
            }
            change(&mut pod, Time::from(self.now));
            self.put_pod(pod);
        }
    }

    /// Whether the node that it is on, or meant for, is there. Nothing happens to a pod that waits for one that is gone.
    fn has_node(&self, pod: &Pod) -> bool {
        let node = node_of(pod).expect("each pod is meant for a node");
        self.room.nodes.get(&Key::new("", node.clone())).is_some()
    }

    /// The first pod that will be ready in a moment.
    fn first_waiting(&self) -> Option<usize> {
        let waits = |pod: &Arc<Pod>| !pod.is_ready() && !pod.is_finished() && self.has_node(pod);
        self.pods().iter().position(waits)
    }

    fn store_set(&mut self, bytes: &[u8]) {
        let version = self.next_version();
        let bytes = edit(bytes, &[Edit::SetBytes(&[1, 6], version.as_bytes().to_vec())]).unwrap();
        let set: Arc<DaemonSet> = decoded(&DAEMON_SETS, bytes);
        self.put(&DAEMON_SETS, set);
    }

    pub(super) fn happen(&mut self, event: Event) {
        let name = |at: usize| format!("n{}", at % 6);
        match event {
            Event::Reconcile => self.work(),
            Event::Advance(seconds) => self.advance(SignedDuration::from_secs(seconds)),
            Event::Ready(which) => self.change(which, |pod, at| {
                if !pod.is_finished() {
                    pod.status.phase = "Running".into();
                    pod.status.conditions = vec![ready(Some(at))];
                }
            }),
            Event::Unready(which) => self.change(which, |pod, _| pod.status.conditions.clear()),
            Event::Fail(which) => self.change(which, |pod, _| super::fixtures::failed(pod)),
            Event::Succeed(which) => self.change(which, |pod, _| super::fixtures::succeeded(pod)),
            Event::Evict(which) => self.change(which, |pod, at| pod.metadata.deletion_timestamp = Some(at)),
            Event::Vanish(which) => {
                let pods = self.pods();
                if let Some(pod) = pods.get(which.checked_rem(pods.len()).unwrap_or(0)) {
                    self.remove(&PODS, Arc::clone(pod));
                }
            }
            Event::Join(at) => self.put(&NODES, node(&name(at), |_| {})),
            Event::Leave(at) => {
                let gone = node(&name(at), |_| {});
                self.remove(&NODES, Arc::clone(&gone));
                // The garbage collection of pods takes what was bound to it.
                let bound = self.pods().into_iter().filter(|pod| pod.spec.node_name == gone.metadata.name);
                bound.for_each(|pod| self.remove(&PODS, pod));
            }
            Event::Taint(at, effect) => {
                if self.room.nodes.get(&Key::new("", name(at))).is_some() {
                    let tainted = node(&name(at), |node| {
                        if let Some(effect) = EFFECTS.get(effect) {
                            taint(node, effect);
                        }
                    });
                    self.put(&NODES, tainted);
                }
            }
            Event::Roll(to) => {
                let set = self.set();
                let edits = [
                    Edit::SetBytes(&[2, 2], template(&format!("agent:{to}")).0.to_vec()),
                    Edit::SetVarint(&[1, 7], set.metadata.generation as u64 + 1),
                ];
                self.store_set(&edit(&set.raw, &edits).unwrap());
            }
            Event::Refuse(count) => self.refuse = count,
        }
    }

    fn remove<T: Object>(&mut self, kind: &Kind, object: Arc<T>) {
        let object: AnyObject = object;
        self.store(kind).remove(&object);
    }

    fn advance(&mut self, by: SignedDuration) {
        self.now += by;
        let due = self.timers.iter().any(|timer| *timer <= self.now);
        self.timers.retain(|timer| *timer > self.now);
        self.queued.fetch_or(due, Relaxed);
    }

    /// Reconciles if the key is queued: a change that concerns it and is not told by the key maps is a change missed.
    fn work(&mut self) {
        if self.queued.swap(false, Relaxed) {
            let plan = self.planned(&[]);
            let failures = self.execute(&plan);
            if !failures.is_empty() {
                let second = self.planned(&failures);
                self.execute(&second);
                self.queued.store(!second.end, Relaxed);
            }
            let wait = plan.requeue_after.map(|wait| SignedDuration::try_from(wait).unwrap());
            self.timers.extend(wait.map(|wait| self.now + wait));
        }
    }

    pub(super) fn view(&self, failures: &[Failure]) -> View {
        view::observe(&self.room, &key(), failures).unwrap().unwrap()
    }

    pub(super) fn planned(&self, failures: &[Failure]) -> Plan<Note> {
        let view = self.view(failures);
        let plan = plan::plan(&view, self.now);
        assert_eq!(format!("{plan:?}"), format!("{:?}", plan::plan(&view, self.now)));
        assert_eq!(plan.retry, None);
        plan
    }

    fn execute(&mut self, plan: &Plan<Note>) -> Vec<Failure> {
        for step in &plan.steps {
            let writes: Vec<&Write> = step.writes().collect();
            let failures: Vec<Failure> = match step {
                Step::Batch(_) => {
                    let failed =
                        writes.into_iter().map(|write| self.perform(write, plan)).find(Option::is_some);
                    failed.flatten().into_iter().collect()
                }
                _ => writes.into_iter().filter_map(|write| self.perform(write, plan)).collect(),
            };
            if !failures.is_empty() {
                return failures;
            }
        }
        Vec::new()
    }

    fn perform(&mut self, write: &Write, plan: &Plan<Note>) -> Option<Failure> {
        let scales = write.kind == &PODS && matches!(write.verb, Verb::Create(_) | Verb::Delete { .. });
        if scales && self.refuse > 0 {
            self.refuse -= 1;
            return Some(refused(write, 403, "Forbidden"));
        }
        match &write.verb {
            Verb::Create(body) if write.kind == &PODS => {
                let mut pod: Pod = (*decoded::<Pod>(&PODS, body.to_vec())).clone();
                let name = format!("agent-{}", self.version);
                pod.metadata.uid = format!("{name}-uid").into();
                pod.metadata.name = name.into();
                pod.metadata.creation_timestamp = Some(Time::from(self.now));
                pod.status.phase = "Pending".into();
                self.put_pod(pod);
            }
            Verb::Create(body) => {
                let mut made: ControllerRevision =
                    (*decoded::<ControllerRevision>(write.kind, body.to_vec())).clone();
                made.metadata.uid = format!("{}-uid", made.metadata.name).into();
                made.metadata.creation_timestamp = ago(0);
                self.revisions_made += 1;
                self.put(&CONTROLLER_REVISIONS, Arc::new(made));
            }
            Verb::Delete { .. } => {
                if let Some(item) = write.item {
                    self.room.failed_pods.commit_item(&key(), &plan.note, item);
                }
                self.delete(write);
            }
            Verb::Update(body) => {
                assert_eq!((write.kind, write.subresource), (&DAEMON_SETS, "status"));
                self.store_set(body);
            }
            Verb::Patch(Patch::Merge(patch)) => {
                assert_eq!(write.kind, &CONTROLLER_REVISIONS);
                let held = self.revisions().into_iter().find(|held| held.metadata.name == write.key.name);
                let mut held = (*held.unwrap()).clone();
                held.revision = patch["revision"].as_i64().unwrap();
                self.put(&CONTROLLER_REVISIONS, Arc::new(held));
            }
            other => panic!("{other:?} is not expected here"),
        }
        None
    }

    fn delete(&mut self, write: &Write) {
        if write.kind == &CONTROLLER_REVISIONS {
            let held = self.revisions().into_iter().find(|held| held.metadata.name == write.key.name);
            return held.into_iter().for_each(|held| self.remove(&CONTROLLER_REVISIONS, held));
        }
        let Some(pod) = self.pods().into_iter().find(|pod| pod.metadata.name == write.key.name) else {
            return;
        };
        if pod.spec.node_name.is_empty() {
            return self.remove(&PODS, pod);
        }
        let mut pod = (*pod).clone();
        pod.metadata.deletion_timestamp = Some(Time::from(self.now));
        self.put_pod(pod);
    }

    /// Lets everything calm down: no more refusals, pods become ready, those on their way out go, time passes.
    pub(super) fn settle(&mut self) {
        self.refuse = 0;
        for _ in 0..400 {
            let going: Vec<_> = self.pods().into_iter().filter(|pod| pod.metadata.is_deleting()).collect();
            for pod in going {
                self.remove(&PODS, pod);
            }
            while let Some(at) = self.first_waiting() {
                self.happen(Event::Ready(at));
            }
            if self.queued.load(Relaxed) {
                self.work();
            } else if let Some(due) = self.timers.iter().min() {
                self.advance(due.duration_since(self.now));
            } else {
                let plan = self.planned(&[]);
                assert!(plan.steps.is_empty() && plan.requeue_after.is_none(), "at rest, and yet: {plan:?}");
                return;
            }
        }
        panic!("not at rest after many rounds");
    }
}
