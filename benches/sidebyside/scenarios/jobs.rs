//! Jobs that run to completion and are deleted.

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::json;

use super::{Scenario, Target, delete_all, lean, never_more, until_gone};
use crate::bench::{Bench, Flags, Qps, Turn};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, What};
use crate::harness::until;
use crate::measure::{Gauge, Until};
use crate::sampling::calm;

const JOBS: usize = 200;
const COMPLETIONS: usize = 5;

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
            many(self.jobs, async |at| {
                let _: Job = namespace
                    .create(json!({
                        "metadata": { "name": format!("job-{at}") },
                        "spec": {
                            "completions": COMPLETIONS,
                            "parallelism": COMPLETIONS,
                            "template": {
                                "spec": {
                                    "restartPolicy": "Never",
                                    "containers": [{ "name": "work", "image": "work:1" }],
                                },
                            },
                        },
                    }))
                    .await;
            })
            .await;
            let complete = async || {
                let list = jobs.list(&ListParams::default()).await.expect("a list").items;
                list.iter().filter(|job| is_complete(job)).count()
            };
            until("all Jobs to complete", LIMIT, complete, |count| *count == self.jobs).await;
            run.close("run", Until::Calm, &mut figures).await;

            let delete = Gauge::start(bench, turn.program, manager.pid);
            delete_all(&jobs).await;
            until_gone(&jobs).await;
            until_gone(&namespace.api::<Pod>()).await;
            delete.close("delete", Until::Calm, &mut figures).await;
            figures.totalled()
        }
        .boxed_local()
    }
}

fn is_complete(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|each| each.type_ == "Complete" && each.status == "True"))
}
