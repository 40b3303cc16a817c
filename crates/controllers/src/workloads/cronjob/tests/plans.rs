//! What is written, byte by byte, and what is told of schedules.

use bytes::Bytes;
use jiff::Timestamp;

use super::super::Controller;
use super::fixtures::{SPEC, Server, at, cron_job, ended, job, listing, time};
use coxswain_machinery::api::batch::{CronJob, Job};
use coxswain_machinery::api::kinds::{CRON_JOBS, JOBS};
use coxswain_machinery::framework::Room as _;
use coxswain_machinery::model::plan::{Verb, Write};
use coxswain_machinery::wire::Message;
use coxswain_machinery::wire::splice::{Edit, edit, get};

fn bytes(write: &Write) -> Bytes {
    match &write.verb {
        Verb::Create(bytes) | Verb::Update(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_is_its_template_with_an_owner_and_the_time() {
    let server = Server::new(&cron_job(|_| {}), []);
    server.shows(cron_job(|_| {}).to_bytes());
    let plan = server.plan(at("10:00"));
    let write = plan.writes().next().unwrap();
    let minutes = at("10:00").as_second() / 60;
    assert_eq!(write.to_string(), format!("create jobs.batch ns/cron-{minutes}"));
    let job = Job::decode(&bytes(write)).unwrap();
    let metadata = &job.metadata;
    assert_eq!((metadata.name.as_str(), metadata.namespace.as_str()), (&*format!("cron-{minutes}"), "ns"));
    assert_eq!(metadata.labels.get("app").map(|label| &**label), Some("cron"));
    let annotations = ["note", "batch.kubernetes.io/cronjob-scheduled-timestamp"];
    let annotations = annotations.map(|key| metadata.annotations.get(key).unwrap().to_string());
    assert_eq!(annotations, ["mine", "2026-11-24T10:00:00Z"]);
    assert_eq!(metadata.creation_timestamp, time("10:00"));
    assert!(metadata.finalizers.is_empty() && metadata.generate_name.is_empty());
    let [owner] = metadata.owner_references.as_slice() else { panic!("one owner") };
    assert_eq!(
        (owner.kind.as_str(), owner.api_version.as_str(), owner.name.as_str()),
        ("CronJob", "batch/v1", "cron")
    );
    assert!(
        owner.uid == "cron-uid" && owner.controller == Some(true) && owner.block_owner_deletion == Some(true)
    );
    assert_eq!(get(&bytes(write), &[2]).unwrap().unwrap().bytes().unwrap(), SPEC, "as it is");
    assert!(plan.look_again, "its UID is not known yet");
}

#[test]
fn the_annotation_speaks_of_the_zone_that_is_named() {
    for (zone, now, expected) in [
        (None, "10:00", "2026-11-24T10:00:00Z"),
        (Some("Europe/Berlin"), "10:00", "2026-11-24T11:00:00+01:00"),
        (Some("Asia/Kolkata"), "10:30", "2026-11-24T16:00:00+05:30"),
        (Some("Europe/London"), "10:00", "2026-11-24T10:00:00Z"),
        (Some("UTC"), "10:00", "2026-11-24T10:00:00Z"),
    ] {
        let cron_job = cron_job(|cron_job| cron_job.spec.time_zone = zone.map(Into::into));
        let plan = Server::new(&cron_job, []).plan(at(now));
        let job = Job::decode(&bytes(plan.writes().next().unwrap())).unwrap();
        let told = job.metadata.annotations.get("batch.kubernetes.io/cronjob-scheduled-timestamp");
        assert_eq!(told.unwrap(), expected, "{zone:?}");
    }
}

#[test]
fn without_a_zone_the_zone_of_the_process_counts_and_the_annotation_says_utc() {
    let mut server = Server::new(&cron_job(|cron_job| cron_job.spec.schedule = "0 16 * * *".into()), []);
    assert!(server.plan(at("10:30")).is_empty());
    let variable = |name: &str| (name == "TZ").then(|| "Asia/Kolkata".to_owned());
    server.zones = coxswain_machinery::zones::Zones::system(&variable);
    let plan = server.plan(at("10:30"));
    let job = Job::decode(&bytes(plan.writes().next().unwrap())).unwrap();
    let told = job.metadata.annotations.get("batch.kubernetes.io/cronjob-scheduled-timestamp");
    assert_eq!(told.unwrap(), "2026-11-24T10:30:00Z");
}

#[test]
fn a_status_keeps_what_it_does_not_change() {
    let held = cron_job(|cron_job| {
        listing(cron_job, &["done", "runs", "gone"]);
        cron_job.status.last_successful_time = time("07:00");
    });
    // A field of an entry, of the status and of the object that nobody knows.
    let server = Server::new(&held, [job("done", ended("Complete", "08:30")), job("runs", |_| {})]);
    let raw = edit(&held.to_bytes(), &[Edit::SetVarint(&[3, 99], 1), Edit::SetVarint(&[77], 5)]).unwrap();
    server.shows(raw);
    let plan = server.plan(at("09:20"));
    let write = plan.writes().next().unwrap();
    assert_eq!((write.kind, write.subresource), (&CRON_JOBS, "status"));
    let written = bytes(write);
    let status = CronJob::decode(&written).unwrap().status;
    let names: Vec<&str> = status.active.iter().map(|held| held.name.as_str()).collect();
    assert_eq!(names, ["runs"]);
    assert_eq!((status.last_schedule_time, status.last_successful_time), (time("09:00"), time("08:30")));
    let unknown = |path: &[u32]| get(&written, path).unwrap().map(|value| value.varint().unwrap());
    assert_eq!((unknown(&[3, 99]), unknown(&[77])), (Some(1), Some(5)));
    let uid = CronJob::decode(&written).unwrap().metadata;
    assert!(uid.uid == "cron-uid" && uid.resource_version == "5", "of the very CronJob that was read");
}

#[test]
fn the_entry_of_a_job_is_complete() {
    let server = Server::new(&cron_job(|_| {}), []);
    server.reconcile(at("10:00:01"));
    let status = server.cron_job().status.clone();
    let [entry] = status.active.as_slice() else { panic!("{status:?}") };
    let made = server.job(&entry.name).unwrap();
    assert_eq!(
        (entry.kind.as_str(), entry.api_version.as_str(), entry.namespace.as_str()),
        ("Job", "batch/v1", "ns")
    );
    assert_eq!(
        (&entry.uid, &entry.resource_version),
        (&made.metadata.uid.to_str(), &made.metadata.resource_version)
    );
    assert_eq!(status.last_schedule_time, time("10:00"));
    assert!(entry.field_path.is_empty() && JOBS.kind == "Job");
}

/// What is told, and whether it comes back by itself.
fn told(now: Timestamp, change: impl FnOnce(&mut CronJob)) -> (Vec<String>, bool) {
    let done = Server::new(&cron_job(change), []).reconcile(now);
    (done.log, done.requeue_after.is_some())
}

#[test]
fn what_is_wrong_with_a_schedule_is_told() {
    let schedule = |text: &'static str| move |cron_job: &mut CronJob| cron_job.spec.schedule = text.into();
    let alone = |event: &str| (vec![event.to_owned()], false);
    assert_eq!(
        told(at("09:20"), |cron_job| cron_job.spec.time_zone = Some("Mars/Olympus".into())),
        alone("Warning UnknownTimeZone invalid timeZone: \"Mars/Olympus\": unknown time zone Mars/Olympus")
    );
    assert_eq!(
        told(at("09:20"), schedule("a b c")),
        alone(
            "Warning UnparseableSchedule unparseable schedule: \"a b c\" : expected exactly 5 fields, found 3: [a b c]"
        )
    );
    let why = "time difference between two schedules is less than 1 second";
    assert_eq!(
        told(at("09:20"), schedule("0 0 30 2 *")),
        alone(&format!("Warning InvalidSchedule invalid schedule: 0 0 30 2 * : {why}"))
    );
    let (log, comes_back) = told(at("09:20"), schedule("TZ=UTC 0 * * * *"));
    assert_eq!(
        log,
        [
            "Warning UnsupportedSchedule CRON_TZ or TZ used in schedule \"TZ=UTC 0 * * * *\" is not officially supported, see \
          https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        ]
    );
    assert!(comes_back);
    // What is said of it does not stop it, and the zone of the schedule wins.
    let both = |cron_job: &mut CronJob| {
        cron_job.spec.schedule = "CRON_TZ=Asia/Kolkata 0 16 * * *".into();
        cron_job.spec.time_zone = Some("Europe/Berlin".into());
    };
    let (log, _) = told(at("10:30"), both);
    assert!(
        log[0].starts_with("Warning UnsupportedSchedule") && log[1].starts_with("create jobs.batch"),
        "{log:?}"
    );
    let unknown = |cron_job: &mut CronJob| {
        cron_job.spec.schedule = "TZ=UTC 0 * * * *".into();
        cron_job.spec.time_zone = Some("Mars/Olympus".into());
    };
    assert!(told(at("10:00"), unknown).0[0].starts_with("Warning UnknownTimeZone"));
}

#[test]
fn it_says_why_a_job_is_started_or_not() {
    let said = |change: &dyn Fn(&mut CronJob), now: &str| {
        let held = cron_job(|cron_job| {
            listing(cron_job, &["runs"]);
            change(cron_job);
        });
        let server = Server::new(&held, [job("runs", |_| {}), job("old", ended("Failed", "08:30"))]);
        Controller::reasons(&server.view(&[], &[]).unwrap().unwrap(), at(now))
    };
    let running = "1 Job is running: runs.";
    let minutes = at("10:00").as_second() / 60;
    let due =
        format!("The run scheduled for 2026-11-24T10:00:00Z is due; the Job cron-{minutes} is created.");
    assert_eq!(said(&|_| {}, "10:20"), [&*due, running]);
    let policy =
        |policy: &'static str| move |cron_job: &mut CronJob| cron_job.spec.concurrency_policy = policy.into();
    assert_eq!(
        said(&policy("Replace"), "10:20"),
        [&*due, "The concurrencyPolicy is Replace; runs is deleted first.", running]
    );
    assert_eq!(
        said(&policy("Forbid"), "10:20"),
        [
            "No scheduled run is due now; the next run is due in 40m 1s.",
            "JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is Forbid",
            running
        ]
    );
    let suspended = |cron_job: &mut CronJob| {
        cron_job.spec.suspend = true;
        cron_job.spec.failed_jobs_history_limit = Some(0);
    };
    assert_eq!(
        said(&suspended, "10:20"),
        [
            "The CronJob is suspended; no Job is created.",
            running,
            "old is deleted; the history limits keep fewer finished Jobs."
        ]
    );
    let never = said(&|cron_job| cron_job.spec.schedule = "0 0 30 2 *".into(), "10:20");
    assert_eq!(never[0], "No Job is created until the CronJob changes.");
    assert!(never[1].starts_with("InvalidSchedule: "), "{never:?}");
}
