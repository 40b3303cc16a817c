//! The plan's table, on a store that is filled by hand.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::plan::plan;
use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::batch::JobCondition;
use coxswain_machinery::executor::{ActionResult, planned};
use coxswain_machinery::framework::{Meter as _, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::Store;
use coxswain_machinery::model::plan::{Cooldown, Propagation, Verb};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::{Message, Time};

const END: i64 = 1_700_000_000;

/// So long after the Job has finished.
fn later(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(END * 1000 + millis).unwrap()
}

fn condition(kind: &str, status: &str, since: Option<i64>) -> JobCondition {
    JobCondition {
        r#type: kind.into(),
        status: status.into(),
        last_transition_time: since.and_then(Time::from_seconds),
        ..JobCondition::default()
    }
}

/// A complete Job with a time to live of ten seconds.
fn job(change: impl FnOnce(&mut Job)) -> Job {
    let mut job = Job::default();
    job.metadata.namespace = "ns".into();
    job.metadata.name = "job".into();
    job.metadata.uid = "uid".into();
    job.metadata.resource_version = "7".into();
    job.spec.ttl_seconds_after_finished = Some(10);
    job.status.conditions = vec![
        condition("SuccessCriteriaMet", "True", Some(END - 5)),
        condition("Complete", "True", Some(END)),
    ];
    change(&mut job);
    job
}

fn view(job: &Job) -> Option<View> {
    let store = Arc::new(Store::new(&JOBS));
    store.upsert(&(JOBS.decode)(&job.to_bytes().into()).unwrap());
    let room = Controller { jobs: Lister::new(store) };
    match room.observe(&Key::of(&job.metadata), &[], &Reads::default()).unwrap() {
        Observation::View(view) => Some(view),
        Observation::Needs(needs) => panic!("{needs:?}"),
        Observation::Nothing => None,
    }
}

/// When it is looked at again, or what is done.
fn decided(job: &Job, at: Timestamp) -> Result<Duration, &'static str> {
    let Some(view) = view(job) else { return Err("nothing") };
    let plan = plan(&view, at);
    match (plan.requeue_after, plan.retry, plan.steps.len()) {
        (Some(after), None, 0) => Ok(after),
        (None, None, 1) => Err("deletes"),
        (None, Some(_), 0) => Err("fails"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_is_deleted_so_long_after_its_end() {
    let seconds = |ttl: i32| move |job: &mut Job| job.spec.ttl_seconds_after_finished = Some(ttl);
    let conditions = |conditions: Vec<JobCondition>| move |job: &mut Job| job.status.conditions = conditions;
    let failed =
        vec![condition("FailureTarget", "True", Some(END - 9)), condition("Failed", "True", Some(END))];
    let both = vec![condition("Failed", "True", Some(END)), condition("Complete", "True", Some(END + 100))];
    let table: [(&str, Job, i64, Result<u64, &str>); 17] = [
        ("not due", job(|_| {}), 0, Ok(10_000)),
        ("almost", job(|_| {}), 9_999, Ok(1)),
        ("due", job(|_| {}), 10_000, Err("deletes")),
        ("overdue", job(|_| {}), 99_000, Err("deletes")),
        ("the end is in the future", job(|_| {}), -5_500, Ok(15_500)),
        ("at once", job(seconds(0)), 0, Err("deletes")),
        ("for longer than a clock can tell", job(seconds(i32::MAX)), 0, Ok(2_147_483_647_000)),
        ("never", job(|job| job.spec.ttl_seconds_after_finished = None), 99_000, Err("nothing")),
        ("has failed", job(conditions(failed)), 10_000, Err("deletes")),
        ("the first condition counts", job(conditions(both)), 10_000, Err("deletes")),
        ("not finished", job(conditions(vec![])), 99_000, Err("nothing")),
        (
            "suspended",
            job(conditions(vec![condition("Suspended", "True", Some(END))])),
            99_000,
            Err("nothing"),
        ),
        (
            "about to be complete",
            job(conditions(vec![condition("SuccessCriteriaMet", "True", Some(END))])),
            99_000,
            Err("nothing"),
        ),
        (
            "about to fail",
            job(conditions(vec![condition("FailureTarget", "True", Some(END))])),
            99_000,
            Err("nothing"),
        ),
        (
            "not any more",
            job(conditions(vec![condition("Complete", "False", Some(END))])),
            99_000,
            Err("nothing"),
        ),
        (
            "does not say when",
            job(conditions(vec![condition("Complete", "True", None)])),
            99_000,
            Err("fails"),
        ),
        (
            "goes already",
            job(|job| job.metadata.deletion_timestamp = Time::from_seconds(END)),
            99_000,
            Err("nothing"),
        ),
    ];
    for (what, job, at, expected) in table {
        assert_eq!(decided(&job, later(at)), expected.map(Duration::from_millis), "{what}");
    }
}

#[test]
fn who_manages_a_job_makes_no_difference() {
    let managed = job(|job| {
        job.spec.managed_by = "example.com/queue".into();
        job.status.active = 3;
    });
    assert_eq!(decided(&managed, later(10_000)), Err("deletes"));
}

#[test]
fn the_very_job_that_was_judged_is_deleted_after_its_pods() {
    let plan = plan(&view(&job(|_| {})).unwrap(), later(12_500));
    assert_eq!(plan.note.overdue, Some(Duration::from_millis(2_500)));
    let write = plan.writes().next().unwrap();
    let expected = Verb::Delete {
        uid: "uid".into(),
        resource_version: Some("7".into()),
        propagation: Some(Propagation::Foreground),
        grace_period: None,
    };
    assert_eq!((&write.verb, write.key.to_string()), (&expected, "ns/job".to_owned()));
    assert!(write.tolerate.absent && !write.tolerate.conflict, "one that has changed is looked at again");
}

/// Somebody changes an annotation of it every few seconds, and the watch is late.
#[test]
fn job_that_changes_more_often_than_the_watch_shows_goes_at_the_version_that_is_read() {
    let store = Arc::new(Store::new(&JOBS));
    let seen = job(|_| {});
    store.upsert(&(JOBS.decode)(&seen.to_bytes().into()).unwrap());
    let (room, key) = (Controller { jobs: Lister::new(store) }, Key::of(&seen.metadata));
    let failure = |code: u16, reason: &str| Failure {
        what: "delete jobs ns/job".to_owned(),
        verb: "delete",
        subresource: "",
        kind: &JOBS,
        key: key.clone(),
        code,
        reason: reason.into(),
        message: String::new(),
        existing: None,
    };
    let conflict = [failure(409, "Conflict")];
    let observed = |read: &Reads| room.observe(&key, &conflict, read).unwrap();
    assert!(matches!(observed(&Reads::default()), Observation::Needs(needs) if needs.len() == 1));
    // Three conflicts in a row have the same effect before the first delete of a reconcile.
    let contended = room.observe(&key, &[], &Reads::default().contended()).unwrap();
    assert!(matches!(contended, Observation::Needs(needs) if needs.len() == 1));
    let live = |job: Option<Job>| {
        let job = job.map(|job| (JOBS.decode)(&job.to_bytes().into()).unwrap());
        Reads::default().with_object(&JOBS, key.clone(), Ok(job))
    };
    let newer = |change: fn(&mut Job)| {
        Some(job(|job| {
            job.metadata.resource_version = "9".into();
            change(job);
        }))
    };
    let Observation::View(view) = observed(&live(newer(|_| {}))) else { panic!("it is there") };
    let due = plan(&view, later(10_000));
    let Verb::Delete { resource_version, .. } = &due.writes().next().unwrap().verb else { panic!("{due:?}") };
    assert_eq!((resource_version.as_deref(), due.end), (Some("9"), true));
    let Observation::View(view) =
        observed(&live(newer(|job| job.spec.ttl_seconds_after_finished = Some(60))))
    else {
        panic!("it is there")
    };
    let raised = plan(&view, later(10_000));
    assert_eq!(
        (raised.requeue_after, raised.end, raised.steps.len()),
        (Some(Duration::from_secs(50)), true, 0)
    );
    let other = newer(|job| job.metadata.uid = "another".into());
    for gone in [None, other, newer(|job| job.spec.ttl_seconds_after_finished = None)] {
        assert!(matches!(observed(&live(gone)), Observation::Nothing));
    }
    // After another refusal the key waits for its backoff.
    let refused = room.observe(&key, &[failure(403, "Forbidden")], &Reads::default()).unwrap();
    assert!(matches!(refused, Observation::Nothing));
}

#[test]
fn the_message_about_a_missing_time_names_the_job() {
    let plan = plan(
        &view(&job(|job| job.status.conditions = vec![condition("Failed", "True", None)])).unwrap(),
        later(0),
    );
    assert_eq!(plan.retry.as_deref(), Some("unable to find the time when the Job ns/job finished"));
}

#[test]
fn it_says_when_a_job_goes() {
    let said = |job: &Job, at| Controller::reasons(&view(job).unwrap(), at);
    let kept = "The Job finished at 2023-11-14T22:13:20Z and is kept for 10s (ttlSecondsAfterFinished)";
    assert_eq!(said(&job(|_| {}), later(3_000)), [format!("{kept}; it is deleted in 7s.")]);
    assert_eq!(said(&job(|_| {}), later(10_000)), [format!("{kept}; it is deleted now, its pods first.")]);
    let silent = job(|job| job.status.conditions = vec![condition("Failed", "True", None)]);
    let without = "The Job has finished without a finish time, so its TTL cannot start.";
    assert_eq!(said(&silent, later(0)), [without]);
}

#[test]
fn only_a_job_that_is_to_go_concerns_anybody() {
    let map = finished();
    let told = |old: Option<Job>, new: Option<Job>| {
        let [old, new] = [old, new].map(|job| job.map(|job| Arc::new(job) as AnyObject));
        let mut keys = Vec::new();
        let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial: true, resync: false };
        map(delta, &mut |key| keys.push(key.to_string()));
        keys.len()
    };
    let running = || job(|job| job.status.conditions.clear());
    assert_eq!(told(None, Some(job(|_| {}))), 1);
    assert_eq!(told(Some(running()), Some(job(|_| {}))), 1);
    assert_eq!(told(Some(job(|_| {})), Some(job(|job| job.spec.ttl_seconds_after_finished = Some(1)))), 1);
    assert_eq!(told(None, Some(running())), 0);
    assert_eq!(told(None, Some(job(|job| job.spec.ttl_seconds_after_finished = None))), 0);
    assert_eq!(told(None, Some(job(|job| job.metadata.deletion_timestamp = Time::from_seconds(1)))), 0);
    assert_eq!(told(Some(job(|_| {})), None), 0);
}

#[test]
fn the_histogram_begins_when_a_job_is_due_and_counts_deletes_that_succeeded() {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    let view = view(&job(|_| {})).unwrap();
    let key = Key::of(&view.job.metadata);
    let outcome = Outcome::Done { writes: 1, requeue_after: None, cooldown: Cooldown::NONE };
    for (at, result) in [
        (13_000, ActionResult::Done),
        (10_000, ActionResult::Failed("no".to_owned())),
        (10_000, ActionResult::Unneeded),
        (0, ActionResult::Done),
    ] {
        let (plan, note) = plan(&view, later(at)).into_parts();
        let mut actions = planned(&plan);
        for action in &mut actions {
            action.result = result.clone();
        }
        metrics.planned(&key, &note);
        let took = Duration::from_millis(500);
        metrics.ended(&key, ReconcileEnd { outcome: &outcome, actions: &actions, took });
    }
    let families = registry.gather();
    let family = families.iter().find(|family| family.name().starts_with("ttl_after_finished")).unwrap();
    let histogram = family.get_metric()[0].get_histogram();
    assert_eq!(histogram.get_sample_count(), 1);
    assert!((histogram.get_sample_sum() - 3.5).abs() < 0.001);
    assert_eq!(histogram.get_bucket().len(), 14);
}
