//! StatefulSets that are created, updated and deleted.

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::{Scenario, Target, delete_all, lean, never_more, until_gone};
use crate::bench::{Bench, Flags, Qps, Turn};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, What};
use crate::harness::{Namespace, until};
use crate::measure::{Gauge, Until};
use crate::sampling::calm;

const SETS: usize = 200;
const REPLICAS: i32 = 3;

pub(super) struct StatefulSets {
    sets: usize,
}

impl StatefulSets {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { sets: bench.scaled(SETS) }
    }
}

impl Scenario for StatefulSets {
    fn name(&self) -> String {
        "statefulsets".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{} StatefulSets of {REPLICAS} pods are created, one pod after the other, get another image, and are deleted in \
             the foreground.",
            self.sets
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["statefulset-controller", "garbage-collector-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        lean().into_iter().chain([never_more(What::Wall)]).collect()
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let mut figures = Figures::default();
            let namespace = bench.namespace("statefulsets").await;
            let sets = namespace.api::<StatefulSet>();
            let manager = bench.manager(turn, "statefulsets", &Flags::of(self.controllers(), Qps::Usual));
            calm(manager.pid).await;

            let create = Gauge::start(bench, turn.program, manager.pid);
            many(self.sets, async |at| {
                let name = format!("set-{at}");
                let _: StatefulSet = namespace
                    .create(json!({
                        "metadata": { "name": name },
                        "spec": {
                            "replicas": REPLICAS,
                            "serviceName": name,
                            "selector": { "matchLabels": { "app": name } },
                            "template": {
                                "metadata": { "labels": { "app": name } },
                                "spec": { "containers": [{ "name": "web", "image": "web:1" }] },
                            },
                        },
                    }))
                    .await;
            })
            .await;
            self.rolled(&namespace).await;
            create.close("create", Until::Calm, &mut figures).await;

            let update = Gauge::start(bench, turn.program, manager.pid);
            let containers = json!([{ "name": "web", "image": "web:2" }]);
            let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
            many(self.sets, async |at| {
                let patch = Patch::Strategic(&patch);
                sets.patch(&format!("set-{at}"), &PatchParams::default(), &patch).await.expect("patched");
            })
            .await;
            self.rolled(&namespace).await;
            update.close("update", Until::Calm, &mut figures).await;

            let delete = Gauge::start(bench, turn.program, manager.pid);
            delete_all(&sets).await;
            until_gone(&sets).await;
            until_gone(&namespace.api::<Pod>()).await;
            delete.close("delete", Until::Calm, &mut figures).await;
            figures.totalled()
        }
        .boxed_local()
    }
}

impl StatefulSets {
    async fn rolled(&self, namespace: &Namespace) {
        let api = namespace.api::<StatefulSet>();
        let rolled = async || {
            let list = api.list(&ListParams::default()).await.expect("a list").items;
            list.iter().filter(|each| is_rolled(each)).count()
        };
        until("all StatefulSets to be rolled out", LIMIT, rolled, |count| *count == self.sets).await;
    }
}

fn is_rolled(set: &StatefulSet) -> bool {
    set.status.as_ref().is_some_and(|status| {
        status.observed_generation == set.metadata.generation
            && status.current_revision == status.update_revision
            && status.ready_replicas == Some(REPLICAS)
            && status.updated_replicas.unwrap_or(REPLICAS) == REPLICAS
    })
}
