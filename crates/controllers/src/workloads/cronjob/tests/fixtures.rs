//! A CronJob, Jobs, and the controller, whose plans go to the model of the API server.

use std::sync::Arc;

use apiserver_model::http::Asked;
use apiserver_model::{Caches, OnTheWay, Place, Refusal, Served};
use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::super::memory::Rescheduled;
use super::super::plan;
use super::super::view::{self, View};
use super::super::{Controller, Note};
use coxswain_machinery::api::batch::{CronJob, Job, JobCondition};
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::api::kinds::{CRON_JOBS, JOBS};
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::executor::{Effect, Executed};
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::{Dependents, Lister, Store, downcast};
use coxswain_machinery::model::plan::{Propagation, Verb};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::{Message, Raw, Time};
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

/// The API server, and caches that show what was there before the reconcile.
pub(super) struct Server {
    api: Served,
    cron_jobs: Arc<Store>,
    jobs: Arc<Store>,
    caches: Mutex<Caches>,
    pub(super) rescheduled: Arc<Rescheduled>,
    pub(super) zones: Zones,
}

/// What a reconcile did.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Writes and events, in order: `create jobs.batch ns/cron-1`, `Normal SuccessfulCreate …`.
    pub(super) log: Vec<String>,
    pub(super) requeue_after: Option<std::time::Duration>,
    /// Whether the key is tried again with backoff.
    pub(super) retried: bool,
    pub(super) skews: Vec<f64>,
}

impl Server {
    pub(super) fn new(cron_job: &CronJob, jobs: impl IntoIterator<Item = Job>) -> Self {
        let api = Served::new("cronjob-controller", at("08:00"));
        let home = serde_json::json!({ "metadata": { "name": "ns" } });
        api.model().create("user", "namespaces", "", home).expect("a namespace");
        api.model().restore(&CRON_JOBS, &cron_job.to_bytes());
        let (cron_jobs, jobs_store) = (Arc::new(Store::new(&CRON_JOBS)), Arc::new(Store::new(&JOBS)));
        let server = Self {
            api,
            caches: Mutex::new(Caches::new([&cron_jobs, &jobs_store].map(Arc::clone))),
            cron_jobs,
            jobs: jobs_store,
            rescheduled: Arc::default(),
            zones: Zones::bundled(),
        };
        jobs.into_iter().for_each(|job| server.put_unseen(&job));
        server.see();
        server
    }

    /// There is a Job that the cache does not know before the next reconcile has ended.
    pub(super) fn put_unseen(&self, job: &Job) {
        self.api.model().restore(&JOBS, &job.to_bytes());
    }

    /// A Job is made, or becomes what this one is.
    pub(super) fn put(&self, job: &Job) {
        self.put_unseen(job);
        self.see();
    }

    /// The cache shows this CronJob, byte for byte.
    pub(super) fn shows(&self, cron_job: Vec<u8>) {
        self.cron_jobs.upsert(&(CRON_JOBS.decode)(&cron_job.into()).expect("a CronJob"));
    }

    /// The caches show what there is.
    fn see(&self) {
        let model = self.api.model();
        self.caches.lock().catch_up(&model, model.version());
    }

    /// From now on this becomes of such writes.
    pub(super) fn on_the_way(&self, such: fn(&Asked) -> bool, becomes: OnTheWay) {
        self.api.on_the_way(move |asked| if such(asked) { becomes.clone() } else { OnTheWay::Arrives });
    }

    /// From now on such writes are refused.
    pub(super) fn refuse(&self, such: fn(&Asked) -> bool, code: u16, reason: &'static str, message: &str) {
        self.on_the_way(such, OnTheWay::Refused(Refusal::new(code, reason, message)));
    }

    fn room(&self) -> Controller {
        Controller {
            cron_jobs: Lister::new(Arc::clone(&self.cron_jobs)),
            jobs: Dependents::new(&self.jobs),
            zones: self.zones.clone(),
            rescheduled: Arc::clone(&self.rescheduled),
        }
    }

    pub(super) fn cron_job(&self) -> Arc<CronJob> {
        let model = self.api.model();
        let stored = model.get(&Place::new("cronjobs", "ns", "cron")).expect("nobody deletes it");
        downcast(stored.object(&CRON_JOBS)).expect("a CronJob")
    }

    pub(super) fn job(&self, name: &str) -> Option<Arc<Job>> {
        downcast(self.api.model().get(&Place::new("jobs", "ns", name))?.object(&JOBS))
    }

    /// The names of the Jobs that the status lists.
    pub(super) fn listed(&self) -> Vec<String> {
        self.cron_job().status.active.iter().map(|held| held.name.to_string()).collect()
    }

    /// Observes, reading what is asked for.
    pub(super) fn view(
        &self,
        failures: &[Failure],
        written: &[Effect],
    ) -> Result<Option<View>, ObserveError> {
        let (room, key) = (self.room(), Key::new("ns", "cron"));
        let mut reads = written.iter().cloned().fold(Reads::default(), Reads::after);
        for _ in 0..8 {
            match view::observe(&room, &key, failures, &reads)? {
                Observation::Nothing => return Ok(None),
                Observation::View(view) => return Ok(Some(view)),
                Observation::Needs(needs) => {
                    for read in needs.into_iter().map(Read::from) {
                        let Read::Object(kind, key) = read else { panic!("{read:?}") };
                        let found = self.api.read(kind, &key);
                        reads = reads.with_object(kind, key, found);
                    }
                }
            }
        }
        panic!("it never has enough")
    }

    pub(super) fn plan(&self, now: Timestamp) -> Plan<Note> {
        plan::plan(&self.view(&[], &[]).unwrap().unwrap(), now)
    }

    /// Reconciles as the framework does. Until it ends the caches show nothing of what is written.
    pub(super) fn reconcile(&self, now: Timestamp) -> Done {
        self.api.model().set_time(now);
        let (mut done, mut failures, mut written) = (Done::default(), Vec::new(), Vec::new());
        let look = |failures: &[Failure], written: &[Effect]| {
            let view = self.view(failures, written).unwrap().unwrap();
            plan::plan(&view, now)
        };
        for round in 0..4 {
            let plan = look(&failures, &written);
            done.skews.extend(plan.note.skew);
            done.requeue_after = plan.requeue_after;
            let looks_again = plan.look_again;
            let executed = self.perform(plan, &mut written);
            failures.extend(executed.failures);
            if !looks_again || executed.stopped {
                break;
            }
            assert!(round < 3, "it looks again and again");
        }
        if !failures.is_empty() {
            let plan = look(&failures, &written);
            let (ends, requeue_after) = (plan.end, plan.requeue_after);
            done.retried = !self.perform(plan, &mut written).failures.is_empty() || !ends;
            done.requeue_after = requeue_after.filter(|_| !done.retried);
        }
        done.log = self.api.log().into_iter().filter(|line| !line.starts_with("get ")).collect();
        self.see();
        done
    }

    fn perform(&self, plan: Plan<Note>, written: &mut Vec<Effect>) -> Executed {
        for write in plan.writes() {
            if let Verb::Delete { propagation, .. } = &write.verb {
                assert_eq!(*propagation, Some(Propagation::Background), "{write}");
            }
        }
        let executed = self.api.execute(plan);
        written.extend(executed.effects.iter().cloned());
        executed
    }
}
