//! A small cluster in which everything goes wrong that can.
//!
//! [`Cluster`] is the room with the model of the API server, to which the executor that ships carries its plans, and caches that lag
//! behind it; its `reconcile` is the framework reduced to what the room relies on. Every plan that is made is checked against the view
//! it was made from.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use apiserver_model::{Caches, Deletion, OnTheWay, Place, Refusal, Served};
use bytes::Bytes;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value as Json, json};

use super::super::view::View;
use super::super::{plan, pod_keys};
use super::fixtures::{Bench, now, replica_set, typed, writes};
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::api::kinds::{PODS, REPLICA_SETS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::executor::WriteEffect;
use coxswain_machinery::framework::Selecting;
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::pods::{self, Ranking};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::Uid;

/// As whom it writes.
const CONTROLLER: &str = "replicaset-controller";

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

/// The API server, and the caches of one manager.
pub(super) struct Cluster {
    api: Served,
    bench: Bench,
    caches: Caches,
    /// What the caches must have seen before the next reconcile.
    barrier: u64,
    now: Timestamp,
    /// Whether some change concerned the key, by the room's own account, or a plan is to be retried.
    queued: Arc<AtomicBool>,
    timers: Vec<Timestamp>,
    /// So many creates and deletes are refused.
    refuse: Arc<AtomicU32>,
    /// Whether the answer to the next create is lost.
    lose_answer: Arc<AtomicBool>,
}

impl Cluster {
    pub(super) fn new(desired: i32, min_ready_seconds: i32) -> Self {
        Self::of(&replica_set(|set| {
            set.spec.replicas = Some(desired);
            set.spec.min_ready_seconds = min_ready_seconds;
        }))
    }

    pub(super) fn of(set: &ReplicaSet) -> Self {
        let bench = Bench::new();
        let queued = Arc::new(AtomicBool::new(false));
        let replica_sets = Lister::<ReplicaSet>::new(Arc::clone(&bench.replica_sets));
        let api = Served::new(CONTROLLER, now());
        api.model().create_encoded("user", &REPLICA_SETS, &set.raw).expect("a set");
        let mut caches = Caches::new([Arc::clone(&bench.replica_sets), Arc::clone(&bench.pods)]);
        caches.deliver(&api.model(), usize::MAX);
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
        let (refuse, lose_answer) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (refused, lost) = (Arc::clone(&refuse), Arc::clone(&lose_answer));
        api.on_the_way(move |asked| {
            let is_create = asked.method == Method::POST;
            let scales = is_create || asked.method == Method::DELETE;
            let is_refused = || refused.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
            if scales && is_refused() {
                return OnTheWay::Refused(Refusal::new(403, "Forbidden", "no"));
            }
            if is_create && lost.swap(false, Relaxed) { OnTheWay::Unanswered } else { OnTheWay::Arrives }
        });
        Self { api, bench, caches, barrier: 0, now: now(), queued, timers: Vec::new(), refuse, lose_answer }
    }

    /// The pods that there are, by name.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.api.model().all("pods", "").map(|stored| typed(stored.object(&PODS))).collect()
    }

    /// Their encodings.
    pub(super) fn encoded_pods(&self) -> Vec<Bytes> {
        self.api.model().all("pods", "").map(|stored| stored.encoded(false)).collect()
    }

    pub(super) fn set(&self) -> Arc<ReplicaSet> {
        let model = self.api.model();
        let stored = model.get(&Place::new("replicasets", "default", "web")).expect("nobody deletes it");
        typed(stored.object(&REPLICA_SETS))
    }

    /// How many pods the controller has made.
    pub(super) fn created(&self) -> usize {
        let is_create =
            |change: &&apiserver_model::Change| change.by == CONTROLLER && change.verb == "create";
        self.api.model().changes.iter().filter(is_create).count()
    }

    fn pick(&self, which: usize) -> Option<Place> {
        let model = self.api.model();
        let places: Vec<&Place> = model.all("pods", "").map(|stored| &stored.place).collect();
        places.get(which.checked_rem(places.len())?).map(|place| (*place).clone())
    }

    fn change(&self, which: usize, subresource: &str, change: impl FnOnce(&mut Json)) {
        if let Some(place) = self.pick(which) {
            self.api
                .model()
                .change("kubelet", &place, subresource, change)
                .expect("nothing is wrong with it");
        }
    }

    fn delete(&self, place: &Place, grace: Option<i64>) {
        let how = Deletion { grace, ..Deletion::default() };
        self.api.model().delete("user", place, &how).expect("it is there");
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(count) => self.deliver(count),
            Event::Reconcile => self.work(),
            Event::Advance(seconds) => self.advance(SignedDuration::from_secs(seconds)),
            Event::Schedule(which) => self.change(which, "", |pod| {
                pod["spec"]["nodeName"] = json!(format!("node-{}", which % 3));
            }),
            Event::Ready(which) => {
                let since = self.now.to_string();
                self.change(which, "status", |pod| {
                    pod["status"]["phase"] = json!("Running");
                    pod["status"]["conditions"] =
                        json!([{ "type": "Ready", "status": "True", "lastTransitionTime": since }]);
                });
            }
            Event::Unready(which) => {
                self.change(which, "status", |pod| pod["status"]["conditions"] = json!([]));
            }
            Event::Finish(which, well) => self.change(which, "status", |pod| {
                pod["status"]["phase"] = json!(if well { "Succeeded" } else { "Failed" });
                pod["status"]["conditions"] = json!([]);
            }),
            Event::Evict(which) => self.pick(which).iter().for_each(|place| self.delete(place, None)),
            Event::Vanish(which) => self.pick(which).iter().for_each(|place| self.delete(place, Some(0))),
            Event::Relabel(which) => self.change(which, "", |pod| {
                let app = &mut pod["metadata"]["labels"]["app"];
                *app = json!(if *app == "web" { "api" } else { "web" });
            }),
            Event::Disown(which) => {
                self.change(which, "", |pod| pod["metadata"]["ownerReferences"] = json!([]));
            }
            Event::Orphan => {
                let pod = json!({ "metadata": { "generateName": "bare-", "labels": { "app": "web" } } });
                self.api.model().create("user", "pods", "default", pod).expect("a pod");
            }
            Event::Scale(desired) => {
                let place = Place::new("replicasets", "default", "web");
                let scale = |set: &mut Json| set["spec"]["replicas"] = json!(desired);
                self.api.model().change("user", &place, "", scale).expect("it is there");
            }
            Event::Refuse(count) => self.refuse.store(count, Relaxed),
            Event::LoseAnswer => self.lose_answer.store(true, Relaxed),
        }
    }

    fn deliver(&mut self, count: usize) {
        self.caches.deliver(&self.api.model(), count);
    }

    fn advance(&mut self, by: SignedDuration) {
        self.now += by;
        self.api.model().set_time(self.now);
        let due = self.timers.iter().any(|timer| *timer <= self.now);
        self.timers.retain(|timer| *timer > self.now);
        self.queued.fetch_or(due, Relaxed);
    }

    /// Reconciles if the key is queued: a change that concerns it and is not told by the key maps is a change missed.
    fn work(&mut self) {
        self.caches.catch_up(&self.api.model(), self.barrier);
        if self.queued.swap(false, Relaxed) {
            self.reconcile();
        }
    }

    /// Observes, plans and executes as the framework does.
    pub(super) fn reconcile(&mut self) {
        let view = self.bench.view(&[]);
        let first = self.planned(&view);
        check(&view, &first, self.now);
        let wait = first.requeue_after.map(|wait| SignedDuration::try_from(wait).unwrap());
        let failures = self.execute(first);
        if !failures.is_empty() {
            let second = self.planned(&self.bench.view(&failures));
            assert!(writes(&second).iter().all(|write| write.subresource == "status"));
            self.execute(second);
            self.queued.store(true, Relaxed);
        }
        self.timers.extend(wait.map(|wait| self.now + wait));
    }

    fn planned(&self, view: &View) -> Plan {
        let plan = plan::plan(view, self.now);
        assert_eq!(format!("{plan:?}"), format!("{:?}", plan::plan(view, self.now)));
        plan
    }

    /// Has a plan carried out; what failed. A create whose answer was lost may be among what was written.
    fn execute(&mut self, plan: Plan) -> Vec<Failure> {
        let done = self.api.execute(plan);
        if done.effects.iter().any(|effect| effect.change != WriteEffect::Nothing) {
            self.barrier = self.api.model().version();
        }
        done.failures
    }

    /// Pods that are active and managed by the set.
    pub(super) fn active(&self) -> Vec<Arc<Pod>> {
        let set = self.set();
        let managed = |pod: &Arc<Pod>| pods::is_active(pod) && pod.metadata.is_controlled_by(&set.metadata);
        self.pods().into_iter().filter(managed).collect()
    }

    /// Lets everything calm down: no more refusals, terminating pods go, the watch delivers, time passes.
    pub(super) fn settle(&mut self) {
        self.refuse.store(0, Relaxed);
        self.lose_answer.store(false, Relaxed);
        for _ in 0..60 {
            for pod in self.pods().iter().filter(|pod| pod.metadata.is_deleting()) {
                let place = Place::new("pods", "default", &pod.metadata.name);
                let release = |pod: &mut Json| pod["metadata"]["finalizers"] = json!([]);
                self.api.model().change("holder", &place, "", release).expect("it is there");
                // Those that had ended went with that.
                drop(self.api.model().delete(
                    "kubelet",
                    &place,
                    &Deletion { grace: Some(0), ..Deletion::default() },
                ));
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
