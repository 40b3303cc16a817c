//! Jobs that run to completion and are deleted; and many at once, with CronJobs beside them.

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, Target, What};
use crate::harness::{Namespace, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, delete_all, lean, never_more, until_gone};

const JOBS: usize = 200;
const COMPLETIONS: usize = 5;
const STORM: usize = 500;
const STORM_COMPLETIONS: usize = 10;
const CRON_JOBS: usize = 50;

pub(super) struct Jobs {
    jobs: usize,
}

impl Jobs {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { jobs: bench.scaled(JOBS) }
    }
}

impl Scenario for Jobs {
    fn name(&self) -> String {
        "jobs".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} Jobs of {COMPLETIONS} pods run to completion and are deleted in the foreground.",
            self.jobs
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["job-controller", "garbage-collector-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([never_more(What::Wall)]).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("jobs").await;
            let jobs = namespace.api::<Job>();
            let manager = bench.manager(turn, "jobs", &Flags::of(self.controllers(), Qps::Usual));
            calm(manager.pid).await;

            let run = Gauge::start(bench, turn.program, manager.pid);
            create(&namespace, self.jobs, COMPLETIONS).await;
            completed(&jobs, self.jobs).await;
            run.close("run", Until::Calm, &mut figures).await;

            let delete = Gauge::start(bench, turn.program, manager.pid);
            delete_all(&jobs).await;
            until_gone(&jobs).await;
            until_gone(&namespace.api::<Pod>()).await;
            delete.close("delete", Until::Calm, &mut figures).await;
            figures.totaled()
        }
        .boxed_local()
    }
}

/// Many Jobs at once, and CronJobs that come due beside them.
pub(super) struct Storm {
    jobs: usize,
    cron_jobs: usize,
}

impl Storm {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { jobs: bench.scaled(STORM), cron_jobs: bench.scaled(CRON_JOBS) }
    }
}

impl Scenario for Storm {
    fn name(&self) -> String {
        "storm of Jobs".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} Jobs of {STORM_COMPLETIONS} pods are created at once and run to completion. Each of {} CronJobs, which are due every \
             minute, has a Job that succeeds.",
            self.jobs, self.cron_jobs
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["job-controller", "cronjob-controller", "garbage-collector-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([never_more(What::Wall)]).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("storm").await;
            let (jobs, cron_jobs) = (namespace.api::<Job>(), namespace.api::<CronJob>());
            let manager = bench.manager(turn, "storm", &Flags::of(self.controllers(), Qps::Usual));
            calm(manager.pid).await;
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            many(self.cron_jobs, async |at| {
                let _: CronJob = namespace
                    .create(json!({
                        "metadata": { "name": format!("cron-{at}") },
                        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": job(1) } },
                    }))
                    .await;
            })
            .await;
            create(&namespace, self.jobs, STORM_COMPLETIONS).await;
            completed(&jobs, self.jobs).await;
            let succeeded = async || {
                let list = cron_jobs.list(&ListParams::default()).await.expect("a list").items;
                let has = |each: &&CronJob| {
                    each.status.as_ref().is_some_and(|status| status.last_successful_time.is_some())
                };
                list.iter().filter(has).count()
            };
            until("all CronJobs to succeed", LIMIT, succeeded, |count| *count == self.cron_jobs).await;
            gauge.close("", Until::Now, &mut figures).await;
            // They would come due under the next manager, too.
            bench.stop_all();
            let (now, all) = (DeleteParams::background(), ListParams::default());
            cron_jobs.delete_collection(&now, &all).await.expect("deleted");
            figures
        }
        .boxed_local()
    }
}

/// What a Job of so many pods is to be.
fn job(completions: usize) -> Value {
    json!({
        "completions": completions,
        "parallelism": completions,
        "template": {
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "work", "image": "work:1" }] },
        },
    })
}

/// So many Jobs of so many pods, at once.
async fn create(namespace: &Namespace, jobs: usize, completions: usize) {
    many(jobs, async |at| {
        let name = json!({ "name": format!("job-{at}"), "labels": { "of": "users" } });
        let _: Job = namespace.create(json!({ "metadata": name, "spec": job(completions) })).await;
    })
    .await;
}

/// Waits until so many of those Jobs are complete.
async fn completed(jobs: &Api<Job>, wanted: usize) {
    let complete = async || {
        let list = jobs.list(&ListParams::default().labels("of=users")).await.expect("a list").items;
        list.iter().filter(|job| is_complete(job)).count()
    };
    until("all Jobs to complete", LIMIT, complete, |count| *count == wanted).await;
}

fn is_complete(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|each| each.type_ == "Complete" && each.status == "True"))
}
