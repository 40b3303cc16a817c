//! A small cluster: the model of the API server, pods that end, and a manager that may be killed at any write.
//!
//! The executor that ships carries the room's plans to the model. Its `reconcile` is the framework reduced to what the room relies on: a
//! second plan records what failed, and caches have seen all writes before the key is planned again. A manager that was killed begins
//! anew with caches that are as new as the server, and without memory.

use std::sync::Arc;

use apiserver_model::http::Asked;
use apiserver_model::{Caches, Deletion, OnTheWay, Place, Refusal, Served};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::super::member::{INDEX, is_tracked};
use super::super::memory::Remembered;
use super::super::metrics::Metrics;
use super::super::note::Note;
use super::super::strays::Strays;
use super::super::view::{self, Gates};
use super::super::{Controller, plan};
use super::fixtures::now;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::{JOBS, PODS};
use coxswain_machinery::api::meta::LabelSelector;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::executor::Executed;
use coxswain_machinery::framework::{Memory as _, Observation, Reads, Room as _, RoomMetrics};
use coxswain_machinery::informer::{Dependents, Lister, Store, downcast};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::Uid;

/// As whom it writes.
const CONTROLLER: &str = "job-controller";

/// How a pod came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Succeeded,
    Failed,
    /// It was deleted while it ran, by somebody else.
    Deleted,
}

/// What happens between two reconciles.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Reconcile,
    Advance(i64),
    /// So many pods that run end at once.
    End(usize, Fate),
    /// All that are on their way out are gone, if nobody holds them.
    Leave,
    /// The manager is killed before so many further writes, or right after the last of them before its answer is known.
    Kill(usize, bool),
    /// So many of the next writes are refused, after so many that are not.
    Refuse(usize, usize),
}

/// What becomes of writes.
#[derive(Default)]
struct Line {
    /// Writes until the manager is killed, and whether the last of them is carried out.
    kill: Option<(usize, bool)>,
    /// So many are refused, after so many that are not.
    refuse: (usize, usize),
    /// Whether the manager was killed.
    is_dead: bool,
}

impl Line {
    fn carry(&mut self, asked: &Asked) -> OnTheWay {
        if asked.method == Method::GET {
            return OnTheWay::Arrives;
        }
        if self.is_dead {
            return OnTheWay::Lost;
        }
        let kill = match &mut self.kill {
            Some((0, is_carried_out)) => Some(*is_carried_out),
            Some((writes, _)) => {
                *writes -= 1;
                None
            }
            None => None,
        };
        if kill == Some(false) {
            self.is_dead = true;
            return OnTheWay::Lost;
        }
        let (after, count) = &mut self.refuse;
        if *after > 0 {
            *after -= 1;
        } else if *count > 0 {
            *count -= 1;
            return OnTheWay::Refused(Refusal::new(403, "Forbidden", "no"));
        }
        if kill.is_some() {
            self.is_dead = true;
            return OnTheWay::Unanswered;
        }
        OnTheWay::Arrives
    }
}

/// The API server, the caches of one manager, and what became of each pod.
pub(super) struct Cluster {
    api: Served,
    caches: Caches,
    stores: [Arc<Store>; 2],
    room: Controller,
    pub(super) now: Timestamp,
    line: Arc<Mutex<Line>>,
    made: usize,
    /// How pods ended that the Job did not delete itself.
    pub(super) ends: HashMap<Uid, Fate>,
    /// The most pods that ran at once.
    pub(super) most_active: usize,
    /// Indexes of which a pod was made after one had succeeded.
    pub(super) repeated: Vec<u32>,
    done: Vec<u32>,
}

/// The manager was killed.
struct Killed;

pub(super) fn key() -> Key {
    Key::new("default", "work")
}

fn place_of(pod: &Pod) -> Place {
    Place::new("pods", "default", &pod.metadata.name)
}

fn index(pod: &Json) -> Option<u32> {
    pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok()
}

fn room(stores: &[Arc<Store>; 2]) -> Controller {
    let metrics = Metrics::register(&RoomMetrics::new(Registry::new())).unwrap();
    Controller {
        jobs: Lister::new(Arc::clone(&stores[0])),
        pods: Dependents::new(&stores[1]),
        memory: Arc::new(Remembered::new(Arc::new(metrics))),
        gates: Gates { drops_start_time: true },
        schedules: None,
    }
}

impl Cluster {
    pub(super) fn new(job: &Job) -> Self {
        let stores = [&JOBS, &PODS].map(|kind| Arc::new(Store::new(kind)));
        let (api, line) = (Served::new(CONTROLLER, now()), Arc::new(Mutex::new(Line::default())));
        let carries = Arc::clone(&line);
        api.on_the_way(move |asked| carries.lock().carry(asked));
        api.model().create_encoded("user", &JOBS, &job.raw).expect("a Job");
        if job.spec.selector == LabelSelector::default() {
            // As with `manualSelector`: the API server then generates none.
            let place = Place::new("jobs", "default", "work");
            let change = |job: &mut Json| job["spec"]["selector"] = json!({});
            api.model().change("user", &place, "", change).expect("a Job");
        }
        let mut cluster = Self {
            api,
            caches: Caches::new(stores.iter().cloned()),
            room: room(&stores),
            stores,
            now: now(),
            line,
            made: 0,
            ends: HashMap::default(),
            most_active: 0,
            repeated: Vec::new(),
            done: Vec::new(),
        };
        cluster.follow();
        cluster
    }

    pub(super) fn job(&self) -> Arc<Job> {
        self.room.jobs.get(&key()).unwrap()
    }

    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.stores[1].list().into_iter().filter_map(downcast).collect();
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pods
    }

    /// New pods get a node and run, and the caches see what there is.
    fn follow(&mut self) {
        let mut model = self.api.model();
        for change in std::mem::take(&mut model.changes) {
            let Some(pod) =
                change.after.filter(|made| change.verb == "create" && made.place.resource == "pods")
            else {
                continue;
            };
            self.made += 1;
            self.repeated.extend(index(&pod.json).filter(|index| self.done.contains(index)));
            let run = |pod: &mut Json| pod["spec"]["nodeName"] = json!("node");
            // One that was deleted before it had a node is gone.
            if model.change("scheduler", &pod.place, "", run).is_ok() {
                let run = |pod: &mut Json| pod["status"]["phase"] = json!("Running");
                drop(model.change("kubelet", &pod.place, "status", run));
            }
        }
        self.caches.deliver(&model, usize::MAX);
    }

    fn change(&self, pod: &Pod, subresource: &str, change: impl FnOnce(&mut Json)) {
        self.api.model().change("kubelet", &place_of(pod), subresource, change).expect("it is there");
    }

    fn delete(&self, pod: &Pod, grace: Option<i64>) {
        let how = Deletion { grace, ..Deletion::default() };
        self.api.model().delete("somebody", &place_of(pod), &how).expect("it is there");
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Reconcile => self.reconcile(),
            Event::Advance(seconds) => {
                self.now += SignedDuration::from_secs(seconds);
                self.api.model().set_time(self.now);
            }
            Event::End(count, fate) => {
                let runs = |pod: &Arc<Pod>| !pod.is_finished() && !pod.metadata.is_deleting();
                for pod in self.pods().into_iter().filter(runs).take(count) {
                    self.end(&pod, fate);
                }
            }
            Event::Leave => {
                for pod in self.pods().into_iter().filter(|pod| pod.metadata.is_deleting()) {
                    if !pod.is_finished() {
                        self.change(&pod, "status", |pod| pod["status"]["phase"] = json!("Failed"));
                    }
                    self.delete(&pod, Some(0));
                }
            }
            Event::Kill(writes, is_carried_out) => self.line.lock().kill = Some((writes, is_carried_out)),
            Event::Refuse(after, count) => self.line.lock().refuse = (after, count),
        }
        self.follow();
    }

    fn end(&mut self, pod: &Pod, fate: Fate) {
        self.ends.insert(pod.metadata.uid.clone(), fate);
        let ended = now().to_string();
        let exit = |code: i32, phase: &'static str| {
            move |pod: &mut Json| {
                let state = json!({ "terminated": { "exitCode": code, "finishedAt": ended } });
                pod["status"]["containerStatuses"] = json!([{ "name": "main", "state": state }]);
                pod["status"]["phase"] = json!(phase);
            }
        };
        match fate {
            Fate::Succeeded => {
                self.change(pod, "status", exit(0, "Succeeded"));
                self.done.extend(super::super::member::index(pod));
            }
            Fate::Failed => self.change(pod, "status", exit(1, "Failed")),
            Fate::Deleted => self.delete(pod, None),
        }
    }

    /// Reconciles the Job, and then the pods that nobody counts. A manager that is killed on the way begins anew.
    pub(super) fn reconcile(&mut self) {
        if self.reconcile_job().is_err() || self.reconcile_strays().is_err() {
            let mut line = self.line.lock();
            (line.kill, line.is_dead) = (None, false);
            self.room = room(&self.stores);
        }
        self.follow();
    }

    fn reconcile_job(&mut self) -> Result<(), Killed> {
        let Some(plan) = self.planned(&[], &Reads::default()) else { return Ok(()) };
        let done = self.execute(plan)?;
        let read = done.effects.into_iter().fold(Reads::default(), Reads::after);
        if !done.failures.is_empty()
            && let Some(second) = self.planned(&done.failures, &read)
        {
            self.execute(second)?;
        }
        let active =
            self.pods().iter().filter(|pod| !pod.is_finished() && !pod.metadata.is_deleting()).count();
        self.most_active = self.most_active.max(active);
        Ok(())
    }

    fn reconcile_strays(&mut self) -> Result<(), Killed> {
        let strays = Strays { jobs: self.room.jobs.clone(), pods: Lister::new(Arc::clone(&self.stores[1])) };
        for pod in self.pods() {
            let view = strays.observe(&Key::of(&pod.metadata), &[], &Reads::default()).unwrap();
            let Observation::View(view) = view else { panic!("no view of a pod") };
            let plan = Strays::plan(&view, self.now);
            if !plan.steps.is_empty() {
                self.execute(plan.with_note(Note::default()))?;
            }
        }
        Ok(())
    }

    fn planned(&self, failures: &[Failure], read: &Reads) -> Option<Plan<Note>> {
        let view = view::observe(&self.room, &key(), failures, read).unwrap()?;
        let plan = plan::plan(&view, self.now);
        assert_eq!(format!("{plan:?}"), format!("{:?}", plan::plan(&view, self.now)));
        assert_eq!(plan.retry, None);
        Some(plan)
    }

    fn execute(&mut self, plan: Plan<Note>) -> Result<Executed, Killed> {
        let (plan, note) = plan.into_parts();
        let done = self.api.execute(plan);
        done.items.iter().for_each(|item| self.room.memory.commit_item(&key(), &note, *item));
        self.follow();
        if self.line.lock().is_dead { Err(Killed) } else { Ok(done) }
    }

    /// Lets everything calm down, as long as the Job is not over: pods that run succeed, and those on their way out are gone.
    pub(super) fn settle(&mut self) {
        *self.line.lock() = Line::default();
        for _ in 0..400 {
            self.reconcile();
            if self.job().end().is_some() {
                return self.reconcile();
            }
            self.happen(Event::End(3, Fate::Succeeded));
            self.happen(Event::Leave);
            self.happen(Event::Advance(700));
        }
        panic!("not over after many rounds: {}", super::fixtures::said(&self.job()));
    }

    /// How many pods were made.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Pods that still have the finalizer.
    pub(super) fn tracked(&self) -> usize {
        self.pods().iter().filter(|pod| is_tracked(pod)).count()
    }
}
