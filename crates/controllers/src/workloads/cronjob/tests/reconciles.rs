//! Whole reconciles: policies, histories, deadlines, and what goes wrong.

use std::time::Duration;

use apiserver_model::OnTheWay;

use super::fixtures::{Done, Server, at, cron_job, ended, job, listing, time};
use coxswain_machinery::api::batch::{CronJob, Job};
use coxswain_machinery::framework::Memory as _;

/// The name of the Job of an activation.
pub(super) fn name(text: &str) -> String {
    format!("cron-{}", at(text).as_second() / 60)
}

pub(super) fn created(text: &str) -> [String; 3] {
    [
        format!("create jobs.batch ns/{}", name(text)),
        format!("Normal SuccessfulCreate Created job {}", name(text)),
        "update cronjobs.batch/status ns/cron".to_owned(),
    ]
}

pub(super) const STATUS: &str = "update cronjobs.batch/status ns/cron";
const ACTIVE: &str = "Normal JobAlreadyActive Not starting job because prior execution is running and concurrency policy is Forbid";

pub(super) fn millis(done: &Done) -> Option<u64> {
    done.requeue_after.map(|after| after.as_millis() as u64)
}

#[test]
fn an_activation_is_started_once_and_the_next_one_is_waited_for() {
    let server = Server::new(&cron_job(|_| {}), []);
    let early = server.reconcile(at("09:59:59"));
    assert_eq!((early.log.len(), millis(&early)), (0, Some(1_100)));
    let done = server.reconcile(at("10:00:02"));
    assert_eq!(done.log, created("10:00"));
    assert_eq!((server.listed(), millis(&done)), (vec![name("10:00")], Some(3_598_100)));
    assert_eq!(server.cron_job().status.last_schedule_time, time("10:00"));
    let again = server.reconcile(at("10:00:03"));
    assert_eq!((again.log.len(), millis(&again)), (0, Some(3_597_100)));
    // The API server says when it was made.
    assert_eq!(done.skews, [2.0]);
}

#[test]
fn only_the_last_missed_activation_is_started_unless_it_is_too_late() {
    let deadline =
        |seconds| move |cron_job: &mut CronJob| cron_job.spec.starting_deadline_seconds = Some(seconds);
    let log = |change: &dyn Fn(&mut CronJob), now| Server::new(&cron_job(change), []).reconcile(at(now)).log;
    assert_eq!(log(&|_| {}, "12:30"), created("12:00"));
    assert_eq!(log(&deadline(1801), "12:30"), created("12:00"));
    assert_eq!(log(&deadline(1799), "12:30"), [""; 0]);
    assert_eq!(log(&deadline(0), "12:00"), [""; 0]);
    let never = |cron_job: &mut CronJob| cron_job.status.last_schedule_time = None;
    assert_eq!(log(&never, "09:30"), created("09:00"), "since it was made");
    assert_eq!(log(&never, "08:59"), [""; 0]);
    let every_minute = |cron_job: &mut CronJob| cron_job.spec.schedule = "* * * * *".into();
    let many = log(&every_minute, "12:30");
    assert_eq!(
        many[0],
        "Warning TooManyMissedTimes too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
    );
    assert_eq!(many[1..], created("12:30"));
}

/// With kube-controller-manager it never runs.
#[test]
fn every_with_a_shorter_starting_deadline_runs() {
    let every = cron_job(|cron_job| {
        cron_job.spec.schedule = "@every 2m".into();
        cron_job.spec.starting_deadline_seconds = Some(60);
    });
    let server = Server::new(&every, []);
    let mut started = Vec::new();
    for (now, expected) in [
        ("09:01:59", None),
        ("09:02:00", Some("09:02")),
        ("09:03:59", None),
        // 61 seconds late, then 59.
        ("09:05:01", None),
        ("09:06:59", Some("09:06")),
        ("09:08:00", Some("09:08")),
    ] {
        let done = server.reconcile(at(now));
        let created: Vec<_> = expected.map(created).into_iter().flatten().collect();
        let log: Vec<_> = done.log.iter().filter(|line| !line.starts_with("Warning Unexpected")).collect();
        assert_eq!(log, created.iter().collect::<Vec<_>>(), "{now}");
        started.extend(expected);
        assert!(done.requeue_after.is_some_and(|after| after <= Duration::from_millis(120_100)), "{now}");
    }
    assert_eq!(started.len(), 3);
    // Activations that were missed before the deadline cause no warning.
    let old = cron_job(|cron_job| {
        cron_job.spec.schedule = "@every 1m".into();
        cron_job.spec.starting_deadline_seconds = Some(30);
    });
    assert_eq!(Server::new(&old, []).reconcile(at("12:00:10")).log, created("12:00"));
    // A deadline that is long enough counts as ever: from the bound, where the last time is earlier.
    let long = cron_job(|cron_job| {
        cron_job.spec.schedule = "@every 2m".into();
        cron_job.spec.starting_deadline_seconds = Some(300);
    });
    let server = Server::new(&long, []);
    assert_eq!(server.reconcile(at("11:00:30")).log, created("10:59:30"));
}

#[test]
fn nothing_is_started_while_it_is_suspended_or_goes_but_its_jobs_are_seen_to() {
    let suspended: fn(&mut CronJob) = |cron_job| cron_job.spec.suspend = true;
    let deleted: fn(&mut CronJob) = |cron_job| cron_job.metadata.deletion_timestamp = time("09:30");
    for change in [suspended, deleted] {
        let held = cron_job(|cron_job| {
            change(cron_job);
            cron_job.metadata.finalizers = vec!["example.com/waits".into()];
            listing(cron_job, &["done"]);
            cron_job.spec.successful_jobs_history_limit = Some(1);
        });
        let server = Server::new(
            &held,
            [job("done", ended("Complete", "08:30")), job("old", ended("Complete", "08:00"))],
        );
        let done = server.reconcile(at("12:30"));
        assert_eq!(
            done.log,
            [
                STATUS,
                "Normal SawCompletedJob Saw completed job: done, condition: Complete",
                "delete jobs.batch ns/old",
                "Normal SuccessfulDelete Deleted job old",
            ]
        );
        assert_eq!(done.requeue_after, None, "until something changes");
        assert_eq!(server.cron_job().status.last_successful_time, time("08:30"));
    }
    // What was missed is started at once when it is resumed.
    let server = Server::new(&cron_job(|_| {}), []);
    assert_eq!(server.reconcile(at("12:30")).log, created("12:00"));
}

#[test]
fn policies_say_what_becomes_of_a_job_that_runs() {
    let with = |policy: &'static str| {
        let held = cron_job(|cron_job| {
            cron_job.spec.concurrency_policy = policy.into();
            listing(cron_job, &["runs"]);
        });
        Server::new(&held, [job("runs", |_| {})])
    };
    let allowed = with("Allow");
    assert_eq!(allowed.reconcile(at("10:00")).log, created("10:00"));
    assert_eq!(allowed.listed(), ["runs".to_owned(), name("10:00")]);

    let forbidden = with("Forbid");
    let done = forbidden.reconcile(at("10:00"));
    assert_eq!(
        (done.log, done.requeue_after),
        (vec![ACTIVE.to_owned()], Some(Duration::from_millis(3_600_100)))
    );
    assert_eq!(forbidden.cron_job().status.last_schedule_time, time("09:00"), "it is missed");
    // As soon as the Job has ended, what was missed is started.
    forbidden.put(&job("runs", ended("Failed", "09:00")));
    let log = forbidden.reconcile(at("10:20")).log;
    assert_eq!(log[..2], created("10:00")[..2]);
    assert_eq!(log[2..], [STATUS, "Normal SawCompletedJob Saw completed job: runs, condition: Failed"]);
    assert_eq!(forbidden.listed(), [name("10:00")]);

    let replaced = with("Replace");
    let log = replaced.reconcile(at("10:00")).log;
    assert_eq!(log[..2], ["delete jobs.batch ns/runs", "Normal SuccessfulDelete Deleted job runs"]);
    assert_eq!(log[2..], created("10:00"));
    assert_eq!(replaced.listed(), [name("10:00")]);
}

#[test]
fn a_replaced_job_that_cannot_be_deleted_is_in_the_way() {
    let held = cron_job(|cron_job| {
        cron_job.spec.concurrency_policy = "Replace".into();
        listing(cron_job, &["runs"]);
    });
    // An admission webhook may reject the request with any code, so a conflict does not mean that the Job is gone.
    for (code, reason) in [(403, "Forbidden"), (409, "Conflict")] {
        let server = Server::new(&held, [job("runs", |_| {})]);
        server.refuse(|asked| asked.verb() == "delete", code, reason, "no");
        let done = server.reconcile(at("10:00"));
        assert_eq!(done.log, ["delete jobs.batch ns/runs refused", "Warning FailedDelete Deleted job: no"]);
        assert!(done.retried);
        assert_eq!(server.listed(), ["runs"], "{code}: no Job is started");
    }
}

#[test]
fn finished_jobs_beyond_the_limits_go_the_oldest_first() {
    let complete = |name: &str, started: &'static str| job(name, ended("Complete", started));
    let failed = |name: &str, started: &'static str| job(name, ended("Failed", started));
    let jobs = || {
        [
            complete("c", "08:30"),
            complete("a", "08:40"),
            complete("b", "08:30"),
            job("without", |job| {
                ended("Complete", "08:00")(job);
                job.status.start_time = None;
            }),
            failed("f", "08:50"),
            failed("e", "08:40"),
            job("runs", |_| {}),
        ]
    };
    let gone = |successful: Option<i32>, failed: Option<i32>| {
        let held = cron_job(|cron_job| {
            cron_job.spec.successful_jobs_history_limit = successful;
            cron_job.spec.failed_jobs_history_limit = failed;
            listing(cron_job, &["runs"]);
            cron_job.status.last_successful_time = time("08:40");
        });
        let log = Server::new(&held, jobs()).reconcile(at("09:20")).log;
        log.iter()
            .filter_map(|line| line.strip_prefix("delete jobs.batch ns/"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(gone(Some(3), Some(1)), ["b", "e"]);
    assert_eq!(gone(Some(1), Some(2)), ["b", "c", "a"]);
    assert_eq!(gone(Some(0), Some(0)), ["b", "c", "a", "without", "e", "f"]);
    assert_eq!(gone(None, None), [""; 0], "none is deleted");
    assert_eq!(gone(None, Some(0)), ["e", "f"]);
}

#[test]
fn of_a_job_that_the_history_does_not_keep_nobody_is_told() {
    let held = cron_job(|cron_job| {
        cron_job.spec.successful_jobs_history_limit = Some(0);
        listing(cron_job, &["done"]);
    });
    let server = Server::new(&held, [job("done", ended("Complete", "08:30"))]);
    let log = server.reconcile(at("09:20")).log;
    assert_eq!(log, [STATUS, "delete jobs.batch ns/done", "Normal SuccessfulDelete Deleted job done"]);
    assert_eq!(server.cron_job().status.last_successful_time, time("08:30"), "that it succeeded is known");
}

#[test]
fn one_that_is_being_deleted_counts_and_is_not_deleted_again() {
    let held = cron_job(|cron_job| cron_job.spec.successful_jobs_history_limit = Some(1));
    let goes = job("a", |job| {
        ended("Complete", "08:00")(job);
        job.metadata.deletion_timestamp = time("09:00");
    });
    let server = Server::new(&held, [goes, job("b", ended("Complete", "08:30"))]);
    assert_eq!(server.reconcile(at("09:20")).log, [STATUS]);
}

#[test]
fn a_delete_of_the_history_that_fails_is_told_and_not_retried() {
    let held = cron_job(|cron_job| cron_job.spec.failed_jobs_history_limit = Some(0));
    let server = Server::new(&held, ["a", "b"].map(|name| job(name, ended("Failed", "08:30"))));
    server.refuse(|asked| asked.name == "a", 403, "Forbidden", "no");
    let done = server.reconcile(at("09:20"));
    assert_eq!(
        done.log,
        [
            "delete jobs.batch ns/a refused",
            "Warning FailedDelete Deleted job: no",
            "delete jobs.batch ns/b",
            "Normal SuccessfulDelete Deleted job b",
        ]
    );
    assert_eq!((done.retried, millis(&done)), (false, Some(2_400_100)));
    // Of one that is suspended there is no next look.
    let mut suspended = held.clone();
    suspended.spec.suspend = true;
    let idle = Server::new(&suspended, [job("a", ended("Failed", "08:30"))]);
    idle.refuse(|_| true, 500, "InternalError", "no");
    let done = idle.reconcile(at("09:20"));
    assert_eq!((done.retried, millis(&done)), (false, Some(1_000_000)));
    // Nor is it when a Job was made before.
    let done = server.reconcile(at("10:00"));
    assert_eq!((done.retried, millis(&done)), (false, Some(3_600_100)));
    assert_eq!(server.listed(), [name("10:00")]);
}

#[test]
fn jobs_of_the_status_that_the_cache_lacks_are_read_before_they_are_dropped() {
    let held = cron_job(|cron_job| listing(cron_job, &["there", "gone", "another"]));
    let server = Server::new(&held, []);
    server.put_unseen(&job("there", |_| {}));
    server.put_unseen(&job("another", |job| job.metadata.uid = "another-one".into()));
    let log = server.reconcile(at("09:20")).log;
    assert_eq!(
        log,
        [
            STATUS,
            "Normal MissingJob Active job went missing: gone",
            "Normal MissingJob Active job went missing: another"
        ]
    );
    assert_eq!(server.listed(), ["there"]);
}

#[test]
fn cronjob_drops_a_job_that_ended_without_its_controller_reference() {
    let forbids = cron_job(|cron_job| {
        listing(cron_job, &["free", "runs"]);
        cron_job.spec.concurrency_policy = "Forbid".into();
    });
    let server = Server::new(&forbids, []);
    let free = |job: &mut Job| job.metadata.owner_references.clear();
    server.put_unseen(&job("free", |job| {
        ended("Complete", "08:30")(job);
        free(job);
    }));
    server.put_unseen(&job("runs", free));
    let told = "Normal SawCompletedJob Saw completed job: free, condition: Complete";
    assert_eq!(server.reconcile(at("09:20")).log, [STATUS, told]);
    assert_eq!(server.listed(), ["runs"]);
    assert_eq!(server.cron_job().status.last_successful_time, time("08:30"));
}

#[test]
fn a_job_that_the_status_does_not_list_is_told_of_unless_the_live_one_lists_it() {
    let server = Server::new(&cron_job(|_| {}), [job("by-hand", |_| {})]);
    let unexpected = "Warning UnexpectedJob Saw a job that the controller did not create or forgot: by-hand";
    assert_eq!(server.reconcile(at("09:20")).log, [unexpected]);
    assert!(server.listed().is_empty(), "it is not added");
    // It is no reason not to start another.
    let log = server.reconcile(at("10:00")).log;
    assert_eq!((&log[..3], &log[3..]), (&created("10:00")[..], &[unexpected.to_owned()][..]));
    // One that has ended is only history.
    let server = Server::new(&cron_job(|_| {}), [job("by-hand", ended("Complete", "08:30"))]);
    assert_eq!(server.reconcile(at("09:20")).log, [STATUS]);
    assert_eq!(server.cron_job().status.last_successful_time, time("08:30"));
}

#[test]
fn jobs_of_others_are_none_of_its_business() {
    let of_another = job("theirs", |job| {
        ended("Complete", "08:30")(job);
        job.metadata.owner_references[0].uid = "an-earlier-one".into();
    });
    let held = cron_job(|cron_job| cron_job.spec.successful_jobs_history_limit = Some(0));
    assert_eq!(Server::new(&held, [of_another]).reconcile(at("09:20")).log, [""; 0]);
}

#[test]
fn who_takes_over_between_the_job_and_the_status_makes_no_second_one() {
    let there = |change: fn(&mut Job)| {
        job(&name("10:00"), |job| {
            job.metadata.annotations =
                [("batch.kubernetes.io/cronjob-scheduled-timestamp", "2026-11-24T10:00:00Z")]
                    .into_iter()
                    .collect();
            change(job);
        })
    };
    let unexpected = format!(
        "Warning UnexpectedJob Saw a job that the controller did not create or forgot: {}",
        name("10:00")
    );
    // The cache knows it: nothing is asked of the server.
    let server = Server::new(&cron_job(|_| {}), [there(|_| {})]);
    let done = server.reconcile(at("10:00:30"));
    assert_eq!(done.log, [STATUS.to_owned(), unexpected]);
    assert_eq!((server.listed(), millis(&done)), (vec![name("10:00")], Some(3_570_100)));
    assert_eq!(server.cron_job().status.last_schedule_time, time("10:00"));
    assert!(done.skews.is_empty(), "who made it has counted it");
    // The cache does not know it yet.
    let server = Server::new(&cron_job(|_| {}), []);
    server.put_unseen(&there(|_| {}));
    let done = server.reconcile(at("10:00:30"));
    assert_eq!(done.log, [format!("create jobs.batch ns/{} refused", name("10:00")), STATUS.to_owned()]);
    assert_eq!((server.listed(), done.retried, millis(&done)), (vec![name("10:00")], false, Some(3_570_100)));
    // It has ended already, and its history is short: the activation is not started once more.
    let held = cron_job(|cron_job| cron_job.spec.successful_jobs_history_limit = Some(0));
    let server = Server::new(&held, [there(|job| ended("Complete", "09:00")(job))]);
    for _ in 0..4 {
        let log = server.reconcile(at("10:00:30")).log;
        assert!(log.iter().all(|line| !line.starts_with("create")), "{log:?}");
    }
    assert!(server.job(&name("10:00")).is_none() && server.listed().is_empty());
}

#[test]
fn a_strangers_job_of_the_name_ends_it_silently() {
    let stranger = job(&name("10:00"), |job| job.metadata.owner_references.clear());
    let server = Server::new(&cron_job(|_| {}), [stranger]);
    let done = server.reconcile(at("10:00"));
    assert_eq!(done.log, [format!("create jobs.batch ns/{} refused", name("10:00"))]);
    assert_eq!((done.retried, done.requeue_after), (false, None));
    assert_eq!(server.cron_job().status.last_schedule_time, time("09:00"));
}

#[test]
fn a_job_that_is_refused_is_told_of_and_the_rest_is_written_all_the_same() {
    let held = cron_job(|cron_job| listing(cron_job, &["done"]));
    let refused = |message: &'static str| {
        let server = Server::new(&held, [job("done", ended("Complete", "08:30"))]);
        server.refuse(|asked| asked.verb() == "create", 403, "Forbidden", message);
        let done = server.reconcile(at("10:00"));
        assert!(done.retried && server.listed().is_empty());
        assert_eq!(server.cron_job().status.last_schedule_time, time("09:00"));
        done.log
    };
    let create = format!("create jobs.batch ns/{} refused", name("10:00"));
    let saw = "Normal SawCompletedJob Saw completed job: done, condition: Complete";
    assert_eq!(
        refused("no quota"),
        [&create, STATUS, saw, "Warning FailedCreate Error creating job: no quota"]
    );
    let terminating = "unable to create new content in namespace ns because it is being terminated";
    assert_eq!(refused(terminating), [&create, STATUS, saw], "that is no news");
}

#[test]
fn a_status_that_is_refused_is_told_to_nobody_and_written_again() {
    let held = cron_job(|cron_job| listing(cron_job, &["done"]));
    let server = Server::new(&held, [job("done", ended("Complete", "08:30"))]);
    server.refuse(|asked| asked.subresource == "status", 409, "Conflict", "changed");
    let done = server.reconcile(at("09:20"));
    assert_eq!((done.log, done.retried), (vec![format!("{STATUS} refused")], true));
    server.on_the_way(|_| false, OnTheWay::Arrives);
    let log = server.reconcile(at("09:20")).log;
    assert_eq!(log, [STATUS, "Normal SawCompletedJob Saw completed job: done, condition: Complete"]);
}

#[test]
fn a_new_schedule_waits_for_its_next_activation() {
    let before = cron_job(|cron_job| cron_job.spec.schedule = "0 0 1 1 *".into());
    let after = cron_job(|cron_job| {
        cron_job.spec.schedule = "*/5 * * * *".into();
        cron_job.metadata.generation = 2;
    });
    let server = Server::new(&after, []);
    server.rescheduled.heed(Some(&before), Some(&after));
    let plan = server.plan(at("09:22"));
    assert!(plan.is_empty());
    assert_eq!(plan.requeue_after, Some(Duration::from_millis(180_100)));
    assert_eq!(plan.note.rescheduled, Some(2));
    // Once that is heeded, or another change comes after it, what was missed is started.
    server.rescheduled.commit(&coxswain_machinery::model::Key::new("ns", "cron"), plan.note);
    assert_eq!(server.reconcile(at("09:22")).log, created("09:20"));

    let unreadable = cron_job(|cron_job| cron_job.spec.schedule = "x".into());
    let server = Server::new(&unreadable, []);
    server.rescheduled.heed(Some(&before), Some(&unreadable));
    let done = server.reconcile(at("09:22"));
    assert_eq!(done.log, ["Warning UnParseableCronJobSchedule unparseable schedule for cronjob: x"]);
}
