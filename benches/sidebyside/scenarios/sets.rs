//! What is done with DaemonSets and StatefulSets alike: they are created, get another image, and are deleted.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::content::{LIMIT, many};
use crate::figures::Figures;
use crate::harness::{Manager, Namespace, until};
use crate::measure::{Gauge, Until};
use crate::program::Turn;
use crate::scenario::{delete_all, until_gone};

/// Sets of one kind, all alike.
pub(super) struct Sets<K> {
    /// How many.
    pub(super) count: usize,
    /// What the specification of each has beside its selector and its template.
    pub(super) spec: Value,
    /// Whether one is as it is wanted.
    pub(super) is_rolled: fn(&K) -> bool,
}

impl<K> Sets<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    /// All of it under a manager; each phase is measured until that is calm.
    pub(super) async fn play(
        &self,
        bench: &Bench,
        turn: Turn,
        namespace: &Namespace,
        manager: &Manager<'_>,
    ) -> Figures {
        let mut figures = Figures::default();
        let sets = namespace.api::<K>();
        let gauge = || Gauge::start(bench, turn.program, manager.pid);

        let create = gauge();
        many(self.count, async |at| {
            let _: K = namespace.create(self.manifest(at)).await;
        })
        .await;
        self.rolled(&sets).await;
        create.close("create", Until::Calm, &mut figures).await;

        let update = gauge();
        let patch = json!({ "spec": { "template": { "spec": pod("web:2") } } });
        many(self.count, async |at| {
            sets.patch(&name(at), &PatchParams::default(), &Patch::Strategic(&patch)).await.expect("patched");
        })
        .await;
        self.rolled(&sets).await;
        update.close("update", Until::Calm, &mut figures).await;

        let delete = gauge();
        delete_all(&sets).await;
        until_gone(&sets).await;
        until_gone(&namespace.api::<Pod>()).await;
        delete.close("delete", Until::Calm, &mut figures).await;
        figures.totaled()
    }

    fn manifest(&self, at: usize) -> Value {
        let name = name(at);
        let mut spec = self.spec.clone();
        spec["selector"] = json!({ "matchLabels": { "app": name } });
        spec["template"] = json!({ "metadata": { "labels": { "app": name } }, "spec": pod("web:1") });
        json!({ "metadata": { "name": name }, "spec": spec })
    }

    /// Waits until all are as they are wanted.
    async fn rolled(&self, sets: &Api<K>) {
        let rolled = async || {
            let list = sets.list(&ListParams::default()).await.expect("a list").items;
            list.iter().filter(|each| (self.is_rolled)(each)).count()
        };
        let all = format!("all {} to be rolled out", K::plural(&()));
        until(&all, LIMIT, rolled, |count| *count == self.count).await;
    }
}

fn name(at: usize) -> String {
    format!("set-{at}")
}

/// The specification of a pod.
fn pod(image: &str) -> Value {
    json!({ "containers": [{ "name": "web", "image": image }] })
}
