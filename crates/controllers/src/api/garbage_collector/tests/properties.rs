//! Whatever is made, owned and deleted, and in whatever order it is told and acted upon: nothing goes while an owner is
//! there, and in the end all goes that should.

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::graph::{AffectedObjects, GraphStats};
use super::server::{Place, SERVED};
use super::world::World;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::model::plan::Propagation;

/// A finalizer of somebody else's.
const FOREIGN: &str = "x.io/y";

/// A reference to one of the objects, rightly or wrongly.
#[derive(Clone, Debug)]
struct Reference {
    to: Index,
    block: bool,
    slip: Slip,
}

#[derive(Clone, Debug)]
enum Slip {
    None,
    Uid,
    Name,
    Kind(usize),
}

#[derive(Clone, Debug)]
enum Event {
    Create {
        kind: usize,
        namespace: bool,
        references: Vec<Reference>,
        held: bool,
    },
    Delete(Index, Propagation),
    Refer(Index, Reference),
    Unrefer(Index),
    /// Somebody else's finalizer is removed.
    Release(Index),
    Deliver(usize),
    Relist(usize),
    Forget(usize),
    Start(usize),
    Advance(usize),
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(256)
}

fn reference() -> impl Strategy<Value = Reference> {
    let slip = prop_oneof![
        20 => Just(Slip::None),
        1 => Just(Slip::Uid),
        1 => Just(Slip::Name),
        1 => (0..SERVED.len()).prop_map(Slip::Kind),
    ];
    (any::<Index>(), any::<bool>(), slip).prop_map(|(to, block, slip)| Reference { to, block, slip })
}

fn propagation() -> impl Strategy<Value = Propagation> {
    prop_oneof![
        3 => Just(Propagation::Background),
        3 => Just(Propagation::Foreground),
        1 => Just(Propagation::Orphan),
    ]
}

fn users() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![3 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let references = prop::collection::vec(reference(), 0..3);
    let create = (kind, prop::bool::weighted(0.9), references, prop::bool::weighted(0.15));
    prop_oneof![
        8 => create.prop_map(|(kind, namespace, references, held)| Event::Create { kind, namespace, references, held }),
        4 => (any::<Index>(), propagation()).prop_map(|(at, how)| Event::Delete(at, how)),
        3 => (any::<Index>(), reference()).prop_map(|(at, reference)| Event::Refer(at, reference)),
        1 => any::<Index>().prop_map(Event::Unrefer),
        1 => any::<Index>().prop_map(Event::Release),
    ]
}

fn machinery() -> impl Strategy<Value = Event> {
    let kind = || 0..SERVED.len();
    prop_oneof![
        12 => kind().prop_map(Event::Deliver),
        4 => any::<usize>().prop_map(Event::Start),
        12 => any::<usize>().prop_map(Event::Advance),
        1 => kind().prop_map(Event::Relist),
        1 => kind().prop_map(Event::Forget),
    ]
}

fn life() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(prop_oneof![2 => users(), 3 => machinery()], 1..120)
}

fn pick(world: &World, at: Index) -> Option<Place> {
    let count = world.server.objects.len();
    (count > 0).then(|| world.server.objects.keys().nth(at.index(count)).cloned()).flatten()
}

fn made(world: &World, reference: &Reference) -> Option<OwnerReference> {
    let place = pick(world, reference.to)?;
    let owner = &world.server.objects[&place];
    let kind = match reference.slip {
        Slip::Kind(kind) => SERVED[kind],
        _ => SERVED[place.0],
    };
    Some(OwnerReference {
        api_version: kind.api_version().into(),
        kind: kind.kind.into(),
        name: if matches!(reference.slip, Slip::Name) { "nobody".into() } else { owner.name.clone() },
        uid: if matches!(reference.slip, Slip::Uid) { "nobody".into() } else { owner.uid.clone() },
        controller: None,
        block_owner_deletion: Some(reference.block),
    })
}

fn happen(world: &mut World, event: &Event, serial: usize) {
    match event {
        Event::Create { kind, namespace, references, held } => {
            let owner_references = references.iter().filter_map(|reference| made(world, reference)).collect();
            let finalizers = held.then(|| FOREIGN.into()).into_iter().collect();
            let meta = ObjectMeta { owner_references, finalizers, ..ObjectMeta::default() };
            let namespace = if *namespace { "a" } else { "b" };
            world.server.create(*kind, namespace, &format!("o{serial}"), &meta);
        }
        Event::Delete(at, how) => {
            // Nobody takes a deletion's policy back.
            let place = pick(world, *at).filter(|place| !world.server.objects[place].is_deleting());
            if let Some(place) = place {
                world.server.delete(&place, *how);
            }
        }
        Event::Refer(at, reference) => {
            if let (Some(place), Some(reference)) = (pick(world, *at), made(world, reference)) {
                world.server.change(&place, |meta| meta.owner_references.push(reference));
            }
        }
        Event::Unrefer(at) => {
            if let Some(place) = pick(world, *at) {
                world.server.change(&place, |meta| _ = meta.owner_references.pop());
            }
        }
        Event::Release(at) => {
            if let Some(place) = pick(world, *at) {
                release(world, &place);
            }
        }
        Event::Deliver(kind) => _ = world.deliver(*kind),
        Event::Relist(kind) => world.relist(*kind),
        Event::Forget(kind) => world.forget(*kind),
        Event::Start(at) => _ = world.start(*at),
        Event::Advance(at) => _ = world.advance(*at),
    }
}

fn release(world: &mut World, place: &Place) {
    if world.server.objects[place].finalizers.iter().any(|held| held == FOREIGN) {
        world.server.change(place, |meta| meta.finalizers.retain(|held| held != FOREIGN));
    }
}

fn relist(world: &mut World) {
    (0..SERVED.len()).for_each(|kind| world.relist(kind));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn only_and_all_that_should_go_goes(life in life()) {
        let mut world = World::default();
        for (serial, event) in life.iter().enumerate() {
            happen(&mut world, event, serial);
            prop_assert!(world.graph.index_of_unseen_is_exact());
        }
        // What was forgotten is watched again.
        relist(&mut world);
        world.settle();
        world.check_settled();
        let places: Vec<Place> = world.server.objects.keys().cloned().collect();
        for place in &places {
            if world.server.objects.contains_key(place) {
                release(&mut world, place);
            }
        }
        world.settle();
        world.check_settled();
        prop_assert!(world.server.objects.values().all(|meta| !meta.is_deleting()));

        // What is at rest stays so, and the graph is what a new one would be.
        let (writes, stats) = (world.writes, world.graph.stats());
        let mut fresh = World::new(std::mem::take(&mut world.server));
        relist(&mut fresh);
        fresh.settle();
        prop_assert_eq!(fresh.writes, 0, "after {} writes", writes);
        prop_assert_eq!(fresh.graph.stats(), stats);
        for kind in SERVED {
            fresh.graph.forget_kind(kind, &mut AffectedObjects::default());
        }
        prop_assert!(fresh.graph.index_of_unseen_is_exact());
        for kind in SERVED {
            fresh.graph.shown(kind, &mut AffectedObjects::default());
        }
        prop_assert_eq!(fresh.graph.stats(), GraphStats::default());
    }
}
