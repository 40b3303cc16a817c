//! An autoscaler of a Deployment, with stores, metrics APIs and an API server that are tables, and a clock that a test moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::draft::{Looked, Note};
use super::super::memory::Remembering;
use super::super::settings::Settings;
use super::super::view::View;
use super::super::{Controller, plan, view};
use coxswain_machinery::api::autoscaling::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, MetricSpec, MetricTarget, ResourceMetricSource,
    Scale,
};
use coxswain_machinery::api::kinds::{HORIZONTAL_POD_AUTOSCALERS, PODS};
use coxswain_machinery::api::meta::{ObjectMeta, QuantityText};
use coxswain_machinery::api::pod::{Pod, PodCondition};
use coxswain_machinery::api::shape::{ContainerRequests, PodShape, Shape};
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::executor::{ActionState, Effect, WriteEffect};
use coxswain_machinery::framework::{
    ApiError, ApiResource, ApiResources, Memory as _, Observation, Outcome, Read, Reads, ReconcileEnd,
};
use coxswain_machinery::informer::{Labeled, Lister, Store};
use coxswain_machinery::model::clock::{SteadyClock, SteadyTime};
use coxswain_machinery::model::plan::{Cooldown, Step, Verb, Write};
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::{Message as _, Str, Time};

pub(super) const NOW: i64 = 1_700_000_000;

pub(super) fn start() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

pub(super) fn settings() -> Settings {
    Settings {
        sync_period: Duration::from_secs(15),
        downscale_stabilization: Duration::from_mins(5),
        tolerance: 0.1,
        cpu_initialization_period: Duration::from_mins(5),
        initial_readiness_delay: Duration::from_secs(30),
        own_tolerance: true,
        scale_to_zero: false,
        pod_level_resources: true,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as statuses and specs hold it")]
pub(super) fn quantity(text: &str) -> Option<Box<QuantityText>> {
    Some(Box::new(QuantityText { string: text.into() }))
}

pub(super) fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "50".into(),
        ..ObjectMeta::default()
    }
}

/// CPU, of which pods should use so many percent of what they request.
pub(super) fn cpu(percent: i32) -> MetricSpec {
    let target = MetricTarget {
        r#type: "Utilization".into(),
        average_utilization: Some(percent),
        ..MetricTarget::default()
    };
    let source = ResourceMetricSource { name: "cpu".into(), target };
    MetricSpec { r#type: "Resource".into(), resource: Some(Box::new(source)), ..MetricSpec::default() }
}

/// `default/web`: the Deployment `web` has 1 to 10 pods that use half of the CPU that they request.
pub(super) fn autoscaler(change: impl FnOnce(&mut HorizontalPodAutoscaler)) -> HorizontalPodAutoscaler {
    let mut autoscaler =
        HorizontalPodAutoscaler { metadata: meta("web"), ..HorizontalPodAutoscaler::default() };
    autoscaler.spec.scale_target_ref = CrossVersionObjectReference {
        kind: "Deployment".into(),
        name: "web".into(),
        api_version: "apps/v1".into(),
    };
    autoscaler.spec.min_replicas = Some(1);
    autoscaler.spec.max_replicas = 10;
    autoscaler.spec.metrics = vec![cpu(50)];
    change(&mut autoscaler);
    autoscaler
}

/// A pod of `web` that has been ready for long and requests 100m of CPU and 100Mi of memory.
pub(super) fn pod(name: &str, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    let mut pod = Pod { metadata: meta(name), ..Pod::default() };
    pod.metadata.labels = [("app", "web")].into_iter().collect();
    pod.status.phase = "Running".into();
    pod.status.start_time = Time::from_seconds(NOW - 1000);
    pod.status.conditions = vec![ready("True", 1000)];
    pod.shape = requesting(&[("c", &[("cpu", "100m"), ("memory", "100Mi")])]);
    change(&mut pod);
    Arc::new(pod)
}

pub(super) fn requesting(containers: &[(&str, &[(&str, &str)])]) -> Shape {
    let requests = containers.iter().map(|(name, amounts)| ContainerRequests {
        container: (*name).into(),
        starts_only: false,
        amounts: amounts.iter().copied().collect(),
    });
    PodShape { requests: requests.collect(), ..PodShape::default() }.into()
}

pub(super) fn ready(status: &str, ago: i64) -> PodCondition {
    PodCondition {
        r#type: "Ready".into(),
        status: status.into(),
        last_transition_time: Time::from_seconds(NOW - ago),
        reason: Str::EMPTY,
    }
}

/// What an API has.
pub(super) fn api(custom: &[&str]) -> Arc<ApiResources> {
    let resource = |group: &str, version: &str, kind: &str, resource: &str| ApiResource {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        resource: resource.into(),
        namespaced: true,
        subresources: vec!["scale".into()],
        ..ApiResource::default()
    };
    let mut all = vec![
        resource("apps", "v1", "Deployment", "deployments"),
        resource("", "v1", "Service", "services"),
        resource("", "v1", "Namespace", "namespaces"),
    ];
    all.extend(
        custom.iter().map(|version| resource("custom.metrics.k8s.io", version, "MetricValueList", "pods")),
    );
    Arc::new(ApiResources::of(all, Vec::new()))
}

pub(super) fn refused(code: u16, reason: &str, message: &str) -> ApiError {
    let status = coxswain_machinery::api::meta::Status {
        message: message.into(),
        reason: reason.into(),
        ..coxswain_machinery::api::meta::Status::default()
    };
    ApiError::Refused {
        request: "GET /".to_owned(),
        code,
        reason: reason.into(),
        message: if message.is_empty() { "some text".to_owned() } else { message.to_owned() },
        status: Box::new(status),
        retry_after: None,
    }
}

/// What pods use of CPU: `PodMetricsList` of one container each.
pub(super) fn usage(pods: &[(&str, &str)]) -> Value {
    let items: Vec<Value> = pods
        .iter()
        .map(|(name, cpu)| {
            json!({
                "metadata": { "name": name }, "timestamp": "2023-11-14T22:13:00Z", "window": "30s",
                "containers": [{ "name": "c", "usage": { "cpu": cpu, "memory": "50Mi" } }],
            })
        })
        .collect();
    json!({ "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items })
}

/// The world around one autoscaler.
pub(super) struct Bench {
    pub(super) autoscalers: Arc<Store>,
    pub(super) pods: Arc<Store>,
    pub(super) settings: Settings,
    pub(super) remembering: Arc<Remembering>,
    /// By how many seconds somebody has set the clock.
    pub(super) set_by: i64,
    pub(super) api: Arc<ApiResources>,
    /// The target's replicas; `None` if it is not there.
    pub(super) replicas: Option<i32>,
    pub(super) selector: String,
    /// Answers by the beginning of a path; what is not there is not found.
    pub(super) answers: BTreeMap<String, Result<Value, ApiError>>,
    /// What becomes of writes of the scale, in turn; they succeed when none is left.
    pub(super) refusals: Vec<(u16, &'static str)>,
    pub(super) now: Timestamp,
    /// Paths that were asked for.
    pub(super) asked: Vec<String>,
    version: u64,
}

/// What a reconcile did: a line for each step, in words.
pub(super) type Lines = Vec<String>;

impl Bench {
    /// With pods of these names, and a target of as many replicas.
    pub(super) fn of(autoscaler: &HorizontalPodAutoscaler, pods: &[&str]) -> Self {
        Self::with(autoscaler, pods.iter().map(|name| pod(name, |_| {})).collect())
    }

    pub(super) fn with(autoscaler: &HorizontalPodAutoscaler, pods: Vec<Arc<Pod>>) -> Self {
        let store = |kind: &'static Kind| Arc::new(Store::new(kind));
        let bench = Self {
            autoscalers: store(&HORIZONTAL_POD_AUTOSCALERS),
            pods: store(&PODS),
            settings: settings(),
            remembering: Arc::default(),
            set_by: 0,
            api: api(&["v1beta2"]),
            replicas: Some(pods.len() as i32),
            selector: "app=web".to_owned(),
            answers: BTreeMap::new(),
            refusals: Vec::new(),
            now: start(),
            asked: Vec::new(),
            version: 100,
        };
        bench.store(autoscaler);
        for pod in pods {
            bench.pods.upsert(&(pod as AnyObject));
        }
        bench
    }

    pub(super) fn store(&self, autoscaler: &HorizontalPodAutoscaler) {
        let bytes = Bytes::from(autoscaler.to_bytes());
        self.autoscalers.upsert(&(HORIZONTAL_POD_AUTOSCALERS.decode)(&bytes).unwrap());
    }

    /// Every pod that is there uses so much CPU.
    pub(super) fn all_use(&mut self, cpu: &str) -> &mut Self {
        let pods = Lister::<Pod>::new(Arc::clone(&self.pods)).select("default", |_| true);
        let names: Vec<(&str, &str)> = pods.iter().map(|pod| (pod.metadata.name.as_str(), cpu)).collect();
        self.answer("/apis/metrics.k8s.io", Ok(usage(&names)))
    }

    pub(super) fn answer(&mut self, path: &str, answer: Result<Value, ApiError>) -> &mut Self {
        self.answers.insert(path.to_owned(), answer);
        self
    }

    pub(super) fn later(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    /// Somebody sets the clock.
    pub(super) fn set_clock(&mut self, by: i64) -> &mut Self {
        self.set_by += by;
        self.later(by)
    }

    /// What the steady clock shows: 0 at the start, whatever the wall clock shows.
    fn steady(&self) -> SteadyTime {
        let passed = self.now.duration_since(start()) - SignedDuration::from_secs(self.set_by);
        SteadyTime::default().plus(passed.unsigned_abs())
    }

    pub(super) fn room(&self) -> Controller {
        Controller {
            autoscalers: Lister::new(Arc::clone(&self.autoscalers)),
            pods: Labeled::new(&self.pods),
            settings: self.settings,
            remembering: Arc::clone(&self.remembering),
            steady: SteadyClock::stopped_at(self.steady()),
        }
    }

    fn scale(&self) -> Option<Scale> {
        let mut scale = Scale { metadata: meta("web"), ..Scale::default() };
        scale.spec.replicas = self.replicas?;
        scale.status.replicas = self.replicas?;
        scale.status.selector = self.selector.as_str().into();
        scale.raw = Bytes::from(scale.to_bytes()).into();
        Some(scale)
    }

    /// Observes with a fresh set of reads, until there is something to decide.
    pub(super) fn observe(&mut self, mut reads: Reads, failures: &[Failure]) -> Option<(View, Reads)> {
        let key = Key::new("default", "web");
        for _ in 0..8 {
            match view::observe(&self.room(), &key, failures, &reads) {
                Observation::Nothing => return None,
                Observation::View(view) => return Some((view, reads)),
                Observation::Needs(needs) => {
                    for need in needs {
                        reads = self.read(reads, need.into());
                    }
                }
            }
        }
        panic!("no end of reads")
    }

    fn read(&mut self, reads: Reads, need: Read) -> Reads {
        match need {
            Read::Resources => reads.with_resources(Ok(Arc::clone(&self.api))),
            Read::SearchedResources(_) => reads.with_latest_resources(Ok(Arc::clone(&self.api))),
            Read::Scale(kind, key) => reads.with_scale(kind, key, Ok(self.scale())),
            Read::Json(uri) => {
                self.asked.push(uri.to_string());
                let mut all = self.answers.iter();
                let answer = all
                    .find(|(held, _)| uri.as_str().starts_with(held.as_str()))
                    .map(|(_, answer)| answer.clone());
                reads.with_json(uri, answer.unwrap_or_else(|| Err(refused(404, "", ""))))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Reconciles as the framework does; what was done, in words.
    pub(super) fn reconcile(&mut self) -> Lines {
        let key = Key::new("default", "web");
        let (mut lines, mut failures, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..4 {
            let reads = written.iter().cloned().fold(Reads::default(), Reads::after);
            let Some((view, _)) = self.observe(reads, &failures) else {
                let end = ReconcileEnd { outcome: &Outcome::Absent, actions: &[], took: Duration::ZERO };
                self.remembering.ended(&key, end);
                return lines;
            };
            let (plan, note): (Plan, Note) = plan::plan(&view, self.now).into_parts();
            assert_eq!(plan.requeue_after, Some(self.settings.sync_period));
            assert!(plan.end && plan.retry.is_none());
            self.remembering.begin(&key, &note);
            for step in &plan.steps {
                self.perform(step, &note, (&mut lines, &mut failures, &mut written));
            }
            if !plan.look_again {
                break;
            }
        }
        let outcome = Outcome::Done { writes: 0, requeue_after: None, cooldown: Cooldown::NONE };
        let actions: &[ActionState] = &[];
        self.remembering.ended(&key, ReconcileEnd { outcome: &outcome, actions, took: Duration::ZERO });
        lines
    }

    fn perform(
        &mut self,
        step: &Step,
        note: &Note,
        (lines, failures, written): (&mut Lines, &mut Vec<Failure>, &mut Vec<Effect>),
    ) {
        match step {
            Step::Emit(event) => {
                let sort = if event.warning { "Warning" } else { "Normal" };
                lines.push(format!("{sort} {}: {}", event.reason, event.message));
            }
            Step::Write(write) if write.subresource == "scale" => {
                let Verb::Update(body) = &write.verb else { panic!("{write}") };
                let scale = Scale::decode(body).unwrap();
                assert_eq!(scale.metadata.resource_version, "50", "what was read is what is written");
                assert!(write.keep_going);
                if self.refusals.is_empty() {
                    lines.push(format!("scale {}", scale.spec.replicas));
                    self.replicas = Some(scale.spec.replicas);
                    written.push(Effect {
                        kind: write.kind,
                        key: write.key.clone(),
                        subresource: "scale",
                        change: WriteEffect::Stored("51".into()),
                        answer: None,
                    });
                    self.remembering.commit_item(&Key::new("default", "web"), note, write.item.unwrap());
                } else {
                    let (code, reason) = self.refusals.remove(0);
                    lines.push(format!("scale {} refused", scale.spec.replicas));
                    failures.push(failure(write, code, reason));
                }
            }
            Step::Write(write) => {
                let Verb::Update(body) = &write.verb else { panic!("{write}") };
                assert_eq!(write.subresource, "status");
                let mut held = HorizontalPodAutoscaler::decode(body).unwrap();
                lines.push(told(&held));
                self.version += 1;
                held.metadata.resource_version = self.version.to_string().into();
                self.store(&held);
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn held(&self) -> Arc<HorizontalPodAutoscaler> {
        Lister::new(Arc::clone(&self.autoscalers)).get(&Key::new("default", "web")).unwrap()
    }

    /// `TYPE STATUS REASON: MESSAGE` of a condition.
    pub(super) fn condition(&self, kind: &str) -> String {
        let held = self.held();
        let found = held.status.conditions.iter().find(|condition| condition.r#type == kind);
        found.map_or_else(String::new, |held| format!("{} {}: {}", held.status, held.reason, held.message))
    }
}

/// What a look at another autoscaler of the namespace leaves behind, whose target has this selector.
pub(super) fn look_at_another(bench: &Bench, name: &str, selector: &str) {
    let selector = Some(Arc::new(Selector::parse(selector).unwrap()));
    let key = Key::new("default", name);
    let look = Looked { selector, action: "none", error: "none", ..Looked::default() };
    bench.remembering.begin(&key, &Note { look: Some(look), draft: None });
    let outcome = Outcome::Done { writes: 0, requeue_after: None, cooldown: Cooldown::NONE };
    bench.remembering.ended(&key, ReconcileEnd { outcome: &outcome, actions: &[], took: Duration::ZERO });
}

pub(super) fn failure(write: &Write, code: u16, reason: &str) -> Failure {
    Failure {
        what: write.to_string(),
        verb: "update",
        subresource: write.subresource,
        kind: write.kind,
        key: write.key.clone(),
        code,
        reason: reason.into(),
        message: format!("it is refused: {reason}"),
        existing: None,
    }
}

/// `status CURRENT -> DESIRED`, and reasons of conditions.
fn told(autoscaler: &HorizontalPodAutoscaler) -> String {
    let status = &autoscaler.status;
    let reasons: Vec<&str> = status.conditions.iter().map(|held| held.reason.as_str()).collect();
    format!("status {} -> {} {}", status.current_replicas, status.desired_replicas, reasons.join(" "))
}
