//! What the status of a CronJob is to say: which Jobs run, when it was started last, and when a Job succeeded last.

use bytes::Bytes;
use coxswain_machinery::random::HashSet;
use jiff::Timestamp;

use super::super::view::{View, listed};
use super::{Told, jobs};
use coxswain_machinery::api::batch::{CronJob, Job};
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::api::kinds::{CRON_JOBS, JOBS};
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, retain_items};
use coxswain_machinery::wire::{Message, Time, Uid, Value, WireError, field, path};

/// What changes of it, and what there is to tell of that.
#[derive(Debug)]
pub(super) struct Status<'a> {
    cron_job: &'a CronJob,
    /// Jobs that it lists and that do not run any more.
    gone: HashSet<Uid>,
    /// The Job that has been made.
    added: Option<ObjectReference>,
    last_schedule_time: Option<Time>,
    last_successful_time: Option<Time>,
    told: Vec<Told>,
}

impl<'a> Status<'a> {
    /// By what is there.
    pub(super) fn of(view: &'a View) -> Self {
        let cron_job = &*view.cron_job;
        let mut status = Self {
            cron_job,
            gone: view.deleted.clone(),
            added: None,
            last_schedule_time: cron_job.status.last_schedule_time,
            last_successful_time: cron_job.status.last_successful_time,
            told: Vec::new(),
        };
        let surplus = super::history::surplus(view);
        let surplus: HashSet<&Uid> = surplus.into_iter().map(|job| &job.metadata.uid).collect();
        let active: HashSet<Uid> = listed(cron_job).map(|(_, uid)| uid).collect();
        for job in view.jobs.iter().map(AsRef::as_ref) {
            let is_surplus = surplus.contains(&job.metadata.uid);
            status.see(job, active.contains(&job.metadata.uid), is_surplus);
            // The Job may be the only record of its activation, if the answer to its create was lost: the activation is written
            // into the status before the Job is deleted.
            if is_surplus && let Some(at) = jobs::started(view, job) {
                status.last_schedule_time = status.last_schedule_time.max(Some(at.into()));
            }
        }
        // A Job that has lost its controller reference would stay in the status for ever, as with kube-controller-manager, and with
        // Forbid no other would run. Differs: disowned-jobs.
        for job in &view.disowned {
            status.see(job, true, false);
        }
        for (reference, uid) in listed(cron_job).filter(|(_, uid)| view.missing.contains(uid)) {
            status.told.push((false, "MissingJob", format!("Active job went missing: {}", reference.name)));
            status.gone.insert(uid);
        }
        status
    }

    /// Sees to one of the Jobs. Of one that the history does not keep nobody is told.
    fn see(&mut self, job: &Job, is_listed: bool, is_surplus: bool) {
        let name = &job.metadata.name;
        let Some(end) = job.end() else {
            if !is_listed {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                self.told.push((true, "UnexpectedJob", message));
            }
            return;
        };
        if is_listed {
            self.gone.insert(job.metadata.uid.clone());
            if !is_surplus {
                let message = format!("Saw completed job: {name}, condition: {}", end.r#type);
                self.told.push((false, "SawCompletedJob", message));
            }
        }
        if end.r#type == "Complete" {
            self.last_successful_time = self.last_successful_time.max(job.status.completion_time);
        }
    }

    /// A Job has been made for this activation.
    pub(super) fn add(&mut self, job: &Job, at: Timestamp) {
        self.last_schedule_time = self.last_schedule_time.max(Some(at.into()));
        self.added = Some(ObjectReference {
            kind: JOBS.kind.into(),
            namespace: job.metadata.namespace.clone(),
            name: job.metadata.name.clone(),
            uid: job.metadata.uid.to_str(),
            api_version: JOBS.api_version().into(),
            resource_version: job.metadata.resource_version.clone(),
            ..ObjectReference::default()
        });
    }

    /// The Jobs that it lists and that run.
    pub(super) fn active(&self) -> impl Iterator<Item = (&ObjectReference, Uid)> {
        listed(self.cron_job).filter(|(_, uid)| !self.gone.contains(uid))
    }

    /// Whether none runs.
    pub(super) fn is_idle(&self) -> bool {
        self.active().next().is_none()
    }

    /// Whether one of this name is listed and runs.
    pub(super) fn lists(&self, name: &str) -> bool {
        self.active().any(|(held, _)| held.name == name)
    }

    /// What there is to tell of it.
    pub(super) fn told(&self) -> &[Told] {
        &self.told
    }

    /// Writes it, if it says something new.
    pub(super) fn write(&self, view: &View) -> Result<Option<Write>, WireError> {
        let held = &self.cron_job.status;
        let mut edits = Vec::new();
        let leaves = |uid: &Uid| self.gone.contains(uid);
        if listed(self.cron_job).any(|(_, uid)| leaves(&uid)) {
            let status = get(&view.cron_job.raw, path!(CronJob, status))?.map(Value::bytes).transpose()?;
            let status = retain_items(status.unwrap_or_default(), field!(CronJob, status.active), |item| {
                let reference = ObjectReference::decode(&Bytes::copy_from_slice(item));
                reference.is_ok_and(|reference| !leaves(&Uid::from(&reference.uid)))
            })?;
            edits.push(Edit::SetBytes(path!(CronJob, status), status));
        }
        if let Some(added) = &self.added {
            edits.push(Edit::Push(path!(CronJob, status.active), added.to_bytes()));
        }
        let times = [
            (path!(CronJob, status.lastScheduleTime), held.last_schedule_time, self.last_schedule_time),
            (path!(CronJob, status.lastSuccessfulTime), held.last_successful_time, self.last_successful_time),
        ];
        for (path, before, now) in times {
            if let Some(now) = now.filter(|now| before != Some(*now)) {
                edits.push(Edit::SetBytes(path, jobs::encoded(now)));
            }
        }
        if edits.is_empty() {
            return Ok(None);
        }
        let object = edit(&view.cron_job.raw, &edits)?;
        let key = Key::of(&view.cron_job.metadata);
        Ok(Some(Write::new(&CRON_JOBS, key, Verb::Update(object.into())).on("status")))
    }
}
