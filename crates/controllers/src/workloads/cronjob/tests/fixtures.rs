//! A CronJob, Jobs, and a server that carries out plans.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::super::memory::Rescheduled;
use super::super::plan;
use super::super::view::{self, View};
use super::super::{Controller, Note};
use coxswain_machinery::api::batch::{CronJob, Job, JobCondition};
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::api::indexes::BY_CONTROLLER;
use coxswain_machinery::api::kinds::{CRON_JOBS, JOBS};
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::{Indexed, Lister, Store, downcast};
use coxswain_machinery::model::plan::{Step, Verb, Write};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message, Raw, Str, Time};
use coxswain_machinery::zones::Zones;

/// `09:30` or `09:30:15` of 24 November 2026.
pub(super) fn at(text: &str) -> Timestamp {
    let seconds = if text.len() > 5 { "" } else { ":00" };
    format!("2026-11-24T{text}{seconds}Z").parse().unwrap()
}

pub(super) fn time(text: &str) -> Option<Time> {
    Time::from_seconds(at(text).as_second())
}

/// Every hour, with limits of the API's defaults, made at 08:10 and started at 09:00 last.
pub(super) fn cron_job(change: impl FnOnce(&mut CronJob)) -> CronJob {
    let metadata = ObjectMeta {
        namespace: "ns".into(),
        name: "cron".into(),
        uid: "cron-uid".into(),
        resource_version: "5".into(),
        generation: 1,
        creation_timestamp: time("08:10"),
        ..ObjectMeta::default()
    };
    let mut cron_job = CronJob { metadata, ..CronJob::default() };
    cron_job.spec.schedule = "0 * * * *".into();
    cron_job.spec.concurrency_policy = "Allow".into();
    cron_job.spec.successful_jobs_history_limit = Some(3);
    cron_job.spec.failed_jobs_history_limit = Some(1);
    cron_job.spec.job_template = Raw::from(Bytes::from(template()));
    cron_job.status.last_schedule_time = time("09:00");
    change(&mut cron_job);
    cron_job
}

/// A template with a label, an annotation, a finalizer, and a spec with a field that nobody knows.
fn template() -> Vec<u8> {
    let metadata = ObjectMeta {
        name: "ignored".into(),
        labels: [("app", "cron")].into_iter().collect(),
        annotations: [("note", "mine")].into_iter().collect(),
        finalizers: vec!["example.com/ignored".into()],
        ..ObjectMeta::default()
    };
    let mut template = Vec::new();
    coxswain_machinery::wire::splice::put_bytes(&mut template, 1, &metadata.to_bytes());
    coxswain_machinery::wire::splice::put_bytes(&mut template, 2, SPEC);
    template
}

/// A spec that is copied as it is: `parallelism: 2`, and field 99.
pub(super) const SPEC: &[u8] = &[0x08, 0x02, 0x98, 0x06, 0x07];

/// A running Job of the CronJob.
pub(super) fn job(name: &str, change: impl FnOnce(&mut Job)) -> Job {
    let metadata = ObjectMeta {
        namespace: "ns".into(),
        name: name.into(),
        uid: format!("{name}-uid").into(),
        resource_version: "3".into(),
        owner_references: vec![OwnerReference {
            kind: "CronJob".into(),
            name: "cron".into(),
            uid: "cron-uid".into(),
            api_version: "batch/v1".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }],
        ..ObjectMeta::default()
    };
    let mut job = Job { metadata, ..Job::default() };
    job.status.start_time = time("08:00");
    change(&mut job);
    job
}

/// It has ended, having been started then.
pub(super) fn ended(end: &'static str, started: &'static str) -> impl Fn(&mut Job) {
    move |job| {
        job.status.start_time = time(started);
        job.status.completion_time = time(started).filter(|_| end == "Complete");
        job.status.conditions =
            vec![JobCondition { r#type: end.into(), status: "True".into(), ..JobCondition::default() }];
    }
}

/// The status lists these Jobs.
pub(super) fn listing(cron_job: &mut CronJob, names: &[&str]) {
    cron_job.status.active = names
        .iter()
        .map(|name| ObjectReference {
            kind: "Job".into(),
            namespace: "ns".into(),
            name: (*name).into(),
            uid: format!("{name}-uid").into(),
            api_version: "batch/v1".into(),
            resource_version: "1".into(),
            ..ObjectReference::default()
        })
        .collect();
}

/// How the server answers a write; carried out if nothing is said.
type Refusal = Box<dyn Fn(&Write) -> Option<(u16, &'static str, &'static str)> + Send + Sync>;

/// An API server with caches that show everything at once, unless something is hidden from them.
pub(super) struct Server {
    pub(super) cron_jobs: Arc<Store>,
    pub(super) jobs: Arc<Store>,
    /// Jobs that are there and that the cache does not know.
    pub(super) unseen: Vec<Arc<Job>>,
    pub(super) rescheduled: Arc<Rescheduled>,
    pub(super) zones: Zones,
    pub(super) refuse: Option<Refusal>,
    version: Mutex<u64>,
}

/// What a reconcile did.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Writes, and events by reason and message, in order: `create jobs.batch ns/cron-1`, `SuccessfulCreate: …`.
    pub(super) log: Vec<String>,
    pub(super) requeue_after: Option<std::time::Duration>,
    /// Whether the key is tried again with backoff.
    pub(super) retried: bool,
    pub(super) skews: Vec<f64>,
}

impl Server {
    pub(super) fn new(cron_job: &CronJob, jobs: impl IntoIterator<Item = Job>) -> Self {
        let server = Self {
            cron_jobs: Arc::new(Store::new(&CRON_JOBS)),
            jobs: Arc::new(Store::new(&JOBS)),
            unseen: Vec::new(),
            rescheduled: Arc::default(),
            zones: Zones::bundled(),
            refuse: None,
            version: Mutex::new(100),
        };
        server.cron_jobs.upsert(&decoded(&CRON_JOBS, cron_job));
        for job in jobs {
            server.jobs.upsert(&decoded(&JOBS, &job));
        }
        server
    }

    fn room(&self) -> Controller {
        Controller {
            cron_jobs: Lister::new(Arc::clone(&self.cron_jobs)),
            jobs: Indexed::new(&self.jobs, &BY_CONTROLLER),
            zones: self.zones.clone(),
            rescheduled: Arc::clone(&self.rescheduled),
        }
    }

    pub(super) fn cron_job(&self) -> Arc<CronJob> {
        downcast(self.cron_jobs.find("ns", "cron").unwrap()).unwrap()
    }

    /// The names of the Jobs that the status lists.
    pub(super) fn listed(&self) -> Vec<String> {
        self.cron_job().status.active.iter().map(|held| held.name.to_string()).collect()
    }

    fn find(&self, key: &Key) -> Option<AnyObject> {
        let unseen = self.unseen.iter().find(|job| job.metadata.name == key.name);
        unseen.map(|job| Arc::clone(job) as AnyObject).or_else(|| self.jobs.get(key))
    }

    /// Observes, reading what is asked for.
    pub(super) fn view(
        &self,
        failures: &[Failure],
        written: &[Effect],
    ) -> Result<Option<View>, ObserveError> {
        let (room, key) = (self.room(), Key::new("ns", "cron"));
        let mut known: Vec<Read> = Vec::new();
        for _ in 0..8 {
            let mut reads = written.iter().cloned().fold(Reads::default(), Reads::after);
            for read in &known {
                let Read::Object(kind, key) = read else { panic!("{read:?}") };
                let found = if *kind == &JOBS { self.find(key) } else { self.cron_jobs.get(key) };
                reads = reads.with_object(kind, key.clone(), Ok(found));
            }
            match view::observe(&room, &key, failures, &reads)? {
                Observation::Nothing => return Ok(None),
                Observation::View(view) => return Ok(Some(view)),
                Observation::Needs(needs) => known.extend(needs),
            }
        }
        panic!("it never has enough")
    }

    pub(super) fn plan(&self, now: Timestamp) -> Plan<Note> {
        plan::plan(&self.view(&[], &[]).unwrap().unwrap(), now)
    }

    /// Reconciles as the framework does.
    pub(super) fn reconcile(&self, now: Timestamp) -> Done {
        let (mut done, mut failures, mut written) = (Done::default(), Vec::new(), Vec::new());
        for look in 0..4 {
            let view = self.view(&failures, &written).unwrap().unwrap();
            let plan = plan::plan(&view, now);
            done.skews.extend(plan.note.skew);
            done.requeue_after = plan.requeue_after;
            let stopped = self.perform(&plan, &mut done, &mut failures, &mut written);
            if !plan.look_again || stopped {
                break;
            }
            assert!(look < 3, "it looks again and again");
        }
        if !failures.is_empty() {
            let view = self.view(&failures, &written).unwrap().unwrap();
            let plan = plan::plan(&view, now);
            let mut after = Vec::new();
            self.perform(&plan, &mut done, &mut after, &mut written);
            done.retried = !plan.end || !after.is_empty();
            done.requeue_after = plan.requeue_after.filter(|_| !done.retried);
        }
        done
    }

    /// Carries a plan out; whether it ended early.
    fn perform(
        &self,
        plan: &Plan<Note>,
        done: &mut Done,
        failures: &mut Vec<Failure>,
        written: &mut Vec<Effect>,
    ) -> bool {
        for step in &plan.steps {
            if let Step::Emit(event) = step {
                done.log.push(format!("{}: {}", event.reason, event.message));
            }
            let mut stopped = false;
            for write in step.writes() {
                match self.answer(write) {
                    Ok(effect) => {
                        done.log.push(write.to_string());
                        if let Some(event) = &write.on_success
                            && effect.change != WriteEffect::Nothing
                        {
                            done.log.push(format!("{}: {}", event.reason, event.message));
                        }
                        written.push(effect);
                    }
                    Err(failure) => {
                        done.log.push(format!("refused: {write}"));
                        if let Some(event) = &write.on_failure {
                            let message = event.message.replace("{error}", &failure.message);
                            done.log.push(format!("{}: {message}", event.reason));
                        }
                        failures.push(*failure);
                        stopped |= !write.keep_going;
                    }
                }
            }
            if stopped {
                return true;
            }
        }
        false
    }

    fn answer(&self, write: &Write) -> Result<Effect, Box<Failure>> {
        let refused = |(code, reason, message): (u16, &str, &str), existing| {
            Box::new(Failure {
                what: write.to_string(),
                verb: write.verb.name(),
                subresource: write.subresource,
                kind: write.kind,
                key: write.key.clone(),
                code,
                reason: reason.into(),
                message: message.to_owned(),
                existing,
            })
        };
        if let Some(refusal) = self.refuse.as_ref().and_then(|refuse| refuse(write)) {
            return Err(refused(refusal, None));
        }
        let effect = |change, answer| Effect {
            kind: write.kind,
            key: write.key.clone(),
            subresource: write.subresource,
            change,
            answer,
        };
        let mut version = self.version.lock();
        *version += 1;
        let stored: Str = version.to_string().into();
        let set_version = Edit::SetBytes(&[1, 6], stored.as_bytes().to_vec());
        match &write.verb {
            Verb::Create(body) => {
                if let Some(there) = self.find(&write.key) {
                    return Err(refused((409, "AlreadyExists", "it exists"), Some(there)));
                }
                let uid = Edit::SetBytes(&[1, 5], format!("{}-uid", write.key.name).into_bytes());
                let object = (JOBS.decode)(&edit(body, &[set_version, uid]).unwrap().into()).unwrap();
                self.jobs.upsert(&object);
                Ok(effect(WriteEffect::Stored(stored), Some(object)))
            }
            Verb::Update(body) => {
                assert_eq!((write.kind, write.subresource), (&CRON_JOBS, "status"));
                let object = (CRON_JOBS.decode)(&edit(body, &[set_version]).unwrap().into()).unwrap();
                self.cron_jobs.upsert(&object);
                Ok(effect(WriteEffect::Stored(stored), Some(object)))
            }
            Verb::Delete { uid, propagation, .. } => {
                assert_eq!(*propagation, Some(coxswain_machinery::model::plan::Propagation::Background));
                let there = self.find(&write.key).is_some_and(|there| there.meta().uid == *uid);
                if !there {
                    assert!(write.tolerate.absent);
                    return Ok(effect(WriteEffect::Nothing, None));
                }
                self.jobs.remove_key(&write.key, &stored);
                Ok(effect(WriteEffect::Deleted(uid.clone()), None))
            }
            other => panic!("{other:?}"),
        }
    }
}

fn decoded<T: Object + Message>(kind: &'static Kind, object: &T) -> AnyObject {
    (kind.decode)(&object.to_bytes().into()).unwrap()
}
