//! Rounds whose writes meet conflicts, because the cache shows an older node than the API server has.

use std::time::Duration;

use super::super::fleet::MOST_READ;
use super::super::taints::{NO_EXECUTE, NO_SCHEDULE, UNREACHABLE};
use super::fixtures::{node, set, taint};
use super::rounds::Bench;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::framework::Memory as _;
use coxswain_machinery::model::plan::{Patch, Verb};
use coxswain_machinery::model::{Failure, Key, Write};

const SOON: Duration = Duration::from_millis(100);

fn conflict(write: &Write) -> Failure {
    Failure {
        what: write.to_string(),
        verb: "patch",
        subresource: write.subresource,
        kind: write.kind,
        key: write.key.clone(),
        code: 409,
        reason: "Conflict".into(),
        message: "the object has been modified".to_owned(),
        existing: None,
    }
}

/// The writes of a round, and the time to the next one.
#[derive(Debug)]
struct Written {
    stored: Vec<String>,
    refused: Vec<String>,
    next: Duration,
}

/// A round whose writes the API server refuses if they are for another version than it has, or are for a node that is refused always.
fn round(bench: &Bench, refused: &str) -> Written {
    let memory = &bench.health.memory;
    let look = bench.plan();
    let (has_tasks, mut next) = (look.look_again, look.requeue_after);
    memory.commit(&Key::EMPTY, look.note);
    let (mut stored, mut conflicts) = (Vec::new(), Vec::new());
    if has_tasks {
        let plan = bench.plan();
        let is_stored = |write: &Write| {
            let Verb::Patch(Patch::Strategic(patch)) = &write.verb else { panic!("{write}") };
            let current = bench.current(&write.key).expect("the node");
            write.key.name != refused
                && patch["metadata"]["resourceVersion"].as_str()
                    == Some(current.metadata.resource_version.as_str())
        };
        for write in plan.writes() {
            if is_stored(write) {
                stored.push(write.key.name.to_string());
            } else {
                conflicts.push(conflict(write));
            }
        }
        bench.accept(&plan, "9", is_stored);
        next = plan.requeue_after;
        if conflicts.is_empty() {
            memory.commit(&Key::EMPTY, plan.note);
        } else {
            let after = bench.plan_after(&conflicts);
            assert!(after.steps.is_empty() && after.end);
            memory.commit(&Key::EMPTY, after.note);
            next = after.requeue_after;
        }
    }
    bench.end();
    let refused = conflicts.iter().map(|failure| failure.key.name.to_string()).collect();
    Written { stored, refused, next: next.expect("a round always comes again") }
}

async fn pass(bench: &mut Bench, seconds: u64) {
    for _ in 0..seconds {
        tokio::time::advance(Duration::from_secs(1)).await;
        bench.renew("kube-node-lease", "well");
    }
}

/// A node in the next version.
fn later(mut node: Node) -> Node {
    node.metadata.resource_version = "8".into();
    node
}

fn lost(name: &str) -> Node {
    let mut lost = node(name, "a");
    set(&mut lost, "Ready", "Unknown");
    lost
}

fn back(name: &str) -> Node {
    let mut back = node(name, "a");
    back.spec.taints.push(taint(UNREACHABLE, NO_EXECUTE));
    back
}

/// The loop of single nodes has added its `NoSchedule` taint, which the cache does not show.
#[tokio::test(start_paused = true)]
async fn dead_node_that_the_cache_shows_late_is_tainted_in_the_next_round_with_the_token_of_its_zone() {
    let mut bench = Bench::new([lost("first"), lost("second"), node("well", "a")]);
    for name in ["first", "second"] {
        let mut live = later(lost(name));
        live.spec.taints.push(taint(UNREACHABLE, NO_SCHEDULE));
        bench.live.insert(name.to_owned(), live);
    }
    for (name, reads) in [("first", 1), ("second", 2)] {
        let refused = round(&bench, "");
        assert_eq!((refused.stored.len(), refused.next), (0, SOON));
        assert_eq!(refused.refused, [name], "one token");
        let stored = round(&bench, "");
        assert_eq!(stored.stored, [name]);
        assert_eq!(stored.refused.len(), 0);
        assert_eq!(bench.reads.get(), reads, "nothing else is read");
        let none = round(&bench, "");
        assert_eq!((none.stored.len(), none.refused.len()), (0, 0), "the token is used");
        pass(&mut bench, 12).await;
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_is_back_loses_its_taint_in_the_next_round() {
    let mut bench = Bench::new([back("back"), node("well", "a")]);
    bench.live.insert("back".to_owned(), later(back("back")));
    let refused = round(&bench, "");
    assert_eq!(refused.refused, ["back"]);
    assert_eq!(refused.next, SOON);
    assert_eq!(round(&bench, "").stored, ["back"]);
    let none = round(&bench, "");
    assert_eq!((none.stored.len(), none.refused.len(), bench.reads.get()), (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn silent_node_that_another_client_changes_is_marked_in_the_next_round() {
    let mut bench = Bench::new([node("silent", "a"), node("well", "a")]);
    round(&bench, "");
    bench.live.insert("silent".to_owned(), later(node("silent", "a")));
    pass(&mut bench, 51).await;
    assert_eq!(round(&bench, "").refused, ["silent"]);
    assert_eq!(round(&bench, "").stored, ["silent"]);
}

#[tokio::test(start_paused = true)]
async fn live_node_is_judged_until_the_cache_shows_its_version() {
    let mut bench = Bench::new([back("back"), node("well", "a")]);
    // Some other client has removed the taint.
    bench.live.insert("back".to_owned(), later(node("back", "a")));
    assert_eq!(round(&bench, "").refused, ["back"]);
    for reads in [1, 2, 3] {
        let none = round(&bench, "");
        assert_eq!((none.stored.len(), none.refused.len(), bench.reads.get()), (0, 0, reads));
    }
    bench.store(later(node("back", "a")));
    let none = round(&bench, "");
    assert_eq!((none.stored.len(), none.refused.len(), bench.reads.get()), (0, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn round_reads_a_limited_number_of_nodes() {
    let names: Vec<String> = (0..MOST_READ + 10).map(|at| format!("n{at:02}")).collect();
    let mut bench = Bench::new(names.iter().map(|name| back(name)));
    bench.live = names.iter().map(|name| (name.clone(), later(back(name)))).collect();
    assert_eq!(round(&bench, "").refused.len(), MOST_READ + 10);
    let some = round(&bench, "");
    assert_eq!((some.stored.len(), some.refused.len(), bench.reads.get()), (MOST_READ, 10, MOST_READ));
    let others = round(&bench, "");
    assert_eq!((others.stored.len(), others.refused.len(), bench.reads.get()), (10, 0, MOST_READ + 10));
}

/// An admission webhook answers each write of the node with a conflict.
#[tokio::test(start_paused = true)]
async fn node_that_always_meets_a_conflict_delays_no_taint_of_another_node() {
    let mut bench = Bench::new([lost("hot"), lost("other"), node("well", "a")]);
    pass(&mut bench, 1).await;
    assert_eq!(round(&bench, "hot").refused, ["hot"], "as cached");
    assert_eq!(round(&bench, "hot").refused, ["hot"], "as read live");
    let other = round(&bench, "hot");
    assert_eq!(other.stored, ["other"]);
    assert_eq!(other.refused.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn round_after_a_conflict_comes_soon_five_times_in_a_row() {
    let bench = Bench::new([back("back"), node("well", "a")]);
    for conflict in 0..5 {
        assert_eq!(round(&bench, "back").next, SOON, "{conflict}");
    }
    assert_eq!(round(&bench, "back").next, bench.health.period, "it does not help");
    assert_eq!(round(&bench, "back").next, SOON, "it begins again");
    assert_eq!(round(&bench, "").stored, ["back"]);
}
