//! StatefulSets that are created, updated and deleted.

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::json;

use super::sets::Sets;
use crate::bench::{Bench, Flags, Qps};
use crate::figures::{Figure, Figures, Target, What};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, lean, never_more};

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
            "{} StatefulSets of {REPLICAS} pods are created, one pod after another. They get another image, and are deleted in the \
             foreground.",
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
            let namespace = bench.namespace("statefulsets").await;
            let manager = bench.manager(turn, "statefulsets", &Flags::of(self.controllers(), Qps::Usual));
            calm(manager.pid).await;
            let spec = json!({ "replicas": REPLICAS, "serviceName": "sets" });
            Sets { count: self.sets, spec, is_rolled }.play(bench, turn, &namespace, &manager).await
        }
        .boxed_local()
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
