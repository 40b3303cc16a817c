//! Each pod that ends is counted once, whatever is killed or refused on the way.

use std::sync::Arc;

use proptest::prelude::*;

use super::cluster::{Cluster, Event, Fate};
use super::fixtures::{indexed, job};
use coxswain_machinery::api::batch::Job;

fn event() -> impl Strategy<Value = Event> {
    let fate = prop_oneof![
        3 => Just(Fate::Succeeded),
        2 => Just(Fate::Failed),
        1 => Just(Fate::Deleted),
    ];
    prop_oneof![
        6 => Just(Event::Reconcile),
        2 => (0..30_i64).prop_map(Event::Advance),
        4 => (1..9_usize, fate).prop_map(|(count, fate)| Event::End(count, fate)),
        1 => Just(Event::Leave),
        3 => (0..12_usize, any::<bool>()).prop_map(|(writes, carried)| Event::Kill(writes, carried)),
        2 => (0..12_usize, 1..4_usize).prop_map(|(after, count)| Event::Refuse(after, count)),
    ]
}

/// Jobs of several sorts, none of which fails.
fn a_job() -> impl Strategy<Value = Arc<Job>> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (flags, 1..8_i32, 1..20_i32).prop_map(
        |((has_indexes, is_strict, is_limited), parallelism, completions)| {
            let change = move |job: &mut Job| {
                job.status = coxswain_machinery::api::batch::JobStatus::default();
                job.spec.parallelism = Some(parallelism);
                job.spec.completions = Some(completions);
                job.spec.backoff_limit = Some(i32::MAX);
                if is_strict {
                    job.spec.pod_replacement_policy = "Failed".into();
                }
                if has_indexes && is_limited {
                    job.spec.backoff_limit_per_index = Some(i32::MAX);
                }
            };
            if has_indexes { indexed(change) } else { job(change) }
        },
    )
}

fn counted(cluster: &Cluster, fates: &[Fate]) -> i32 {
    cluster.ends.values().filter(|fate| fates.contains(fate)).count() as i32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// At the end the counters are the pods, no finalizer is left, never more pods ran than may, and no index was done twice.
    #[test]
    fn each_pod_is_counted_once(job in a_job(), events in prop::collection::vec(event(), 0..60)) {
        let parallelism = job.spec.parallelism.unwrap() as usize;
        let mut cluster = Cluster::new(&job);
        for event in events {
            cluster.happen(event);
        }
        cluster.settle();
        let job = cluster.job();
        let status = &job.status;
        if job.spec.completion_mode == "Indexed" {
            prop_assert_eq!(Some(status.succeeded), job.spec.completions);
        } else {
            prop_assert_eq!(status.succeeded, counted(&cluster, &[Fate::Succeeded]));
        }
        prop_assert_eq!(status.failed, counted(&cluster, &[Fate::Failed, Fate::Deleted]));
        prop_assert!(job.condition("Complete").is_some());
        prop_assert_eq!(cluster.tracked(), 0);
        prop_assert!(cluster.most_active <= parallelism, "{} pods ran", cluster.most_active);
        prop_assert_eq!(&cluster.repeated, &Vec::<u32>::new());
        let lists = status.uncounted_terminated_pods.clone().unwrap_or_default();
        prop_assert!(lists.succeeded.is_empty() && lists.failed.is_empty());
    }

    /// A Job that fails counts the pods that it deletes for that as failed, and is told to have failed when they are gone.
    #[test]
    fn a_failing_job_counts_all(
        parallelism in 1..12_i32,
        limit in 0..3_i32,
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut cluster = Cluster::new(&job(|job| {
            job.status = coxswain_machinery::api::batch::JobStatus::default();
            job.spec.parallelism = Some(parallelism);
            job.spec.completions = Some(100);
            job.spec.backoff_limit = Some(limit);
        }));
        for event in events {
            cluster.happen(event);
        }
        cluster.happen(Event::Kill(1000, false));
        for _ in 0..10 {
            cluster.happen(Event::Refuse(0, 0));
            cluster.happen(Event::Reconcile);
            cluster.happen(Event::End(1, Fate::Failed));
            cluster.happen(Event::Leave);
            cluster.happen(Event::Advance(700));
        }
        cluster.reconcile();
        cluster.reconcile();
        let job = cluster.job();
        prop_assert!(job.condition("Failed").is_some(), "{}", super::fixtures::said(&job));
        prop_assert_eq!(job.status.succeeded, counted(&cluster, &[Fate::Succeeded]));
        // All others failed, or were deleted for the Job had.
        let made = cluster.made();
        prop_assert_eq!((job.status.failed + job.status.succeeded) as usize, made);
        prop_assert_eq!(cluster.tracked(), 0);
    }
}

/// A manager that is killed before or after each of the writes with which it counts 600 pods that end together. `make test`
/// tries one in 307 of them, `make test-all` one in 7.
#[test]
fn killed_at_each_write_600_pods_are_counted() {
    let every = if std::env::var_os("COXSWAIN_FULL").is_some() { 7 } else { 307 };
    for (at, is_carried_out) in (0..1300).step_by(every).flat_map(|at| [(at, false), (at, true)]) {
        let mut cluster = Cluster::new(&job(|job| {
            job.status = coxswain_machinery::api::batch::JobStatus::default();
            job.spec.parallelism = Some(600);
            job.spec.completions = Some(600);
            job.spec.backoff_limit = Some(1000);
        }));
        cluster.reconcile();
        cluster.reconcile();
        assert_eq!(cluster.pods().len(), 600);
        cluster.happen(Event::End(100, Fate::Failed));
        cluster.happen(Event::End(500, Fate::Succeeded));
        cluster.happen(Event::Kill(at, is_carried_out));
        for _ in 0..4 {
            cluster.reconcile();
        }
        let job = cluster.job();
        assert_eq!((job.status.succeeded, job.status.failed), (500, 100), "killed at {at}");
    }
}
