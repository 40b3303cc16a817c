//! A small model of what is around the room: an API server that holds plans to their preconditions, and a ReplicaSet
//! controller that is as late as the test wants.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::view::View;
use super::super::*;
use super::fixtures::*;
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::model::template::Template;
use coxswain_machinery::wire::splice::{Edit, edit, get};
use coxswain_machinery::wire::{Message, Raw, Str};

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
    pub(super) deployment: Arc<Deployment>,
    pub(super) sets: Vec<Set>,
    clock: i64,
    version: u64,
    pub(super) writes: usize,
}

impl Cluster {
    pub(super) fn new(deployment: Arc<Deployment>) -> Self {
        Self { deployment, sets: Vec::new(), clock: NOW, version: 1000, writes: 0 }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.clock).unwrap()
    }

    /// Changes the Deployment as a user does.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Deployment)) {
        let mut changed = (*self.deployment).clone();
        change(&mut changed);
        changed.metadata.generation += 1;
        changed.metadata.resource_version = self.next_version();
        self.deployment = decoded(&DEPLOYMENTS, changed.to_bytes());
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

    /// One reconcile; the number of its writes.
    pub(super) fn reconcile(&mut self) -> usize {
        self.clock += 1;
        let plan = plan::plan(&self.view(), self.now());
        assert_eq!(plan.retry, None);
        let mut written = Vec::new();
        for step in plan.steps {
            let Step::Write(write) = step else { continue };
            assert!(!written.contains(&(write.kind, write.key.clone())), "{write} is the second write of it");
            written.push((write.kind, write.key.clone()));
            self.perform(&write);
        }
        self.writes += written.len();
        written.len()
    }

    fn perform(&mut self, write: &Write) {
        match &write.verb {
            Verb::Create(body) => {
                let mut set: ReplicaSet = (*decoded::<ReplicaSet>(&REPLICA_SETS, body.to_vec())).clone();
                assert!(
                    self.sets.iter().all(|held| held.object.metadata.name != set.metadata.name),
                    "a collision"
                );
                set.metadata.uid = format!("uid-of-{}-{}", set.metadata.name, self.version).into();
                set.metadata.generation = 1;
                set.metadata.creation_timestamp = coxswain_machinery::wire::Time::from_seconds(self.clock);
                set.metadata.resource_version = self.next_version();
                let object = decoded(&REPLICA_SETS, set.to_bytes());
                self.sets.push(Set { object, pods: Vec::new(), leaving: 0 });
            }
            Verb::Update(body) if write.subresource == "status" => {
                let new: Arc<Deployment> = decoded(&DEPLOYMENTS, body.to_vec());
                assert_eq!(new.metadata.resource_version, self.deployment.metadata.resource_version);
                let same = new.status == self.deployment.status
                    && new.metadata.annotations == self.deployment.metadata.annotations;
                assert!(!same, "a status update that changes nothing");
                let mut stored = (*new).clone();
                stored.metadata.resource_version = self.next_version();
                self.deployment = decoded(&DEPLOYMENTS, stored.to_bytes());
            }
            Verb::Update(body) => {
                let at = self.find(&write.key.name);
                let new: Arc<ReplicaSet> = decoded(&REPLICA_SETS, body.to_vec());
                let held = &self.sets[at].object;
                assert_eq!(new.metadata.resource_version, held.metadata.resource_version);
                let bump = i64::from(new.spec != held.spec);
                self.store(at, &new, bump);
            }
            Verb::Delete { uid, resource_version, .. } => {
                let at = self.find(&write.key.name);
                let set = self.sets.remove(at);
                assert_eq!(*uid, set.object.metadata.uid);
                assert_eq!(*resource_version, Some(set.object.metadata.resource_version.clone()));
                assert!(set.pods.is_empty(), "a ReplicaSet with pods is deleted");
            }
            Verb::Patch(Patch::Strategic(patch)) => {
                let at = self.find(&write.key.name);
                let mut set = (*self.sets[at].object).clone();
                assert_eq!(patch["metadata"]["uid"], *set.metadata.uid.to_str());
                assert!(patch["metadata"]["ownerReferences"][0]["controller"].as_bool().unwrap());
                let owner = coxswain_machinery::model::owners::controller_reference(
                    &self.deployment.metadata,
                    &DEPLOYMENTS,
                );
                set.metadata.owner_references = vec![owner];
                self.store(at, &decoded::<ReplicaSet>(&REPLICA_SETS, set.to_bytes()), 0);
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn find(&self, name: &str) -> usize {
        self.sets.iter().position(|set| set.object.metadata.name == name).expect("a ReplicaSet of that name")
    }

    fn store(&mut self, at: usize, set: &ReplicaSet, bump: i64) {
        let generation = set.metadata.generation + bump;
        let version = self.next_version();
        let edits = [
            Edit::SetVarint(&[1, 7], generation as u64),
            Edit::SetBytes(&[1, 6], version.as_bytes().to_vec()),
        ];
        self.sets[at].object = decoded(&REPLICA_SETS, edit(&set.raw, &edits).unwrap());
    }

    fn next_version(&mut self) -> Str {
        self.version += 1;
        Str::from(self.version.to_string())
    }

    /// Lets the ReplicaSet controller see a ReplicaSet: like the real one, it makes or deletes pods, those first that are
    /// not available, and reports the pods that there were before.
    pub(super) fn sync(&mut self, at: usize) -> bool {
        let set = &mut self.sets[at];
        let mut object = (*set.object).clone();
        let status = &mut object.status;
        status.observed_generation = object.metadata.generation;
        status.replicas = set.pods.len() as i32;
        status.ready_replicas = set.pods.iter().filter(|pod| **pod != PodState::Waiting).count() as i32;
        status.available_replicas = status.ready_replicas;
        status.terminating_replicas = Some(set.leaving as i32);
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
        let reported = object.status != set.object.status;
        if reported {
            self.store(at, &decoded::<ReplicaSet>(&REPLICA_SETS, object.to_bytes()), 0);
        }
        reported || resized
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
    image.text().unwrap().to_owned()
}
