//! Whatever is in a namespace, and whatever happens to it meanwhile.

use proptest::prelude::*;

use super::fixtures::{Ended, World};

/// Something that happens between two reconciles.
#[derive(Clone, Debug)]
enum Event {
    /// All finalizers are taken off, and all pods end.
    Release,
    Refuse(usize),
    Allow,
    Down(bool),
    Later(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Release),
        (0_usize..3).prop_map(Event::Refuse),
        Just(Event::Allow),
        any::<bool>().prop_map(Event::Down),
        (1_i64..40).prop_map(Event::Later),
    ]
}

/// Resource, whether it has a finalizer, waits for dependents, and ends gracefully.
type Thing = (usize, bool, bool, bool);

/// Whether a kind can be deleted at once.
#[derive(Clone, Copy, Debug)]
enum AtOnce {
    Yes,
    No,
    /// So it is advertised, and the server answers with this.
    Claimed(u16),
}

fn world(things: &[Thing], pods_first: bool, at_once: AtOnce) -> World {
    let mut world = World::new();
    world.pods_first = pods_first;
    match at_once {
        AtOnce::Yes => {}
        AtOnce::No => world.resources[2].verbs.retain(|verb| verb != "deletecollection"),
        AtOnce::Claimed(code) => world.wrong().not_at_once.push((2, code)),
    }
    for (at, (resource, held, waits, graceful)) in things.iter().enumerate() {
        world.add(*resource, &format!("object-{at}"), |meta| {
            if *held {
                meta.finalizers.push("ex.io/a".into());
            }
            if *waits {
                meta.finalizers.push("foregroundDeletion".into());
            }
            meta.deletion_grace_period_seconds = (*graceful && *resource == 0).then_some(30);
        });
    }
    world
}

proptest! {
    /// The world asserts that nothing is left behind and that metadata stays; here: pods go first, nothing is written in
    /// vain, and in the end it goes.
    #[test]
    fn it_goes_in_order_and_in_the_end(
        things in prop::collection::vec((0_usize..3, any::<bool>(), any::<bool>(), any::<bool>()), 0..8),
        events in prop::collection::vec(event(), 0..8),
        pods_first: bool,
        at_once in prop::sample::select(&[AtOnce::Yes, AtOnce::No, AtOnce::Claimed(404), AtOnce::Claimed(405)]),
    ) {
        let mut world = world(&things, pods_first, at_once);
        for event in events {
            let pods_before = world.objects().iter().any(|(resource, _)| *resource == 0);
            let before = world.writes.len();
            world.reconcile();
            let deletes: Vec<&String> =
                world.writes[before..].iter().filter(|write| write.starts_with("delete")).collect();
            let refuses = world.wrong().refused.contains(&0);
            if pods_first && !refuses && pods_before && world.objects().iter().any(|(resource, _)| *resource == 0) {
                prop_assert!(deletes.iter().all(|write| write.contains(" pods ")), "{:?}", deletes);
            }
            if world.namespace().is_none() {
                break;
            }
            // What was said holds until something happens: saying it again writes nothing but what is refused again.
            let (before, count) = (world.writes.len(), world.objects().len());
            world.reconcile();
            let again = &world.writes[before..];
            if world.objects().len() == count {
                prop_assert!(again.iter().all(|write| !write.contains("status")), "{:?}", again);
            }
            match event {
                Event::Release => world.release(),
                Event::Refuse(resource) => drop(world.wrong().refused.insert(resource)),
                Event::Allow => world.wrong().refused.clear(),
                Event::Down(true) => world.stale = vec!["down.ex.io/v1"],
                Event::Down(false) => world.stale.clear(),
                Event::Later(seconds) => world.age += seconds,
            }
        }
        world.wrong().refused.clear();
        world.stale.clear();
        for _ in 0..5 {
            world.release();
            world.reconcile();
        }
        prop_assert!(world.namespace().is_none());
        prop_assert_eq!(world.reconcile(), Ended::Nothing);
    }
}
