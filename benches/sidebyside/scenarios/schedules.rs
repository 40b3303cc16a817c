//! CronJobs that come due at every minute, and finished Jobs whose time is over.

use std::sync::{Arc, Mutex};

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use futures::TryStreamExt as _;
use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, Target, What};
use crate::harness::until;
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, add_latencies, lean, never_later, never_more, until_gone};

const CRON_JOBS: usize = 1000;
const MINUTES: usize = 3;
const JOBS: usize = 10_000;

pub(super) struct CronJobs {
    count: usize,
}

impl CronJobs {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { count: bench.scaled(CRON_JOBS) }
    }
}

impl Scenario for CronJobs {
    fn name(&self) -> String {
        "cronjobs".to_owned()
    }

    fn about(&self) -> String {
        let count = self.count;
        format!(
            "{count} CronJobs are due every minute, for {MINUTES} minutes. Their Jobs are suspended. A latency is the time \
             from an activation until a watch shows the Job of that activation."
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["cronjob-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        never_later().chain(lean()).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("cronjobs").await;
            let manager = bench.manager(turn, "cronjobs", &Flags::of(self.controllers(), Qps::Unlimited));
            calm(manager.pid).await;
            let seen: Arc<Mutex<Vec<f64>>> = Arc::default();
            let mut watch = JoinSet::new();
            watch.spawn(follow(namespace.api(), Arc::clone(&seen)));
            let gauge = Gauge::start(bench, turn.program, manager.pid);
            many(self.count, async |at| {
                let template = json!({ "spec": {
                    "suspend": true,
                    "template": { "spec": {
                        "restartPolicy": "Never",
                        "containers": [{ "name": "work", "image": "work:1" }],
                    } },
                } });
                let _: CronJob = namespace
                    .create(json!({
                        "metadata": { "name": format!("cron-{at}") },
                        "spec": { "schedule": "* * * * *", "jobTemplate": template },
                    }))
                    .await;
            })
            .await;
            let count = async || seen.lock().expect("no panic").len();
            let wanted = MINUTES * self.count;
            until("the Jobs of all minutes", LIMIT, count, |count| *count >= wanted).await;
            gauge.close("", Until::Now, &mut figures).await;
            let lateness = seen.lock().expect("no panic").clone();
            add_latencies(bench, lateness, &mut figures);
            // They would come due under the next manager, too.
            bench.stop_all();
            let (now, all) = (DeleteParams::background(), ListParams::default());
            namespace.api::<CronJob>().delete_collection(&now, &all).await.expect("deleted");
            namespace.api::<Job>().delete_collection(&now, &all).await.expect("deleted");
            until_gone(&namespace.api::<Job>()).await;
            figures
        }
        .boxed_local()
    }
}

/// Keeps account of how late Jobs are shown, in milliseconds, for as long as it is not aborted.
async fn follow(api: Api<Job>, seen: Arc<Mutex<Vec<f64>>>) {
    let from = api.list(&ListParams::default()).await.expect("a list").metadata.resource_version;
    let mut from = from.unwrap_or_default();
    loop {
        let events = api.watch(&WatchParams::default().timeout(290), &from).await.expect("a watch");
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(job) | WatchEvent::Modified(job)) = &event else { continue };
            from = job.metadata.resource_version.clone().unwrap_or_default();
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let minutes = name.rsplit_once('-').and_then(|(_, minutes)| minutes.parse::<i64>().ok());
            if let (WatchEvent::Added(_), Some(minutes)) = (&event, minutes) {
                let late = SystemClock.now().as_millisecond() - minutes * 60_000;
                seen.lock().expect("no panic").push(late as f64);
            }
        }
    }
}

pub(super) struct Cleanup {
    jobs: usize,
}

impl Cleanup {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { jobs: bench.scaled(JOBS) }
    }
}

impl Scenario for Cleanup {
    fn name(&self) -> String {
        "cleanup".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} finished Jobs with an expired TTL exist when the manager starts. The manager deletes them. --kube-api-qps is so \
             high that it never delays a request.",
            self.jobs
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["ttl-after-finished-controller", "garbage-collector-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([never_more(What::Wall)]).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("cleanup").await;
            let jobs = namespace.api::<Job>();
            let condition =
                |kind| json!({ "type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:10:00Z" });
            let status = json!({ "status": {
                "startTime": "2026-01-01T00:00:00Z",
                "completionTime": "2026-01-01T00:10:00Z",
                "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            } });
            many(self.jobs, async |at| {
                let name = format!("job-{at}");
                let _: Job = namespace
                    .create(json!({
                        "metadata": { "name": name },
                        "spec": {
                            "managedBy": "example.com/nobody",
                            "ttlSecondsAfterFinished": 0,
                            "template": { "spec": {
                                "restartPolicy": "Never",
                                "containers": [{ "name": "work", "image": "work:1" }],
                            } },
                        },
                    }))
                    .await;
                let patch = Patch::Merge(&status);
                jobs.patch_status(&name, &PatchParams::default(), &patch).await.expect("finished");
            })
            .await;
            let mark = bench.mark();
            let manager = bench.manager(turn, "cleanup", &Flags::of(self.controllers(), Qps::Unlimited));
            let gauge = Gauge::from_birth(bench, turn.program, manager.pid, mark);
            until_gone(&jobs).await;
            gauge.close("", Until::Calm, &mut figures).await;
            figures
        }
        .boxed_local()
    }
}
