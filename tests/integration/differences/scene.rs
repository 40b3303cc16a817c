//! The place of one case: a namespace, and a client that reads and writes objects of any kind as JSON.

use std::sync::Arc;
use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::Timestamp;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams, PropagationPolicy,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::recorder::Recorder;
use crate::harness::{AuditEvent, Caller, Cluster, ControlPlane, MetricsApi, Page, Port, Program, object};

const LIMIT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(100);

/// The result of a case: what differs from the claim of its row.
pub(super) type Outcome = Result<(), String>;

/// A group, a version, a kind, and whether its objects are in namespaces.
const KINDS: [(&str, &str, &str, bool); 35] = [
    ("", "v1", "ConfigMap", true),
    ("", "v1", "Endpoints", true),
    ("", "v1", "Event", true),
    ("", "v1", "Namespace", false),
    ("", "v1", "Node", false),
    ("", "v1", "PersistentVolume", false),
    ("", "v1", "PersistentVolumeClaim", true),
    ("", "v1", "Pod", true),
    ("", "v1", "ReplicationController", true),
    ("", "v1", "ResourceQuota", true),
    ("", "v1", "Secret", true),
    ("", "v1", "Service", true),
    ("", "v1", "ServiceAccount", true),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", false),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", false),
    ("apps", "v1", "DaemonSet", true),
    ("apps", "v1", "Deployment", true),
    ("apps", "v1", "ReplicaSet", true),
    ("apps", "v1", "StatefulSet", true),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", true),
    ("batch", "v1", "CronJob", true),
    ("batch", "v1", "Job", true),
    ("coordination.k8s.io", "v1", "Lease", true),
    ("discovery.k8s.io", "v1", "EndpointSlice", true),
    ("internal.apiserver.k8s.io", "v1alpha1", "StorageVersion", false),
    ("policy", "v1", "PodDisruptionBudget", true),
    ("node.k8s.io", "v1", "RuntimeClass", false),
    ("resource.k8s.io", "v1beta2", "DeviceTaintRule", false),
    ("resource.k8s.io", "v1alpha3", "ResourcePoolStatusRequest", false),
    ("resource.k8s.io", "v1", "ResourceSlice", false),
    ("resource.k8s.io", "v1", "ResourceClaim", true),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate", true),
    ("scheduling.k8s.io", "v1alpha2", "PodGroup", true),
    ("scheduling.k8s.io", "v1alpha2", "Workload", true),
    ("storage.k8s.io", "v1", "VolumeAttributesClass", false),
];

/// What a manager is asked for and does in one namespace.
pub(super) struct Scene {
    /// The manager that runs.
    pub(super) program: Program,
    pub(super) plane: Arc<ControlPlane>,
    pub(super) cluster: Cluster,
    /// The namespace, by whose name objects outside of namespaces begin.
    pub(super) name: String,
    /// The secure port of the manager.
    pub(super) url: String,
    /// The time from which requests count.
    pub(super) since: Timestamp,
    /// The number of the scene, for names with a fixed length.
    pub(super) number: usize,
    pub(super) metrics: Option<Arc<MetricsApi>>,
    pub(super) recorder: Option<Arc<Recorder>>,
}

impl Scene {
    /// Returns the same place for another manager.
    pub(super) fn under(&self, program: Program, url: &str) -> Self {
        Self {
            program,
            plane: Arc::clone(&self.plane),
            cluster: self.cluster.clone(),
            name: self.name.clone(),
            url: url.to_owned(),
            since: SystemClock.now(),
            number: self.number,
            metrics: self.metrics.clone(),
            recorder: self.recorder.clone(),
        }
    }

    /// Returns a name that no other scene has: the namespace and `suffix`.
    pub(super) fn own(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.name)
    }

    pub(super) fn api(&self, kind: &str) -> Api<DynamicObject> {
        self.api_in(kind, &self.name)
    }

    pub(super) fn api_in(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let found = KINDS.iter().find(|(_, _, name, _)| *name == kind);
        let (group, version, kind, is_namespaced) = found.unwrap_or_else(|| panic!("no kind {kind}"));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.cluster.client.clone();
        if *is_namespaced {
            Api::namespaced_with(client, namespace, &resource)
        } else {
            Api::all_with(client, &resource)
        }
    }

    pub(super) async fn create(&self, kind: &str, body: Value) -> Value {
        self.create_in(kind, &self.name, body).await
    }

    pub(super) async fn create_in(&self, kind: &str, namespace: &str, mut body: Value) -> Value {
        let (group, version, kind, _) = KINDS.iter().find(|(_, _, name, _)| *name == kind).expect("a kind");
        let api_version = if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
        body["apiVersion"] = api_version.into();
        body["kind"] = (*kind).into();
        let created = self.api_in(kind, namespace).create(&PostParams::default(), &object(body)).await;
        value(created.unwrap_or_else(|error| panic!("a {kind} is created in {namespace}: {error}")))
    }

    /// Returns an object; null if there is none.
    pub(super) async fn get(&self, kind: &str, name: &str) -> Value {
        let found =
            self.api(kind).get_opt(name).await.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
        found.map_or(Value::Null, value)
    }

    pub(super) async fn list(&self, kind: &str) -> Vec<Value> {
        self.list_in(kind, &self.name).await
    }

    pub(super) async fn list_in(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let listed = self.api_in(kind, namespace).list(&ListParams::default()).await;
        listed
            .unwrap_or_else(|error| panic!("a list of {kind}: {error}"))
            .items
            .into_iter()
            .map(value)
            .collect()
    }

    /// Returns the number of objects of a kind in the namespace.
    pub(super) async fn count(&self, kind: &str) -> usize {
        self.list(kind).await.len()
    }

    pub(super) async fn patch(&self, kind: &str, name: &str, patch: Value) -> Value {
        let patched = self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        value(patched.unwrap_or_else(|error| panic!("{kind} {name} is patched: {error}")))
    }

    pub(super) async fn patch_status(&self, kind: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let patched = self.api(kind).patch_status(name, &PatchParams::default(), &patch).await;
        drop(patched.unwrap_or_else(|error| panic!("the status of {kind} {name} is patched: {error}")));
    }

    pub(super) async fn delete(&self, kind: &str, name: &str, propagation: PropagationPolicy) {
        let params =
            DeleteParams { propagation_policy: Some(propagation), ..DeleteParams::default().grace_period(0) };
        let deleted = self.api(kind).delete(name, &params).await;
        drop(deleted.unwrap_or_else(|error| panic!("{kind} {name} is deleted: {error}")));
    }

    /// Writes an object to etcd, with fields that the API server sets by itself.
    pub(super) async fn store(&self, place: &str, object: &Value) {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        let name = object["metadata"]["name"].as_str().expect("a name");
        let key = format!("/registry/{place}/{name}");
        let [key, value] = [key, object.to_string()].map(|text| STANDARD.encode(text));
        self.plane.etcd("put", &json!({ "key": key, "value": value })).await;
    }

    /// Creates a pod on a node that nobody plays.
    pub(super) async fn pod(&self, name: &str, labels: Value, owners: Value) -> Value {
        let container = json!({ "name": "main", "image": "image:1" });
        let body = json!({
            "metadata": { "name": name, "labels": labels, "ownerReferences": owners },
            "spec": { "nodeName": "nowhere", "containers": [container], "terminationGracePeriodSeconds": 0 },
        });
        self.create("Pod", body).await
    }

    /// Makes a pod run and be ready, with these addresses.
    pub(super) async fn ready(&self, pod: &str, addresses: &[&str]) {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
            "podIP": addresses.first().map(|first| first["ip"].clone()), "podIPs": addresses });
        self.patch_status("Pod", pod, status).await;
    }

    /// Waits until the observation is the one that the row states for this manager.
    pub(super) async fn sees<F: Future<Output = Value>>(
        &self,
        what: &str,
        mut look: impl FnMut() -> F,
        theirs: Value,
        ours: Value,
    ) -> Outcome {
        let expected = if self.program == Program::Go { theirs } else { ours };
        let deadline = Instant::now() + LIMIT;
        loop {
            let seen = look().await;
            if seen == expected {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{what}: {expected} was expected, last seen: {seen}"));
            }
            sleep(POLL).await;
        }
    }

    /// Waits until the observation is this one under either manager.
    pub(super) async fn waits<F: Future<Output = Value>>(
        &self,
        what: &str,
        look: impl FnMut() -> F,
        expected: Value,
    ) -> Outcome {
        self.sees(what, look, expected.clone(), expected).await
    }

    /// Returns the requests of the manager since it was started that concern the namespace, or an object that is named after it.
    pub(super) fn requests(&self) -> Vec<AuditEvent> {
        let all = self.all_requests().into_iter();
        let own = self.own("");
        all.filter(|event| event.object_ref.namespace == self.name || event.object_ref.name.starts_with(&own))
            .collect()
    }

    /// Returns all requests of the manager since the scene began.
    pub(super) fn all_requests(&self) -> Vec<AuditEvent> {
        let all = self.plane.audit().into_iter();
        all.filter(|event| event.is_from(self.program) && event.request_received_timestamp >= self.since)
            .collect()
    }

    /// Returns the number of requests of the manager about the namespace, by verb and resource.
    pub(super) fn sent(&self, verb: &str, resource: &str) -> usize {
        let all = self.requests();
        all.iter().filter(|event| event.verb == verb && event.resource() == resource).count()
    }

    /// Returns a page of the manager.
    pub(super) async fn page(&self, path: &str) -> Page {
        let port = Port::open(&self.plane.report, &self.url, Caller::Admin).await;
        port.try_get(path).await.unwrap_or_else(|| panic!("{} does not answer {path}", self.url))
    }

    /// Returns the sum of the series of a metric whose labels contain a text.
    pub(super) async fn metric(&self, name: &str, labels: &str) -> f64 {
        let page = self.page("/metrics").await.text;
        let own = page.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        });
        own.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Returns the Events about objects of this name, with a reason.
    pub(super) async fn events(&self, namespace: &str, name: &str, reason: &str) -> Vec<Value> {
        let all = self.list_in("Event", namespace).await.into_iter();
        all.filter(|event| event["involvedObject"]["name"] == name && event["reason"] == reason).collect()
    }

    /// Refuses deletes of objects whose names begin with a text, and waits until `probe`, such an object, cannot be deleted.
    pub(super) async fn refuse_deletes(
        &self,
        resource: &str,
        begin: &str,
        probe: (&str, &str, &str),
    ) -> Outcome {
        let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": [resource] });
        let expression = format!("oldObject.metadata.name.startsWith('{begin}')");
        let spec = json!({ "matchConstraints": { "resourceRules": [rule] },
            "matchConditions": [{ "name": "here", "expression": expression }],
            "validations": [{ "expression": "false", "message": "it stays" }] });
        let policy = self.own("refuse");
        self.create("ValidatingAdmissionPolicy", json!({ "metadata": { "name": policy }, "spec": spec }))
            .await;
        let spec = json!({ "policyName": policy, "validationActions": ["Deny"] });
        self.create(
            "ValidatingAdmissionPolicyBinding",
            json!({ "metadata": { "name": policy }, "spec": spec }),
        )
        .await;
        self.waits("deletes are refused", || self.may_delete(probe), false.into()).await
    }

    /// Ends [`Scene::refuse_deletes`].
    pub(super) async fn permit_deletes(&self, probe: (&str, &str, &str)) -> Outcome {
        self.delete("ValidatingAdmissionPolicyBinding", &self.own("refuse"), PropagationPolicy::Background)
            .await;
        self.waits("deletes are permitted", || self.may_delete(probe), true.into()).await
    }

    async fn may_delete(&self, (kind, namespace, name): (&str, &str, &str)) -> Value {
        let params = DeleteParams::default().dry_run();
        self.api_in(kind, namespace).delete(name, &params).await.is_ok().into()
    }
}

fn value(object: DynamicObject) -> Value {
    serde_json::to_value(object).expect("JSON")
}

/// Returns a reference to the controller of an object.
pub(super) fn controller(api_version: &str, kind: &str, name: &str, uid: &Value) -> Value {
    json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true,
        "blockOwnerDeletion": true }])
}

/// Returns the time so many seconds from now.
pub(super) fn in_seconds(seconds: i64) -> String {
    let now = SystemClock.now().round(jiff::Unit::Second).expect("a second");
    (now + jiff::SignedDuration::from_secs(seconds)).to_string()
}
