//! Evictions and reconciles in any order, over caches that lag: no eviction breaks the budget.

use std::sync::Arc;

use apiserver_model::{Caches, Deletion, Model, Place, Served, Stored, items};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::fixtures::{Bench, NOW, budget, decoded, now, pod, unready};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::kinds::POD_DISRUPTION_BUDGETS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::{IntOrString, Time};

const DESIRED: usize = 2;
const MOST: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    /// Somebody asks for the eviction of a pod. What was granted deletes the pod, at once or later.
    Evict(usize, bool),
    /// A pod whose eviction was granted is deleted.
    Delete(usize),
    /// A pod that is being deleted is gone.
    Gone(usize),
    /// A new pod comes, ready or not.
    Come(bool),
    /// A pod becomes ready.
    Ready(usize),
    /// The cache of pods, or of budgets, sees one more change.
    SeePods,
    SeeBudget,
    /// The budget is reconciled, over what the caches hold.
    Reconcile,
    /// Another manager takes over: it knows what there is now, and nothing of before.
    TakeOver,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..MOST, any::<bool>()).prop_map(|(at, now)| Step::Evict(at, now)),
        2 => (0..MOST).prop_map(Step::Delete),
        2 => (0..MOST).prop_map(Step::Gone),
        2 => any::<bool>().prop_map(Step::Come),
        1 => (0..MOST).prop_map(Step::Ready),
        4 => Just(Step::SeePods),
        4 => Just(Step::SeeBudget),
        6 => Just(Step::Reconcile),
        1 => Just(Step::TakeOver),
    ]
}

/// The API server, and caches that have seen as much as they are told.
struct World {
    api: Served,
    bench: Bench,
    pods: Caches,
    budgets: Caches,
    evicted: usize,
}

fn place() -> Place {
    Place::new("poddisruptionbudgets", "default", "web")
}

impl World {
    fn new() -> Self {
        let api = Served::new("disruption-controller", now());
        let first = budget(|budget| budget.spec.min_available = Some(IntOrString::Int(DESIRED as i32)));
        let made = api.model().create_encoded("user", &POD_DISRUPTION_BUDGETS, &first.raw);
        made.expect("nothing is wrong with it");
        let bench = Bench::empty();
        let pods = Caches::new([Arc::clone(&bench.pods)]);
        let budgets = Caches::new([Arc::clone(&bench.budgets)]);
        let mut world = Self { api, bench, pods, budgets, evicted: 0 };
        world.see_budget();
        for _ in 0..4 {
            world.come(true);
        }
        world
    }

    fn budget(&self) -> Arc<PodDisruptionBudget> {
        let model = self.api.model();
        let stored = model.get(&place()).expect("nobody deletes it");
        downcast(stored.object(&POD_DISRUPTION_BUDGETS)).expect("a budget")
    }

    fn live(&self) -> Vec<Arc<Stored>> {
        self.api.model().all("pods", "default").cloned().collect()
    }

    fn come(&mut self, is_ready: bool) {
        if self.live().len() >= MOST {
            return;
        }
        let pod = json!({
            "metadata": {
                "generateName": "p",
                "labels": { "app": "web" },
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-uid", "controller": true,
                }],
            },
            "spec": { "nodeName": "node" },
        });
        let mut model = self.api.model();
        let made = model.create("user", "pods", "default", pod).expect("nothing is wrong with it");
        if is_ready {
            becomes_ready(&mut model, &made.place);
        }
    }

    /// What there is at this place of the order.
    fn at(&self, at: usize) -> Option<Arc<Stored>> {
        self.live().into_iter().nth(at)
    }

    /// Pods that are ready, stay, and whose eviction was not granted.
    fn healthy(&self) -> usize {
        let budget = self.budget();
        let disrupted = |name: &str| budget.status.disrupted_pods.get(name).is_some();
        let is_healthy = |pod: &&Arc<Stored>| {
            is_ready(&pod.json) && !is_deleting(&pod.json) && !disrupted(&pod.place.name)
        };
        self.live().iter().filter(is_healthy).count()
    }

    /// The eviction subresource. It evicts pods that the cache has not seen, too. (The original forgets their entries and counts
    /// these pods when they are seen, which one eviction too many may follow.)
    fn evict(&mut self, pod: &Stored, at_once: bool) -> Result<(), TestCaseError> {
        let (name, budget) = (pod.place.name.as_str(), self.budget());
        if is_deleting(&pod.json)
            || !is_ready(&pod.json)
            || budget.status.observed_generation < budget.metadata.generation
            || budget.status.disruptions_allowed <= 0
            || budget.status.disrupted_pods.get(name).is_some()
        {
            return Ok(());
        }
        self.evicted += 1;
        let allowed = budget.status.disruptions_allowed - 1;
        let granted = self.api.model().change("user", &place(), "status", |budget| {
            budget["status"]["disruptionsAllowed"] = json!(allowed);
            budget["status"]["disruptedPods"][name] = json!(now().to_string());
        });
        granted.expect("nothing is wrong with it");
        prop_assert!(self.healthy() >= DESIRED, "{} are left of {DESIRED}", self.healthy());
        if at_once {
            self.delete(pod, None);
        }
        Ok(())
    }

    fn delete(&self, pod: &Stored, grace: Option<i64>) {
        let how = Deletion { grace, ..Deletion::default() };
        self.api.model().delete("user", &pod.place, &how).expect("it is there");
    }

    fn reconcile(&mut self) -> Result<(), TestCaseError> {
        let seen: Arc<PodDisruptionBudget> =
            self.bench.budgets.find("default", "web").and_then(downcast).expect("it was seen");
        let plan = self.bench.plan();
        for write in plan.writes() {
            let Verb::Update(object) = &write.verb else { panic!("{write:?}") };
            prop_assert_eq!(
                &decoded(object.to_vec()).metadata.resource_version,
                &seen.metadata.resource_version
            );
        }
        // A cache that is late meets a conflict, and nothing else is refused.
        for failure in self.api.execute(plan).failures {
            prop_assert_eq!(failure.code, 409, "{}", failure.message);
        }
        Ok(())
    }

    /// The cache of budgets sees one more version, if there is one.
    fn see_budget(&mut self) -> bool {
        let held = || self.bench.budgets.find("default", "web").and_then(downcast);
        let before: Option<Arc<PodDisruptionBudget>> = held();
        if self.budgets.deliver(&self.api.model(), 1) == 0 {
            return false;
        }
        self.bench.granted.note(before.as_deref(), held().as_deref());
        true
    }

    fn see_all(&mut self) {
        while self.see_budget() {}
        let model = self.api.model();
        self.pods.catch_up(&model, model.version());
        // A bookmark, or a pod of somebody else's.
        self.bench.pods.bookmark(&model.version().to_string());
    }

    fn take_over(&mut self) {
        let model = self.api.model();
        self.pods.list(&model);
        self.budgets.list(&model);
        drop(model);
        self.bench.granted = Arc::default();
        self.bench.granted.note(None, Some(&self.budget()));
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Evict(at, at_once) => {
                if let Some(pod) = self.at(*at) {
                    self.evict(&pod, *at_once)?;
                }
            }
            Step::Delete(at) => {
                let budget = self.budget();
                let granted = |pod: &Arc<Stored>| budget.status.disrupted_pods.get(&pod.place.name).is_some();
                if let Some(pod) = self.at(*at).filter(granted) {
                    self.delete(&pod, None);
                }
            }
            Step::Gone(at) => {
                if let Some(pod) = self.at(*at).filter(|pod| is_deleting(&pod.json)) {
                    self.delete(&pod, Some(0));
                }
            }
            Step::Come(is_ready) => self.come(*is_ready),
            Step::Ready(at) => {
                if let Some(pod) = self.at(*at) {
                    becomes_ready(&mut self.api.model(), &pod.place);
                }
            }
            Step::SeePods => drop(self.pods.deliver(&self.api.model(), 1)),
            Step::SeeBudget => drop(self.see_budget()),
            Step::Reconcile => self.reconcile()?,
            Step::TakeOver => self.take_over(),
        }
        Ok(())
    }
}

fn becomes_ready(model: &mut Model, place: &Place) {
    let ready = model.change("kubelet", place, "status", |pod| {
        pod["status"]["phase"] = json!("Running");
        pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
    });
    ready.expect("nothing is wrong with it");
}

fn is_ready(pod: &Json) -> bool {
    items(pod, "/status/conditions").iter().any(|held| held["type"] == "Ready" && held["status"] == "True")
}

fn is_deleting(pod: &Json) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

proptest! {
    #[test]
    fn no_eviction_breaks_a_budget(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        world.see_all();
        world.reconcile()?;
        for step in &steps {
            world.take(step)?;
        }
        // In the end, when all is seen, the status says what is.
        world.see_all();
        world.reconcile()?;
        let healthy = world.healthy();
        let allowed = if world.live().is_empty() { 0 } else { healthy.saturating_sub(DESIRED) };
        let status = world.budget().status.clone();
        prop_assert_eq!((status.current_healthy, status.disruptions_allowed), (healthy as i32, allowed as i32));
    }

    /// What was planned and written leaves nothing to plan.
    #[test]
    fn a_status_is_written_once(ready in prop::collection::vec(any::<bool>(), 0..6), disrupted in 0_usize..4) {
        let held: Vec<Arc<Pod>> = ready
            .iter()
            .enumerate()
            .map(|(at, ready)| pod(&format!("p{at}"), if *ready { |_: &mut Pod| {} } else { unready }))
            .collect();
        let first = budget(|budget| {
            for at in 0..disrupted {
                budget.status.disrupted_pods.insert(&format!("p{at}"), Time::from_seconds(NOW - 60));
            }
        });
        let bench = Bench::of(&first, &held);
        let plan = bench.plan();
        let write = plan.writes().next().unwrap();
        let Verb::Update(object) = &write.verb else { panic!("{write:?}") };
        bench.budgets.upsert(&(decoded(object.to_vec()) as AnyObject));
        prop_assert!(bench.plan().is_empty());
    }
}

/// The property would see an eviction on a stale status: the steps lead to evictions at all.
#[test]
fn evictions_are_granted_once_the_status_is_known() {
    let mut world = World::new();
    world.see_all();
    let pods = world.live();
    world.evict(&pods[0], true).unwrap();
    assert_eq!(world.evicted, 0, "there is no status yet");
    world.reconcile().unwrap();
    for pod in &pods[..3] {
        world.evict(pod, false).unwrap();
    }
    assert_eq!((world.evicted, world.healthy()), (2, DESIRED));
    // A cache that has not seen the evictions writes nothing.
    let before = world.api.model().version();
    world.reconcile().unwrap();
    assert_eq!(world.api.model().version(), before);
}
