//! What things cost in memory, weighed by an allocator that counts. One test per process would be needed for two to be
//! told apart: add further weights to this one.

use std::alloc::System;
use std::sync::Arc;

use cap::Cap;
use coxswain_controllers::api::garbage_collector::graph::{AffectedObjects, Graph, GraphStats};
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference, PartialObjectMetadata};
use coxswain_machinery::wire::Str;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

static THING: Kind = Kind {
    group: "ex.io",
    version: "v1",
    kind: "Thing",
    resource: "things",
    namespaced: true,
    metadata_only: true,
    decode: |_| Ok(Arc::new(PartialObjectMetadata::default())),
};

/// Bytes per node that a graph may cost beyond the strings of its objects.
const TARGET: usize = 400;
const OBJECTS: usize = 60_000;

/// Objects of which each is owned by those whose positions `owners` gives.
fn objects(owners: impl Fn(usize) -> Vec<usize>) -> Vec<ObjectMeta> {
    let uid = |at: usize| format!("{at:08x}-0000-4000-8000-000000000000");
    let reference = |at: usize| OwnerReference {
        kind: Str::interned("Thing"),
        name: Str::interned(&format!("thing-{at}")),
        uid: uid(at).as_str().into(),
        api_version: Str::interned("ex.io/v1"),
        controller: None,
        block_owner_deletion: Some(true),
    };
    let object = |at: usize| ObjectMeta {
        name: format!("thing-{at}").into(),
        namespace: Str::interned("default"),
        uid: uid(at).into(),
        resource_version: (at + 1).to_string().into(),
        owner_references: owners(at).into_iter().map(reference).collect(),
        ..ObjectMeta::default()
    };
    (0..OBJECTS).map(object).collect()
}

/// Bytes per node of a graph of these objects, whose strings it shares.
fn weigh(objects: &[ObjectMeta]) -> usize {
    let before = HEAP.allocated();
    let mut graph = Graph::new();
    let mut affected = AffectedObjects::default();
    for meta in objects {
        graph.observe(&THING, meta, &mut affected);
        // What is worth a look is the queues' subject.
        affected = AffectedObjects::default();
    }
    let bytes = HEAP.allocated() - before;
    assert_eq!(graph.len(), objects.len());
    // It must be able to let go of it again.
    graph.forget_kind(&THING, &mut affected);
    graph.shown(&THING, &mut affected);
    drop(affected);
    assert_eq!(graph.stats(), GraphStats::default());
    assert!(HEAP.allocated() - before < bytes / 50, "{} bytes are left", HEAP.allocated() - before);
    bytes / objects.len()
}

#[test]
fn a_node_of_the_garbage_collectors_graph() {
    let shapes: [(&str, Vec<ObjectMeta>); 4] = [
        ("alone", objects(|_| Vec::new())),
        ("chain", objects(|at| at.checked_sub(1).into_iter().collect())),
        ("fans of 100", objects(|at| if at % 100 == 0 { Vec::new() } else { vec![at - at % 100] })),
        ("two owners", objects(|at| if at < 2 { Vec::new() } else { vec![at / 2, at / 3] })),
    ];
    for (shape, objects) in shapes {
        let bytes = weigh(&objects);
        println!("{shape}: {bytes} bytes per node");
        assert!(bytes <= TARGET, "{shape}: {bytes} bytes per node");
    }
}
