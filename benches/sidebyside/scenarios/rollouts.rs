//! Deployments that are created, updated and deleted.

use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::json;

use crate::bench::{Bench, Flags, Qps};
use crate::content::{LIMIT, many};
use crate::figures::{Figure, Figures, Target, What, whole};
use crate::harness::{Manager, Namespace, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::sampling::calm;
use crate::scenario::{Scenario, delete_all, never_more, until_gone, wall_at};

const DEPLOYMENTS: usize = 100;
const REPLICAS: usize = 20;

pub(super) struct Rollouts {
    deployments: usize,
    qps: Qps,
}

impl Rollouts {
    pub(super) fn of(bench: &Bench, qps: Qps) -> Self {
        Self { deployments: bench.scaled(DEPLOYMENTS), qps }
    }

    /// Half as many.
    pub(super) fn fewer(bench: &Bench, qps: Qps) -> Self {
        Self { deployments: bench.scaled(DEPLOYMENTS / 2), qps }
    }

    /// The flags of a manager.
    pub(super) fn flags(&self) -> Flags {
        Flags::of(self.controllers(), self.qps)
    }
}

impl Scenario for Rollouts {
    fn name(&self) -> String {
        match self.qps {
            Qps::Usual => "rollouts".to_owned(),
            Qps::Unlimited => "rollouts, QPS unlimited".to_owned(),
        }
    }

    fn about(&self) -> String {
        let limit = match self.qps {
            Qps::Usual => "with the common flags",
            Qps::Unlimited => "with --kube-api-qps so high that it never delays a request",
        };
        format!(
            "{} Deployments of {REPLICAS} pods are created, get another image, and are deleted in the foreground, {limit}.",
            self.deployments
        )
    }

    fn controllers(&self) -> &'static [&'static str] {
        &["deployment-controller", "replicaset-controller", "garbage-collector-controller"]
    }

    fn targets(&self) -> Vec<(Figure, Target)> {
        vec![never_more(What::Writes), wall_at(self.qps), (whole(What::Cpu), Target::Ratio(0.25))]
    }

    fn run<'a>(&'a self, bench: &'a Bench, turn: Turn) -> LocalBoxFuture<'a, Figures> {
        async move {
            let role = if self.qps == Qps::Usual { "rollouts" } else { "rollouts-unlimited" };
            let manager = bench.manager(turn, role, &self.flags());
            calm(manager.pid).await;
            self.play(bench, turn, &manager, Until::Calm).await
        }
        .boxed_local()
    }
}

impl Rollouts {
    /// All of it under a manager; each phase is measured until then.
    pub(super) async fn play(
        &self,
        bench: &Bench,
        turn: Turn,
        manager: &Manager<'_>,
        then: Until,
    ) -> Figures {
        let mut figures = Figures::default();
        let namespace = bench.namespace("rollouts").await;
        let gauge = || Gauge::start(bench, turn.program, manager.pid);

        let create = gauge();
        many(self.deployments, async |at| {
            namespace.deployment(&format!("web-{at}"), REPLICAS as i32, json!({})).await;
        })
        .await;
        self.rolled(&namespace).await;
        create.close("create", then, &mut figures).await;

        let update = gauge();
        many(self.deployments, async |at| {
            namespace.set_image(&format!("web-{at}"), "nginx:2").await;
        })
        .await;
        self.rolled(&namespace).await;
        update.close("update", then, &mut figures).await;

        let delete = gauge();
        delete_all(&namespace.api::<Deployment>()).await;
        until_gone(&namespace.api::<Deployment>()).await;
        until_gone(&namespace.api::<ReplicaSet>()).await;
        until_gone(&namespace.api::<Pod>()).await;
        delete.close("delete", then, &mut figures).await;
        figures.totaled()
    }

    /// Waits until all Deployments are as wanted.
    async fn rolled(&self, namespace: &Namespace) {
        let api = namespace.api::<Deployment>();
        let rolled = async || {
            // It is a large answer, and the machine is the managers'.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let list = api.list(&ListParams::default()).await.expect("a list").items;
            list.iter().filter(|each| is_rolled(each)).count()
        };
        until("all Deployments to be rolled out", LIMIT, rolled, |count| *count == self.deployments).await;
    }
}

pub(super) fn is_rolled(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation == deployment.metadata.generation
            && [status.replicas, status.updated_replicas, status.available_replicas] == [wanted; 3]
    })
}
