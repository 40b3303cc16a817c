//! A small model of a cluster: an API server that keeps finalizers, pods that end, and a manager that may be killed at any write.
//!
//! Its `reconcile` is the framework reduced to what the room relies on: a plan is carried out up to its first failure, a second
//! one records that, and caches have seen all writes before the key is planned again. A manager that was killed begins anew with
//! caches that are as new as the server, and without memory.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::member::{TRACKING, index, is_tracked};
use super::super::memory::Remembered;
use super::super::metrics::Metrics;
use super::super::note::Note;
use super::super::strays::Strays;
use super::super::view::{self, Gates};
use super::super::{Controller, plan};
use super::fixtures::{decoded, exited, now, refused};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::indexes::BY_CONTROLLER;
use coxswain_machinery::api::kinds::{JOBS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::framework::{Memory as _, Observation, Reads, Room as _, RoomMetrics};
use coxswain_machinery::informer::{Indexed, Lister, Store, downcast};
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Time, Uid};

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

/// The API server, the caches of one manager, and what became of each pod.
pub(super) struct Cluster {
    stores: [Arc<Store>; 2],
    room: Controller,
    version: u64,
    pub(super) now: Timestamp,
    made: usize,
    /// Writes until the manager is killed, and whether the last of them is carried out.
    kill: Option<(usize, bool)>,
    refuse: (usize, usize),
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

fn room(stores: &[Arc<Store>; 2]) -> Controller {
    let metrics = Metrics::register(&RoomMetrics::new(Registry::new())).unwrap();
    Controller {
        jobs: Lister::new(Arc::clone(&stores[0])),
        pods: Indexed::new(&stores[1], &BY_CONTROLLER),
        memory: Arc::new(Remembered::new(Arc::new(metrics))),
        gates: Gates { drops_start_time: true },
        schedules: None,
    }
}

impl Cluster {
    pub(super) fn new(job: Arc<Job>) -> Self {
        let stores = [&JOBS, &PODS].map(|kind| Arc::new(Store::new(kind)));
        let object: AnyObject = job;
        stores[0].upsert(&object);
        Self {
            room: room(&stores),
            stores,
            version: 1000,
            now: now(),
            made: 0,
            kill: None,
            refuse: (0, 0),
            ends: HashMap::default(),
            most_active: 0,
            repeated: Vec::new(),
            done: Vec::new(),
        }
    }

    pub(super) fn job(&self) -> Arc<Job> {
        self.room.jobs.get(&key()).unwrap()
    }

    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.stores[1].list().into_iter().filter_map(downcast).collect();
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pods
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// Stores a pod, or lets it go if nothing holds it any more; as the server answers.
    fn put_pod(&mut self, mut pod: Pod) -> AnyObject {
        let is_gone = pod.metadata.is_deleting() && pod.metadata.finalizers.is_empty() && pod.is_finished();
        if !is_gone {
            pod.metadata.resource_version = self.next_version().into();
        }
        let pod: AnyObject = Arc::new(pod);
        if is_gone {
            self.stores[1].remove(&pod);
        } else {
            self.stores[1].upsert(&pod);
        }
        pod
    }

    fn put_job(&mut self, bytes: &[u8]) -> AnyObject {
        let version = self.next_version();
        let bytes = edit(bytes, &[Edit::SetBytes(&[1, 6], version.into_bytes())]).unwrap();
        let job: Arc<Job> = decoded(&JOBS, bytes);
        let object: AnyObject = job;
        self.stores[0].upsert(&object);
        object
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Reconcile => self.reconcile(),
            Event::Advance(seconds) => self.now += SignedDuration::from_secs(seconds),
            Event::End(count, fate) => {
                let runs = |pod: &Arc<Pod>| !pod.is_finished() && !pod.metadata.is_deleting();
                for pod in self.pods().into_iter().filter(runs).take(count) {
                    self.end(&pod, fate);
                }
            }
            Event::Leave => {
                for pod in self.pods().into_iter().filter(|pod| pod.metadata.is_deleting()) {
                    let mut pod = (*pod).clone();
                    if !pod.is_finished() {
                        pod.status.phase = "Failed".into();
                    }
                    self.put_pod(pod);
                }
            }
            Event::Kill(writes, is_carried_out) => self.kill = Some((writes, is_carried_out)),
            Event::Refuse(after, count) => self.refuse = (after, count),
        }
    }

    fn end(&mut self, pod: &Pod, fate: Fate) {
        self.ends.insert(pod.metadata.uid.clone(), fate);
        let mut pod = pod.clone();
        match fate {
            Fate::Succeeded => {
                exited(&mut pod, 0, 0);
                self.done.extend(index(&pod));
            }
            Fate::Failed => exited(&mut pod, 1, 0),
            Fate::Deleted => pod.metadata.deletion_timestamp = Some(Time::from(self.now)),
        }
        self.put_pod(pod);
    }

    /// Reconciles the Job, and then the pods that nobody counts. A manager that is killed on the way begins anew.
    pub(super) fn reconcile(&mut self) {
        if self.reconcile_job().is_err() || self.reconcile_strays().is_err() {
            self.kill = None;
            self.room = room(&self.stores);
        }
    }

    fn reconcile_job(&mut self) -> Result<(), Killed> {
        let Some(plan) = self.planned(&[], &[]) else { return Ok(()) };
        let mut effects = Vec::new();
        let failures = self.execute(&plan, &mut effects)?;
        if !failures.is_empty()
            && let Some(second) = self.planned(&failures, &effects)
        {
            self.execute(&second, &mut Vec::new())?;
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
            let plan = Strays::plan(&view, self.now).with_note(Note::default());
            self.execute(&plan, &mut Vec::new())?;
        }
        Ok(())
    }

    fn planned(&self, failures: &[Failure], effects: &[Effect]) -> Option<Plan<Note>> {
        let read = effects.iter().cloned().fold(Reads::default(), Reads::after);
        let view = view::observe(&self.room, &key(), failures, &read).unwrap()?;
        let plan = plan::plan(&view, self.now);
        assert_eq!(format!("{plan:?}"), format!("{:?}", plan::plan(&view, self.now)));
        assert_eq!(plan.retry, None);
        Some(plan)
    }

    fn execute(&mut self, plan: &Plan<Note>, effects: &mut Vec<Effect>) -> Result<Vec<Failure>, Killed> {
        for step in &plan.steps {
            let mut failures = Vec::new();
            let chains: Vec<Vec<&Write>> = match step {
                Step::Chains { chains, .. } => chains.iter().map(|chain| chain.iter().collect()).collect(),
                step => step.writes().map(|write| vec![write]).collect(),
            };
            for chain in chains {
                for write in chain {
                    if let Err(failure) = self.perform(write, effects)? {
                        failures.push(failure);
                        break;
                    }
                    write
                        .item
                        .into_iter()
                        .for_each(|item| self.room.memory.commit_item(&key(), &plan.note, item));
                }
                if matches!(step, Step::Batch(_)) && !failures.is_empty() {
                    break;
                }
            }
            if !failures.is_empty() {
                return Ok(failures);
            }
        }
        Ok(Vec::new())
    }

    /// Carries out a write, unless it is refused; the manager may be killed before or after it.
    fn perform(&mut self, write: &Write, effects: &mut Vec<Effect>) -> Result<Result<(), Failure>, Killed> {
        let kill = match &mut self.kill {
            Some((0, is_carried_out)) => Some(*is_carried_out),
            Some((writes, _)) => {
                *writes -= 1;
                None
            }
            None => None,
        };
        if kill == Some(false) {
            return Err(Killed);
        }
        if self.refuse.0 > 0 {
            self.refuse.0 -= 1;
        } else if self.refuse.1 > 0 {
            self.refuse.1 -= 1;
            return Ok(Err(refused(write)));
        }
        let (change, answer) = self.carry_out(write);
        if kill.is_some() {
            return Err(Killed);
        }
        let key = answer.as_ref().map_or_else(|| write.key.clone(), |object| Key::of(object.meta()));
        effects.push(Effect { kind: write.kind, key, subresource: write.subresource, change, answer });
        Ok(Ok(()))
    }

    fn carry_out(&mut self, write: &Write) -> (WriteEffect, Option<AnyObject>) {
        let stored =
            |object: AnyObject| (WriteEffect::Stored(object.meta().resource_version.clone()), Some(object));
        let held: Option<Arc<Pod>> = self.stores[1].get(&write.key).and_then(downcast);
        match &write.verb {
            Verb::Create(body) => {
                let mut pod: Pod = (*decoded::<Pod>(&PODS, body.to_vec())).clone();
                self.made += 1;
                let name = format!("work-{:04}", self.made);
                pod.metadata.uid = format!("{name}-uid").into();
                pod.metadata.name = name.into();
                pod.metadata.creation_timestamp = Some(Time::from(self.now));
                pod.status.phase = "Running".into();
                self.repeated.extend(index(&pod).filter(|index| self.done.contains(index)));
                stored(self.put_pod(pod))
            }
            Verb::Delete { .. } => {
                let Some(pod) = held else { return (WriteEffect::Nothing, None) };
                let mut pod = (*pod).clone();
                pod.metadata.deletion_timestamp = Some(Time::from(self.now));
                let uid = pod.metadata.uid.clone();
                self.put_pod(pod);
                (WriteEffect::Deleted(uid), None)
            }
            Verb::Update(body) => stored(self.put_job(body)),
            Verb::UpdateLast(edits) => {
                let body = edit(&self.job().raw, edits).unwrap();
                stored(self.put_job(&body))
            }
            Verb::Patch(Patch::Strategic(patch)) => {
                assert_eq!(patch["metadata"]["$deleteFromPrimitiveList/finalizers"][0], TRACKING);
                let Some(pod) = held else { return (WriteEffect::Nothing, None) };
                let mut pod = (*pod).clone();
                pod.metadata.finalizers.clear();
                stored(self.put_pod(pod))
            }
            other => panic!("{other:?} is not expected here"),
        }
    }

    /// Lets everything calm down, as long as the Job is not over: pods that run succeed, and those on their way out are gone.
    pub(super) fn settle(&mut self) {
        (self.kill, self.refuse) = (None, (0, 0));
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
