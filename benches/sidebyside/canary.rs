//! An object by which it is seen that a manager acts: a Deployment of one pod, reconciled when the pod is there. That takes
//! the stores of three kinds, whichever manager it is.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::bench::Bench;
use crate::harness::Namespace;

/// How often it is looked at.
const POLL: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_mins(5);

/// A canary, placed or not.
pub(crate) struct Canary {
    namespace: Namespace,
}

impl Canary {
    /// With a namespace of its own.
    pub(crate) async fn new(bench: &Bench) -> Self {
        Self { namespace: bench.namespace("canary").await }
    }

    /// Makes the Deployment.
    pub(crate) async fn place(&self) {
        self.namespace.deployment("canary", 1, json!({})).await;
    }

    /// Waits until its ReplicaSet is there: something was written for it.
    pub(crate) async fn noticed(&self) -> Instant {
        self.until_there(self.namespace.api::<ReplicaSet>()).await
    }

    /// Waits until its pod is there: it was reconciled.
    pub(crate) async fn reconciled(&self) -> Instant {
        self.until_there(self.namespace.api::<Pod>()).await
    }

    async fn until_there<K>(&self, api: Api<K>) -> Instant
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let deadline = Instant::now() + LIMIT;
        let first = ListParams::default().limit(1);
        loop {
            // The API server may have just been started.
            let found = api.list_metadata(&first).await.is_ok_and(|list| !list.items.is_empty());
            let now = Instant::now();
            if found {
                return now;
            }
            assert!(now < deadline, "the canary is not reconciled within {LIMIT:?}");
            sleep(POLL).await;
        }
    }

    /// Removes it.
    pub(crate) async fn remove(&self) {
        let now = DeleteParams::default().grace_period(0);
        let all = ListParams::default();
        let deployments = self.namespace.api::<Deployment>();
        deployments.delete_collection(&now, &all).await.expect("the canary is removed");
        let sets = self.namespace.api::<ReplicaSet>();
        sets.delete_collection(&now, &all).await.expect("its ReplicaSet is removed");
        self.namespace.api::<Pod>().delete_collection(&now, &all).await.expect("its pod is removed");
    }
}
