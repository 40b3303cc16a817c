//! Evictions and reconciles in any order, over caches that lag: no eviction breaks the budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::granted::Granted;
use super::super::plan::plan;
use super::fixtures::{Bench, NOW, budget, decoded, deleting, now, pod, unready};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::policy::PodDisruptionBudget;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::{IntOrString, Message as _, Raw, Time};

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

/// What the API server holds, and how much of it the caches have seen.
struct World {
    /// The latest version of anything.
    version: u64,
    /// Every state that the pods were in, and its version; the present one last.
    pods: Vec<(u64, Pods)>,
    seen_pods: usize,
    /// Every version of the budget, the present one last.
    budgets: Vec<Arc<PodDisruptionBudget>>,
    seen_budget: usize,
    /// What the room remembers of what it has seen.
    granted: Arc<Granted>,
    made: usize,
    evicted: usize,
}

type Pods = BTreeMap<String, Arc<Pod>>;

impl World {
    fn new() -> Self {
        let first = budget(|budget| budget.spec.min_available = Some(IntOrString::Int(DESIRED as i32)));
        let mut world = Self {
            version: 100,
            pods: vec![(1, BTreeMap::new())],
            seen_pods: 0,
            budgets: vec![first],
            seen_budget: 0,
            granted: Arc::default(),
            made: 0,
            evicted: 0,
        };
        for _ in 0..4 {
            world.come(true);
        }
        world
    }

    fn now(&self) -> &Pods {
        &self.pods.last().unwrap().1
    }

    fn budget(&self) -> &PodDisruptionBudget {
        self.budgets.last().unwrap()
    }

    fn name(&self, at: usize) -> Option<String> {
        self.now().keys().nth(at).cloned()
    }

    fn change(&mut self, change: impl FnOnce(&mut Pods)) {
        let mut next = self.now().clone();
        change(&mut next);
        self.version += 1;
        self.pods.push((self.version, next));
    }

    fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        self.change(|pods| {
            if let Some(held) = pods.get_mut(name) {
                let mut changed = Pod::clone(held);
                change(&mut changed);
                *held = Arc::new(changed);
            }
        });
    }

    fn come(&mut self, is_ready: bool) {
        if self.now().len() < MOST {
            self.made += 1;
            let name = format!("p{}", self.made);
            let new = pod(&name, if is_ready { |_: &mut Pod| {} } else { unready });
            self.change(|pods| _ = pods.insert(name, new));
        }
    }

    fn write_budget(&mut self, change: impl FnOnce(&mut PodDisruptionBudget)) {
        let mut next = self.budget().clone();
        change(&mut next);
        self.version += 1;
        next.metadata.resource_version = self.version.to_string().as_str().into();
        next.raw = Raw::default();
        self.budgets.push(decoded(next.to_bytes()));
    }

    /// Pods that are ready, stay, and whose eviction was not granted.
    fn healthy(&self) -> usize {
        let disrupted = |name: &str| self.budget().status.disrupted_pods.get(name).is_some();
        let pods = self.now().iter();
        pods.filter(|(name, pod)| pod.is_ready() && !pod.metadata.is_deleting() && !disrupted(name)).count()
    }

    /// The eviction subresource. It evicts pods that the cache has not seen, too. (The original forgets their entries and counts
    /// these pods when they are seen, which one eviction too many may follow.)
    fn evict(&mut self, name: &str, at_once: bool) -> Result<(), TestCaseError> {
        let held = &self.now()[name];
        let status = &self.budget().status;
        if held.metadata.is_deleting()
            || !held.is_ready()
            || status.observed_generation < self.budget().metadata.generation
            || status.disruptions_allowed <= 0
            || status.disrupted_pods.get(name).is_some()
        {
            return Ok(());
        }
        self.evicted += 1;
        self.write_budget(|budget| {
            budget.status.disruptions_allowed -= 1;
            budget.status.disrupted_pods.insert(name, Time::from_seconds(NOW));
        });
        prop_assert!(self.healthy() >= DESIRED, "{} are left of {DESIRED}", self.healthy());
        if at_once {
            self.change_pod(name, deleting);
        }
        Ok(())
    }

    fn reconcile(&mut self) -> Result<(), TestCaseError> {
        let seen = &self.budgets[self.seen_budget];
        let (version, pods) = &self.pods[self.seen_pods];
        let pods: Vec<Arc<Pod>> = pods.values().cloned().collect();
        let mut bench = Bench::at(&version.to_string(), seen, &pods);
        bench.granted = Arc::clone(&self.granted);
        let plan = plan(&bench.view(&[]), now());
        let writes: Vec<_> = plan.writes().collect();
        let [write] = writes.as_slice() else { return Ok(()) };
        let Verb::Update(object) = &write.verb else { panic!("{write:?}") };
        let new = decoded(object.to_vec());
        prop_assert_eq!(&new.metadata.resource_version, &seen.metadata.resource_version);
        if new.metadata.resource_version == self.budget().metadata.resource_version {
            let status = new.status.clone();
            self.write_budget(|budget| budget.status = status);
        }
        Ok(())
    }

    /// The cache of budgets sees one more version.
    fn see_budget(&mut self) {
        if self.seen_budget + 1 < self.budgets.len() {
            let [before, now] = [0, 1].map(|more| &self.budgets[self.seen_budget + more]);
            self.granted.note(Some(before), Some(now));
            self.seen_budget += 1;
        }
    }

    fn see_all(&mut self) {
        self.seen_pods = self.pods.len() - 1;
        while self.seen_budget + 1 < self.budgets.len() {
            self.see_budget();
        }
        // A bookmark, or a pod of somebody else's.
        self.version += 1;
        self.pods[self.seen_pods].0 = self.version;
    }

    fn take_over(&mut self) {
        (self.seen_pods, self.seen_budget) = (self.pods.len() - 1, self.budgets.len() - 1);
        self.granted = Arc::default();
        self.granted.note(None, self.budgets.last().map(|last| &**last));
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Evict(at, at_once) => {
                if let Some(name) = self.name(*at) {
                    self.evict(&name, *at_once)?;
                }
            }
            Step::Delete(at) => {
                let name = self.name(*at);
                let granted = |name: &String| self.budget().status.disrupted_pods.get(name).is_some();
                if let Some(name) = name.filter(granted) {
                    self.change_pod(&name, deleting);
                }
            }
            Step::Gone(at) => {
                let name = self.name(*at).filter(|name| self.now()[name].metadata.is_deleting());
                if let Some(name) = name {
                    self.change(|pods| _ = pods.remove(&name));
                }
            }
            Step::Come(is_ready) => self.come(*is_ready),
            Step::Ready(at) => {
                if let Some(name) = self.name(*at) {
                    self.change_pod(&name, |held| held.status = pod("p", |_| {}).status.clone());
                }
            }
            Step::SeePods => self.seen_pods = (self.seen_pods + 1).min(self.pods.len() - 1),
            Step::SeeBudget => self.see_budget(),
            Step::Reconcile => self.reconcile()?,
            Step::TakeOver => self.take_over(),
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_eviction_breaks_a_budget(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step)?;
        }
        // In the end, when all is seen, the status says what is.
        world.see_all();
        world.reconcile()?;
        let healthy = world.healthy();
        let allowed = if world.now().is_empty() { 0 } else { healthy.saturating_sub(DESIRED) };
        let status = &world.budget().status;
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
    world.seen_pods = world.pods.len() - 1;
    world.evict("p1", true).unwrap();
    assert_eq!(world.evicted, 0, "there is no status yet");
    world.reconcile().unwrap();
    for name in ["p1", "p2", "p3"] {
        world.evict(name, false).unwrap();
    }
    assert_eq!((world.evicted, world.healthy()), (2, DESIRED));
    // A cache that has not seen the evictions writes nothing.
    let before = world.budgets.len();
    world.seen_budget = 0;
    world.reconcile().unwrap();
    assert_eq!(world.budgets.len(), before);
}
