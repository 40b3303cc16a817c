//! What the garbage collector's graph costs per event.

use coxswain_controllers::api::garbage_collector::graph::{AffectedObjects, Graph};
use coxswain_machinery::api::kinds::CONFIG_MAPS;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::wire::Str;
use divan::counter::ItemsCount;

const OBJECTS: usize = 5000;
/// Dependents of one owner.
const FAN: usize = 50;

fn uid(at: usize) -> String {
    format!("{at:08x}-0000-4000-8000-000000000000")
}

/// The object of this number: the first of every fan owns the others.
fn object(at: usize, version: usize) -> ObjectMeta {
    let owner = at - at % FAN;
    let owned = OwnerReference {
        kind: Str::interned("ConfigMap"),
        name: format!("thing-{owner}").into(),
        uid: uid(owner).as_str().into(),
        api_version: Str::interned("v1"),
        controller: None,
        block_owner_deletion: Some(true),
    };
    ObjectMeta {
        name: format!("thing-{at}").into(),
        namespace: Str::interned("default"),
        uid: uid(at).as_str().into(),
        resource_version: version.to_string().into(),
        owner_references: if at == owner { Vec::new() } else { vec![owned] },
        ..ObjectMeta::default()
    }
}

fn objects(version: usize) -> Vec<ObjectMeta> {
    (0..OBJECTS).map(|at| object(at, version)).collect()
}

fn graph(objects: &[ObjectMeta]) -> Graph {
    let (mut graph, mut affected) = (Graph::new(), AffectedObjects::default());
    for meta in objects {
        graph.observe(&CONFIG_MAPS, meta, &mut affected);
    }
    graph
}

/// Objects seen again, with another version.
pub(crate) fn updates() -> impl FnMut() {
    let mut graph = graph(&objects(1));
    let (changed, mut affected, mut at) = (objects(2), AffectedObjects::default(), 0);
    move || {
        graph.observe(&CONFIG_MAPS, &changed[at % OBJECTS], &mut affected);
        at += 1;
    }
}

#[divan::bench(sample_size = 1000)]
fn observe_again(bencher: divan::Bencher<'_, '_>) {
    let mut update = updates();
    bencher.counter(ItemsCount::new(1_u32)).bench_local(&mut update);
}

/// A graph is built of a list.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn build_of_5000(bencher: divan::Bencher<'_, '_>) {
    let objects = objects(1);
    bencher.counter(ItemsCount::new(OBJECTS)).bench_local(|| graph(&objects));
}

/// An owner goes: its dependents are worth a look.
#[divan::bench(sample_count = 100, sample_size = 1)]
fn owner_goes(bencher: divan::Bencher<'_, '_>) {
    // As a watch tells it: with the version at which it went.
    let (objects, last) = (objects(1), object(0, 2));
    bencher.with_inputs(|| graph(&objects)).bench_local_values(|mut graph| {
        let mut affected = AffectedObjects::default();
        graph.gone(&CONFIG_MAPS, &last, &mut affected);
        assert_eq!(affected.delete.len(), FAN - 1);
        graph
    });
}
