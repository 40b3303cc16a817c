//! Performing a scenario's steps in a namespace of its own.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::Unit;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;
use kube::api::{Api, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::diff::differences;
use super::names::Names;
use super::policies;
use super::scenario::{
    Advance, Evict, Fate, Propagation, Published, Scenario, Seen, Step, Target, is_namespaced, resource,
};
use super::snapshot::{at, snapshot};
use super::wire::{self, segment};
use super::writes::prefix;
use crate::harness::{Activity, Cluster, Heartbeats, MetricsApi, Namespace, Report};

/// How long a step may take. What was refused for a while is tried again after as long a while, which is the longer the more
/// the machine has to do.
pub(super) const LIMIT: Duration = Duration::from_mins(3);
/// How often a namespace is looked at.
const POLL: Duration = Duration::from_millis(250);
/// How long after a write it is still expected to be heard of and answered with another: by the original, which is recorded
/// with care, and by ours. Differs: no.
const RECORDING: Duration = Duration::from_secs(2);
const COMPARING: Duration = Duration::from_millis(400);

/// The prefix of the names of nodes whose pods kwok reports. A number follows. (Nodes that scenarios of the folder `node-lifecycle` create
/// have the same prefix without a number.)
const KWOK_NODES: &str = "node-";

/// Address ranges given to scenarios.
static NETS: AtomicU8 = AtomicU8::new(0);

/// Where scenarios are played.
pub(super) struct Plane {
    pub(super) cluster: Cluster,
    pub(super) activity: Activity,
    pub(super) heartbeats: Heartbeats,
    /// The authorities by which the API server is verified.
    pub(super) bundle: String,
    pub(super) report: Report,
    /// Where autoscalers play.
    pub(super) metrics: Option<MetricsApi>,
    /// The name of the manager.
    pub(super) manager: String,
}

/// When a look is over.
#[derive(Clone, Copy)]
pub(super) enum Goal<'a> {
    /// When it is quiet.
    Quiet,
    /// When it is quiet and shows what was recorded, but for the differences that are kept; or when the time is up.
    Recorded(&'a [Value]),
}

/// A scenario in its namespace.
pub(super) struct Stage<'a> {
    plane: &'a Plane,
    namespace: Namespace,
    pub(super) scenario: &'a Scenario,
    names: Names,
    /// What was seen at each look.
    pub(super) seen: Vec<Value>,
}

/// Plays a scenario. The first look that is not what was recorded is the last: what comes after it would differ for the
/// same reason.
pub(super) async fn play<'a>(
    plane: &'a Plane,
    name: &str,
    scenario: &'a Scenario,
    goal: Goal<'_>,
) -> Result<Stage<'a>, String> {
    let namespace = plane.cluster.namespace(&prefix(name)).await;
    // Addresses that no other scenario uses; the cluster's own begin with 10.96.
    let needs_net = scenario.kinds.iter().any(|seen| seen.kind == "ServiceCIDR");
    let net = needs_net.then(|| format!("10.{}", 100 + NETS.fetch_add(1, Ordering::Relaxed) % 150));
    let names = Names::new(&namespace.name, net.unwrap_or_default(), &plane.bundle);
    let mut stage = Stage { plane, namespace, scenario, names, seen: Vec::new() };
    stage.settle_in().await?;
    for (at, step) in scenario.steps.iter().enumerate() {
        if let Step::Observe(after) = step {
            let expected = match goal {
                Goal::Quiet => None,
                Goal::Recorded(recorded) => Some(&recorded[stage.seen.len()]),
            };
            let (look, done) = stage.observe(after, expected).await?;
            stage.seen.push(look);
            if !done && expected.is_none() {
                return Err(format!("after {after:?}: not quiet within {LIMIT:?}"));
            }
            if !done {
                break;
            }
        } else {
            stage.perform(step).await.map_err(|error| format!("step {}: {error}\n{step:?}", at + 1))?;
        }
    }
    Ok(stage)
}

impl Stage<'_> {
    /// Fails if what was seen last is not there any more: a write came after the look that was to come after it.
    pub(super) async fn is_as_it_was(&self) -> Result<(), String> {
        let Some(last) = self.seen.last() else { return Ok(()) };
        let after = last["after"].as_str().unwrap_or_default();
        let (mut look, _) = self.look().await?;
        look["after"] = after.into();
        let late: String = differences(after, last, &look).iter().map(ToString::to_string).collect();
        if late.is_empty() {
            Ok(())
        } else {
            Err(format!("after the last look (recorded) there came\n{late}"))
        }
    }

    fn api(&self, kind: &kube::api::ApiResource) -> Api<DynamicObject> {
        self.api_in(None, kind)
    }

    /// Objects of another namespace than the scenario's, if it is named.
    fn api_in(&self, place: Option<&str>, kind: &kube::api::ApiResource) -> Api<DynamicObject> {
        if is_namespaced(kind) {
            let place = place.unwrap_or(&self.namespace.name);
            Api::namespaced_with(self.namespace.client.clone(), place, kind)
        } else {
            Api::all_with(self.namespace.client.clone(), kind)
        }
    }

    /// A kind of the scenario's own: one that it has defined, named after it, with one name for the kind and the resource.
    fn own_kind(&self, api_version: &str, kind: &str) -> Option<kube::api::ApiResource> {
        let (group, version) =
            api_version.split_once('/').filter(|_| kind.starts_with(&self.namespace.name))?;
        let gvk = kube::api::GroupVersionKind::gvk(group, version, kind);
        Some(kube::api::ApiResource::from_gvk_with_plural(&gvk, kind))
    }

    /// Looks up the UIDs that an object of the scenario names and that are of objects in other namespaces.
    async fn look_up(&mut self, object: &Value) -> Result<(), String> {
        let text = object.to_string();
        let words = text.split("UID(").skip(1).filter_map(|rest| rest.split_once(')')).map(|(word, _)| word);
        for word in words.filter(|word| !self.names.knows(word)).map(str::to_owned).collect::<Vec<_>>() {
            let [namespace, kind, name] = word.split('/').collect::<Vec<_>>()[..] else {
                return Err(format!("{word:?} was not made before, and is not NAMESPACE/KIND/NAME"));
            };
            let client = self.namespace.client.clone();
            let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource(kind)?);
            let found = api.get(name).await.map_err(message)?;
            self.names.know(&word, &found.metadata.uid.unwrap_or_default());
        }
        Ok(())
    }

    /// Pods are refused until their service account is there.
    async fn settle_in(&self) -> Result<(), String> {
        let accounts = self.api(&resource("ServiceAccount")?);
        let there = poll(async || accounts.get_opt("default").await.map_err(message)).await?;
        there.map(drop).ok_or_else(|| "the namespace has no service account".to_owned())
    }

    async fn perform(&mut self, step: &Step) -> Result<(), String> {
        let params = PatchParams::default();
        match step {
            Step::Apply(object) => self.apply(object).await?,
            Step::Patch(change) => {
                let Target { kind, name, place } = &change.target;
                let (with, name) = (self.names.really(&change.with), &segment(&self.names.real(name)));
                // Custom resources know no other.
                let patch = if change.merge { Patch::Merge(&with) } else { Patch::Strategic(&with) };
                let api = self.api_in(place.as_deref(), kind);
                let patched = if change.status {
                    if kind.kind == "Pod" {
                        wait_for_kwok(&api, name).await?;
                    }
                    api.patch_status(name, &params, &patch).await
                } else {
                    api.patch(name, &params, &patch).await
                };
                patched.map_err(message)?;
            }
            Step::Store(object) => self.store(object).await?,
            Step::Wire(object) => self.wire(object).await?,
            Step::Restart => drop(self.plane.report.ctl(&["restart", &self.plane.manager])),
            Step::Scale { target: Target { kind, name, .. }, replicas } => {
                let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
                self.api(kind).patch_scale(name, &params, &patch).await.map_err(message)?;
            }
            Step::Delete { target: Target { kind, name, place }, propagation } => {
                let params = match propagation {
                    Propagation::Background => DeleteParams::background(),
                    Propagation::Foreground => DeleteParams::foreground(),
                    Propagation::Orphan => DeleteParams::orphan(),
                };
                let api = self.api_in(place.as_deref(), kind);
                api.delete(&segment(&self.names.real(name)), &params).await.map_err(message)?;
            }
            Step::Advance(advance) => self.advance(advance).await?,
            Step::Evict(evict) => self.evict(evict).await?,
            Step::Published(published) => self.published(published).await?,
            Step::Metrics(numbers) => {
                let metrics = self.plane.metrics.as_ref().ok_or("there are no metrics APIs here")?;
                metrics.say(&self.namespace.name, numbers.clone());
            }
            Step::Mark { pods, take, with, status } => {
                let api = self.api(&resource("Pod")?);
                let suits = |pod: &Value| {
                    if *status { !is_finished(pod) && !awaits_kwok(pod) } else { !is_deleting(pod) }
                };
                for name in self.candidates(pods, *take, suits).await? {
                    let patch = Patch::Strategic(with);
                    let patched = if *status {
                        api.patch_status(&name, &params, &patch).await
                    } else {
                        api.patch(&name, &params, &patch).await
                    };
                    patched.map_err(message)?;
                }
            }
            Step::Renew(nodes) => {
                let nodes = nodes.iter().map(|name| self.names.real(name)).collect();
                self.plane.heartbeats.renew(&self.namespace.name, nodes).await;
            }
            Step::Wait(fields) => {
                let (mut last, mut known) = (Value::Null, self.names.clone());
                let met = poll(async || {
                    let (look, names) = self.look().await?;
                    (last, known) = (look, names);
                    Ok(fields.iter().all(|(path, value)| at(&last, path) == *value).then_some(()))
                });
                if met.await?.is_none() {
                    let text = serde_yaml_ng::to_string(&last).map_err(|error| error.to_string())?;
                    return Err(format!("not within {LIMIT:?}; there is\n{text}"));
                }
                // Steps that come may name it. What has a number gets it at a look that all runs have.
                self.names.take_attachments(&known);
            }
            Step::Observe(_) => unreachable!("not performed"),
        }
        Ok(())
    }

    /// Server-side apply. A kind that is not served yet is waited for, and so is an address range that is not known
    /// everywhere yet.
    async fn apply(&mut self, object: &Value) -> Result<(), String> {
        self.look_up(object).await?;
        let real = self.names.really(object);
        let text = |pointer: &str| real.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let params = PatchParams::apply("parity").force();
        let place = Some(text("/metadata/namespace")).filter(|place| !place.is_empty());
        let kind = match self.own_kind(text("/apiVersion"), text("/kind")) {
            Some(kind) => kind,
            None => resource(text("/kind"))?,
        };
        let api = self.api_in(place, &kind);
        let (segment, mut last) = (segment(text("/metadata/name")), String::new());
        let applied = poll(async || match api.patch(&segment, &params, &Patch::Apply(&real)).await {
            Ok(applied) => Ok(Some(applied)),
            Err(kube::Error::Api(error))
                if error.code == 404 || error.message.contains("spec.clusterIPs") =>
            {
                last.clone_from(&error.message);
                Ok(None)
            }
            Err(error) => Err(message(error)),
        });
        let applied = applied.await?.ok_or_else(|| format!("not within {LIMIT:?}: {last}"))?;
        if text("/kind") == "Job" {
            let job = serde_json::to_value(&applied).expect("JSON");
            self.names.note_jobs(std::slice::from_ref(&job));
            self.names.note_activations(&[job]);
        }
        let object = format!("{}/{}", text("/kind"), self.names.plain(text("/metadata/name")));
        self.names.know(&object, &applied.metadata.uid.unwrap_or_default());
        if text("/kind") == "ValidatingAdmissionPolicyBinding" {
            policies::are_in_force(self.namespace.client.clone(), &self.namespace.name).await?;
        }
        Ok(())
    }

    /// Server-side apply of an object with strings that are not valid UTF-8.
    async fn wire(&mut self, object: &Value) -> Result<(), String> {
        self.look_up(object).await?;
        let real = self.names.really(object);
        let kind = resource(real["kind"].as_str().unwrap_or_default())?;
        let place = Some(self.namespace.name.as_str()).filter(|_| is_namespaced(&kind));
        let collection = DynamicObject::url_path(&kind, place);
        let uid = wire::apply(&self.namespace.client, &collection, &real).await?;
        let name = real["metadata"]["name"].as_str().unwrap_or_default();
        self.names.know(&format!("{}/{}", kind.kind, self.names.plain(name)), &uid);
        Ok(())
    }

    /// Writes an object to etcd, new and just made where it does not say otherwise.
    async fn store(&self, object: &Value) -> Result<(), String> {
        let mut object = self.names.really(object);
        let kind = resource(object["kind"].as_str().unwrap_or_default())?;
        let metadata = &mut object["metadata"];
        metadata["uid"] = Uuid::new_v4().to_string().into();
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] =
                SystemClock.now().round(Unit::Second).expect("a second").to_string().into();
        }
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let mut key = format!("/registry/{}/", kind.plural);
        if is_namespaced(&kind) {
            metadata["namespace"] = self.namespace.name.as_str().into();
            key = format!("{key}{}/", self.namespace.name);
        }
        let [key, value] = [key + &name, object.to_string()].map(|text| STANDARD.encode(text));
        self.plane.report.etcd("put", &json!({ "key": key, "value": value })).await;
        Ok(())
    }

    async fn advance(&self, advance: &Advance) -> Result<(), String> {
        let Advance { pods, take, to } = advance;
        let api = self.api(&resource("Pod")?);
        let params = PatchParams::default();
        for name in self.candidates(pods, *take, |pod| may_become(pod, *to)).await? {
            let done = match to {
                Fate::Deleted => api.delete(&name, &DeleteParams::default()).await.map(drop),
                Fate::Gone => api.delete(&name, &DeleteParams::default().grace_period(0)).await.map(drop),
                fate => {
                    let status = json!({ "status": status(*fate) });
                    api.patch_status(&name, &params, &Patch::Strategic(status)).await.map(drop)
                }
            };
            done.map_err(message)?;
        }
        Ok(())
    }

    /// Waits for a text in an OpenAPI document, by way of the index: that names the one which the document says later.
    async fn published(&self, Published { version, with }: &Published) -> Result<(), String> {
        let (version, with) = (self.names.real(version), format!("\"{with}\""));
        let read = async |path: &str| {
            let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
            match self.plane.cluster.client.request_text(request).await {
                Ok(text) => Ok(text),
                // It is not there yet, or is another one by now.
                Err(kube::Error::Api(_) | kube::Error::SerdeError(_)) => Ok(String::new()),
                Err(error) => Err(message(error)),
            }
        };
        let found = poll(async || {
            let index: Value = serde_json::from_str(&read("/openapi/v3").await?).unwrap_or_default();
            let address = &index["paths"][format!("apis/{version}")]["serverRelativeURL"];
            let Some(address) = address.as_str() else { return Ok(None) };
            Ok(read(address).await?.contains(&with).then_some(()))
        });
        found.await?.ok_or_else(|| format!("{version} does not say {with} within {LIMIT:?}"))
    }

    /// Evictions are refused with 429 as long as the budget's status does not allow them.
    async fn evict(&self, Evict { pods, take, refused, unready }: &Evict) -> Result<(), String> {
        let api: Api<Pod> = Api::namespaced(self.plane.cluster.once.clone(), &self.namespace.name);
        let other = if *unready { Fate::Ready } else { Fate::Unready };
        for name in self.candidates(pods, *take, |pod| may_become(pod, other)).await? {
            let granted = poll(async || match api.evict(&name, &EvictParams::default()).await {
                Ok(_) => Ok(Some(true)),
                Err(kube::Error::Api(error)) if error.code == 429 => Ok(refused.then_some(false)),
                // Admission may keep the pod: what was granted was granted.
                Err(kube::Error::Api(error)) if error.message.contains("it stays") => Ok(Some(true)),
                Err(error) => Err(message(error)),
            });
            if granted.await? != Some(!refused) {
                return Err(format!(
                    "{name}: not {} within {LIMIT:?}",
                    if *refused { "refused" } else { "granted" }
                ));
            }
        }
        Ok(())
    }

    /// The names of `take` pods; waits until there are so many.
    async fn candidates(
        &self,
        selector: &str,
        take: usize,
        suits: impl Fn(&Value) -> bool,
    ) -> Result<Vec<String>, String> {
        let api = self.api(&resource("Pod")?);
        let mut count = 0;
        let found = poll(async || {
            let selector = self.names.real(selector);
            let list = api.list(&ListParams::default().labels(&selector)).await.map_err(message)?;
            let pods = list.items.iter().map(|pod| serde_json::to_value(pod).expect("JSON"));
            let mut names: Vec<String> = pods
                .filter(&suits)
                .filter_map(|pod| pod.pointer("/metadata/name")?.as_str().map(str::to_owned))
                .collect();
            count = names.len();
            names.truncate(take);
            Ok((count >= take).then_some(names))
        });
        found.await?.ok_or_else(|| format!("{count} pods of {take} within {LIMIT:?}"))
    }

    /// What is there now, and the names it is written with.
    async fn look(&self) -> Result<(Value, Names), String> {
        let mut objects: Vec<(&str, Vec<Value>)> = Vec::new();
        for Seen { kind, place, prefix } in &self.scenario.kinds {
            let api = resource(kind)?;
            let list =
                self.api_in(place.as_deref(), &api).list(&ListParams::default()).await.map_err(message)?;
            let is_ours = |each: &&DynamicObject| {
                // VolumeAttachments are named after hashes, and are their nodes'.
                let name = match each.data["spec"]["nodeName"].as_str() {
                    Some(node) if kind == "VolumeAttachment" => node,
                    _ => each.metadata.name.as_deref().unwrap_or_default(),
                };
                match prefix {
                    Some(prefix) => name.starts_with(prefix),
                    None => is_namespaced(&api) && place.is_none() || self.names.owns(name),
                }
            };
            let ours = list.items.iter().filter(is_ours);
            let values = ours.map(|each| serde_json::to_value(each).expect("JSON"));
            match objects.iter_mut().find(|(seen, _)| seen == kind) {
                // Of two namespaces.
                Some((_, all)) => all.extend(values),
                None => objects.push((kind.as_str(), values.collect())),
            }
        }
        let events = self.api(&kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::Event>(&()));
        let events = events.list(&ListParams::default()).await.map_err(message)?;
        let mut events: Vec<Value> =
            events.items.iter().map(|each| serde_json::to_value(each).expect("JSON")).collect();
        events.extend(self.events_elsewhere().await?);
        let mut names = self.names.clone();
        let tree = snapshot(&mut names, &objects, &events);
        Ok((tree, names))
    }

    /// Events about nodes and volumes are in another namespace.
    async fn events_elsewhere(&self) -> Result<Vec<Value>, String> {
        let event = kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::Event>(&());
        let mut found = Vec::new();
        for kind in ["Node", "PersistentVolume"] {
            if !self.scenario.kinds.iter().any(|seen| seen.kind == kind) {
                continue;
            }
            let about = ListParams::default().fields(&format!("involvedObject.kind={kind}"));
            let list = self.api_in(Some("default"), &event).list(&about).await.map_err(message)?;
            let all = list.items.iter().map(|each| serde_json::to_value(each).expect("JSON"));
            found.extend(all.filter(|event| {
                event["involvedObject"]["name"].as_str().is_some_and(|name| self.names.owns(name))
            }));
        }
        Ok(found)
    }

    /// Looks when it is quiet, and until what is there is what is `expected`, if anything is; and says whether it came to that.
    async fn observe(&mut self, after: &str, expected: Option<&Value>) -> Result<(Value, bool), String> {
        let kept: Vec<_> = self.scenario.differences.iter().filter(|kept| kept.after == after).collect();
        // While something is recorded anything is, differences that are kept or not.
        let is_expected = |look: &Value| {
            expected.is_none_or(|expected| {
                let differences = differences(after, expected, look);
                differences.len() == kept.len()
                    && differences.iter().all(|difference| kept.iter().any(|kept| difference.is(kept)))
            })
        };
        let calm = if expected.is_some() { COMPARING } else { RECORDING };
        let since = Instant::now();
        let activity = &self.plane.activity;
        let mut last = (Value::Null, self.names.clone());
        let done = poll(async || {
            let concerns = |place: &str| {
                let seen = self.scenario.kinds.iter().any(|seen| seen.concerns(place));
                seen || self.names.owns(place.rsplit('/').next().unwrap_or_default())
            };
            let quiet = activity.quiet(concerns, since, calm, POLL).await;
            let before = activity.last_write(concerns);
            let (mut look, names) = self.look().await?;
            look["after"] = after.into();
            last = (look, names);
            // What is listed while something is written was never there at one time.
            let steady = activity.last_write(concerns) == before;
            Ok((quiet && steady && is_expected(&last.0)).then_some(()))
        });
        let done = done.await?.is_some();
        self.names = last.1;
        Ok((last.0, done))
    }
}

/// Tries until there is an answer; `None` when there was none within [`LIMIT`].
pub(super) async fn poll<T>(
    mut attempt: impl AsyncFnMut() -> Result<Option<T>, String>,
) -> Result<Option<T>, String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = attempt().await?;
        if answer.is_some() || Instant::now() > deadline {
            return Ok(answer);
        }
        sleep(POLL).await;
    }
}

/// Waits until kwok has reported a pod that runs on one of its nodes. Kwok would overwrite a status that a scenario writes before.
async fn wait_for_kwok(pods: &Api<DynamicObject>, name: &str) -> Result<(), String> {
    let reported = poll(async || {
        let pod = serde_json::to_value(pods.get(name).await.map_err(message)?).expect("JSON");
        Ok((!awaits_kwok(&pod)).then_some(()))
    });
    reported.await?.ok_or_else(|| format!("kwok has not reported pod {name} within {LIMIT:?}"))
}

/// Whether kwok has not reported a pod yet that runs on one of its nodes.
fn awaits_kwok(pod: &Value) -> bool {
    let number = pod["spec"]["nodeName"].as_str().and_then(|node| node.strip_prefix(KWOK_NODES));
    let is_on_its_node = number.is_some_and(|number| number.parse::<u32>().is_ok());
    is_on_its_node
        && !is_deleting(pod)
        && pod["status"]["phase"].as_str().is_none_or(|phase| phase == "Pending")
}

fn is_deleting(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}

fn may_become(pod: &Value, fate: Fate) -> bool {
    let is_ready = pod
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|each| each["type"] == "Ready" && each["status"] == "True"));
    match fate {
        Fate::Gone => is_deleting(pod),
        Fate::Deleted => !is_deleting(pod),
        Fate::Ready => !is_deleting(pod) && !is_finished(pod) && !is_ready && !awaits_kwok(pod),
        Fate::Unready => !is_deleting(pod) && is_ready,
        Fate::Failed | Fate::Succeeded => !is_deleting(pod) && !is_finished(pod) && !awaits_kwok(pod),
    }
}

fn is_finished(pod: &Value) -> bool {
    ["Failed", "Succeeded"].iter().any(|phase| pod["status"]["phase"] == **phase)
}

/// A pod's status as a kubelet would report it.
fn status(fate: Fate) -> Value {
    let now = SystemClock.now().round(Unit::Second).expect("a second");
    let ready = if fate == Fate::Ready { "True" } else { "False" };
    let phase = match fate {
        Fate::Failed => "Failed",
        Fate::Succeeded => "Succeeded",
        _ => "Running",
    };
    json!({
        "phase": phase,
        "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": now.to_string() }],
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
pub(super) fn message(error: kube::Error) -> String {
    error.to_string()
}
