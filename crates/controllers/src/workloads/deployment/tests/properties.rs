//! What holds whatever happens, in whatever order.

use proptest::prelude::*;

use super::super::plan::{self, Bounds};
use super::cluster::{Cluster, PodState, image};
use super::fixtures::*;
use coxswain_machinery::wire::IntOrString;

#[derive(Clone, Debug)]
enum Event {
    /// The room looks at the Deployment.
    Reconcile,
    /// The ReplicaSet controller looks at one of the ReplicaSets.
    Sync(prop::sample::Index),
    /// Some pods of a ReplicaSet become available.
    Ready(prop::sample::Index, usize),
    /// One pod of a ReplicaSet stops being available.
    Fail(prop::sample::Index),
    /// Pods on their way out are gone.
    Gone,
    Image(u8),
    Scale(i32),
    Pause(bool),
    Strategy(bool),
    /// One of the ReplicaSets loses its owner.
    Orphan(prop::sample::Index),
}

/// Each case is a whole life of a Deployment: fewer do, unless more are asked for.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

fn index() -> impl Strategy<Value = prop::sample::Index> {
    any::<prop::sample::Index>()
}

/// What the world does by itself.
fn world() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Reconcile),
        6 => index().prop_map(Event::Sync),
        4 => (index(), 1..4_usize).prop_map(|(at, count)| Event::Ready(at, count)),
        1 => Just(Event::Gone),
    ]
}

/// What users do.
fn users() -> impl Strategy<Value = Event> {
    prop_oneof![(1..4_u8).prop_map(Event::Image), (0..12_i32).prop_map(Event::Scale)]
}

/// What happens rarely.
fn rare() -> impl Strategy<Value = Event> {
    prop_oneof![
        index().prop_map(Event::Fail),
        any::<bool>().prop_map(Event::Pause),
        any::<bool>().prop_map(Event::Strategy),
        index().prop_map(Event::Orphan),
    ]
}

fn bound() -> impl Strategy<Value = IntOrString> {
    prop_oneof![
        (0..4_i32).prop_map(IntOrString::Int),
        (0..101_u8).prop_map(|percent| IntOrString::Str(format!("{percent}%").into())),
    ]
}

fn start(replicas: i32, surge: IntOrString, unavailable: IntOrString, limit: i32) -> Cluster {
    Cluster::new(&deployment(|deployment| {
        deployment.spec.replicas = Some(replicas);
        deployment.spec.revision_history_limit = Some(limit);
        let rolling = deployment.spec.strategy.rolling_update.as_mut().unwrap();
        rolling.max_surge = Some(surge);
        rolling.max_unavailable = Some(unavailable);
    }))
}

fn pick(cluster: &Cluster, at: prop::sample::Index) -> Option<usize> {
    (!cluster.sets.is_empty()).then(|| at.index(cluster.sets.len()))
}

fn happen(cluster: &mut Cluster, event: &Event) {
    match event {
        Event::Reconcile => {
            cluster.reconcile();
        }
        Event::Sync(at) => {
            if let Some(at) = pick(cluster, *at) {
                cluster.sync(at);
            }
        }
        Event::Ready(at, count) => {
            if let Some(at) = pick(cluster, *at) {
                let waiting = cluster.sets[at].pods.iter_mut().filter(|pod| **pod == PodState::Waiting);
                waiting.take(*count).for_each(|pod| *pod = PodState::Available);
            }
        }
        Event::Fail(at) => {
            if let Some(at) = pick(cluster, *at)
                && let Some(pod) = cluster.sets[at].pods.iter_mut().max()
            {
                *pod = PodState::Waiting;
            }
        }
        Event::Gone => cluster.sets.iter_mut().for_each(|set| set.leaving = 0),
        Event::Image(tag) => {
            cluster.edit(|deployment| deployment.spec.template = template(&format!("nginx:{tag}")));
        }
        Event::Scale(replicas) => cluster.edit(|deployment| deployment.spec.replicas = Some(*replicas)),
        Event::Pause(paused) => cluster.edit(|deployment| deployment.spec.paused = *paused),
        Event::Strategy(recreate) => cluster.edit(|deployment| {
            deployment.spec.strategy.r#type = if *recreate { "Recreate" } else { "RollingUpdate" }.into();
        }),
        Event::Orphan(at) => {
            if let Some(at) = pick(cluster, *at) {
                cluster.orphan(at);
            }
        }
    }
}

fn is_scaled(cluster: &Cluster) -> bool {
    let wanted = cluster.deployment.spec.replicas.unwrap().to_string();
    let active = cluster.sets.iter().filter(|set| set.object.spec.replicas != Some(0));
    active.map(|set| &set.object.metadata.annotations).all(|annotations| {
        annotations.get("deployment.kubernetes.io/desired-replicas").is_some_and(|noted| *noted == wanted)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// As long as no pod fails by itself, a roll-out keeps its bounds at every moment, however late everyone is.
    #[test]
    fn a_roll_out_keeps_its_bounds(
        replicas in 1..12_i32,
        surge in bound(),
        unavailable in bound(),
        events in prop::collection::vec(prop_oneof![30 => world(), 1 => users()], 0..250),
    ) {
        let mut cluster = start(replicas, surge, unavailable, 10);
        // Bounds that were kept once are kept, until the Deployment gets another size.
        let mut held = false;
        for event in &events {
            let before = cluster.asked();
            happen(&mut cluster, event);
            let bounds = Bounds::of(&cluster.deployment.spec).unwrap();
            if matches!(event, Event::Reconcile) {
                prop_assert!(cluster.asked() <= bounds.most().max(before), "{} of {:?}", cluster.asked(), bounds);
            }
            held &= !matches!(event, Event::Scale(_));
            let enough = cluster.available() >= bounds.least_available();
            prop_assert!(enough || !held, "{} available of {:?} after {:?}", cluster.available(), bounds, event);
            held |= enough && is_scaled(&cluster) && cluster.is_quiet();
        }
        cluster.settle();
        cluster.assert_done();
    }

    /// Whatever happened, in the end the Deployment is as it should be, and nothing is left to do. (That nothing with
    /// pods is deleted, nothing is written twice and nothing without need, the cluster checks.)
    #[test]
    fn it_ends_as_it_should(
        replicas in 0..8_i32,
        surge in bound(),
        unavailable in bound(),
        limit in 0..3_i32,
        events in prop::collection::vec(prop_oneof![10 => world(), 2 => users(), 1 => rare()], 0..150),
    ) {
        let mut cluster = start(replicas, surge, unavailable, limit);
        for event in &events {
            happen(&mut cluster, event);
        }
        if cluster.deployment.spec.paused {
            cluster.edit(|deployment| deployment.spec.paused = false);
        }
        cluster.settle();
        cluster.assert_done();
        prop_assert!(plan::plan(&cluster.view(), cluster.now()).is_empty());
    }

    #[test]
    fn the_same_view_gives_the_same_plan(
        replicas in 0..8_i32,
        events in prop::collection::vec(prop_oneof![10 => world(), 2 => users(), 1 => rare()], 0..80),
        turn in any::<prop::sample::Index>(),
    ) {
        let mut cluster = start(replicas, IntOrString::Int(1), IntOrString::Int(1), 2);
        for event in &events {
            happen(&mut cluster, event);
        }
        let view = cluster.view();
        let mut turned = view.clone();
        if !turned.replica_sets.is_empty() {
            let by = turn.index(turned.replica_sets.len());
            turned.replica_sets.rotate_left(by);
        }
        let (a, b) = (plan::plan(&view, cluster.now()), plan::plan(&turned, cluster.now()));
        prop_assert_eq!(all_steps(&a), all_steps(&b));
        prop_assert_eq!(updated(&a), updated(&b));
        prop_assert_eq!(a.requeue_after, b.requeue_after);
    }
}

#[test]
fn a_life_in_few_writes() {
    let mut cluster = start(50, IntOrString::Str("25%".into()), IntOrString::Str("25%".into()), 10);
    cluster.settle();
    cluster.assert_done();
    // The ReplicaSet, the first status, and that all is done.
    assert_eq!(cluster.writes, 3);
    cluster.writes = 0;
    cluster.edit(|deployment| deployment.spec.replicas = Some(5));
    cluster.settle();
    cluster.assert_done();
    assert!(cluster.writes <= 4, "{}", cluster.writes);
    for image in ["nginx:2", "nginx:1", "nginx:2"] {
        cluster.edit(|deployment| deployment.spec.template = template(image));
        cluster.settle();
        cluster.assert_done();
    }
    assert_eq!(cluster.sets.len(), 2, "rolling back takes the ReplicaSet that is there");
    let set = cluster.sets.iter().find(|set| set.object.spec.replicas == Some(5)).unwrap();
    assert_eq!(image(&set.object.spec.template), "nginx:2");
    let annotation =
        |key: &str| set.object.metadata.annotations.get(&format!("deployment.kubernetes.io/{key}"));
    assert_eq!(annotation("revision").unwrap(), "4");
    assert_eq!(annotation("revision-history").unwrap(), "2");
    assert_eq!(
        cluster.deployment.metadata.annotations.get("deployment.kubernetes.io/revision").unwrap(),
        "4"
    );
}
