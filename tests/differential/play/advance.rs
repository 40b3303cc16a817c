//! The steps in the lives of pods: requests of the scheduler, the kubelet and users.

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::Unit;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Stage, result};
use crate::operation::Fate;
use crate::pods;
use crate::scenario::resource;

impl Stage<'_> {
    /// Advances the pod at this index in the pods of the last calm.
    pub(super) async fn advance(&mut self, at: usize, fate: Fate) -> Result<String, String> {
        let name = self.pods[at]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let api = self.api(&resource("Pod")?);
        let params = PatchParams::default();
        let patched = match fate {
            Fate::Bound => return self.bind(at, &name).await,
            Fate::Evicted => {
                let api: Api<Pod> = Api::namespaced(self.plane.cluster.once.clone(), self.namespace);
                let answer = api.evict(&name, &EvictParams::default()).await;
                if answer.is_ok() {
                    self.pods[at]["metadata"]["deletionTimestamp"] = "now".into();
                }
                return result(answer);
            }
            Fate::Deleted | Fate::Vanished | Fate::Gone => {
                let params = DeleteParams::default();
                let params = if fate == Fate::Deleted { params } else { params.grace_period(0) };
                self.pods[at]["metadata"]["deletionTimestamp"] = "now".into();
                return result(api.delete(&name, &params).await);
            }
            Fate::Held => {
                let finalizers = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
                api.patch(&name, &params, &Patch::Strategic(finalizers)).await
            }
            Fate::Released => {
                let finalizers = json!({ "metadata": { "finalizers": null } });
                api.patch(&name, &params, &Patch::Merge(finalizers)).await
            }
            Fate::Relabeled => {
                let labels = json!({ "metadata": { "labels": { "app": "other" } } });
                api.patch(&name, &params, &Patch::Merge(labels)).await
            }
            Fate::Ready | Fate::Unready | Fate::Failed | Fate::Succeeded | Fate::Disrupted => {
                if fate != Fate::Disrupted && self.pods[at]["status"]["podIP"].is_null() {
                    self.addresses += 1;
                }
                let address = format!("10.99.{}.{}", self.addresses / 250, self.addresses % 250 + 1);
                let now = SystemClock.now().round(Unit::Second).map_err(|error| error.to_string())?;
                let status = pods::status(&self.pods[at], fate, &now.to_string(), &address);
                api.patch_status(&name, &params, &Patch::Strategic(status)).await
            }
        };
        if let Ok(pod) = &patched {
            self.pods[at] = serde_json::to_value(pod).map_err(|error| error.to_string())?;
        }
        result(patched)
    }

    /// Binds a pod to its node as the scheduler does.
    async fn bind(&mut self, at: usize, name: &str) -> Result<String, String> {
        let node = pods::node(&self.pods[at]);
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": name },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let path = format!("/api/v1/namespaces/{}/pods/{name}/binding", self.namespace);
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(binding.to_string().into_bytes()).map_err(|error| error.to_string())?;
        let answer = self.plane.cluster.once.request::<Value>(request).await;
        if answer.is_ok() {
            self.pods[at]["spec"]["nodeName"] = node.into();
        }
        result(answer)
    }
}
