//! What is around the room: the model of the API server, to which the executor that ships carries plans, and a ReplicaSet controller
//! that is as late as the test wants.

use std::sync::Arc;

use apiserver_model::{Place, Served, codec, message};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::super::view::View;
use super::super::*;
use super::fixtures::*;
use coxswain_machinery::api::Kind;
use coxswain_machinery::executor::WriteEffect;
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::plan::{Step, Verb};
use coxswain_machinery::model::template::Template;
use coxswain_machinery::wire::splice::get;
use coxswain_machinery::wire::{Message, Raw};

/// A pod; those that are worth least come first, and go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PodState {
    Waiting,
    /// Available, but no status says so yet. What nobody can know, nobody can spare.
    Available,
    /// Available, and a status has said so.
    Reported,
}

/// A ReplicaSet and its pods.
pub(super) struct Set {
    pub(super) object: Arc<ReplicaSet>,
    pub(super) pods: Vec<PodState>,
    /// Pods on their way out.
    pub(super) leaving: usize,
}

pub(super) struct Cluster {
    api: Served,
    pub(super) deployment: Arc<Deployment>,
    pub(super) sets: Vec<Set>,
    clock: i64,
    pub(super) writes: usize,
}

fn place_of(kind: &Kind, name: &str) -> Place {
    let resource = if kind == &DEPLOYMENTS { "deployments" } else { "replicasets" };
    Place::new(resource, "default", name)
}

impl Cluster {
    pub(super) fn new(deployment: &Deployment) -> Self {
        let api = Served::new("deployment-controller", now());
        let made = api.model().create_encoded("user", &DEPLOYMENTS, &deployment.raw).expect("a Deployment");
        let deployment = downcast(made.object(&DEPLOYMENTS)).expect("a Deployment");
        Self { api, deployment, sets: Vec::new(), clock: NOW, writes: 0 }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.clock).unwrap()
    }

    /// Changes the Deployment as a user does.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Deployment)) {
        let mut changed = (*self.deployment).clone();
        change(&mut changed);
        let message = message(&DEPLOYMENTS).expect("it is stored");
        let json = codec::decode(message, &changed.to_bytes()).expect("a Deployment");
        let place = place_of(&DEPLOYMENTS, "web");
        let with_spec = |held: &Json| {
            let mut object = held.clone();
            object["spec"] = json["spec"].clone();
            Ok(object)
        };
        self.api.model().update("user", &place, "", with_spec).expect("nothing is wrong with it");
        self.follow();
    }

    /// A ReplicaSet loses its owner.
    pub(super) fn orphan(&mut self, at: usize) {
        let place = place_of(&REPLICA_SETS, &self.sets[at].object.metadata.name);
        let orphan = |set: &mut Json| set["metadata"]["ownerReferences"] = json!([]);
        self.api.model().change("user", &place, "", orphan).expect("nothing is wrong with it");
        self.follow();
    }

    /// Sees what there is.
    fn follow(&mut self) {
        let model = self.api.model();
        let found = model.get(&place_of(&DEPLOYMENTS, "web")).expect("nobody deletes it");
        self.deployment = downcast(found.object(&DEPLOYMENTS)).expect("a Deployment");
        let mut there: Vec<Arc<ReplicaSet>> = model
            .all("replicasets", "")
            .filter_map(|stored| downcast(stored.object(&REPLICA_SETS)))
            .collect();
        self.sets.retain_mut(|set| {
            let found = there.iter().position(|held| held.metadata.uid == set.object.metadata.uid);
            assert!(found.is_some() || set.pods.is_empty(), "a ReplicaSet with pods is deleted");
            let is_there = found.map(|at| set.object = there.swap_remove(at));
            is_there.is_some()
        });
        self.sets.extend(there.into_iter().map(|object| Set { object, pods: Vec::new(), leaving: 0 }));
    }

    pub(super) fn view(&self) -> View {
        let sets: Vec<_> = self.sets.iter().map(|set| Arc::clone(&set.object)).collect();
        let mut view = view(&self.deployment, &sets);
        if self.deployment.spec.strategy.r#type == RECREATE {
            let running = self.sets.iter().filter(|set| !set.pods.is_empty() || set.leaving > 0);
            view.running = running.map(|set| set.object.metadata.uid.clone()).collect();
        }
        view
    }

    /// One reconcile; the number of its writes. Nothing is written twice, nor without need, and nothing is refused.
    pub(super) fn reconcile(&mut self) -> usize {
        self.clock += 1;
        let mut plan = plan::plan(&self.view(), self.now());
        assert_eq!(plan.retry, None);
        // What is looked at live is as it was seen.
        plan.steps.retain(|step| matches!(step, Step::Write(_)));
        let mut written = Vec::new();
        for write in plan.writes() {
            assert!(!written.contains(&(write.kind, write.key.clone())), "{write} is the second write of it");
            written.push((write.kind, write.key.clone()));
        }
        let held = self.api.model().version();
        self.api.model().set_time(self.now());
        let is_update = plan.writes().map(|write| matches!(write.verb, Verb::Update(_))).collect::<Vec<_>>();
        let done = self.api.execute(plan);
        assert!(done.failures.is_empty(), "{:?}", done.failures);
        for (effect, is_update) in done.effects.iter().zip(is_update) {
            let WriteEffect::Stored(version) = &effect.change else { continue };
            let version: u64 = version.parse().expect("a version");
            assert!(!is_update || version > held, "an update of {} that changes nothing", effect.key);
        }
        self.follow();
        self.writes += written.len();
        written.len()
    }

    /// Lets the ReplicaSet controller see a ReplicaSet: like the real one, it makes or deletes pods, those first that are
    /// not available, and reports the pods that there were before.
    pub(super) fn sync(&mut self, at: usize) -> bool {
        let set = &mut self.sets[at];
        let object = Arc::clone(&set.object);
        let ready = set.pods.iter().filter(|pod| **pod != PodState::Waiting).count();
        let status = json!({
            "observedGeneration": object.metadata.generation, "replicas": set.pods.len(), "readyReplicas": ready,
            "availableReplicas": ready, "terminatingReplicas": set.leaving,
        });
        let size = usize::try_from(object.spec.replicas.unwrap()).unwrap();
        let resized = set.pods.len() != size;
        set.pods.sort_unstable();
        let surplus = set.pods.len().saturating_sub(size);
        set.leaving += surplus;
        set.pods.drain(..surplus);
        set.pods.resize(size, PodState::Waiting);
        for pod in &mut set.pods {
            *pod = if *pod == PodState::Waiting { PodState::Waiting } else { PodState::Reported };
        }
        let place = place_of(&REPLICA_SETS, &object.metadata.name);
        let reported =
            self.api.model().change("replicaset-controller", &place, "status", |set| set["status"] = status);
        self.follow();
        let version = reported.expect("nothing is wrong with it").version.to_string();
        object.metadata.resource_version != version.as_str() || resized
    }

    /// Pods that are available and were known to be at some time.
    pub(super) fn available(&self) -> i32 {
        self.sets.iter().flat_map(|set| &set.pods).filter(|pod| **pod == PodState::Reported).count() as i32
    }

    /// Pods that all ReplicaSets together ask for.
    pub(super) fn asked(&self) -> i32 {
        self.sets.iter().map(|set| set.object.spec.replicas.unwrap()).sum()
    }

    /// Whether every ReplicaSet has the pods that it asks for.
    pub(super) fn is_quiet(&self) -> bool {
        self.sets.iter().all(|set| set.pods.len() as i32 == set.object.spec.replicas.unwrap())
    }

    /// Everything happens until nothing is left to happen.
    pub(super) fn settle(&mut self) {
        for _ in 0..500 {
            let written = self.reconcile();
            let mut moved = false;
            for at in 0..self.sets.len() {
                moved |= self.sync(at);
                let set = &mut self.sets[at];
                moved |= set.leaving > 0 || set.pods.contains(&PodState::Waiting);
                set.leaving = 0;
                set.pods.iter_mut().for_each(|pod| *pod = PodState::Available.max(*pod));
            }
            if written == 0 && !moved {
                return;
            }
        }
        panic!("it does not settle");
    }

    /// Checks that the Deployment is rolled out and says so.
    #[track_caller]
    pub(super) fn assert_done(&self) {
        let (spec, status) = (&self.deployment.spec, &self.deployment.status);
        let replicas = spec.replicas.unwrap();
        assert_eq!(
            (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas),
            (replicas, replicas, replicas, replicas)
        );
        assert_eq!((status.unavailable_replicas, status.terminating_replicas), (0, Some(0)));
        assert_eq!(status.observed_generation, self.deployment.metadata.generation);
        let template = Template::new(&spec.template).unwrap();
        let active: Vec<_> = self.sets.iter().filter(|set| set.object.spec.replicas != Some(0)).collect();
        assert_eq!(active.len(), usize::from(replicas > 0));
        assert!(active.iter().all(|set| template.is_same_as(&set.object.spec.template).unwrap()));
        let limit = usize::try_from(spec.revision_history_limit.unwrap()).unwrap();
        assert!(self.sets.len() <= limit + 1, "{} are kept of {limit}", self.sets.len());
        let progressing = status.conditions.iter().find(|held| held.r#type == "Progressing").unwrap();
        assert_eq!(
            (progressing.status.as_str(), progressing.reason.as_str()),
            ("True", "NewReplicaSetAvailable")
        );
    }
}

/// The image that a ReplicaSet runs.
pub(super) fn image(template: &Raw) -> String {
    let image = get(template, &[2, 2, 2]).unwrap().unwrap();
    image.text().unwrap().into_owned()
}
