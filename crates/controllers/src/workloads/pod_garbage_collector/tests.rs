//! The plans' tables, on stores that are filled by hand.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::plan::{self, Reason};
use super::view;
use super::*;
use apiserver_model::Served;
use coxswain_machinery::api::core::{NodeCondition, Taint};
use coxswain_machinery::api::kinds::{NODES, PODS};
use coxswain_machinery::api::pod::PodCondition;
use coxswain_machinery::api::{AnyObject, Index, Object};
use coxswain_machinery::executor::{ActionResult, planned};
use coxswain_machinery::framework::{ApiError, Meter as _, Outcome, Read, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::{Store, downcast};
use coxswain_machinery::model::Step;
use coxswain_machinery::model::plan::{Cooldown, Expect, Patch, Verb, Write};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::{Message, Time};

const NOW: i64 = 1_700_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

struct Bench {
    pods: Arc<Store>,
    nodes: Arc<Store>,
}

impl Bench {
    /// Ready nodes `one` and `two`, and these pods.
    fn new(pods: impl IntoIterator<Item = Pod>) -> Self {
        let bench = Self { pods: Arc::new(Store::new(&PODS)), nodes: Arc::new(Store::new(&NODES)) };
        for name in ["one", "two"] {
            bench.node(name, |_| {});
        }
        for pod in pods {
            add(&bench.pods, &pod);
        }
        bench
    }

    fn node(&self, name: &str, change: impl FnOnce(&mut Node)) {
        let mut node = Node::default();
        node.metadata.name = name.into();
        node.status.conditions =
            vec![NodeCondition { r#type: "Ready".into(), status: "True".into(), ..NodeCondition::default() }];
        change(&mut node);
        add(&self.nodes, &node);
    }

    /// What a round sees, with caches of nodes that are not late.
    fn view(&self, keep: Option<usize>) -> RoundView {
        let nodes = self.nodes.list();
        let reads = nodes.into_iter().fold(Reads::default(), |reads, node| {
            reads.with_object(&NODES, Key::of(node.meta()), Ok(Some(node)))
        });
        match self.observe(keep, &reads) {
            Ok(Observation::View(view)) => view,
            other => panic!("{other:?}"),
        }
    }

    fn observe(&self, keep: Option<usize>, reads: &Reads) -> Result<Observation<RoundView>, ObserveError> {
        let room = Rounds {
            pods: Indexed::new(&self.pods, &FATES),
            nodes: Lister::new(Arc::clone(&self.nodes)),
            keep,
        };
        room.observe(&Key::EMPTY, &[], reads)
    }

    fn round(&self, keep: Option<usize>) -> Plan<Note> {
        plan::round(&self.view(keep), now())
    }

    fn gone_node(&self, name: &str) -> Option<Plan<Note>> {
        self.gone_node_by(&BY_NODE, name)
    }

    /// The same with pods filed by another index.
    fn gone_node_by(&self, index: &'static Index, name: &str) -> Option<Plan<Note>> {
        let room =
            GoneNodes { pods: Indexed::new(&self.pods, index), nodes: Lister::new(Arc::clone(&self.nodes)) };
        let view = view::gone_node(&room, &Key::new("", name))?;
        Some(plan::gone_node(&view, now()))
    }
}

/// Stores an object as the API server would send it.
fn add<T: Object + Message>(store: &Store, object: &T) {
    store.upsert(&(store.kind().decode)(&object.to_bytes().into()).unwrap());
}

/// A running pod on the node `one`, as old as its name says: `a` is older than `b`.
fn pod(name: &str, change: impl FnOnce(&mut Pod)) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = name.into();
    pod.metadata.namespace = "ns".into();
    pod.metadata.uid = format!("{name}-uid").into();
    pod.metadata.resource_version = "7".into();
    pod.metadata.generation = 3;
    pod.metadata.creation_timestamp = Time::from_seconds(NOW - 1000 + i64::from(name.as_bytes()[0]));
    pod.spec.node_name = "one".into();
    pod.status.phase = "Running".into();
    change(&mut pod);
    pod
}

fn phase(phase: &'static str) -> impl Fn(&mut Pod) {
    move |pod| pod.status.phase = phase.into()
}

fn deleting(pod: &mut Pod) {
    pod.metadata.deletion_timestamp = Time::from_seconds(NOW);
}

fn on(node: &'static str) -> impl Fn(&mut Pod) {
    move |pod| pod.spec.node_name = node.into()
}

/// What a plan does: `patch ns/a`, `delete ns/a` …, chain by chain.
fn told(plan: &Plan<Note>) -> Vec<String> {
    plan.writes().map(|write| format!("{} {}", write.verb.name(), write.key.name)).collect()
}

fn patches(plan: &Plan<Note>) -> Vec<Value> {
    let patch = |write: &Write| match &write.verb {
        Verb::Patch(Patch::Strategic(patch)) if write.subresource == "status" => Some(patch.clone()),
        _ => None,
    };
    plan.writes().filter_map(patch).collect()
}

#[test]
fn what_is_finished_goes_beyond_the_threshold_evicted_ones_first_then_the_oldest() {
    let evicted = |pod: &mut Pod| {
        pod.status.phase = "Failed".into();
        pod.status.reason = "Evicted".into();
    };
    let elsewhere = |pod: &mut Pod| {
        pod.status.phase = "Succeeded".into();
        pod.metadata.namespace = "other".into();
    };
    let bench = Bench::new([
        pod("a", phase("Running")),
        pod("b", phase("Succeeded")),
        pod("c", phase("Failed")),
        pod("d", elsewhere),
        pod("e", evicted),
        pod("f", |pod| {
            // Not evicted: it has not failed.
            evicted(pod);
            pod.status.phase = "Succeeded".into();
        }),
        pod("g", phase("Pending")),
        pod("h", phase("Unknown")),
    ]);
    for (keep, gone) in [(5, ""), (4, "e"), (3, "eb"), (2, "ebc"), (1, "ebcd")] {
        let expected: Vec<String> = gone.chars().map(|name| format!("delete {name}")).collect();
        assert_eq!(told(&bench.round(Some(keep))), expected, "{keep} may stay");
    }
    assert_eq!(told(&bench.round(None)), [""; 0], "there is no threshold");
    let plan = bench.round(Some(3));
    assert!(plan.note.pods.values().all(|reason| *reason == Reason::Terminated));
    assert_eq!((plan.requeue_after, plan.end), (Some(ROUND), true), "nothing is retried");
}

#[test]
fn one_that_only_a_finalizer_keeps_counts_and_is_left_alone() {
    let bench = Bench::new([
        pod("a", |pod| {
            phase("Succeeded")(pod);
            deleting(pod);
        }),
        pod("b", phase("Succeeded")),
    ]);
    assert_eq!(told(&bench.round(Some(1))), ["delete a"], "it still has time to end");
    let over = |pod: &mut Pod| {
        phase("Succeeded")(pod);
        deleting(pod);
        pod.metadata.deletion_grace_period_seconds = Some(0);
    };
    let bench = Bench::new([pod("a", over), pod("b", phase("Succeeded")), pod("c", phase("Failed"))]);
    assert_eq!(told(&bench.round(Some(2))), [""; 0], "it is one of three");
    assert_eq!(told(&bench.round(Some(1))), ["delete b"]);
    let bench = Bench::new([pod("a", |pod| {
        over(pod);
        on("gone")(pod);
    })]);
    let plan = bench.gone_node("gone").unwrap();
    assert!(plan.steps.is_empty() && plan.requeue_after.is_none(), "the node is not read for it");
}

#[test]
fn ages_alike_are_told_apart_by_name() {
    let twin = |name: &str| {
        pod(name, |pod| {
            phase("Failed")(pod);
            pod.metadata.creation_timestamp = Time::from_seconds(5);
        })
    };
    let bench = Bench::new(["c", "a", "b"].map(twin));
    assert_eq!(told(&bench.round(Some(1))), ["delete a", "delete b"]);
}

/// A change of an object.
type Change<'a, T> = &'a dyn Fn(&mut T);
/// A node's taint and readiness, a pod, and whether that ends.
type Row<'a> = (Change<'a, Node>, Change<'a, Node>, Change<'a, Pod>, bool);

#[test]
fn pods_on_nodes_out_of_service_end_if_they_are_being_deleted() {
    let taint = |key: &'static str, effect: &'static str| {
        move |node: &mut Node| {
            node.spec.taints = vec![Taint { key: key.into(), effect: effect.into(), ..Taint::default() }];
        }
    };
    let not_ready = |node: &mut Node| node.status.conditions[0].status = "Unknown".into();
    let silent = |node: &mut Node| node.status.conditions.clear();
    let out_of_service = "node.kubernetes.io/out-of-service";
    let table: [Row<'_>; 8] = [
        (&taint(out_of_service, "NoExecute"), &not_ready, &deleting, true),
        (&taint(out_of_service, "NoSchedule"), &not_ready, &deleting, true),
        (&taint(out_of_service, ""), &silent, &deleting, true),
        (&taint(out_of_service, "NoExecute"), &|_| {}, &deleting, false),
        (&taint("node.kubernetes.io/unreachable", "NoExecute"), &not_ready, &deleting, false),
        (&|_| {}, &not_ready, &deleting, false),
        (&taint(out_of_service, "NoExecute"), &not_ready, &|_| {}, false),
        (&taint(out_of_service, "NoExecute"), &not_ready, &on("two"), false),
    ];
    for (at, (tainted, readiness, change, goes)) in table.into_iter().enumerate() {
        let bench = Bench::new([pod("a", change)]);
        bench.node("one", |node| {
            tainted(node);
            readiness(node);
        });
        let plan = bench.round(None);
        let expected: &[&str] = if goes { &["patch a", "delete a"] } else { &[] };
        assert_eq!(told(&plan), expected, "row {at}");
        if goes {
            let expected = json!({
                "metadata": { "uid": "a-uid", "resourceVersion": "7" },
                "status": { "phase": "Failed", "observedGeneration": 3 },
            });
            assert_eq!(patches(&plan), [expected], "without a condition");
        }
    }
}

#[test]
fn a_node_that_is_out_of_service_by_the_cache_is_read_live() {
    let out_of_service = |node: &mut Node| {
        node.status.conditions.clear();
        node.spec.taints =
            vec![Taint { key: "node.kubernetes.io/out-of-service".into(), ..Taint::default() }];
    };
    let bench = Bench::new([pod("a", deleting), pod("b", deleting)]);
    bench.node("one", out_of_service);
    let place = || Key::new("", "one");
    let Ok(Observation::Needs(needs)) = bench.observe(None, &Reads::default()) else { panic!("it reads") };
    assert_eq!(needs, [Read::Object(&NODES, place())], "once for both");
    let ended = |live: Option<Node>| {
        let live = live.map(|node| Arc::new(node) as AnyObject);
        let reads = Reads::default().with_object(&NODES, place(), Ok(live));
        let Ok(Observation::View(view)) = bench.observe(None, &reads) else { panic!("all is read") };
        view.out_of_service.len()
    };
    let mut node = Node::default();
    node.metadata.name = "one".into();
    assert_eq!(ended(Some(node.clone())), 0, "nobody says so any more");
    out_of_service(&mut node);
    assert_eq!(ended(Some(node)), 2);
    assert_eq!(ended(None), 0, "it is gone, which is for the other loop");
    let error =
        ApiError::Malformed { request: "GET /api/v1/nodes/one".to_owned(), what: "nothing".to_owned() };
    let reads = Reads::default().with_object(&NODES, place(), Err(error));
    // One node that cannot be read stops nothing else, and the next round comes in time.
    add(&bench.pods, &pod("c", |pod| pod.status.phase = "Failed".into()));
    let Ok(Observation::View(view)) = bench.observe(Some(0), &reads) else { panic!("the round goes on") };
    assert_eq!((view.out_of_service.len(), view.unread.len()), (0, 1));
    let plan = plan::round(&view, now());
    assert_eq!(told(&plan), ["delete c"]);
    assert_eq!((plan.retry.is_some(), plan.deadline), (true, Some(ROUND)));

    let over = Bench::new([pod("a", |pod| {
        deleting(pod);
        pod.metadata.deletion_grace_period_seconds = Some(0);
        pod.status.phase = "Failed".into();
    })]);
    over.node("one", out_of_service);
    let observed = over.observe(None, &Reads::default());
    assert!(matches!(observed, Ok(Observation::View(_))), "for what is over nothing is read: {observed:?}");
}

#[test]
fn what_was_never_bound_and_is_being_deleted_ends() {
    let unbound = |pod: &mut Pod| pod.spec.node_name = "".into();
    let bench = Bench::new([
        pod("a", |pod| {
            unbound(pod);
            deleting(pod);
        }),
        pod("b", unbound),
        pod("c", |pod| {
            unbound(pod);
            deleting(pod);
            pod.status.phase = "Failed".into();
            pod.metadata.generation = 0;
        }),
    ]);
    let plan = bench.round(None);
    let mut chains = told(&plan);
    chains.sort();
    assert_eq!(chains, ["delete a", "delete c", "patch a"], "a finished one is only deleted");
    assert!(plan.note.pods.values().all(|reason| *reason == Reason::Unscheduled));
    for write in plan.writes() {
        if let Verb::Delete { uid, resource_version, grace_period, .. } = &write.verb {
            assert_eq!((uid.to_string(), *grace_period), (format!("{}-uid", write.key.name), Some(0)));
            assert!(resource_version.is_none() && write.tolerate.absent);
        }
    }
}

#[test]
fn a_pod_for_which_there_are_two_reasons_goes_once() {
    let bench = Bench::new([
        pod("a", |pod| {
            pod.spec.node_name = "".into();
            phase("Succeeded")(pod);
            deleting(pod);
        }),
        pod("b", phase("Succeeded")),
    ]);
    let plan = bench.round(Some(1));
    assert_eq!(told(&plan), ["delete a"]);
    assert_eq!(plan.note.pods[&Key::new("ns", "a")], Reason::Terminated);
}

#[test]
fn all_pods_of_a_node_that_is_gone_end_once_it_was_read_live() {
    let target = |status: &'static str| {
        move |pod: &mut Pod| {
            on("gone")(pod);
            pod.status.conditions = vec![PodCondition {
                r#type: "DisruptionTarget".into(),
                status: status.into(),
                last_transition_time: Time::from_seconds(5),
                ..PodCondition::default()
            }];
        }
    };
    let bench = Bench::new([
        pod("a", on("gone")),
        pod("b", |pod| {
            on("gone")(pod);
            phase("Succeeded")(pod);
        }),
        pod("c", target("True")),
        pod("d", target("False")),
        pod("e", on("one")),
    ]);
    let plan = bench.gone_node("gone").unwrap();
    let Some(Step::Verify(verify)) = plan.steps.first() else { panic!("{plan:?}") };
    assert_eq!((verify.kind, &verify.key, &verify.expect), (&NODES, &Key::new("", "gone"), &Expect::Absent));
    let mut writes = told(&plan);
    writes.sort();
    assert_eq!(writes, ["delete a", "delete b", "delete c", "delete d", "patch a", "patch c", "patch d"]);
    let mut patches = patches(&plan);
    patches.sort_by_key(ToString::to_string);
    let condition = |since: Option<&str>| {
        let mut condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "observedGeneration": 3,
        });
        if let Some(since) = since {
            condition["lastTransitionTime"] = since.into();
        }
        condition
    };
    let is_now = Some("2023-11-14T22:13:20Z");
    for (patch, since) in patches.iter().zip([is_now, None, is_now]) {
        assert_eq!(patch["status"]["conditions"], json!([condition(since)]), "{patch}");
        assert_eq!(patch["status"]["phase"], "Failed");
    }
    assert_eq!((plan.requeue_after, plan.end), (Some(QUARANTINE), true));
    assert!(bench.gone_node("one").is_none(), "it is there");
    assert!(bench.gone_node("unheard-of").is_none(), "it has no pods");
}

#[test]
fn gone_node_touches_only_the_pods_that_the_index_has_for_it() {
    // Files one pod of each node. A list of all pods would find two of the node that is gone.
    static HALF: Index = Index {
        name: "half",
        keys: |object| {
            let any: &dyn std::any::Any = object;
            let pod = any.downcast_ref::<Pod>().filter(|pod| pod.metadata.name.ends_with('1'));
            pod.map(|pod| pod.spec.node_name.clone()).into_iter().collect()
        },
    };
    let pods = ["gone", "one", "two"].map(|node| ["1", "2"].map(|at| pod(&format!("{node}-{at}"), on(node))));
    let bench = Bench::new(pods.into_iter().flatten());
    assert_eq!(told(&bench.gone_node_by(&HALF, "gone").unwrap()), ["patch gone-1", "delete gone-1"]);
    let writes = ["patch gone-1", "delete gone-1", "patch gone-2", "delete gone-2"];
    assert_eq!(told(&bench.gone_node("gone").unwrap()), writes);
}

/// A pod on the node `gone` that only a finalizer keeps.
fn over(name: &str) -> Pod {
    pod(name, |pod| {
        on("gone")(pod);
        deleting(pod);
        pod.metadata.deletion_grace_period_seconds = Some(0);
        pod.status.phase = "Failed".into();
    })
}

#[test]
fn gone_node_whose_pods_are_all_over_has_no_timer() {
    let bench = Bench::new([over("a"), over("b")]);
    let plan = bench.gone_node("gone").unwrap();
    assert_eq!((plan.steps.len(), plan.requeue_after), (0, None));
    add(&bench.pods, &pod("c", on("gone")));
    let plan = bench.gone_node("gone").unwrap();
    assert_eq!(told(&plan), ["patch c", "delete c"]);
    assert_eq!(plan.requeue_after, Some(QUARANTINE));
    // A change that makes one of them another matter calls the node.
    let map = unknown_nodes(Lister::new(Arc::clone(&bench.nodes)));
    let [was, mut is] = [over("a"), over("a")];
    let object = |pod: &Pod| Arc::new(pod.clone()) as AnyObject;
    is.metadata.resource_version = "8".into();
    assert_eq!(keys(&map, Some(&object(&was)), Some(&object(&is))), [""; 0]);
    is.status.phase = "Running".into();
    assert_eq!(keys(&map, Some(&object(&was)), Some(&object(&is))), ["gone"]);
}

#[test]
fn a_pod_that_has_finished_unseen_is_not_said_to_have_failed() {
    let api = Served::new("pod-garbage-collector", now());
    api.model()
        .create("user", "namespaces", "", json!({ "metadata": { "name": "ns" } }))
        .expect("a namespace");
    let [seen, unseen] = ["a", "b"].map(|name| {
        let held = api.model().restore(&PODS, &pod(name, on("gone")).to_bytes());
        downcast::<Pod>(held.object(&PODS)).expect("a pod")
    });
    let bench = Bench::new([&seen, &unseen].map(|pod| Pod::clone(pod)));
    let mut done = Pod::clone(&unseen);
    phase("Succeeded")(&mut done);
    api.model().restore(&PODS, &done.to_bytes());

    let executed = api.execute(bench.gone_node("gone").unwrap());
    let mut log = api.log();
    log.sort();
    let expected =
        ["delete pods ns/a", "get nodes gone", "patch pods/status ns/a", "patch pods/status ns/b refused"];
    assert_eq!(log, expected);
    assert_eq!(executed.failures.len(), 1, "the refusal");
    assert_eq!(api.model().look("pods", "ns", "b")["status"]["phase"], "Succeeded");
}

#[test]
fn it_says_why_pods_end() {
    let bench = Bench::new([
        pod("a", phase("Succeeded")),
        pod("b", phase("Succeeded")),
        pod("c", |pod| {
            on("")(pod);
            deleting(pod);
        }),
        pod("d", on("gone")),
    ]);
    let said = |keep| Rounds::reasons(&bench.view(keep), now());
    let unscheduled = "ns/c is being deleted without being bound to a node, so no kubelet completes the deletion; it is deleted \
         by force.";
    assert_eq!(
        said(Some(1)),
        [
            "2 pods in all namespaces have finished, and the threshold is 1: 1 is deleted, evicted pods first, \
             then the oldest.",
            unscheduled
        ]
    );
    assert_eq!(
        said(Some(5))[0],
        "2 pods in all namespaces have finished, and the threshold is 5: none is deleted."
    );
    assert_eq!(
        said(None),
        ["--terminated-pod-gc-threshold sets no limit; all finished pods are kept.", unscheduled]
    );
    let room =
        GoneNodes { pods: Indexed::new(&bench.pods, &BY_NODE), nodes: Lister::new(Arc::clone(&bench.nodes)) };
    let view = view::gone_node(&room, &Key::new("", "gone")).unwrap();
    assert_eq!(
        GoneNodes::reasons(&view, now()),
        [
            "1 pod is bound to the node gone, which no longer exists; once confirmed with the API server, it is \
             marked Failed and deleted."
        ]
    );
}

/// The keys that a change concerns.
fn keys(map: &KeyMap, old: Option<&AnyObject>, new: Option<&AnyObject>) -> Vec<String> {
    let mut keys = Vec::new();
    map(Delta { old, new, initial: false, resync: false }, &mut |key| keys.push(key.to_string()));
    keys
}

#[test]
fn nodes_are_looked_at_when_a_pod_is_bound_to_one_that_is_not_there_or_when_they_go() {
    let bench = Bench::new([]);
    let map = unknown_nodes(Lister::new(Arc::clone(&bench.nodes)));
    let on = |node: &'static str| Arc::new(pod("a", on(node))) as AnyObject;
    assert_eq!(keys(&map, None, Some(&on("gone"))), ["gone"]);
    assert_eq!(keys(&map, Some(&on("")), Some(&on("gone"))), ["gone"]);
    assert_eq!(keys(&map, Some(&on("gone")), Some(&on("gone"))), [""; 0], "it was told of before");
    assert_eq!(keys(&map, None, Some(&on("one"))), [""; 0]);
    assert_eq!(keys(&map, None, Some(&on(""))), [""; 0]);
    assert_eq!(keys(&map, Some(&on("gone")), None), [""; 0]);
    let map = nodes_that_go();
    let mut node = Node::default();
    node.metadata.name = "gone".into();
    let node: AnyObject = Arc::new(node);
    assert_eq!(keys(&map, Some(&node), None), ["gone"]);
    assert_eq!(keys(&map, None, Some(&node)), [""; 0]);
    assert_eq!(keys(&map, Some(&node), Some(&node)), [""; 0]);
}

#[test]
fn metrics_count_attempts_and_what_went_wrong() {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    let unbound = |pod: &mut Pod| {
        pod.spec.node_name = "".into();
        deleting(pod);
    };
    let plan = Bench::new(["a", "b", "c", "d"].map(|name| pod(name, unbound))).round(None);
    let (plan, note) = plan.into_parts();
    // The one whose patch fails is not deleted; the one that is gone has failed, too; the last was not tried.
    let actions: Vec<_> = planned(&plan)
        .into_iter()
        .filter_map(|mut action| {
            let what = (action.summary.split(' ').next().unwrap_or_default(), action.key.name.as_str());
            action.result = match what {
                (_, "d") | ("delete", "b") => return None,
                ("patch", "b") => ActionResult::Failed("no".into()),
                ("delete", "c") => ActionResult::Unneeded,
                _ => ActionResult::Done,
            };
            Some(action)
        })
        .collect();
    let outcome = Outcome::Done { writes: 4, requeue_after: None, cooldown: Cooldown::NONE };
    let ended = ReconcileEnd { outcome: &outcome, actions: &actions, took: Duration::ZERO };
    metrics.planned(&Key::EMPTY, &note);
    metrics.ended(&Key::EMPTY, ended);
    // A round that found nothing counts nothing.
    metrics.planned(&Key::EMPTY, &Note::default());
    metrics.ended(&Key::EMPTY, ended);
    let count = |name: &str| {
        let family = registry.gather().into_iter().find(|family| family.name() == name).unwrap();
        family.get_metric().iter().map(|metric| metric.get_counter().get_value()).sum::<f64>()
    };
    assert!((count("pod_gc_collector_force_delete_pods_total") - 3.0).abs() < 0.1);
    assert!((count("pod_gc_collector_force_delete_pod_errors_total") - 2.0).abs() < 0.1);
}

proptest! {
    /// Whatever there is, a round ends only pods that are finished or being deleted, and leaves as many finished ones as may stay.
    #[test]
    fn a_round_ends_nothing_that_lives(
        states in prop::collection::vec((0_usize..5, any::<bool>(), 0_usize..3), 0..12),
        keep in 1_usize..6,
    ) {
        let pods: Vec<Pod> = states.iter().enumerate().map(|(at, (state, is_deleting, node))| {
            let name = char::from(b'a' + at as u8).to_string();
            pod(&name, |pod| {
                pod.status.phase = ["Pending", "Running", "Unknown", "Succeeded", "Failed"][*state].into();
                pod.spec.node_name = ["", "one", "gone"][*node].into();
                if *is_deleting {
                    deleting(pod);
                }
            })
        }).collect();
        let bench = Bench::new(pods.clone());
        let plan = bench.round(Some(keep));
        let finished = pods.iter().filter(|pod| pod.is_finished()).count();
        let ended: Vec<&Pod> = pods.iter().filter(|pod| plan.note.pods.contains_key(&Key::of(&pod.metadata))).collect();
        prop_assert!(ended.iter().all(|pod| pod.is_finished() || pod.metadata.is_deleting()));
        let terminated = plan.note.pods.values().filter(|reason| **reason == Reason::Terminated).count();
        prop_assert_eq!(terminated, finished.saturating_sub(keep));
        for pod in ended {
            let writes: Vec<&str> =
                plan.writes().filter(|write| write.key == Key::of(&pod.metadata)).map(|write| write.verb.name()).collect();
            let expected: &[&str] = if pod.is_finished() { &["delete"] } else { &["patch", "delete"] };
            prop_assert_eq!(writes, expected);
        }
    }
}
