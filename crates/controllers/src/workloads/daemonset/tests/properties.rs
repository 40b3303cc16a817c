//! Properties: whatever happens in the model [`Cluster`], each node ends with the pods that it should have.

use proptest::prelude::*;

use super::super::view::node_of;
use super::cluster::{Cluster, Event};
use super::fixtures::rolls;
use coxswain_machinery::api::apps::DaemonSet;
use coxswain_machinery::model::revisions::REVISION_LABEL;
use coxswain_machinery::wire::IntOrString;

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Reconcile),
        1 => (0..40_i64).prop_map(Event::Advance),
        4 => any::<usize>().prop_map(Event::Ready),
        1 => any::<usize>().prop_map(Event::Unready),
        1 => any::<usize>().prop_map(Event::Fail),
        1 => any::<usize>().prop_map(Event::Succeed),
        1 => any::<usize>().prop_map(Event::Evict),
        2 => any::<usize>().prop_map(Event::Vanish),
        1 => any::<usize>().prop_map(Event::Join),
        1 => any::<usize>().prop_map(Event::Leave),
        2 => (any::<usize>(), 0..3_usize).prop_map(|(at, effect)| Event::Taint(at, effect)),
        2 => (0..4_usize).prop_map(Event::Roll),
        1 => (1..3_u32).prop_map(Event::Refuse),
    ]
}

fn strategy(surge: bool, most: i32, min_ready_seconds: i32) -> impl FnOnce(&mut DaemonSet) {
    move |set| {
        let (unavailable, surge) = if surge { (0, most) } else { (most, 0) };
        rolls(set, IntOrString::Int(unavailable), IntOrString::Int(surge));
        set.spec.min_ready_seconds = min_ready_seconds;
        set.spec.revision_history_limit = Some(2);
        // Nothing is observed yet.
        set.status.observed_generation = 0;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Once it is calm there is one pod of the present template on each node that should run one, none where none may be,
    /// one revision for each template, the status tells the truth, and nothing is left to do.
    #[test]
    fn it_converges(
        surge: bool,
        most in 1..4_i32,
        min_ready_seconds in prop_oneof![Just(0), Just(10)],
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut cluster = Cluster::new(strategy(surge, most, min_ready_seconds), 4);
        for event in events {
            cluster.happen(event);
        }
        cluster.settle();

        let set = cluster.set();
        let view = cluster.view(&[]);
        let revisions = cluster.revisions();
        let newest = revisions.iter().max_by_key(|held| held.revision).unwrap();
        let hash = newest.metadata.labels.get(REVISION_LABEL).unwrap();
        let (mut desired, mut misscheduled) = (0, 0);
        for node in cluster.nodes() {
            let fit = view.gates.fit(&set, &node);
            let pods = cluster.pods();
            let here: Vec<_> = pods.iter().filter(|pod| node_of(pod) == Some(&node.metadata.name)).collect();
            desired += i32::from(fit.runs());
            misscheduled += i32::from(!fit.runs() && !here.is_empty());
            prop_assert_eq!(here.len(), usize::from(fit.runs() || fit.keeps() && !here.is_empty()));
            prop_assert!(here.iter().all(|pod| !fit.runs() || pod.metadata.labels.get(REVISION_LABEL) == Some(hash)));
        }
        let status = &set.status;
        prop_assert_eq!(status.observed_generation, set.metadata.generation);
        prop_assert_eq!((status.desired_number_scheduled, status.number_misscheduled), (desired, misscheduled));
        prop_assert_eq!((status.number_available, status.updated_number_scheduled), (desired, desired));
        prop_assert_eq!(status.number_unavailable, 0);
        prop_assert!(revisions.len() <= 3, "the present one and two others");
        prop_assert!(cluster.revisions_made() <= 4 || revisions.len() == 3, "one for each template, and for those forgotten");
    }

    /// No node has ever more pods than its strategy allows that were not there before, as long as nobody else makes some.
    #[test]
    fn no_node_gets_a_pod_too_many(surge: bool, events in prop::collection::vec(event(), 0..60)) {
        let mut cluster = Cluster::new(strategy(surge, 2, 0), 4);
        for event in events {
            cluster.happen(event);
            let pods = cluster.pods();
            for node in cluster.nodes() {
                let here = pods.iter().filter(|pod| {
                    node_of(pod) == Some(&node.metadata.name) && !pod.metadata.is_deleting() && !pod.is_finished()
                });
                let count = here.count();
                prop_assert!(count <= 1 + usize::from(surge));
            }
        }
    }
}

/// A pod that fails whenever it is made is made once a second at first, and ever more rarely; a new generation begins anew.
#[test]
fn pods_that_fail_again_and_again_are_made_ever_more_rarely() {
    let mut cluster = Cluster::new(strategy(false, 1, 0), 1);
    let made_in = |cluster: &mut Cluster, seconds: usize| {
        let mut names = std::collections::BTreeSet::new();
        for _ in 0..seconds * 3 {
            cluster.happen(Event::Reconcile);
            cluster.happen(Event::Fail(0));
            names.extend(cluster.pods().iter().map(|pod| pod.metadata.name.clone()));
            cluster.happen(Event::Reconcile);
            if cluster.pods().iter().any(|pod| pod.metadata.is_deleting()) {
                cluster.happen(Event::Vanish(0));
            } else {
                cluster.happen(Event::Advance(1));
            }
        }
        names.len()
    };
    let first = made_in(&mut cluster, 60);
    let then = made_in(&mut cluster, 60);
    assert!((5..=10).contains(&first) && then <= 2, "{first} and then {then}");
    cluster.happen(Event::Roll(3));
    assert!(made_in(&mut cluster, 20) >= 3);
}
