//! The room's tables and properties, on stores that are filled by hand and a clock that stands still.

use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::memory::{Entry, State};
use super::verdict::{Verdict, judge};
use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::core::Taint;
use coxswain_machinery::api::pod::PodCondition;
use coxswain_machinery::api::shape::{PodShape, Toleration};
use coxswain_machinery::executor::{ActionResult, planned};
use coxswain_machinery::framework::{Memory as _, Meter as _, Outcome, Read, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::{Delta, Indexed, Store};
use coxswain_machinery::model::Step;
use coxswain_machinery::model::plan::{Cooldown, Patch, Verb, Write};
use coxswain_machinery::telemetry::Registry;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

/// `KEY`, `KEY=VALUE` or either with `:EFFECT`; `NoExecute` without.
fn taint(text: &str) -> Taint {
    let (text, effect) = text.split_once(':').unwrap_or((text, "NoExecute"));
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    Taint { key: key.into(), value: value.into(), effect: effect.into(), time_added: None }
}

fn taints(texts: &[&str]) -> Vec<Taint> {
    texts.iter().map(|text| taint(text)).collect()
}

/// A toleration of every taint of a key for so many seconds; for ever without.
fn exists(key: &str, seconds: Option<i64>) -> Toleration {
    Toleration { key: key.into(), operator: "Exists".into(), seconds, ..Toleration::default() }
}

fn compares(operator: &str, key: &str, value: &str) -> Toleration {
    Toleration { key: key.into(), operator: operator.into(), value: value.into(), ..Toleration::default() }
}

#[test]
fn the_first_toleration_of_each_taint_counts_and_the_shortest_time_of_all() {
    let (a, b) = (taint("a"), taint("b"));
    let table: &[(&[&str], Vec<Toleration>, Verdict<'_>)] = &[
        (&[], vec![], Verdict::Untainted),
        (&["a:NoSchedule", "b:PreferNoSchedule"], vec![], Verdict::Untainted),
        (&["a"], vec![], Verdict::Goes(&a)),
        (&["a"], vec![exists("b", None)], Verdict::Goes(&a)),
        (&["a"], vec![exists("a", None)], Verdict::Stays),
        (&["a"], vec![exists("", None)], Verdict::Stays),
        (&["a"], vec![compares("Equal", "a", "no")], Verdict::Goes(&a)),
        (&["a"], vec![exists("a", Some(5))], Verdict::StaysFor(seconds(5), &a)),
        (&["a"], vec![exists("a", Some(0))], Verdict::StaysFor(seconds(0), &a)),
        (&["a"], vec![exists("a", Some(-3))], Verdict::StaysFor(seconds(0), &a)),
        (&["a"], vec![exists("a", Some(5)), exists("a", None)], Verdict::StaysFor(seconds(5), &a)),
        (&["a"], vec![exists("a", None), exists("a", Some(5))], Verdict::Stays),
        (&["a", "b"], vec![exists("a", Some(5))], Verdict::Goes(&b)),
        (&["a", "b"], vec![exists("a", Some(9)), exists("b", Some(5))], Verdict::StaysFor(seconds(5), &b)),
        (&["a", "b"], vec![exists("a", Some(5)), exists("b", None)], Verdict::StaysFor(seconds(5), &a)),
        (&["a", "b"], vec![exists("a", None), exists("b", Some(5))], Verdict::StaysFor(seconds(5), &b)),
        (&["a", "b"], vec![exists("", None)], Verdict::Stays),
        (&["a", "b"], vec![exists("", Some(4))], Verdict::StaysFor(seconds(4), &a)),
    ];
    for (on, tolerations, expected) in table {
        let on = taints(on);
        let verdict = judge(&on, tolerations, false);
        assert_eq!(format!("{verdict:?}"), format!("{expected:?}"), "{on:?} {tolerations:?}");
    }
}

#[test]
fn numbers_are_compared_only_where_the_gate_is_on() {
    let on = taints(&["load=7"]);
    for (operator, value, comparing, stays) in [
        ("Gt", "5", true, true),
        ("Gt", "7", true, false),
        ("Lt", "9", true, true),
        ("Lt", "5", true, false),
        ("Gt", "5", false, false),
        ("Lt", "9", false, false),
        ("Gt", "five", true, false),
    ] {
        let verdict = judge(&on, &[compares(operator, "load", value)], comparing);
        assert_eq!(verdict == Verdict::Stays, stays, "{operator} {value} {comparing}");
    }
}

/// Stores, a memory, and what the API server would answer of nodes.
struct Bench {
    room: Controller,
    live: Mutex<Option<AnyObject>>,
    reads: Mutex<usize>,
}

impl Bench {
    /// A pod `web` on the node `one`, which has these taints.
    fn new(on: &[&str], tolerations: Vec<Toleration>) -> Self {
        let (pods, nodes) = (Arc::new(Store::new(&PODS)), Arc::new(Store::new(&NODES)));
        let room = Controller {
            pods: Lister::new(pods),
            nodes: Lister::new(nodes),
            timers: Arc::default(),
            comparing: false,
        };
        let bench = Self { room, live: Mutex::default(), reads: Mutex::default() };
        bench.pod(pod("web-uid", tolerations));
        bench.taint(on);
        bench
    }

    fn pod(&self, pod: Pod) {
        let pod: AnyObject = Arc::new(pod);
        self.room.pods.store().upsert(&pod);
    }

    /// Gives the node these taints, and lets the cache know.
    fn taint(&self, on: &[&str]) {
        self.taint_unseen(on);
        self.room.nodes.store().upsert(&self.live.lock().clone().unwrap());
    }

    /// The same before the cache knows.
    fn taint_unseen(&self, on: &[&str]) {
        *self.live.lock() = Some(node(on));
    }

    fn remove_node(&self) {
        *self.live.lock() = None;
        self.room.nodes.store().remove_key(&Key::new("", "one"), "9");
    }

    fn view(&self, failures: &[Failure]) -> Option<View> {
        let (key, place) = (Key::new("ns", "web"), Key::new("", "one"));
        let observe = |read: &Reads| self.room.observe(&key, failures, read).unwrap();
        let observation = match observe(&Reads::default()) {
            Observation::Needs(needs) => {
                assert_eq!(needs, [Read::Object(&NODES, place.clone())]);
                *self.reads.lock() += 1;
                observe(&Reads::default().with_object(&NODES, place, Ok(self.live.lock().clone())))
            }
            observation => observation,
        };
        match observation {
            Observation::View(view) => Some(view),
            Observation::Nothing => None,
            Observation::Needs(needs) => panic!("{needs:?} was read"),
        }
    }

    /// Reconciles; all writes succeed. What was done, and when the pod is looked at again.
    fn reconcile(&self) -> (Vec<String>, Option<Duration>) {
        let Some(view) = self.view(&[]) else { return (vec!["nothing".to_owned()], None) };
        let plan = Controller::plan(&view, now());
        let done = (told(&plan), plan.requeue_after);
        self.room.timers.commit(&view.key, plan.note);
        done
    }

    /// Reconciles; the first write fails.
    fn fail(&self) -> Vec<String> {
        let view = self.view(&[]).unwrap();
        let plan = Controller::plan(&view, now());
        let write = plan.writes().next().expect("it writes");
        let failure = Failure {
            what: write.to_string(),
            verb: write.verb.name(),
            subresource: write.subresource,
            kind: write.kind,
            key: write.key.clone(),
            code: 500,
            reason: "InternalError".into(),
            message: "no".to_owned(),
            existing: None,
        };
        let view = self.view(&[failure]).unwrap();
        let recorded = Controller::plan(&view, now());
        assert!(recorded.steps.is_empty() && !recorded.end, "it is retried");
        self.room.timers.commit(&view.key, recorded.note);
        told(&plan)
    }
}

fn pod(uid: &str, tolerations: Vec<Toleration>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = "web".into();
    pod.metadata.namespace = "ns".into();
    pod.metadata.uid = uid.into();
    pod.metadata.generation = 3;
    pod.metadata.resource_version = "77".into();
    pod.spec.node_name = "one".into();
    pod.shape = PodShape { tolerations, ..PodShape::default() }.into();
    pod
}

fn node(on: &[&str]) -> AnyObject {
    let mut node = Node::default();
    node.metadata.name = "one".into();
    node.spec.taints = taints(on);
    Arc::new(node)
}

fn told(plan: &Plan<Note>) -> Vec<String> {
    let of_step = |step: &Step| match step {
        Step::Emit(event) => {
            assert_eq!((event.reason, event.warning), ("TaintManagerEviction", false));
            let about = &event.regarding;
            assert!(about.uid.is_empty() && about.resource_version.is_empty(), "the event names no UID");
            event.message.clone()
        }
        Step::Write(write) => format!("{} {}", write.verb.name(), write.kind),
        step => panic!("{step:?}"),
    };
    plan.steps.iter().map(of_step).collect()
}

const MARKED: &str = "Marking for deletion Pod ns/web";
const CANCELLED: &str = "Cancelling deletion of Pod ns/web";
const WRITES: [&str; 2] = ["patch pods", "delete pods"];

fn goes() -> Vec<&'static str> {
    [&[MARKED][..], &WRITES].concat()
}

#[test]
fn one_that_does_not_tolerate_a_taint_goes_at_once() {
    for tolerations in [vec![], vec![exists("a", Some(0))], vec![exists("a", Some(-1))]] {
        let bench = Bench::new(&["a"], tolerations);
        assert_eq!(bench.reconcile(), (goes().iter().map(ToString::to_string).collect(), None));
        assert_eq!(bench.room.timers.entry(&Key::new("ns", "web")), None);
    }
    let bench = Bench::new(&["a"], vec![exists("a", None)]);
    assert_eq!(bench.reconcile(), (vec![], None));
    let bench = Bench::new(&["a:NoSchedule"], vec![]);
    assert_eq!(bench.reconcile(), (vec![], None));
}

/// Finished pods, pods of nobody and pods on their way out go like others: nothing of them is looked at.
#[test]
fn all_pods_are_alike() {
    for phase in ["Pending", "Running", "Succeeded", "Failed"] {
        let bench = Bench::new(&["a"], vec![]);
        let mut pod = pod("web-uid", vec![]);
        pod.status.phase = phase.into();
        pod.metadata.deletion_timestamp = coxswain_machinery::wire::Time::from_seconds(5);
        bench.pod(pod);
        assert_eq!(bench.reconcile().0, goes(), "{phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_tolerates_it_for_a_time_waits_for_so_long() {
    let bench = Bench::new(&["a"], vec![exists("a", Some(5))]);
    assert_eq!(bench.reconcile(), (vec![], Some(seconds(5))));
    tokio::time::advance(Duration::from_millis(4999)).await;
    assert_eq!(bench.reconcile(), (vec![], Some(Duration::from_millis(1))), "it was looked at in between");
    assert_eq!(*bench.reads.lock(), 0, "who waits reads nothing");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(bench.reconcile().0, goes());
    assert_eq!(*bench.reads.lock(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_moves_a_time_that_runs_but_a_taint_that_is_not_tolerated() {
    let bench = Bench::new(&["a"], vec![exists("a", Some(10)), exists("b", Some(2))]);
    assert_eq!(bench.reconcile().1, Some(seconds(10)));
    tokio::time::advance(seconds(4)).await;
    bench.taint(&["a", "b"]);
    assert_eq!(bench.reconcile(), (vec![], Some(seconds(6))), "another taint");
    bench.taint(&["b"]);
    assert_eq!(bench.reconcile(), (vec![], Some(seconds(6))), "one for another");
    bench.pod(pod("web-uid", vec![exists("b", Some(0))]));
    assert_eq!(bench.reconcile(), (vec![], Some(seconds(6))), "no time at all");
    bench.pod(pod("web-uid", vec![exists("b", Some(600))]));
    assert_eq!(bench.reconcile(), (vec![], Some(seconds(6))), "a longer time");
    bench.taint(&["b", "c"]);
    assert_eq!(bench.reconcile().0, [&[CANCELLED][..], &goes()].concat(), "one that is not tolerated");
}

#[tokio::test(start_paused = true)]
async fn a_time_ends_with_the_taints_and_begins_anew_with_them() {
    let bench = Bench::new(&["a"], vec![exists("a", Some(10))]);
    bench.reconcile();
    tokio::time::advance(seconds(4)).await;
    bench.taint(&[]);
    assert_eq!(bench.reconcile(), (vec![CANCELLED.to_owned()], None));
    assert_eq!(bench.reconcile(), (vec![], None), "it is told once");
    bench.taint(&["a"]);
    assert_eq!(bench.reconcile(), (vec![], Some(seconds(10))));
    bench.pod(pod("web-uid", vec![exists("a", None)]));
    assert_eq!(bench.reconcile(), (vec![CANCELLED.to_owned()], None), "it may stay now");
}

#[tokio::test(start_paused = true)]
async fn one_that_goes_by_itself_waits_no_more_and_leaves_its_successor_alone() {
    let tolerating = || vec![exists("a", Some(10))];
    let bench = Bench::new(&["a"], tolerating());
    bench.reconcile();
    tokio::time::advance(seconds(8)).await;
    bench.pod(pod("another", tolerating()));
    assert_eq!(bench.reconcile(), (vec![CANCELLED.to_owned()], Some(seconds(10))));
    bench.room.pods.store().remove_key(&Key::new("ns", "web"), "9");
    assert_eq!(bench.reconcile(), (vec![CANCELLED.to_owned()], None));
    assert_eq!(bench.reconcile().0, ["nothing"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_ends_no_time() {
    let bench = Bench::new(&["a"], vec![exists("a", Some(10))]);
    bench.reconcile();
    bench.remove_node();
    tokio::time::advance(seconds(4)).await;
    assert_eq!(bench.reconcile(), (vec![], Some(seconds(6))));
    tokio::time::advance(seconds(6)).await;
    assert_eq!(bench.reconcile().0, goes());
    let bench = Bench::new(&[], vec![]);
    bench.remove_node();
    assert_eq!(bench.reconcile(), (vec![], None), "it begins none, either");
}

/// The cache is behind: nobody goes whom the node keeps.
#[tokio::test(start_paused = true)]
async fn a_taint_that_is_gone_when_the_node_is_read_drives_nobody_away() {
    let bench = Bench::new(&["a"], vec![]);
    bench.taint_unseen(&[]);
    assert_eq!(bench.reconcile(), (vec![], None));
    let bench = Bench::new(&["a"], vec![exists("a", Some(5))]);
    bench.reconcile();
    tokio::time::advance(seconds(5)).await;
    bench.taint_unseen(&[]);
    assert_eq!(bench.reconcile(), (vec![CANCELLED.to_owned()], None));
}

#[test]
fn a_node_that_cannot_be_read_drives_nobody_away() {
    let bench = Bench::new(&["a"], vec![]);
    let error = coxswain_machinery::framework::ApiError::Malformed {
        request: "GET /api/v1/nodes/one".to_owned(),
        what: "nothing".to_owned(),
    };
    let reads = Reads::default().with_object(&NODES, Key::new("", "one"), Err(error));
    let observed = bench.room.observe(&Key::new("ns", "web"), &[], &reads);
    assert!(matches!(observed, Err(ObserveError::Retry(_))), "{observed:?}");
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_and_told_once() {
    let bench = Bench::new(&["a"], vec![]);
    assert_eq!(bench.fail(), goes());
    assert_eq!(bench.fail(), WRITES);
    tokio::time::advance(seconds(3)).await;
    let view = bench.view(&[]).unwrap();
    let overdue = Controller::plan(&view, now()).note.overdue.unwrap();
    assert!(overdue >= seconds(3), "it counts from when it was to go: {overdue:?}");
    assert_eq!(bench.reconcile().0, WRITES);
    let bench = Bench::new(&["a"], vec![]);
    bench.fail();
    bench.taint(&[]);
    assert_eq!(bench.reconcile(), (vec![CANCELLED.to_owned()], None), "it may stay after all");
}

#[test]
fn the_condition_comes_before_the_delete_and_both_are_meant_for_this_pod() {
    let writes = |change: &dyn Fn(&mut Pod)| -> (Option<Value>, Verb) {
        let bench = Bench::new(&["a"], vec![]);
        let mut pod = pod("web-uid", vec![]);
        change(&mut pod);
        bench.pod(pod);
        let plan = Controller::plan(&bench.view(&[]).unwrap(), now());
        let writes: Vec<&Write> = plan.writes().collect();
        assert!(writes.iter().all(|write| write.tolerate.absent));
        let patch = match writes.as_slice() {
            [delete] => return (None, delete.verb.clone()),
            [patch, _] => patch,
            other => panic!("{other:?}"),
        };
        assert_eq!(patch.subresource, "status");
        let Verb::Patch(Patch::Strategic(patch)) = &patch.verb else { panic!("{patch}") };
        (Some(patch.clone()), writes[1].verb.clone())
    };
    let delete = |resource_version: Option<&str>| Verb::Delete {
        uid: "web-uid".into(),
        resource_version: resource_version.map(Into::into),
        propagation: None,
        grace_period: None,
    };
    let mut expected = json!({
        "metadata": { "uid": "web-uid", "resourceVersion": "77" },
        "status": { "conditions": [{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "observedGeneration": 3,
            "lastTransitionTime": "2023-11-14T22:13:20Z",
        }] },
    });
    assert_eq!(writes(&|_| {}), (Some(expected.clone()), delete(None)));
    let held = |status: &'static str, reason: &'static str| {
        move |pod: &mut Pod| {
            pod.status.conditions = vec![PodCondition {
                r#type: "DisruptionTarget".into(),
                status: status.into(),
                reason: reason.into(),
                ..PodCondition::default()
            }];
        }
    };
    assert_eq!(writes(&held("False", "DeletionByTaintManager")), (Some(expected.clone()), delete(None)));
    assert_eq!(writes(&held("True", "DeletionByTaintManager")), (None, delete(Some("77"))));
    expected["status"]["conditions"][0].as_object_mut().unwrap().remove("lastTransitionTime");
    assert_eq!(writes(&held("True", "PreemptionByScheduler")), (Some(expected), delete(None)));
}

/// Something changes the pod faster than its watch shows, so the condition at the cached version is refused each time.
#[test]
fn pod_is_read_live_after_three_conflicts() {
    let bench = Bench::new(&["a"], vec![]);
    let (key, place) = (Key::new("ns", "web"), Key::new("", "one"));
    let observe = |reads: Reads| bench.room.observe(&key, &[], &reads);
    let Ok(Observation::Needs(needs)) = observe(Reads::default().contended()) else {
        panic!("it reads live")
    };
    assert_eq!(needs, [Read::Object(&PODS, key.clone())]);
    let live = |uid: &str, tolerations: Vec<Toleration>| {
        let mut pod = pod(uid, tolerations);
        pod.metadata.resource_version = "99".into();
        let reads = Reads::default().contended().with_object(&NODES, place.clone(), Ok(Some(node(&["a"]))));
        let observed = observe(reads.with_object(&PODS, key.clone(), Ok(Some(Arc::new(pod)))));
        let Ok(Observation::View(view)) = observed else { panic!("{observed:?}") };
        let plan = Controller::plan(&view, now());
        let first = plan.writes().next().map(|write| write.verb.clone());
        match first {
            Some(Verb::Patch(Patch::Strategic(patch))) => patch["metadata"].clone(),
            Some(other) => panic!("{other:?}"),
            None => Value::Null,
        }
    };
    assert_eq!(
        live("web-uid", vec![]),
        json!({ "uid": "web-uid" }),
        "a pod that changes all the time goes, too"
    );
    assert_eq!(live("web-uid", vec![exists("a", None)]), Value::Null, "it tolerates the taint by now");
    let cached = json!({ "uid": "web-uid", "resourceVersion": "77" });
    assert_eq!(live("another", vec![]), cached, "the watch tells of a successor");
}

/// The keys that a change queues, in order.
fn queued(keys: &coxswain_machinery::framework::KeyMap, delta: Delta<'_>) -> Vec<String> {
    let mut all = Vec::new();
    keys(delta, &mut |key| all.push(key.name.to_string()));
    all
}

fn change<'a>(old: Option<&'a AnyObject>, new: Option<&'a AnyObject>) -> Delta<'a> {
    Delta { old, new, initial: false, resync: false }
}

#[test]
fn a_node_concerns_its_pods_when_the_taints_that_drive_away_change() {
    let bench = Bench::new(&[], vec![]);
    let keys = keys::of_nodes(Indexed::new(bench.room.pods.store(), &BY_NODE));
    for (old, new, concerns) in [
        (&["a"][..], &["a"][..], false),
        (&[], &["a"], true),
        (&["a"], &[], true),
        (&["a", "b"], &["b", "a"], true),
        (&["a"], &["a=new"], true),
        (&[], &["a:NoSchedule"], false),
        (&["a", "b:NoSchedule"], &["a"], false),
    ] {
        let (old, new) = (node(old), node(new));
        let found = queued(&keys, change(Some(&old), Some(&new)));
        assert_eq!(!found.is_empty(), concerns, "{old:?} {new:?}");
    }
    let (plain, tainted) = (node(&[]), node(&["a"]));
    assert_eq!(queued(&keys, change(None, Some(&plain))), ["web"]);
    assert_eq!(queued(&keys, change(Some(&tainted), None)), [""; 0]);
    let initial = |node| Delta { initial: true, ..change(None, Some(node)) };
    assert_eq!(queued(&keys, initial(&tainted)), ["web"]);
    assert_eq!(queued(&keys, initial(&plain)), [""; 0]);
    let resync = Delta { resync: true, ..change(Some(&tainted), Some(&tainted)) };
    assert_eq!(queued(&keys, resync), [""; 0]);
}

#[test]
fn a_pod_concerns_itself_when_it_is_bound_or_tolerates_something_else() {
    let bench = Bench::new(&["a"], vec![]);
    let object = |pod: Pod| -> AnyObject { Arc::new(pod) };
    let plain = object(pod("u", vec![]));
    let tolerating = object(pod("u", vec![exists("a", None)]));
    let mut unbound = pod("u", vec![]);
    unbound.spec.node_name = "".into();
    let unbound = object(unbound);
    let mut ready = pod("u", vec![]);
    ready.status.phase = "Running".into();
    let ready = object(ready);
    let keys = keys::of_pods(bench.room.nodes.clone(), Arc::clone(&bench.room.timers));
    let concerns = |old, new| !queued(&keys, change(old, new)).is_empty();
    assert!(concerns(None, Some(&plain)));
    assert!(concerns(Some(&unbound), Some(&plain)), "bound later");
    assert!(concerns(Some(&plain), Some(&tolerating)));
    assert!(!concerns(Some(&plain), Some(&ready)), "a status");
    assert!(!concerns(None, Some(&unbound)));
    bench.taint(&["a:NoSchedule"]);
    assert!(!concerns(None, Some(&plain)) && !concerns(Some(&plain), None), "the node keeps all");
    let entry = Entry { uid: "u".into(), state: State::Waits { until: seconds(9) } };
    bench.room.timers.commit(&Key::new("ns", "web"), Note { next: Some(entry), overdue: None });
    assert!(concerns(Some(&plain), None), "somebody waits who is gone");
}

#[test]
fn reasons_name_the_taint_and_the_time() {
    let reasons = |bench: &Bench| Controller::reasons(&bench.view(&[]).unwrap(), now()).join(" ");
    for (on, tolerations, expected) in [
        (&[][..], vec![], "The node one has no NoExecute taint; the pod is kept."),
        (
            &["a"],
            vec![exists("a", None)],
            "The pod tolerates every NoExecute taint of the node one; the pod is kept.",
        ),
        (
            &["a=b"],
            vec![],
            "The pod does not tolerate the taint a=b:NoExecute of the node one; the pod is deleted now.",
        ),
        (
            &["a"],
            vec![exists("a", Some(300))],
            "The pod tolerates the taint a:NoExecute of the node one for 5m; the pod is deleted in 5m, unless a \
             change of its tolerations or of the taints lets the pod stay.",
        ),
    ] {
        assert_eq!(reasons(&Bench::new(on, tolerations)), expected);
    }
    let bench = Bench::new(&["a"], vec![exists("a", Some(300))]);
    bench.reconcile();
    assert!(reasons(&bench).contains("The time started when this process first observed a taint"));
    bench.room.pods.store().remove_key(&Key::new("ns", "web"), "9");
    assert!(reasons(&bench).starts_with("The pod does not exist"));
}

#[test]
fn metrics_count_deletes_that_succeeded() {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    let bench = Bench::new(&["a"], vec![]);
    let plan = Controller::plan(&bench.view(&[]).unwrap(), now());
    let key = Key::new("ns", "web");
    let outcome = Outcome::Done { writes: 2, requeue_after: None, cooldown: Cooldown::NONE };
    let (plan, note) = plan.into_parts();
    for (result, count) in [(ActionResult::Unneeded, 0_u32), (ActionResult::Done, 1)] {
        let mut actions = planned(&plan);
        for action in &mut actions {
            action.result = result.clone();
        }
        metrics.planned(&key, &note);
        metrics.ended(&key, ReconcileEnd { outcome: &outcome, actions: &actions, took: seconds(2) });
        let families = registry.gather();
        let metric = |name: &str| families.iter().find(|family| family.name() == name).unwrap().get_metric();
        let deletions = &metric("taint_eviction_controller_pod_deletions_total")[0];
        assert!((deletions.get_counter().get_value() - f64::from(count)).abs() < 0.5);
        let duration = &metric("taint_eviction_controller_pod_deletion_duration_seconds")[0];
        assert_eq!(duration.get_histogram().get_sample_count(), u64::from(count));
    }
}

/// What may happen to a pod.
#[derive(Clone, Debug)]
enum Happens {
    Passes(u64),
    Taints(Vec<&'static str>),
    Tolerates(Vec<(&'static str, Option<i64>)>),
}

fn happens() -> impl Strategy<Value = Happens> {
    let key = prop::sample::select(vec!["a", "b"]);
    let time = prop::sample::select(vec![None, Some(0), Some(3), Some(20)]);
    prop_oneof![
        (0_u64..9).prop_map(Happens::Passes),
        prop::collection::vec(key.clone(), 0..3).prop_map(Happens::Taints),
        prop::collection::vec((key, time), 0..3).prop_map(Happens::Tolerates),
    ]
}

proptest! {
    /// Whatever happens, a pod goes only while a taint is there that it does not tolerate without end; and if it tolerates
    /// each, no earlier than the shortest time after it began to wait.
    #[test]
    fn no_toleration_ends_early(steps in prop::collection::vec(happens(), 1..30)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new(&[], vec![]);
            let (mut on, mut tolerations) = (Vec::new(), Vec::new());
            // The earliest time at which it may go.
            let mut earliest: Option<Duration> = None;
            for step in steps {
                match step {
                    Happens::Passes(time) => tokio::time::advance(seconds(time)).await,
                    Happens::Taints(new) => {
                        bench.taint(&new);
                        on = taints(&new);
                    }
                    Happens::Tolerates(new) => {
                        tolerations = new.iter().map(|(key, time)| exists(key, *time)).collect();
                        bench.pod(pod("web-uid", tolerations.clone()));
                    }
                }
                let at = bench.room.timers.now();
                earliest = match judge(&on, &tolerations, false) {
                    Verdict::Untainted | Verdict::Stays => None,
                    Verdict::Goes(_) => Some(at),
                    Verdict::StaysFor(time, _) => earliest.or(Some(at + time)),
                };
                let (done, again) = bench.reconcile();
                let deleted = done.iter().any(|step| step == "delete pods");
                prop_assert_eq!(deleted, earliest.is_some_and(|earliest| earliest <= at), "{:?}", done);
                prop_assert_eq!(again, earliest.filter(|_| !deleted).map(|earliest| earliest.saturating_sub(at)));
                if deleted {
                    // It is deleted again as long as it is there.
                    earliest = None;
                }
            }
            Ok(())
        })?;
    }
}
