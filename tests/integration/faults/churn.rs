//! Objects that come, change and go without a pause, so that there is always an event to be lost.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

/// Between two operations.
const PACE: Duration = Duration::from_millis(25);
/// Objects of each kind that are kept around.
const CROWD: usize = 15;

/// Creates, changes and deletes objects in one namespace.
pub(super) struct Churn {
    kinds: Vec<Churned>,
    dice: StdRng,
    count: u64,
}

struct Churned {
    api: Api<DynamicObject>,
    body: fn() -> Value,
    alive: Vec<String>,
}

impl Churn {
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        let churned = |resource: ApiResource, body| Churned {
            api: Api::namespaced_with(client.clone(), namespace, &resource),
            body,
            alive: Vec::new(),
        };
        let kinds = vec![
            churned(ApiResource::erase::<ConfigMap>(&()), || json!({ "data": { "a": "b" } })),
            churned(ApiResource::erase::<Secret>(&()), || json!({ "stringData": { "a": "b" } })),
            churned(ApiResource::erase::<ServiceAccount>(&()), || json!({})),
            churned(ApiResource::erase::<ReplicaSet>(&()), || {
                json!({ "spec": {
                    "replicas": 0,
                    "selector": { "matchLabels": { "app": "none" } },
                    "template": {
                        "metadata": { "labels": { "app": "none" } },
                        "spec": { "containers": [{ "name": "web", "image": "nginx" }] },
                    },
                } })
            }),
            churned(
                ApiResource::erase::<Pod>(&()),
                || json!({ "spec": { "containers": [{ "name": "web", "image": "nginx" }] } }),
            ),
        ];
        Self { kinds, dice: StdRng::seed_from_u64(5), count: 0 }
    }

    /// Runs beside `work` until that is done. What fails because the API server is away is not tried again.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.run() => match never {},
        }
    }

    /// Operations that succeeded.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    async fn run(&mut self) -> std::convert::Infallible {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            let at = self.dice.random_range(0..self.kinds.len());
            let (what, which) = (self.dice.random_range(0..3), self.dice.random::<u32>());
            if self.kinds[at].change(what, which).await.is_ok() {
                self.count += 1;
            }
        }
    }
}

impl Churned {
    async fn change(&mut self, what: u32, which: u32) -> kube::Result<()> {
        let chosen = which as usize % self.alive.len().max(1);
        match what {
            0 if self.alive.len() > CROWD / 2 => {
                let name = self.alive.swap_remove(chosen);
                self.api.delete(&name, &DeleteParams::default()).await.map(drop)
            }
            1 if !self.alive.is_empty() => {
                let patch = json!({ "metadata": { "labels": { "changed": which.to_string() } } });
                let name = &self.alive[chosen];
                self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
            }
            _ if self.alive.len() < CROWD => {
                let name = format!("churn-{which}");
                let mut body = (self.body)();
                body["metadata"] = json!({ "name": name });
                let object = serde_json::from_value(body).expect("an object");
                self.api.create(&PostParams::default(), &object).await?;
                self.alive.push(name);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
