//! Jobs that tell of an activation, and Jobs that people made: by which marks they are told apart.

use apiserver_model::OnTheWay;

use super::fixtures::{Server, at, cron_job, ended, job, time};
use super::reconciles::{STATUS, created, millis, name};
use coxswain_machinery::api::batch::{CronJob, Job};
use coxswain_machinery::wire::Labels;

/// A Job that the controller created for an activation: its annotation and the name that belongs to it.
fn scheduled(text: &str, change: impl FnOnce(&mut Job)) -> Job {
    job(&name(text), |job| {
        job.metadata.annotations = [(SCHEDULED, at(text).to_string().as_str())].into_iter().collect();
        job.metadata.creation_timestamp = time(text);
        change(job);
    })
}

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

type Change = fn(&mut Job);

/// Changes that each take one mark of a controller's Job away, by what is left.
const MARKS_OF_USERS: [(&str, Change); 5] = [
    ("no annotation", |job| job.metadata.annotations = Labels::default()),
    ("the annotation is no time", |job| {
        job.metadata.annotations = [(SCHEDULED, "soon")].into_iter().collect();
    }),
    ("the annotation is of another activation", |job| {
        job.metadata.annotations = [(SCHEDULED, "2026-11-24T10:01:00Z")].into_iter().collect();
    }),
    ("the annotation of kubectl", |job| {
        let manual = ("cronjob.kubernetes.io/instantiate", "manual");
        job.metadata.annotations = [(SCHEDULED, "2026-11-24T10:00:00Z"), manual].into_iter().collect();
    }),
    ("the reference of kubectl", |job| {
        job.metadata.owner_references[0].block_owner_deletion = None;
    }),
];

/// The answer to its create was lost, and the Job ended before that was noticed.
#[test]
fn what_alone_tells_that_an_activation_was_started_is_recorded_before_it_goes() {
    let held = cron_job(|cron_job| cron_job.spec.successful_jobs_history_limit = Some(0));
    let done = || scheduled("10:00", ended("Complete", "09:00"));
    let server = Server::new(&held, [job("by-hand", ended("Complete", "09:00")), done()]);
    // The clock of this manager is behind the one that created the Job.
    let log = server.reconcile(at("09:59:59")).log;
    let deleted = |name: &str| {
        [format!("delete jobs.batch ns/{name}"), format!("Normal SuccessfulDelete Deleted job {name}")]
    };
    let expected: Vec<String> =
        [vec![STATUS.to_owned()], deleted("by-hand").into(), deleted(&name("10:00")).into()].concat();
    assert_eq!(log, expected);
    assert_eq!(server.cron_job().status.last_schedule_time, time("10:00"));
    assert_eq!(server.reconcile(at("10:00:30")).log, [""; 0]);
    // A status that is not written keeps it.
    let server = Server::new(&held, [done()]);
    server.on_the_way(|asked| asked.subresource == "status", OnTheWay::Lost);
    drop(server.reconcile(at("09:59:59")));
    assert!(server.job(&name("10:00")).is_some());
}

/// `kubectl create job --from=cronjob/cron cron-$(date +%s)` and the like.
#[test]
fn digits_in_the_name_of_a_manual_job_are_no_activation() {
    let manual = |digits: &str, change: &dyn Fn(&mut Job)| {
        job(&format!("cron-{digits}"), |job| {
            let manual = [("cronjob.kubernetes.io/instantiate", "manual")];
            job.metadata.annotations = manual.into_iter().collect();
            job.metadata.owner_references[0].block_owner_deletion = None;
            change(job);
        })
    };
    let unset: fn(&mut CronJob) = |cron_job| cron_job.status.last_schedule_time = None;
    for digits in ["1", "2", "31337", "20261124", "1795000000", "2026112410", "2611241000"] {
        for change in [unset, |_| {}] {
            // A finished one leaves the history. (Without a last time the activation of nine o'clock is due.)
            let held = cron_job(|cron_job| {
                cron_job.spec.successful_jobs_history_limit = Some(0);
                cron_job.spec.schedule = "0 0 1 1 *".into();
                change(cron_job);
            });
            let server = Server::new(&held, [manual(digits, &ended("Complete", "08:30"))]);
            let log = server.reconcile(at("09:20")).log;
            assert!(log.iter().all(|line| !line.starts_with("create")), "{digits}: {log:?}");
            assert!(server.job(&format!("cron-{digits}")).is_none(), "{digits}");
            let status = server.cron_job().status.clone();
            assert_eq!(status.last_schedule_time, held.status.last_schedule_time, "{digits}");
            assert_eq!(status.last_successful_time, time("08:30"), "{digits}: as of any other");
        }
        // A running one is in nobody's way.
        for policy in ["Forbid", "Replace"] {
            let held = cron_job(|cron_job| cron_job.spec.concurrency_policy = policy.into());
            let server = Server::new(&held, [manual(digits, &|_| {})]);
            let log = server.reconcile(at("10:00")).log;
            assert_eq!(log[..3], created("10:00"), "{digits} {policy}");
            assert_eq!(server.listed(), [name("10:00")], "{digits} {policy}");
            assert_eq!(server.cron_job().status.last_schedule_time, time("10:00"), "{digits} {policy}");
        }
    }
}

#[test]
fn a_job_that_lacks_a_mark_of_the_controller_is_no_record_of_an_activation() {
    for (mark, change) in MARKS_OF_USERS {
        let held = cron_job(|cron_job| cron_job.spec.successful_jobs_history_limit = Some(0));
        let finished = scheduled("10:00", |job| {
            ended("Complete", "09:00")(job);
            change(job);
        });
        let server = Server::new(&held, [finished]);
        drop(server.reconcile(at("09:59:59")));
        assert_eq!(server.cron_job().status.last_schedule_time, time("09:00"), "{mark}");

        let held = cron_job(|cron_job| cron_job.spec.concurrency_policy = "Forbid".into());
        let server = Server::new(&held, [scheduled("10:00", change)]);
        let log = server.reconcile(at("11:00")).log;
        assert_eq!(log[..3], created("11:00"), "{mark}");
    }
}

/// All marks are there, as whoever may create Jobs can set them. The API server sets the time of creation.
#[test]
fn forged_marks_of_no_activation_are_no_record() {
    let recorded = |schedule: &'static str, activation: &'static str, created: &'static str| {
        let held = cron_job(|cron_job| {
            cron_job.spec.successful_jobs_history_limit = Some(0);
            cron_job.spec.schedule = schedule.into();
            cron_job.spec.suspend = true;
        });
        let forged = scheduled(activation, |job| {
            ended("Complete", "09:00")(job);
            job.metadata.creation_timestamp = time(created);
        });
        let server = Server::new(&held, [forged]);
        drop(server.reconcile(at("10:45")));
        server.cron_job().status.last_schedule_time == time(activation)
    };
    for (schedule, activation, created, expected) in [
        ("0 * * * *", "10:00", "10:00:01", true),
        ("0 * * * *", "11:00", "10:30", true),
        ("0 * * * *", "11:00", "10:29:59", false),
        ("0 * * * *", "10:30", "10:30", false),
        ("0 * * * *", "08:00", "10:00", false),
        ("0 2 * * *", "10:00", "10:00", false),
        ("x", "10:00", "10:00", false),
        ("@every 90s", "10:30", "10:30", true),
        ("@every 90s", "10:31", "10:31", true),
        ("@every 90s", "10:31", "10:00", false),
    ] {
        assert_eq!(
            recorded(schedule, activation, created),
            expected,
            "{schedule}: {activation} at {created}"
        );
    }
    // A forged Job that runs holds back no run of an activation.
    let daily = cron_job(|cron_job| {
        cron_job.spec.schedule = "0 10 * * *".into();
        cron_job.spec.concurrency_policy = "Forbid".into();
    });
    let server =
        Server::new(&daily, [scheduled("10:29", |job| job.metadata.creation_timestamp = time("09:59"))]);
    assert_eq!(server.reconcile(at("10:00")).log[..3], created("10:00"));
}

/// The Job that a controller created keeps its seconds, which its name lacks.
#[test]
fn the_activation_of_an_own_create_has_its_seconds_and_never_leaves_the_minute_of_its_name() {
    let held = cron_job(|cron_job| cron_job.spec.schedule = "@every 90s".into());
    let server = Server::new(&held, []);
    drop(server.reconcile(at("09:01:31")));
    assert_eq!(server.cron_job().status.last_schedule_time, time("09:01:30"));
    // So it has where a Job bears the name that tells of no seconds.
    let server = Server::new(&held, []);
    server.put_unseen(&job(&name("09:01"), |_| {}));
    drop(server.reconcile(at("09:01:31")));
    assert_eq!(server.cron_job().status.last_schedule_time, time("09:01:30"));
    // A Job that has the name already, with an annotation of another time: the minute of the name counts.
    let taken = scheduled("10:00", |job| {
        job.metadata.annotations = [(SCHEDULED, "2999-01-01T00:00:00Z")].into_iter().collect();
    });
    let server = Server::new(&cron_job(|_| {}), []);
    server.put_unseen(&taken);
    drop(server.reconcile(at("10:00:30")));
    assert_eq!(server.cron_job().status.last_schedule_time, time("10:00"));
}

/// The answer to the create of the Job of ten o'clock was lost, and then it is eleven.
#[test]
fn a_job_that_nobody_could_record_counts_before_the_next_one() {
    let running = || scheduled("10:00", |_| {});
    let unexpected = format!(
        "Warning UnexpectedJob Saw a job that the controller did not create or forgot: {}",
        name("10:00")
    );
    let held = |policy: &'static str| cron_job(|cron_job| cron_job.spec.concurrency_policy = policy.into());
    for policy in ["Forbid", "Replace"] {
        let server = Server::new(&held(policy), [running()]);
        let done = server.reconcile(at("11:00"));
        assert_eq!((&done.log[..], millis(&done)), (&[STATUS.to_owned(), unexpected.clone()][..], Some(0)));
        assert_eq!(
            (server.listed(), server.cron_job().status.last_schedule_time),
            (vec![name("10:00")], time("10:00"))
        );
        let log = server.reconcile(at("11:00")).log.join("\n");
        assert_eq!(log.contains(name("11:00").as_str()), policy == "Replace", "{log}");
        assert_eq!(server.job(&name("10:00")).is_some(), policy == "Forbid", "{log}");
    }
    // A manager whose clock was ahead created the Job of a later activation, which is not started again then.
    let early = scheduled("12:00", |job| job.metadata.creation_timestamp = time("11:35"));
    let server = Server::new(&held("Forbid"), [early]);
    for _ in 0..3 {
        let log = server.reconcile(at("11:36")).log;
        assert!(log.iter().all(|line| !line.starts_with("create")), "{log:?}");
    }
    assert_eq!(
        (server.listed(), server.cron_job().status.last_schedule_time),
        (vec![name("12:00")], time("12:00"))
    );
    // With `@every` and a deadline it may be of any time.
    let every = cron_job(|cron_job| {
        cron_job.spec.schedule = "@every 2m".into();
        cron_job.spec.starting_deadline_seconds = Some(300);
        cron_job.spec.concurrency_policy = "Forbid".into();
    });
    let server = Server::new(&every, [scheduled("10:59:30", |_| {})]);
    drop(server.reconcile(at("11:01:02")));
    assert_eq!(server.cron_job().status.last_schedule_time, time("10:59:30"));
    // One that has ended, is by another name, or may run beside the next one, is no reason to wait.
    let ended = [scheduled("10:00", ended("Failed", "10:20"))];
    let by_hand = [job("by-hand", |_| {})];
    for (policy, jobs) in [("Forbid", ended), ("Forbid", by_hand), ("Allow", [running()])] {
        let server = Server::new(&held(policy), jobs);
        let log = server.reconcile(at("11:00")).log;
        assert_eq!(log[..3], created("11:00"), "{policy}");
    }
}
