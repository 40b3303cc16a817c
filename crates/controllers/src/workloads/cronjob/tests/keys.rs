//! Which keys a change concerns, and which schedules have changed.

use std::sync::Arc;

use super::super::memory::{Note, Rescheduled};
use super::super::{own, view};
use super::fixtures::{cron_job, ended, job, time};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::batch::{CronJob, Job};
use coxswain_machinery::framework::Memory as _;
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::Key;

/// A change of a Job.
type Change<'a> = &'a dyn Fn(&mut Job);

#[test]
fn a_job_concerns_its_cron_job_when_what_is_read_of_it_changes() {
    let running = || job("a", |_| {});
    let table: [(&str, Change<'_>, bool); 7] = [
        ("pods come and go", &|job| job.status.active = 3, true),
        ("labels", &|job| job.metadata.labels = [("a", "b")].into_iter().collect(), true),
        ("it has ended", &ended("Complete", "08:00"), false),
        ("it goes", &|job| job.metadata.deletion_timestamp = time("09:00"), false),
        ("it was started", &|job| job.status.start_time = time("08:01"), false),
        ("it is made anew", &|job| job.metadata.uid = "other".into(), false),
        ("it is released", &|job| job.metadata.owner_references.clear(), false),
    ];
    for (what, change, is_alike) in table {
        let mut changed = running();
        change(&mut changed);
        assert_eq!(view::alike(&running(), &changed), is_alike, "{what}");
    }
}

#[test]
fn new_schedules_are_remembered_until_they_are_heeded() {
    let rescheduled = Arc::new(Rescheduled::default());
    let map = own(Arc::clone(&rescheduled));
    let key = Key::new("ns", "cron");
    let told = |old: Option<CronJob>, new: Option<CronJob>| {
        let [old, new] = [old, new].map(|held| held.map(|held| Arc::new(held) as AnyObject));
        let mut keys = Vec::new();
        let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial: false, resync: false };
        map(delta, &mut |key| keys.push(key));
        assert_eq!(keys, std::slice::from_ref(&key));
        rescheduled.generation(&key)
    };
    let changed = |generation: i64, schedule: &'static str| {
        cron_job(|cron_job| {
            cron_job.metadata.generation = generation;
            cron_job.spec.schedule = schedule.into();
        })
    };
    assert_eq!(told(None, Some(cron_job(|_| {}))), None);
    assert_eq!(told(Some(cron_job(|_| {})), Some(cron_job(|cron_job| cron_job.spec.suspend = true))), None);
    assert_eq!(told(Some(cron_job(|_| {})), Some(changed(2, "1 * * * *"))), Some(2));
    let zoned = cron_job(|cron_job| {
        cron_job.metadata.generation = 3;
        cron_job.spec.time_zone = Some("UTC".into());
    });
    assert_eq!(told(Some(changed(2, "0 * * * *")), Some(zoned)), Some(3));
    // A plan that did not know of the last change does not end it.
    let commit = |generation| rescheduled.commit(&key, Note { rescheduled: generation, skew: None });
    commit(Some(2));
    commit(None);
    assert_eq!(rescheduled.generation(&key), Some(3));
    commit(Some(3));
    assert_eq!(rescheduled.generation(&key), None);
    rescheduled.heed(Some(&cron_job(|_| {})), Some(&changed(4, "2 * * * *")));
    assert_eq!(rescheduled.generation(&key), Some(4));
    // Any other change is a reason to start what was missed.
    rescheduled.heed(Some(&changed(4, "2 * * * *")), Some(&changed(5, "2 * * * *")));
    assert_eq!(rescheduled.generation(&key), None);
    rescheduled.heed(Some(&cron_job(|_| {})), Some(&changed(4, "2 * * * *")));
    rescheduled.heed(Some(&changed(4, "2 * * * *")), None);
    assert_eq!(rescheduled.generation(&key), None, "it is gone");
}
