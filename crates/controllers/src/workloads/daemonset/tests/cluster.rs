//! A small cluster: nodes that come, go and change, pods that become what they become, and an API server that refuses.
//!
//! It is the room with the model of the API server, to which the executor that ships carries its plans. Its `reconcile` is the framework
//! reduced to what the room relies on: a second plan records what failed, and caches have seen all writes before the key is planned
//! again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use apiserver_model::{Caches, Deletion, OnTheWay, Place, Refusal, Served};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value as Json, json};

use super::super::memory::{FailedPods, Note};
use super::super::view::{self, Gates, View, node_of};
use super::super::{Controller, keys, plan};
use super::fixtures::{daemon_set, now};
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::apps::{ControllerRevision, DaemonSet};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{Memory as _, Selecting, wake};
use coxswain_machinery::informer::{Dependents, Lister, Store, downcast};
use coxswain_machinery::model::clock::SteadyTime;
use coxswain_machinery::model::revisions::REVISION_LABEL;
use coxswain_machinery::model::{Failure, Key, Plan};

/// As whom it writes.
const CONTROLLER: &str = "daemon-set-controller";

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
    api: Served,
    caches: Caches,
    pods: Arc<Store>,
    revisions: Arc<Store>,
    room: Controller,
    pub(super) now: Timestamp,
    queued: Arc<AtomicBool>,
    timers: Vec<Timestamp>,
    /// So many creates and deletes of pods are refused.
    refuse: Arc<AtomicU32>,
    /// After so many writes the answer to one is lost, and later writes do not arrive.
    cut: Arc<AtomicU32>,
}

const KINDS: [&Kind; 4] = [&DAEMON_SETS, &PODS, &CONTROLLER_REVISIONS, &NODES];
const EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

fn key() -> Key {
    Key::new("default", "agent")
}

fn place_of(pod: &Pod) -> Place {
    Place::new("pods", "default", &pod.metadata.name)
}

impl Cluster {
    pub(super) fn new(change: impl FnOnce(&mut DaemonSet), nodes: usize) -> Self {
        let stores = KINDS.map(|kind| Arc::new(Store::new(kind)));
        let caches = Caches::new(stores.iter().cloned());
        let [sets, pods, revisions, held_nodes] = stores;
        let gates = Gates { comparing_tolerations: false };
        let room = Controller {
            daemon_sets: Lister::new(Arc::clone(&sets)),
            pods: Dependents::new(&pods),
            revisions: Dependents::new(&revisions),
            nodes: Lister::new(Arc::clone(&held_nodes)),
            failed_pods: Arc::new(FailedPods::default()),
            gates,
        };
        let queued = Arc::new(AtomicBool::new(true));
        let lister = || Lister::new(Arc::clone(&sets));
        for (store, keys) in [
            (&sets, wake::own()),
            (&pods, keys::of_pods(lister(), Selecting::new(&sets))),
            (&revisions, keys::of_revisions(lister(), Selecting::new(&sets))),
            (&held_nodes, keys::of_nodes(lister(), gates)),
        ] {
            let queued = Arc::clone(&queued);
            store.add_handler(
                "daemonset",
                Arc::new(move |delta| keys(delta, &mut |_| queued.store(true, Relaxed))),
            );
        }
        let api = Served::new(CONTROLLER, now());
        let refuse = Arc::new(AtomicU32::new(0));
        let refused = Arc::clone(&refuse);
        let cut = Arc::new(AtomicU32::new(u32::MAX));
        let left = Arc::clone(&cut);
        api.on_the_way(move |asked| {
            if asked.method != Method::GET && left.load(Relaxed) != u32::MAX {
                match left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
                    Ok(1) => return OnTheWay::Unanswered,
                    Ok(_) => {}
                    Err(_) => return OnTheWay::Lost,
                }
            }
            let scales = asked.kind == Some(&PODS) && [Method::POST, Method::DELETE].contains(&asked.method);
            if scales && refused.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                return OnTheWay::Refused(Refusal::new(403, "Forbidden", "no"));
            }
            OnTheWay::Arrives
        });
        api.model().create_encoded("user", &DAEMON_SETS, &daemon_set(change).raw).expect("a set");
        let mut cluster =
            Self { api, caches, pods, revisions, room, now: now(), queued, timers: Vec::new(), refuse, cut };
        cluster.room.failed_pods.stop_clock(SteadyTime::default());
        (0..nodes).for_each(|at| cluster.happen(Event::Join(at)));
        cluster
    }

    pub(super) fn set(&self) -> Arc<DaemonSet> {
        self.room.daemon_sets.get(&key()).unwrap()
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.room.nodes.list()
    }

    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.pods.list().into_iter().filter_map(downcast).collect();
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pods
    }

    pub(super) fn revisions(&self) -> Vec<Arc<ControllerRevision>> {
        self.revisions.list().into_iter().filter_map(downcast).collect()
    }

    /// How many revisions were made so far.
    pub(super) fn revisions_made(&self) -> usize {
        let model = self.api.model();
        let made = model.changes.iter().filter(|change| change.verb == "create" && change.by == CONTROLLER);
        made.filter_map(|change| change.after.as_ref())
            .filter(|stored| stored.place.resource == "controllerrevisions")
            .count()
    }

    /// Adds a newer revision of the present template, which nobody owns, and a finalizer to the present one.
    pub(super) fn duplicate_revision(&mut self, hash: &str) {
        let held = self.revisions().pop().expect("a revision");
        let place = Place::new("controllerrevisions", "default", &held.metadata.name);
        self.change(&place, "", |held| held["metadata"]["finalizers"] = json!(["example.com/hold"]));
        let mut twin = self.api.model().get(&place).expect("it is there").json.clone();
        twin["metadata"] = json!({
            "name": format!("agent-{hash}"),
            "namespace": "default",
            "labels": { "app": "agent", REVISION_LABEL: hash },
        });
        twin["revision"] = json!(7);
        self.api.model().create("user", "controllerrevisions", "default", twin).expect("a revision");
        self.deliver();
    }

    /// Reconciles once: after `writes` writes the manager ends, and the answer to the last one is lost.
    pub(super) fn work_until(&mut self, writes: u32) {
        self.cut.store(writes, Relaxed);
        self.work();
        self.cut.store(u32::MAX, Relaxed);
        self.queued.store(true, Relaxed);
    }

    /// How many requests to delete revisions were granted.
    pub(super) fn revision_deletes(&self) -> usize {
        let model = self.api.model();
        let deletes =
            model.changes.iter().filter(|change| change.verb == "delete" && change.by == CONTROLLER);
        let before = deletes.filter_map(|change| change.before.as_ref());
        before.filter(|stored| stored.place.resource == "controllerrevisions").count()
    }

    fn pick(&self, which: usize) -> Option<Arc<Pod>> {
        let pods = self.pods();
        pods.get(which.checked_rem(pods.len())?).cloned()
    }

    /// Does something to the model, of which the caches are told.
    fn change(&mut self, place: &Place, subresource: &str, change: impl FnOnce(&mut Json)) {
        self.api.model().change("somebody", place, subresource, change).expect("nothing is wrong with it");
        self.deliver();
    }

    /// Of what is gone already there is nothing to delete.
    fn delete(&mut self, place: &Place, grace: Option<i64>) {
        drop(self.api.model().delete("somebody", place, &Deletion { grace, ..Deletion::default() }));
        self.deliver();
    }

    fn deliver(&mut self) {
        self.caches.deliver(&self.api.model(), usize::MAX);
    }

    /// The node of a pod has something to say of it.
    fn report(&mut self, which: usize, change: impl FnOnce(&mut Json)) {
        let Some(pod) = self.pick(which).filter(|pod| self.has_node(pod)) else { return };
        // Whoever does anything with it is the node that it was bound to meanwhile.
        if let Some(node) = pod.target_node().filter(|_| pod.spec.node_name.is_empty()) {
            self.change(&place_of(&pod), "", |pod| pod["spec"]["nodeName"] = json!(node));
        }
        self.change(&place_of(&pod), "status", change);
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

    pub(super) fn happen(&mut self, event: Event) {
        let node = |at: usize| Place::new("nodes", "", &format!("n{}", at % 6));
        let ends = |phase: &'static str| {
            move |pod: &mut Json| {
                pod["status"]["phase"] = json!(phase);
                pod["status"]["conditions"] = json!([]);
            }
        };
        match event {
            Event::Reconcile => self.work(),
            Event::Advance(seconds) => self.advance(SignedDuration::from_secs(seconds)),
            Event::Ready(which) => {
                let since = self.now.to_string();
                self.report(which, |pod| {
                    if !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
                        pod["status"]["phase"] = json!("Running");
                        pod["status"]["conditions"] =
                            json!([{ "type": "Ready", "status": "True", "lastTransitionTime": since }]);
                    }
                });
            }
            Event::Unready(which) => self.report(which, |pod| pod["status"]["conditions"] = json!([])),
            Event::Fail(which) => self.report(which, ends("Failed")),
            Event::Succeed(which) => self.report(which, ends("Succeeded")),
            Event::Evict(which) => {
                self.pick(which).iter().for_each(|pod| self.delete(&place_of(pod), None));
            }
            Event::Vanish(which) => {
                self.pick(which).iter().for_each(|pod| self.delete(&place_of(pod), Some(0)));
            }
            Event::Join(at) => {
                let place = node(at);
                let object = json!({ "metadata": { "name": place.name } });
                // One that is there joins anew.
                drop(self.api.model().create("kubelet", "nodes", "", object));
                self.change(&place, "", |node| node["spec"]["taints"] = json!([]));
            }
            Event::Leave(at) => {
                let place = node(at);
                self.delete(&place, None);
                // The garbage collection of pods takes what was bound to it.
                let bound = |pod: &Arc<Pod>| pod.spec.node_name == place.name.as_str();
                for pod in self.pods().into_iter().filter(bound) {
                    self.delete(&place_of(&pod), Some(0));
                }
            }
            Event::Taint(at, effect) => {
                let place = node(at);
                let taints = EFFECTS.get(effect).map(|effect| json!({ "key": "full", "effect": effect }));
                if self.api.model().get(&place).is_some() {
                    self.change(&place, "", |node| node["spec"]["taints"] = taints.into_iter().collect());
                }
            }
            Event::Roll(to) => {
                self.change(&Place::new("daemonsets", "default", "agent"), "", |set| {
                    set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("agent:{to}"));
                });
            }
            Event::Refuse(count) => self.refuse.store(count, Relaxed),
        }
    }

    fn advance(&mut self, by: SignedDuration) {
        self.now += by;
        let passed = Duration::try_from(self.now.duration_since(now())).unwrap();
        self.room.failed_pods.stop_clock(SteadyTime::default().plus(passed));
        self.api.model().set_time(self.now);
        let due = self.timers.iter().any(|timer| *timer <= self.now);
        self.timers.retain(|timer| *timer > self.now);
        self.queued.fetch_or(due, Relaxed);
    }

    /// Reconciles if the key is queued: a change that concerns it and is not told by the key maps is a change missed.
    fn work(&mut self) {
        if self.queued.swap(false, Relaxed) {
            let plan = self.planned(&[]);
            let wait = plan.requeue_after.map(|wait| SignedDuration::try_from(wait).unwrap());
            let failures = self.execute(plan);
            if !failures.is_empty() {
                let second = self.planned(&failures);
                self.queued.store(!second.end, Relaxed);
                self.execute(second);
            }
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

    /// Has a plan carried out; what failed.
    fn execute(&mut self, plan: Plan<Note>) -> Vec<Failure> {
        let (plan, note) = plan.into_parts();
        let done = self.api.execute(plan);
        done.items.into_iter().for_each(|item| self.room.failed_pods.commit_item(&key(), &note, item));
        self.deliver();
        done.failures
    }

    /// Lets everything calm down: no more refusals, pods become ready, those on their way out go, time passes.
    pub(super) fn settle(&mut self) {
        self.refuse.store(0, Relaxed);
        for _ in 0..400 {
            for pod in self.pods().iter().filter(|pod| pod.metadata.is_deleting()) {
                self.delete(&place_of(pod), Some(0));
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
