//! Objects, stores around a room, and plans as lines of text.

use std::sync::Arc;

use bytes::Bytes;

use super::super::granted::Granted;
use super::super::memory::Told;
use super::super::replicas::Sizes;
use super::super::view::View;
use super::super::{Controller, plan, view};
use coxswain_machinery::api::apps::{Deployment, ReplicaSet, StatefulSet};
use coxswain_machinery::api::core::ReplicationController;
use coxswain_machinery::api::kinds::{
    DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS,
};
use coxswain_machinery::api::meta::{Condition, LabelSelector, ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::{Pod, PodCondition};
use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::framework::{Observation, Reads, Selecting};
use coxswain_machinery::informer::{Labeled, Lister, Store};
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::{IntOrString, Message as _, Time};

pub(super) use crate::fixtures::{NOW, ago, deleting, labels, now, unready};

/// Something of `default`, of version 50 and the UID `NAME-uid`.
pub(super) fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "50".into(),
        ..ObjectMeta::default()
    }
}

/// `default/web`: selects `app=web`, of which at least two must be healthy; generation 3, without a status.
pub(super) fn budget(change: impl FnOnce(&mut PodDisruptionBudget)) -> Arc<PodDisruptionBudget> {
    let mut budget = PodDisruptionBudget { metadata: meta("web"), ..PodDisruptionBudget::default() };
    budget.metadata.resource_version = "100".into();
    budget.metadata.generation = 3;
    budget.spec.min_available = Some(IntOrString::Int(2));
    budget.spec.selector =
        Some(Box::new(LabelSelector { match_labels: labels(&[("app", "web")]), ..LabelSelector::default() }));
    change(&mut budget);
    decoded(budget.to_bytes())
}

/// A budget as the API server would send these bytes.
pub(super) fn decoded(bytes: Vec<u8>) -> Arc<PodDisruptionBudget> {
    typed((POD_DISRUPTION_BUDGETS.decode)(&Bytes::from(bytes)).unwrap())
}

fn typed<T: Object>(object: AnyObject) -> Arc<T> {
    let any: Arc<dyn std::any::Any + Send + Sync> = object;
    any.downcast().unwrap()
}

pub(super) fn percent(text: &str) -> IntOrString {
    IntOrString::Str(text.into())
}

/// A status that says so of allowed, healthy, desired and expected, and of the present generation.
pub(super) fn says(budget: &mut PodDisruptionBudget, [allowed, healthy, desired, expected]: [i32; 4]) {
    let (status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    budget.status.observed_generation = budget.metadata.generation;
    budget.status.disruptions_allowed = allowed;
    budget.status.current_healthy = healthy;
    budget.status.desired_healthy = desired;
    budget.status.expected_pods = expected;
    budget.status.conditions = vec![Condition {
        r#type: "DisruptionAllowed".into(),
        status: status.into(),
        observed_generation: budget.metadata.generation,
        last_transition_time: ago(500),
        reason: reason.into(),
        ..Condition::default()
    }];
}

pub(super) fn controlled_by(api_version: &str, kind: &str, name: &str) -> Vec<OwnerReference> {
    vec![OwnerReference {
        kind: kind.into(),
        name: name.into(),
        uid: format!("{name}-uid").into(),
        api_version: api_version.into(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]
}

/// A ready pod with `app=web`, of the `ReplicaSet` `rs`.
pub(super) fn pod(name: &str, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    let mut pod = Pod { metadata: meta(name), ..Pod::default() };
    pod.metadata.labels = labels(&[("app", "web")]);
    pod.metadata.owner_references = controlled_by("apps/v1", "ReplicaSet", "rs");
    pod.status.phase = "Running".into();
    pod.status.conditions = vec![condition("Ready", "True", ago(1000), "")];
    change(&mut pod);
    Arc::new(pod)
}

pub(super) fn condition(kind: &str, status: &str, since: Option<Time>, reason: &str) -> PodCondition {
    PodCondition {
        r#type: kind.into(),
        status: status.into(),
        last_transition_time: since,
        reason: reason.into(),
    }
}

pub(super) fn pods(names: &[&str]) -> Vec<Arc<Pod>> {
    names.iter().map(|name| pod(name, |_| {})).collect()
}

pub(super) fn bare(pod: &mut Pod) {
    pod.metadata.owner_references.clear();
}

/// The stores, what was read live, and a room that reads them.
pub(super) struct Bench {
    pub(super) budgets: Arc<Store>,
    pub(super) pods: Arc<Store>,
    deployments: Arc<Store>,
    replica_sets: Arc<Store>,
    stateful_sets: Arc<Store>,
    replication_controllers: Arc<Store>,
    pub(super) read: Reads,
    pub(super) told: Arc<Told>,
    pub(super) granted: Arc<Granted>,
}

impl Bench {
    /// With the `ReplicaSet` `rs`, which is nobody's and should have 4 pods; pods are seen as they are after the budget.
    pub(super) fn of(budget: &Arc<PodDisruptionBudget>, pods: &[Arc<Pod>]) -> Self {
        Self::at("200", budget, pods)
    }

    /// The same, with pods as they are at this version.
    pub(super) fn at(version: &str, budget: &Arc<PodDisruptionBudget>, pods: &[Arc<Pod>]) -> Self {
        let bench = Self::empty();
        bench.budgets.upsert(&(Arc::clone(budget) as AnyObject));
        bench.granted.note(None, Some(budget));
        for pod in pods {
            bench.pods.upsert(&(Arc::clone(pod) as AnyObject));
        }
        bench.pods.bookmark(version);
        bench
    }

    /// The same `ReplicaSet`, and nothing else.
    pub(super) fn empty() -> Self {
        let store = |kind: &'static Kind| Arc::new(Store::new(kind));
        let bench = Self {
            budgets: store(&POD_DISRUPTION_BUDGETS),
            pods: store(&PODS),
            deployments: store(&DEPLOYMENTS),
            replica_sets: store(&REPLICA_SETS),
            stateful_sets: store(&STATEFUL_SETS),
            replication_controllers: store(&REPLICATION_CONTROLLERS),
            read: Reads::default(),
            told: Arc::default(),
            granted: Arc::default(),
        };
        bench.with_replica_set("rs", 4, None)
    }

    pub(super) fn with_budget(self, budget: &Arc<PodDisruptionBudget>) -> Self {
        self.budgets.upsert(&(Arc::clone(budget) as AnyObject));
        self
    }

    /// With a `ReplicaSet`, and maybe a controller of it.
    pub(super) fn with_replica_set(self, name: &str, replicas: i32, of: Option<(&str, &str)>) -> Self {
        let mut set = ReplicaSet { metadata: meta(name), ..ReplicaSet::default() };
        set.spec.replicas = Some(replicas);
        if let Some((kind, owner)) = of {
            set.metadata.owner_references = controlled_by("apps/v1", kind, owner);
        }
        self.replica_sets.upsert(&(Arc::new(set) as AnyObject));
        self
    }

    pub(super) fn with_deployment(self, name: &str, replicas: i32) -> Self {
        let mut deployment = Deployment { metadata: meta(name), ..Deployment::default() };
        deployment.spec.replicas = Some(replicas);
        self.deployments.upsert(&(Arc::new(deployment) as AnyObject));
        self
    }

    pub(super) fn with_stateful_set(self, name: &str, replicas: i32) -> Self {
        let mut set = StatefulSet { metadata: meta(name), ..StatefulSet::default() };
        set.spec.replicas = Some(replicas);
        self.stateful_sets.upsert(&(Arc::new(set) as AnyObject));
        self
    }

    pub(super) fn with_replication_controller(self, name: &str, replicas: i32) -> Self {
        let mut controller =
            ReplicationController { metadata: meta(name), ..ReplicationController::default() };
        controller.spec.replicas = Some(replicas);
        self.replication_controllers.upsert(&(Arc::new(controller) as AnyObject));
        self
    }

    pub(super) fn reading(self, read: Reads) -> Self {
        Self { read, ..self }
    }

    fn room(&self) -> Controller {
        Controller {
            budgets: Lister::new(Arc::clone(&self.budgets)),
            selecting: Selecting::new(&self.budgets),
            pods: Labeled::new(&self.pods),
            sizes: Sizes {
                deployments: Lister::new(Arc::clone(&self.deployments)),
                replica_sets: Lister::new(Arc::clone(&self.replica_sets)),
                stateful_sets: Lister::new(Arc::clone(&self.stateful_sets)),
                replication_controllers: Lister::new(Arc::clone(&self.replication_controllers)),
            },
            told: Arc::clone(&self.told),
            granted: Arc::clone(&self.granted),
        }
    }

    pub(super) fn observe(&self, name: &str, failures: &[Failure]) -> Observation<View> {
        view::observe(&self.room(), &Key::new("default", name), failures, &self.read)
    }

    pub(super) fn view(&self, failures: &[Failure]) -> View {
        match self.observe("web", failures) {
            Observation::View(view) => view,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn plan(&self) -> Plan {
        plan::plan(&self.view(&[]), now())
    }

    pub(super) fn plan_after(&self, failure: Failure) -> Plan {
        plan::plan(&self.view(&[failure]), now())
    }

    /// The plan's steps as text.
    pub(super) fn lines(&self) -> Vec<String> {
        lines(&self.plan())
    }

    /// What the status is made to say; nothing if it says so already.
    pub(super) fn status(&self) -> String {
        let lines = self.lines();
        lines.into_iter().find(|line| line.starts_with("status")).unwrap_or_default()
    }
}

/// A status update that was answered with this reason.
pub(super) fn failed(code: u16, reason: &str, message: &str) -> Failure {
    Failure {
        what: String::new(),
        verb: "update",
        subresource: "status",
        kind: &POD_DISRUPTION_BUDGETS,
        key: Key::new("default", "web"),
        code,
        reason: reason.into(),
        message: message.to_owned(),
        existing: None,
    }
}

/// What a plan does, a line for each step.
pub(super) fn lines(plan: &Plan) -> Vec<String> {
    let line = |step: &Step| match step {
        Step::Emit(event) => {
            let sort = if event.warning { "Warning" } else { "Normal" };
            format!("{sort} {} {}: {}", event.reason, event.regarding.key.name, event.message)
        }
        Step::Write(write) => written(write),
        other => panic!("{other:?}"),
    };
    plan.steps.iter().map(line).collect()
}

fn written(write: &Write) -> String {
    match &write.verb {
        Verb::Update(object) if (write.kind, write.subresource) == (&POD_DISRUPTION_BUDGETS, "status") => {
            told(&decoded(object.to_vec()))
        }
        Verb::Patch(Patch::Strategic(patch)) => format!("patch {}/{} {patch}", write.key, write.subresource),
        verb => panic!("{verb:?}"),
    }
}

/// `status allowed healthy/desired/expected @generation condition`, and who is about to be evicted.
pub(super) fn told(budget: &PodDisruptionBudget) -> String {
    let status = &budget.status;
    let condition = status.conditions.iter().find(|held| held.r#type == "DisruptionAllowed").unwrap();
    let mut text = format!(
        "status {} {}/{}/{} @{} {} {}",
        status.disruptions_allowed,
        status.current_healthy,
        status.desired_healthy,
        status.expected_pods,
        status.observed_generation,
        condition.status,
        condition.reason,
    );
    if !condition.message.is_empty() {
        text = format!("{text}: {}", condition.message);
    }
    for (pod, _) in status.disrupted_pods.iter() {
        text = format!("{text} -{pod}");
    }
    text
}
