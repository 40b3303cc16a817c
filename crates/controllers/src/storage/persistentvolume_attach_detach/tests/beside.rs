//! Several nodes at once: decisions are made one after the other, requests are under way beside each other.

use proptest::prelude::*;

use super::*;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::framework::{Outcome, Pass, PlanNote, Reconcile, ReconcileEnd};
use coxswain_machinery::options::Config;

/// A webhook that does not answer for some nodes leaves workers for the others.
#[test]
fn requests_for_a_hundred_nodes_are_under_way_at_once() {
    let built = Rig::new(Config::default()).build(build).unwrap();
    let [nodes] = built.loops.as_slice() else { panic!("one loop") };
    assert_eq!(nodes.settings.workers, 100);
}

/// A plan that is being carried out.
struct UnderWay {
    plan: Plan,
    note: PlanNote,
}

/// The workers of a stage.
struct Workers(RoomAdapter<Controller, Note>);

impl Workers {
    fn of(stage: &Stage) -> Self {
        Self(reconcile(Arc::clone(&stage.world), Arc::clone(&stage.world.books)))
    }

    /// Decides about a node. Its requests are sent and not answered.
    fn begin(&self, stage: &mut Stage, node: &str) -> UnderWay {
        self.begin_after(stage, node, &[])
    }

    fn begin_after(&self, stage: &mut Stage, node: &str, failures: &[Failure]) -> UnderWay {
        let mut needed: Vec<Read> = Vec::new();
        for _ in 0..LOOKS {
            let reads = stage.reads(&needed, &[]);
            match self.0.plan(&Key::new("", node), failures, &reads, Timestamp::UNIX_EPOCH).unwrap() {
                Pass::Plan(plan, note) => return UnderWay { plan, note },
                Pass::Needs(needs) => needed.extend(needs.into_iter().map(Read::from)),
                Pass::Nothing => panic!("nothing is at {node}"),
            }
        }
        panic!("it needs more and more");
    }

    /// The requests are answered as they should be.
    fn finish(&self, stage: &mut Stage, node: &str, under_way: UnderWay) {
        let (mut failures, mut effects) = (Vec::new(), Vec::new());
        for write in under_way.plan.steps.iter().flat_map(Step::writes) {
            stage.write(write, &mut failures, &mut effects);
        }
        assert!(failures.is_empty());
        under_way.note.commit(&Key::new("", node));
        self.end(node);
    }

    /// A reconcile ends, whatever became of it.
    fn end(&self, node: &str) {
        let outcome = Outcome::Absent;
        let end = ReconcileEnd { outcome: &outcome, actions: &[], took: Duration::ZERO };
        self.0.ended(&Key::new("", node), end);
    }
}

/// The requests of a plan, in short.
fn requests(under_way: &UnderWay) -> Vec<&'static str> {
    under_way.plan.steps.iter().flat_map(Step::writes).map(|write| write.verb.name()).collect()
}

fn two_nodes(modes: &[&str]) -> Stage {
    let mut stage = Stage::new();
    stage.node("a");
    stage.node("b");
    stage.bound("v", modes);
    stage.pod("on-a", "a", &["v"]);
    stage.pod("on-b", "b", &["v"]);
    stage
}

#[test]
fn a_request_that_hangs_delays_its_own_node_only() {
    let mut stage = Stage::new();
    for node in ["a", "b"] {
        stage.node(node);
        stage.bound(node, &["ReadWriteOnce"]);
        stage.pod(&format!("on-{node}"), node, &[node]);
    }
    let workers = Workers::of(&stage);
    stage.look("b");
    stage.is_attached("b", "b");
    stage.happened();
    let hangs = workers.begin(&mut stage, "a");
    assert_eq!(requests(&hangs), ["create"]);
    // Node b has several plans to its end.
    let told = workers.begin(&mut stage, "b");
    workers.finish(&mut stage, "b", told);
    let listed = workers.begin(&mut stage, "b");
    workers.finish(&mut stage, "b", listed);
    assert_eq!(stage.happened(), ["b lists [b]"]);
    workers.finish(&mut stage, "a", hangs);
    assert_eq!(stage.happened(), ["create a on a"]);
}

#[test]
fn a_volume_that_one_node_is_about_to_get_is_not_asked_for_on_another() {
    let mut stage = two_nodes(&["ReadWriteOnce"]);
    let workers = Workers::of(&stage);
    let hangs = workers.begin(&mut stage, "a");
    assert_eq!(requests(&hangs), ["create"]);
    let waits = workers.begin(&mut stage, "b");
    assert_eq!(requests(&waits), [""; 0]);
    assert_eq!(waits.plan.requeue_after, Some(secs(1)));
    assert_eq!(stage.world.books.waiters(&unique("v")), ["b"], "a change of the volume wakes it from now on");
    workers.finish(&mut stage, "b", waits);
    workers.finish(&mut stage, "a", hangs);
    let still = workers.begin(&mut stage, "b");
    assert_eq!(requests(&still), [""; 0]);
}

#[test]
fn a_volume_for_several_nodes_is_asked_for_at_once() {
    let mut stage = two_nodes(&["ReadWriteMany"]);
    let workers = Workers::of(&stage);
    let plans = ["a", "b"].map(|node| workers.begin(&mut stage, node));
    assert_eq!(plans.each_ref().map(requests), [["create"], ["create"]]);
}

#[test]
fn a_reconcile_that_ends_without_an_answer_frees_what_it_had_reserved() {
    let mut stage = two_nodes(&["ReadWriteOnce"]);
    let workers = Workers::of(&stage);
    let _hangs = workers.begin(&mut stage, "a");
    workers.end("a");
    assert_eq!(requests(&workers.begin(&mut stage, "b")), ["create"]);
    assert_eq!(requests(&workers.begin(&mut stage, "a")), [""; 0], "b has it now");
}

#[test]
fn a_refused_volume_is_decided_about_again_before_another_node_may_have_it() {
    let mut stage = two_nodes(&["ReadWriteOnce"]);
    let workers = Workers::of(&stage);
    let first = workers.begin(&mut stage, "a");
    let write = first.plan.steps.iter().flat_map(Step::writes).next().unwrap();
    let failures = [refusal(write)];
    assert_eq!(requests(&workers.begin(&mut stage, "b")), [""; 0], "the answer is on its way");
    let second = workers.begin_after(&mut stage, "a", &failures);
    workers.finish(&mut stage, "a", second);
    assert_eq!(requests(&workers.begin(&mut stage, "b")), ["create"]);
}

#[test]
fn a_volume_that_leaves_a_node_is_asked_for_elsewhere_when_it_has_gone() {
    let mut stage = Stage::running("v", "a");
    stage.node("b");
    let workers = Workers::of(&stage);
    stage.pod_gone("p");
    stage.uses("a", &[]);
    stage.pod("q", "b", &["v"]);
    // It leaves the list of node a.
    let leaves = workers.begin(&mut stage, "a");
    assert_eq!(requests(&leaves), ["patch"]);
    assert_eq!(requests(&workers.begin(&mut stage, "b")), [""; 0], "a still has it");
    workers.finish(&mut stage, "a", leaves);
    let detaches = workers.begin(&mut stage, "a");
    assert_eq!(requests(&detaches), ["delete"]);
    assert_eq!(requests(&workers.begin(&mut stage, "b")), [""; 0], "it is on its way");
    workers.finish(&mut stage, "a", detaches);
    assert_eq!(requests(&workers.begin(&mut stage, "b")), [""; 0], "the attacher has it in hand");
    stage.is_detached("v", "a");
    assert_eq!(requests(&workers.begin(&mut stage, "b")), ["create"]);
}

const NODES_OF_IT: [&str; 2] = ["a", "b"];
const VOLUMES: [&str; 2] = ["v", "w"];

proptest! {
    /// Plans are made while others are under way, and their requests are answered in any order.
    #[test]
    fn a_volume_for_one_node_is_never_asked_for_on_two(
        steps in prop::collection::vec((0_u8..9, 0_usize..2, 0_usize..2), 0..80),
    ) {
        let mut stage = Stage::new();
        for node in NODES_OF_IT {
            stage.node(node);
        }
        for volume in VOLUMES {
            stage.bound(volume, &["ReadWriteOnce"]);
        }
        let workers = Workers::of(&stage);
        let mut under_way: [Option<UnderWay>; 2] = [None, None];
        for (what, at, volume) in steps {
            let (node, other, volume) = (NODES_OF_IT[at], NODES_OF_IT[1 - at], VOLUMES[volume]);
            let pod = format!("{volume}-{node}");
            match what {
                0 => stage.pod(&pod, node, &[volume]),
                1 if stage.world.all_pods.get(&Key::new("ns", pod.as_str())).is_some() => stage.pod_gone(&pod),
                // A node that says more than before says that it uses nothing.
                2 => stage.changed(node, |_| {}),
                3 if stage.attachment(volume, node).is_some() => stage.is_attached(volume, node),
                4 if stage.attachment(volume, node).is_some_and(|found| found.metadata.is_deleting()) => {
                    stage.is_detached(volume, node);
                }
                5 | 6 if under_way[at].is_none() => under_way[at] = Some(workers.begin(&mut stage, node)),
                7 | 8 => {
                    let Some(plan) = under_way[at].take() else { continue };
                    let writes = plan.plan.steps.iter().flat_map(Step::writes);
                    let created: Vec<Str> = writes
                        .filter(|write| write.verb.name() == "create")
                        .map(|write| write.key.name.clone())
                        .collect();
                    workers.finish(&mut stage, node, plan);
                    for volume in VOLUMES.into_iter().filter(|volume| created.contains(&name_of(volume, node))) {
                        prop_assert!(stage.attachment(volume, other).is_none(), "{volume} is on {other} as well");
                    }
                }
                _ => {}
            }
        }
    }
}
