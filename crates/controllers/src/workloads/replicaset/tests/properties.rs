//! Properties: whatever happens in the model [`Cluster`], the room ends at what was asked for and never overshoots.

use proptest::prelude::*;

use super::cluster::{Cluster, Event};
use coxswain_machinery::model::pods;

fn calm_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Reconcile),
        3 => (0..6_usize).prop_map(Event::Deliver),
        1 => (0..40_i64).prop_map(Event::Advance),
        2 => any::<usize>().prop_map(Event::Schedule),
        2 => any::<usize>().prop_map(Event::Ready),
        1 => any::<usize>().prop_map(Event::Unready),
        1 => (1..3_u32).prop_map(Event::Refuse),
        1 => Just(Event::LoseAnswer),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => calm_event(),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, well)| Event::Finish(which, well)),
        1 => any::<usize>().prop_map(Event::Evict),
        1 => any::<usize>().prop_map(Event::Vanish),
        1 => any::<usize>().prop_map(Event::Relabel),
        1 => any::<usize>().prop_map(Event::Disown),
        1 => Just(Event::Orphan),
        1 => (0..12_i32).prop_map(Event::Scale),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happened: once it is calm, there are exactly the pods asked for, all claims are settled, the status
    /// tells the truth, and nothing is left to do.
    #[test]
    fn it_converges(
        desired in 0..12_i32,
        min_ready_seconds in prop_oneof![Just(0), Just(10)],
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut cluster = Cluster::new(desired, min_ready_seconds);
        for event in events {
            cluster.happen(event);
        }
        cluster.settle();

        let active = cluster.active();
        prop_assert_eq!(active.len() as i32, cluster.set().spec.replicas.unwrap());
        prop_assert!(active.iter().all(|pod| pod.metadata.labels.get("app").is_some_and(|app| app == "web")));
        let set = cluster.set();
        let status = &set.status;
        prop_assert_eq!(status.observed_generation, set.metadata.generation);
        prop_assert_eq!(status.replicas, active.len() as i32);
        let ready = active.iter().filter(|pod| pod.is_ready()).count() as i32;
        prop_assert_eq!((status.ready_replicas, status.available_replicas), (ready, ready));
        prop_assert_eq!(status.terminating_replicas, Some(0));
        prop_assert!(status.conditions.is_empty());
        let pods = cluster.pods();
        let unclaimed = pods.iter().filter(|pod| {
            pods::is_active(pod)
                && pod.metadata.controller().is_none()
                && pod.metadata.labels.get("app").is_some_and(|app| app == "web")
        });
        prop_assert_eq!(unclaimed.count(), 0);
    }

    /// As long as nobody takes pods away, no pod is ever made that is not needed: not by a watch that lags, not by
    /// refusals, not by lost answers.
    #[test]
    fn it_never_makes_one_too_many(desired in 0..12_i32, events in prop::collection::vec(calm_event(), 0..60)) {
        let mut cluster = Cluster::new(desired, 0);
        for event in events {
            cluster.happen(event);
            prop_assert!(cluster.pods().len() as i32 <= desired);
        }
        cluster.settle();
        prop_assert_eq!(cluster.created() as i32, desired);
    }
}

/// The model can tell: without the barrier, a lagging watch makes pods twice.
#[test]
fn the_barrier_is_needed() {
    let mut cluster = Cluster::new(3, 0);
    cluster.reconcile();
    cluster.reconcile();
    assert_eq!(cluster.pods().len(), 6);
    cluster.settle();
    assert_eq!(cluster.active().len(), 3);
}
