//! What the parts cost that run most: events from the watch to the handlers, decisions, queues, the garbage collector's
//! graph, the log of events. Time, and allocations, which repeat on a busy machine as time does not.
//!
//! With `INSTRUCTIONS=1` it counts the instructions of the five that run most instead, under callgrind, beside those kept
//! in `benches/instructions.tsv`; `INSTRUCTIONS=keep` keeps what it counts there. See [`instructions`].

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails when it cannot go on"
)]

use std::alloc::System;

use cap::Cap;
use divan::AllocProfiler;

#[path = "../callgrind.rs"]
mod callgrind;
mod events;
mod graph;
mod informer;
mod instructions;
mod objects;
mod plans;
mod queue;

#[global_allocator]
static HEAP: Cap<AllocProfiler<System>> = Cap::new(AllocProfiler::system(), usize::MAX);

/// Makes a function to call again and again.
type Make = fn() -> Box<dyn FnMut()>;

/// What instructions are counted of.
const HOTTEST: [(&str, Make); 5] = [
    ("pod event: decode, store, six handlers", || Box::new(informer::pod_events())),
    ("queue: add, get, done", || Box::new(queue::rounds())),
    ("replicaset: observe and plan, 1000 pods", || Box::new(plans::replicaset_plans())),
    ("endpointslice: observe and plan, 1000 pods", || Box::new(plans::endpointslice_plans())),
    ("graph: an object seen again", || Box::new(graph::updates())),
];

fn main() {
    if instructions::is_asked_for() {
        instructions::count(&HOTTEST);
    } else {
        informer::print_memory();
        divan::main();
    }
}
