//! Plays a list of operations on a control plane.

mod advance;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Namespace, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Resource as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::calm::{self, Calm};
use crate::harness::{AuditEvent, object};
use crate::names::Names;
use crate::normal::{hints, managers, revision_hashes, show_by_address, without_random_parts};
use crate::operation::{Action, Named, Operation, Propagation};
use crate::plane::Plane;
use crate::pods;
use crate::refusals;
use crate::scenario::{is_namespaced, resource};
use crate::snapshot::snapshot;
use crate::wire::{self, segment};

/// Kinds that are compared.
const COMPARED: &[&str] = &[
    "CertificateSigningRequest",
    "ConfigMap",
    "ControllerRevision",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "EndpointSlice",
    "Endpoints",
    "HorizontalPodAutoscaler",
    "Job",
    "Namespace",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "Realm",
    "ReplicaSet",
    "ReplicationController",
    "ResourceQuota",
    "Role",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet",
    "Thing",
];

/// Kinds whose names are random or have hashes, so that no word can stand for their UIDs.
const RANDOM_NAMES: &[&str] = &["ControllerRevision", "EndpointSlice", "Pod", "ReplicaSet"];

/// The ends of the names of each list's own StorageClasses, and their further fields. Claims of one list must not bind to volumes of another.
const CLASSES: [(&str, &str); 2] = [
    ("waits", r#"{"volumeBindingMode":"WaitForFirstConsumer"}"#),
    ("grows", r#"{"allowVolumeExpansion":true,"reclaimPolicy":"Retain"}"#),
];

/// Time after which a control plane is compared even if it is not calm. The field `calm` shows this.
const LIMIT: Duration = Duration::from_mins(1);
/// The same time for a list that plays alone.
const LIMIT_ALONE: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(200);

/// The result of a play.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// All objects, events and results of operations at each calm. The first one at which the control plane was not calm is the last.
    pub(crate) looks: Vec<Value>,
    /// Number of the manager's write requests, by `CONTROLLER RESOURCE/SUBRESOURCE`.
    pub(crate) writes: BTreeMap<String, usize>,
    /// The manager's write requests, one a line.
    pub(crate) lines: Vec<String>,
}

struct Stage<'a> {
    plane: &'a Plane,
    namespace: &'a str,
    names: Names,
    /// The pods of the last calm, with the changes that this list has made to them since.
    pods: Vec<Value>,
    /// The results of the operations since the last calm.
    results: Map<String, Value>,
    /// Objects in other namespaces, by kind and name.
    elsewhere: BTreeMap<String, (Api<DynamicObject>, String)>,
    /// Time after which the control plane is compared even if it is not calm.
    limit: Duration,
    /// Number of pod addresses that were given.
    addresses: usize,
}

/// Plays the operations in a new namespace.
///
/// # Errors
/// If the API server cannot be reached, or no service account is created.
pub(crate) async fn play(
    plane: &Plane,
    namespace: &str,
    operations: &[Operation],
    is_alone: bool,
) -> Result<Played, String> {
    let mut stage = Stage::new(plane, namespace);
    if is_alone {
        stage.limit = LIMIT_ALONE;
    }
    plane.keep_writes(namespace);
    let has_refusals = operations.iter().any(|operation| matches!(operation.action, Action::Refuse(_)));
    stage.settle_in(has_refusals).await?;
    let mut played = Played::default();
    for (at, operation) in operations.iter().enumerate() {
        if operation.action == Action::Calm {
            played.looks.push(stage.look_when_calm(calm::after(&operations[..at], false)).await?);
            if !played.is_calm() {
                // Further rounds would probably not be calm either, and the whole list would take too long.
                break;
            }
        } else {
            let result = stage.perform(operation).await?;
            stage.results.insert(format!("{} {}", at + 1, operation.title()), result.into());
        }
    }
    if played.is_calm() {
        played.looks.push(stage.look_when_calm(calm::after(operations, true)).await?);
    }
    let writes = plane.take_writes(namespace);
    stage.leave().await?;
    for event in writes.iter().filter(|event| event.is_from(plane.program)) {
        let (controller, resource) = (controller(event), event.resource());
        if !matches!(resource.as_str(), "events" | "serviceaccounts/token") {
            *played.writes.entry(format!("{controller} {resource}")).or_default() += 1;
        }
        let line = format!(
            "{} {resource} {} -> {} by {controller}",
            event.verb,
            stage.names.plain(&event.object_ref.name),
            event.response_status.code
        );
        played.lines.push(line);
    }
    Ok(played)
}

/// Cleans up after a play that did not end.
///
/// # Errors
/// If the API server cannot be reached.
pub(crate) async fn clean_up(plane: &Plane, namespace: &str) -> Result<(), String> {
    drop(plane.take_writes(namespace));
    Stage::new(plane, namespace).leave().await
}

/// Returns the last part of the user name.
fn controller(event: &AuditEvent) -> &str {
    event.user.username.rsplit(':').next().unwrap_or_default()
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
pub(crate) fn message(error: kube::Error) -> String {
    error.to_string()
}

/// Returns the result of a request as it is compared: `ok`, or code and reason.
fn result<T>(answer: Result<T, kube::Error>) -> Result<String, String> {
    match answer {
        Ok(_) => Ok("ok".to_owned()),
        Err(kube::Error::Api(status)) => Ok(format!("{} {}", status.code, status.reason)),
        Err(error) => Err(message(error)),
    }
}

impl Played {
    /// Returns whether the control plane was calm at the last look.
    pub(crate) fn is_calm(&self) -> bool {
        self.looks.last().is_none_or(|look| look["calm"] == true)
    }

    /// Returns the number of write requests of this sort.
    pub(crate) fn writes_of(&self, sort: &str) -> usize {
        self.writes.get(sort).copied().unwrap_or(0)
    }
}

impl<'a> Stage<'a> {
    fn new(plane: &'a Plane, namespace: &'a str) -> Self {
        let names = Names::new(namespace, String::new(), &plane.bundle).counting_uids();
        Self {
            plane,
            namespace,
            names,
            pods: Vec::new(),
            results: Map::new(),
            elsewhere: BTreeMap::new(),
            limit: LIMIT,
            addresses: 0,
        }
    }

    fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        let client = self.plane.cluster.once.clone();
        if is_namespaced(kind) {
            Api::namespaced_with(client, self.namespace, kind)
        } else {
            Api::all_with(client, kind)
        }
    }

    /// Creates the namespace, and waits for its service account, because pods are refused before.
    async fn settle_in(&self, has_refusals: bool) -> Result<(), String> {
        let client = self.plane.cluster.client.clone();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let (key, value) = refusals::LABEL;
        let labels = if has_refusals { json!({ key: value }) } else { json!({}) };
        let new = object(json!({ "metadata": { "name": self.namespace, "labels": labels } }));
        namespaces.create(&PostParams::default(), &new).await.map_err(message)?;
        let classes: Api<StorageClass> = Api::all(client.clone());
        for (end, fields) in CLASSES {
            let mut class: Value = serde_json::from_str(fields).map_err(|error| error.to_string())?;
            class["metadata"] = json!({ "name": format!("{}-{end}", self.namespace) });
            class["provisioner"] = "kubernetes.io/no-provisioner".into();
            classes.create(&PostParams::default(), &object(class)).await.map_err(message)?;
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(client, self.namespace);
        let deadline = Instant::now() + LIMIT;
        while accounts.get_opt("default").await.map_err(message)?.is_none() {
            if Instant::now() > deadline {
                return Err(format!("{}: no service account within {LIMIT:?}", self.plane.name()));
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Deletes the objects that could disturb later lists: those for which controllers would retry, those in no namespace or in another one,
    /// and Roles, whose names need not be UTF-8.
    async fn leave(&self) -> Result<(), String> {
        self.plane.refusals.allow(self.namespace);
        for (api, name) in self.elsewhere.values() {
            let without_finalizers = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            result(api.patch(name, &PatchParams::default(), &without_finalizers).await)?;
            result(api.delete(name, &DeleteParams::background()).await)?;
        }
        for kind in ["CronJob", "HorizontalPodAutoscaler", "PersistentVolumeClaim", "ResourceQuota", "Role"] {
            let api = self.api(&resource(kind)?);
            let deleted = api.delete_collection(&DeleteParams::background(), &ListParams::default()).await;
            drop(deleted.map_err(message)?);
        }
        for kind in ["CertificateSigningRequest", "PersistentVolume", "Realm", "StorageClass"] {
            let kind = resource(kind)?;
            for object in self.list(&kind, |name| self.names.owns(name)).await? {
                let name = segment(object["metadata"]["name"].as_str().unwrap_or_default());
                result(self.api(&kind).delete(&name, &DeleteParams::background()).await)?;
            }
        }
        Ok(())
    }

    async fn perform(&mut self, operation: &Operation) -> Result<String, String> {
        match &operation.action {
            Action::Apply(object) => self.apply(&operation.actor, object).await,
            Action::Wire(object) => self.wire(object).await,
            Action::Patch(named, with) | Action::Status(named, with) => {
                let (api, name) = self.target(named)?;
                let params =
                    PatchParams { field_manager: Some(operation.actor.clone()), ..PatchParams::default() };
                let patch = Patch::Merge(self.names.really(with));
                match operation.action {
                    Action::Status(..) => result(api.patch_status(&name, &params, &patch).await),
                    _ => result(api.patch(&name, &params, &patch).await),
                }
            }
            Action::Metrics(numbers) => {
                let numbers = serde_json::from_value(numbers.clone()).map_err(|error| error.to_string())?;
                self.plane.metrics.say(self.namespace, numbers);
                Ok("ok".to_owned())
            }
            Action::Scale(named, replicas) => {
                let (api, name) = self.target(named)?;
                let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
                result(api.patch_scale(&name, &PatchParams::default(), &patch).await)
            }
            Action::Delete(named, propagation) => {
                let (api, name) = self.target(named)?;
                let params = match propagation {
                    Propagation::Background => DeleteParams::background(),
                    Propagation::Foreground => DeleteParams::foreground(),
                    Propagation::Orphan => DeleteParams::orphan(),
                };
                result(api.delete(&name, &params).await)
            }
            Action::Approve(named, since) => {
                let (api, name) = self.target(named)?;
                let mut condition =
                    json!({ "type": "Approved", "status": "True", "reason": "Test", "message": "" });
                if let Some(time) = since {
                    condition["lastUpdateTime"] = self.names.real(time).into();
                }
                let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
                result(api.patch_subresource("approval", &name, &PatchParams::default(), &patch).await)
            }
            Action::Pods { fate, selector, take } => {
                let mut results = Vec::new();
                for at in pods::choose(&self.pods, *fate, selector, *take) {
                    results.push(self.advance(at, *fate).await?);
                }
                Ok(results.join(", "))
            }
            Action::Refuse(refusal) => {
                self.plane.refusals.refuse(self.namespace, refusal.clone());
                Ok("ok".to_owned())
            }
            Action::Allow => {
                self.plane.refusals.allow(self.namespace);
                Ok("ok".to_owned())
            }
            Action::Manager(life) => self.plane.live(*life).await.map(|()| "ok".to_owned()),
            Action::Forbid { role, verb, resource } => {
                self.plane.forbid(role, verb, resource).await.map(|()| "ok".to_owned())
            }
            Action::Permit => self.plane.permit().await.map(|()| "ok".to_owned()),
            Action::Calm => unreachable!("`play` handles a calm itself"),
        }
    }

    fn target(&self, named: &Named) -> Result<(Api<DynamicObject>, String), String> {
        Ok((self.api(&resource(&named.kind)?), segment(&self.names.real(&named.name))))
    }

    async fn apply(&mut self, actor: &str, object: &Value) -> Result<String, String> {
        let named = Named::of(object);
        let (mut api, name) = self.target(&named)?;
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            let kind = resource(&named.kind)?;
            api = Api::namespaced_with(self.plane.cluster.once.clone(), namespace, &kind);
            self.elsewhere.insert(named.to_string(), (api.clone(), name.clone()));
        }
        let params = PatchParams::apply(actor).force();
        let applied = api.patch(&name, &params, &Patch::Apply(self.names.really(object))).await;
        if let Ok(applied) = &applied {
            self.names.know(&named.to_string(), applied.metadata.uid.as_deref().unwrap_or_default());
            if named.kind == "Job" {
                let job = serde_json::to_value(applied).map_err(|error| error.to_string())?;
                self.names.note_jobs(std::slice::from_ref(&job));
            }
        }
        result(applied)
    }

    /// Applies an object with strings that are not valid UTF-8. The result of a refusal is the status code alone.
    async fn wire(&mut self, object: &Value) -> Result<String, String> {
        let named = Named::of(object);
        let kind = resource(&named.kind)?;
        let place = Some(self.namespace).filter(|_| is_namespaced(&kind));
        let collection = DynamicObject::url_path(&kind, place);
        let client = &self.plane.cluster.once;
        match wire::apply(client, &collection, &self.names.really(object)).await {
            Ok(uid) => {
                self.names.know(&named.to_string(), &uid);
                Ok("ok".to_owned())
            }
            Err(error) => match error.split_once(' ') {
                Some((code, _)) if code.parse::<u16>().is_ok() => Ok(code.to_owned()),
                _ => Err(error),
            },
        }
    }

    /// Waits for a calm and returns all objects.
    async fn look_when_calm(&mut self, calm: Calm) -> Result<Value, String> {
        self.plane.wake().await?;
        let since = Instant::now();
        let mut replicas = None;
        loop {
            sleep(calm.pause).await;
            let now = if calm.is_scaled { self.replicas().await? } else { Vec::new() };
            // The first pause may begin before the autoscaler has acted on the last operations, and so have no change in it.
            let is_settled = replicas.replace(now.clone()).is_some_and(|before| before == now);
            if !calm.is_scaled || is_settled || since.elapsed() > self.limit {
                break;
            }
        }
        let since = Instant::now();
        let activity = &self.plane.activity;
        let (mut look, names, pods) = loop {
            let concerns = |place: &str| self.names.owns(place.trim_start_matches("kube-system/"));
            let quiet = activity.quiet(concerns, since, calm.quiet, POLL).await;
            let before = activity.last_write(concerns);
            let is_late = since.elapsed() > self.limit;
            if !quiet && !is_late {
                continue;
            }
            let (mut look, names, pods) = self.look().await?;
            // Lists that were read while something was written did not exist at one time.
            let is_steady = quiet && activity.last_write(concerns) == before;
            if is_steady || is_late {
                look["calm"] = is_steady.into();
                break (look, names, pods);
            }
        };
        look["operations"] = Value::Object(std::mem::take(&mut self.results));
        self.names = names;
        self.pods = pods;
        Ok(look)
    }

    /// Returns the numbers of replicas of all objects that an autoscaler scales.
    async fn replicas(&self) -> Result<Vec<Value>, String> {
        let mut all = Vec::new();
        for kind in ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Thing"] {
            for object in self.list(&resource(kind)?, |_| true).await? {
                all.push(json!([kind, object["metadata"]["name"], object["spec"]["replicas"]]));
            }
        }
        Ok(all)
    }

    async fn look(&self) -> Result<(Value, Names, Vec<Value>), String> {
        let mut objects: Vec<(&str, Vec<Value>)> = Vec::new();
        for kind in COMPARED {
            let api = resource(kind)?;
            let is_ours = |name: &str| is_namespaced(&api) || self.names.owns(name);
            let mut found = self.list(&api, is_ours).await?;
            for spec in found.iter_mut().filter_map(|object| object.get_mut("spec")?.as_object_mut()) {
                // The hash of the requester's certificate.
                drop(spec.shift_remove("extra"));
            }
            if matches!(*kind, "EndpointSlice" | "Endpoints") {
                found.iter_mut().for_each(show_by_address);
            }
            objects.push((kind, found));
        }
        let event = ApiResource::erase::<Event>(&());
        let mut events = self.list(&event, |_| true).await?;
        // Events about objects in no namespace.
        let elsewhere =
            Api::<DynamicObject>::namespaced_with(self.plane.cluster.once.clone(), "default", &event);
        let elsewhere = elsewhere.list(&ListParams::default()).await.map_err(message)?;
        for event in elsewhere.items {
            let event = serde_json::to_value(event).map_err(|error| error.to_string())?;
            if event["involvedObject"]["name"].as_str().is_some_and(|name| self.names.owns(name)) {
                events.push(event);
            }
        }
        let mut names = self.names.clone();
        for (kind, all) in objects.iter().filter(|(kind, _)| !RANDOM_NAMES.contains(kind)) {
            for object in all {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                names.know(&format!("{kind}/{}", names.plain(text("name"))), text("uid"));
            }
        }
        let pods = objects.iter().find(|(kind, _)| *kind == "Pod").map(|(_, pods)| pods.clone());
        let mut tree = snapshot(&mut names, &objects, &events);
        tree["managers"] = managers(&names, &objects);
        tree["hints"] = hints(&objects);
        tree["elsewhere"] = self.elsewhere().await?;
        Ok((without_random_parts(&tree, &revision_hashes(&objects)), names, pods.unwrap_or_default()))
    }

    /// Returns the state of the objects in other namespaces. `null` stands for an object that is gone.
    async fn elsewhere(&self) -> Result<Value, String> {
        let mut all = Map::new();
        for (named, (api, name)) in &self.elsewhere {
            let metadata = api.get_opt(name).await.map_err(message)?.map(|object| object.metadata);
            let state = metadata.map(|metadata| {
                let owners = metadata.owner_references.unwrap_or_default().into_iter().map(|owner| owner.kind);
                json!({ "deleting": metadata.deletion_timestamp.is_some(), "owners": owners.collect::<Vec<_>>() })
            });
            all.insert(named.clone(), state.unwrap_or_default());
        }
        Ok(Value::Object(all))
    }

    async fn list(&self, kind: &ApiResource, is_ours: impl Fn(&str) -> bool) -> Result<Vec<Value>, String> {
        let list = self.api(kind).list(&ListParams::default()).await.map_err(message)?;
        let ours =
            list.items.iter().filter(|each| is_ours(each.metadata.name.as_deref().unwrap_or_default()));
        ours.map(|each| serde_json::to_value(each).map_err(|error| error.to_string())).collect()
    }
}
