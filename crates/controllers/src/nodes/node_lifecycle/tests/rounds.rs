//! Rounds of the room on stores that are filled by hand, in paused time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::super::health::Health;
use super::super::memory::FleetMemory;
use super::super::metrics::Metrics;
use super::super::pods::{Pods, of_nodes, of_pods};
use super::super::taints::{NO_EXECUTE, UNREACHABLE};
use super::fixtures::{RULES, node, set, taint};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::coordination::Heartbeat;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::indexes::BY_NODE;
use coxswain_machinery::api::kinds::{HEARTBEATS, NODES, PODS};
use coxswain_machinery::api::pod::{Pod, PodCondition};
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::framework::{KeyMap, Memory as _, Observation, Read, Reads, Room, RoomMetrics};
use coxswain_machinery::informer::{Deliveries, Delta, Indexed, Lister, Store};
use coxswain_machinery::model::plan::{Patch, Verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::telemetry::Registry;

const BOUND: Duration = Duration::from_secs(10);

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

pub(super) struct Bench {
    pub(super) health: Health,
    registry: Registry,
    renewed: i64,
    /// The resource version in the answers to writes. Nodes are stored at version 7, so the cache shows writes at that version.
    stored: &'static str,
    /// Nodes that the API server has in another version than the cache.
    pub(super) live: BTreeMap<String, Node>,
    /// Number of live reads.
    pub(super) reads: Cell<usize>,
}

impl Bench {
    pub(super) fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        let registry = Registry::new();
        let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
        let heartbeats = Arc::new(Store::new(&HEARTBEATS));
        let deliveries = Deliveries::new(BOUND);
        heartbeats.tell(&deliveries);
        let health = Health {
            nodes: Lister::new(Arc::new(Store::new(&NODES))),
            heartbeats: Lister::new(heartbeats),
            memory: Arc::new(FleetMemory::new(deliveries, metrics)),
            rules: RULES,
            period: Duration::from_secs(5),
        };
        let bench =
            Self { health, registry, renewed: 0, stored: "7", live: BTreeMap::new(), reads: Cell::new(0) };
        for node in nodes {
            bench.store(node);
        }
        bench
    }

    pub(super) fn store(&self, node: Node) {
        let node: AnyObject = Arc::new(node);
        self.health.nodes.store().upsert(&node);
    }

    /// A Lease is renewed: of a node, or of somebody who leads.
    pub(super) fn renew(&mut self, namespace: &str, name: &str) {
        self.renewed += 1;
        let mut lease = Heartbeat::default();
        lease.metadata.namespace = namespace.into();
        lease.metadata.name = name.into();
        lease.spec.renew_time.seconds = self.renewed;
        let lease: AnyObject = Arc::new(lease);
        self.health.heartbeats.store().upsert(&lease);
    }

    pub(super) fn plan(&self) -> Plan<super::super::memory::Note> {
        self.plan_after(&[])
    }

    pub(super) fn plan_after(&self, failures: &[Failure]) -> Plan<super::super::memory::Note> {
        let mut reads = Reads::default();
        loop {
            let needs = match self.health.observe(&Key::EMPTY, failures, &reads).unwrap() {
                Observation::View(view) => return Health::plan(&view, now()),
                Observation::Needs(needs) => needs,
                Observation::Nothing => panic!("a round always has a plan"),
            };
            for need in needs {
                let Read::Object(_, key) = &*need else { panic!("{need:?}") };
                let found = self.current(key).map(|node| -> AnyObject { node });
                reads = reads.with_object(&NODES, key.clone(), Ok(found));
                self.reads.set(self.reads.get() + 1);
            }
        }
    }

    /// A node as the API server has it.
    pub(super) fn current(&self, key: &Key) -> Option<Arc<Node>> {
        let live = self.live.get(key.name.as_str()).cloned().map(Arc::new);
        live.or_else(|| self.health.nodes.get(key))
    }

    /// A round whose writes are accepted and not stored in the cache: what it tells and writes.
    fn round(&self) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            let plan = self.plan();
            assert!(plan.end && plan.requeue_after.is_some(), "a round always comes again");
            for step in &plan.steps {
                match step {
                    Step::Emit(event) => told.push(event.message.clone()),
                    Step::Each(writes) => told.extend(writes.iter().map(|write| {
                        let what = if write.subresource.is_empty() { "taints" } else { "status" };
                        format!("{what} of {}", write.key.name)
                    })),
                    step => panic!("{step:?}"),
                }
            }
            self.accept(&plan, self.stored, |_| true);
            let look_again = plan.look_again;
            self.health.memory.commit(&Key::EMPTY, plan.note);
            if !look_again {
                break;
            }
        }
        self.end();
        told
    }

    /// The memory learns that some writes of a plan are stored at this version.
    pub(super) fn accept(
        &self,
        plan: &Plan<super::super::memory::Note>,
        version: &str,
        is_stored: impl Fn(&Write) -> bool,
    ) {
        let writes: Vec<&Write> = plan.writes().filter(|write| is_stored(write)).collect();
        let effect = |write: &&Write| Effect {
            kind: write.kind,
            key: write.key.clone(),
            subresource: write.subresource,
            change: WriteEffect::Stored(version.into()),
            answer: None,
        };
        let effects: Vec<Effect> = writes.iter().map(effect).collect();
        self.health.memory.record_effects(&Key::EMPTY, &effects);
        for item in writes.iter().filter_map(|write| write.item) {
            self.health.memory.commit_item(&Key::EMPTY, &plan.note, item);
        }
    }

    pub(super) fn end(&self) {
        let outcome = coxswain_machinery::framework::Outcome::Absent;
        let took = Duration::from_millis(3);
        let end = coxswain_machinery::framework::ReconcileEnd { outcome: &outcome, actions: &[], took };
        self.health.memory.ended(&Key::EMPTY, end);
    }

    /// The looks of a round up to the writes, which come next.
    fn look(&self) {
        let plan = self.plan();
        assert!(plan.look_again);
        self.health.memory.commit(&Key::EMPTY, plan.note);
    }

    async fn pass(&mut self, time: u64, mut each: impl FnMut(&mut Self)) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..time {
            tokio::time::advance(Duration::from_secs(1)).await;
            each(self);
            told.extend(self.round());
        }
        told
    }
}

#[tokio::test(start_paused = true)]
async fn time_in_which_the_watch_delivers_nothing_counts_against_no_node() {
    let mut bench = Bench::new([node("one", "a"), node("two", "a")]);
    assert_eq!(
        bench.round(),
        [
            "Node one event: Registered Node one in Controller",
            "Node two event: Registered Node two in Controller"
        ]
    );
    bench.pass(20, |bench| bench.renew("kube-system", "leader")).await;
    // The API server is away: nobody can renew anything.
    assert_eq!(bench.pass(600, |_| {}).await, [""; 0]);
    // Somebody who leads is the first to be back.
    assert_eq!(bench.pass(29, |bench| bench.renew("kube-system", "leader")).await, [""; 0]);
    bench.renew("kube-node-lease", "one");
    let told = bench.pass(3, |bench| bench.renew("kube-system", "leader")).await;
    assert_eq!(told[0], "status of two", "what counted before and after is together more than its grace");
    assert!(told.iter().all(|what| !what.contains("one")), "{told:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Nodes that are well renew their Leases every ten seconds while they can. Whatever becomes of the API server, of this process
    /// and of its successors, nobody is marked and nobody is tainted.
    #[test]
    fn no_outage_is_ever_the_silence_of_a_node(faults in prop::collection::vec((0_u8..3, 1_u64..200), 1..8)) {
        const NAMES: [&str; 3] = ["one", "two", "three"];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let told = runtime.block_on(async {
            let mut bench = Bench::new(NAMES.map(|name| node(name, "a")));
            let mut told = bench.round();
            for (fault, time) in faults {
                match fault {
                    // Nothing can be renewed, and nothing is delivered.
                    0 => told.extend(bench.pass(time, |_| {}).await),
                    // The process stands still.
                    1 => {
                        tokio::time::advance(Duration::from_secs(time)).await;
                        told.extend(bench.round());
                    }
                    _ => {
                        bench = Bench::new(NAMES.map(|name| node(name, "a")));
                        told.extend(bench.round());
                    }
                }
                for second in 0..time.max(4) {
                    let renews = |at: u64| second == at || (second + 3 * at).is_multiple_of(10);
                    let renew = |bench: &mut Bench| {
                        for (_, name) in (0_u64..).zip(NAMES).filter(|(at, _)| renews(*at)) {
                            bench.renew("kube-node-lease", name);
                        }
                        if second.is_multiple_of(2) {
                            bench.renew("kube-system", "leader");
                        }
                    };
                    told.extend(bench.pass(1, renew).await);
                }
            }
            told
        });
        prop_assert!(told.iter().all(|what| what.contains("Registered Node")), "{:?}", told);
    }
}

/// The watch of Nodes is late, and that of Leases is not.
#[tokio::test(start_paused = true)]
async fn late_watch_of_nodes_delays_only_the_nodes_that_were_written() {
    let mut bench = Bench::new([node("first", "a"), node("second", "a"), node("well", "a")]);
    bench.round();
    bench.stored = "8";
    let mut time = 0;
    let renew = |bench: &mut Bench| {
        bench.renew("kube-node-lease", "well");
        if time < 5 {
            bench.renew("kube-node-lease", "second");
        }
        time += 1;
    };
    let told = bench.pass(70, renew).await;
    assert_eq!(told, ["status of first", "status of second"], "each is marked once, and in time");
    let mut first = node("first", "a");
    set(&mut first, "Ready", "Unknown");
    first.metadata.resource_version = "8".into();
    bench.store(first.clone());
    bench.stored = "9";
    let renew = |bench: &mut Bench| bench.renew("kube-node-lease", "well");
    assert_eq!(bench.pass(60, renew).await, ["taints of first"], "no token is used up by a second taint");
    first.metadata.resource_version = "9".into();
    first.spec.taints.push(taint(UNREACHABLE, NO_EXECUTE));
    bench.store(first);
    assert_eq!(bench.pass(60, renew).await, [""; 0], "the taint is known to be the controller's");
}

#[tokio::test(start_paused = true)]
async fn taint_that_the_cache_does_not_show_is_removed_later_when_all_zones_are_lost() {
    let mut lost = node("lost", "a");
    set(&mut lost, "Ready", "Unknown");
    let mut bench = Bench::new([lost.clone(), node("well", "a")]);
    bench.stored = "8";
    assert!(bench.round().contains(&"taints of lost".to_owned()));
    let mut well = node("well", "a");
    set(&mut well, "Ready", "False");
    bench.store(well);
    assert_eq!(bench.round(), [""; 0]);
    lost.metadata.resource_version = "8".into();
    lost.spec.taints.push(taint(UNREACHABLE, NO_EXECUTE));
    bench.store(lost);
    assert_eq!(bench.round(), ["taints of lost"]);
}

/// A round waits for its writes. If all were in one round, no Lease would be judged and no node tainted for minutes.
#[tokio::test(start_paused = true)]
async fn nodes_that_fall_silent_together_are_marked_in_several_rounds() {
    let mut bench = Bench::new((0..250).map(|at| node(&format!("n{at:03}"), "a")));
    bench.round();
    let marked = |told: &[String]| told.iter().filter(|what| what.starts_with("status of")).count();
    let mut told = Vec::new();
    while marked(&told) == 0 {
        told = bench.pass(1, |bench| bench.renew("kube-system", "leader")).await;
    }
    assert_eq!(marked(&told), 100);
    let show = |bench: &Bench, told: &[String]| {
        for name in told.iter().filter_map(|what| what.strip_prefix("status of ")) {
            let mut node = node(name.split([' ', ':']).next().unwrap_or(name), "a");
            set(&mut node, "Ready", "Unknown");
            bench.store(node);
        }
    };
    show(&bench, &told);
    bench.look();
    let plan = bench.plan();
    let marks = plan.writes().filter(|write| write.subresource == "status").count();
    assert_eq!((marks, plan.requeue_after), (100, Some(Duration::from_millis(100))));
    let further = [(); 4].map(|()| {
        let told = bench.round();
        show(&bench, &told);
        marked(&told)
    });
    assert_eq!(further, [100, 50, 0, 0]);
}

/// The same after a process stood still: what the watch has delivered meanwhile is read after the clock has moved.
#[tokio::test(start_paused = true)]
async fn a_pause_of_the_process_counts_against_no_node() {
    let mut bench = Bench::new([node("one", "a")]);
    bench.round();
    bench.pass(5, |bench| bench.renew("kube-node-lease", "one")).await;
    tokio::time::advance(Duration::from_hours(1)).await;
    assert_eq!(bench.round(), [""; 0], "before anything is read");
    bench.renew("kube-system", "leader");
    assert_eq!(bench.round(), [""; 0], "before its own Lease is read");
    bench.renew("kube-node-lease", "one");
    assert_eq!(bench.round(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_tainted_while_the_view_is_not_known_to_be_current() {
    let mut lost = node("lost", "a");
    set(&mut lost, "Ready", "Unknown");
    let mut bench = Bench::new([lost, node("well", "a")]);
    tokio::time::advance(BOUND + Duration::from_secs(1)).await;
    assert_eq!(bench.round(), [""; 0]);
    bench.renew("kube-node-lease", "well");
    assert!(bench.round().contains(&"taints of lost".to_owned()));
}

/// The API server renews its Lease every 10.0 to 10.4 seconds, a replica its own every 9 to 11 seconds.
#[test]
fn silence_of_a_healthy_watch_counts_against_nodes() {
    let bound = |grace| super::super::silence_that_counts(Duration::from_secs(grace)).as_millis();
    assert_eq!([16, 20, 40, 44, 50, 120].map(bound), [8_000, 10_000, 11_000, 11_000, 12_500, 30_000]);
}

#[tokio::test(start_paused = true)]
async fn all_time_counts_while_the_api_server_renews_its_lease() {
    for grace in [22, 40, 44, 50] {
        let deliveries = Deliveries::new(super::super::silence_that_counts(Duration::from_secs(grace)));
        let heartbeats = Arc::new(Store::new(&HEARTBEATS));
        heartbeats.tell(&deliveries);
        let mut lease = Heartbeat::default();
        lease.metadata.namespace = "kube-system".into();
        lease.metadata.name = "apiserver".into();
        let renewals = 60;
        for _ in 0..renewals {
            tokio::time::advance(Duration::from_millis(10_400)).await;
            lease.spec.renew_time.seconds += 10;
            let object: AnyObject = Arc::new(lease.clone());
            heartbeats.upsert(&object);
        }
        assert_eq!(deliveries.covered().time, Duration::from_millis(10_400) * renewals, "grace {grace} s");
    }
}

#[tokio::test(start_paused = true)]
async fn round_that_turns_silent_tells_of_new_nodes_and_gives_tokens_back() {
    let mut lost = node("lost", "a");
    set(&mut lost, "Ready", "Unknown");
    let mut bench = Bench::new([lost, node("well", "a")]);
    bench.look();
    tokio::time::advance(BOUND + Duration::from_secs(1)).await;
    let plan = bench.plan();
    let told: Vec<String> = plan
        .steps
        .iter()
        .map(|step| match step {
            Step::Emit(event) => event.message.clone(),
            step => panic!("{step:?}"),
        })
        .collect();
    assert_eq!(
        told,
        [
            "Node lost event: Registered Node lost in Controller",
            "Node well event: Registered Node well in Controller"
        ]
    );
    bench.health.memory.commit(&Key::EMPTY, plan.note);
    bench.end();
    bench.renew("kube-node-lease", "well");
    assert_eq!(bench.round(), ["taints of lost"], "the token is there, and nothing is told twice");
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_said_to_be_unknown_with_all_that_it_says() {
    let mut silent = node("silent", "a");
    set(&mut silent, "DiskPressure", "Unknown");
    set(&mut silent, "NetworkUnavailable", "False");
    let mut bench = Bench::new([silent, node("well", "a")]);
    bench.round();
    for _ in 0..51 {
        tokio::time::advance(Duration::from_secs(1)).await;
        bench.renew("kube-node-lease", "well");
    }
    let look = bench.plan();
    bench.health.memory.commit(&Key::EMPTY, look.note);
    let plan = bench.plan();
    let writes: Vec<_> = plan.writes().collect();
    let [write] = writes.as_slice() else { panic!("{writes:?}") };
    let told = write.on_success.as_ref().expect("an event");
    assert_eq!(
        (told.reason, told.message.as_str()),
        ("NodeNotReady", "Node silent status is now: NodeNotReady")
    );
    let Verb::Patch(Patch::Strategic(patch)) = &write.verb else { panic!("{write}") };
    let stopped = |kind: &str| {
        json!({
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": "2023-11-14T22:13:20Z",
        })
    };
    let never = |kind: &str| {
        let mut never = stopped(kind);
        never["reason"] = "NodeStatusNeverUpdated".into();
        never["message"] = "Kubelet never posted node status.".into();
        never["lastHeartbeatTime"] = "1970-01-01T00:15:00Z".into();
        never
    };
    assert_eq!(
        *patch,
        json!({
            "metadata": { "uid": "silent-uid", "resourceVersion": "7" },
            "status": { "conditions": [stopped("Ready"), never("MemoryPressure"), never("PIDPressure")] },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_count_zones_and_who_was_tainted() {
    let mut lost = node("lost", "a");
    set(&mut lost, "Ready", "Unknown");
    let bench = Bench::new([lost, node("well", "a"), node("elsewhere", "b")]);
    bench.round();
    let families = bench.registry.gather();
    let value = |name: &str, zone: &str| {
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metrics = family.get_metric().iter();
        let mut of_zone = metrics.filter(|metric| metric.get_label()[0].value() == zone);
        let metric = of_zone.next().unwrap();
        if name.ends_with("_total") {
            metric.get_counter().get_value()
        } else {
            metric.get_gauge().get_value()
        }
    };
    let [a, b] = [":\0:a", ":\0:b"];
    for (name, in_a, in_b) in [
        ("node_collector_zone_size", 2.0, 1.0),
        ("node_collector_zone_health", 50.0, 100.0),
        ("node_collector_unhealthy_nodes_in_zone", 1.0, 0.0),
        ("node_collector_evictions_total", 1.0, 0.0),
    ] {
        let [found_a, found_b] = [value(name, a), value(name, b)];
        assert!((found_a - in_a).abs() < 0.1 && (found_b - in_b).abs() < 0.1, "{name}: {found_a} {found_b}");
    }
}

fn pod(ready: Option<&str>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = "web".into();
    pod.metadata.namespace = "ns".into();
    pod.metadata.uid = "web-uid".into();
    pod.spec.node_name = "lost".into();
    let ready = ready.map(|status| PodCondition {
        r#type: "Ready".into(),
        status: status.into(),
        ..PodCondition::default()
    });
    pod.status.conditions = ready.into_iter().collect();
    pod
}

/// The room of pods with one pod, on a node that says this; whether the node was looked at.
fn stranded(node_says: &str, pod_says: Option<&str>, is_looked_at: bool) -> (Bench, Pods) {
    let mut lost = node("lost", "a");
    set(&mut lost, "Ready", node_says);
    let bench = Bench::new([lost, node("well", "a")]);
    if is_looked_at {
        bench.round();
    }
    let store = Arc::new(Store::new(&PODS));
    let object: AnyObject = Arc::new(pod(pod_says));
    store.upsert(&object);
    let nodes = bench.health.nodes.clone();
    let room = Pods { lister: Lister::new(store), nodes, memory: Arc::clone(&bench.health.memory) };
    (bench, room)
}

/// The plan for the pod, if there is one, and why.
fn plan_of(room: &Pods) -> Option<(Plan, String)> {
    match room.observe(&Key::new("ns", "web"), &[], &Reads::default()).unwrap() {
        Observation::View(view) => {
            let reasons = Pods::reasons(&view, now()).join(" ");
            Some((Pods::plan(&view, now()), reasons))
        }
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_lost_are_said_to_be_not_ready() {
    for (node_says, pod_says, expected) in [
        ("Unknown", Some("True"), true),
        ("False", Some("True"), true),
        ("True", Some("True"), false),
        ("Unknown", Some("False"), false),
        ("Unknown", Some("Unknown"), true),
        ("Unknown", None, false),
    ] {
        let (_bench, room) = stranded(node_says, pod_says, true);
        let planned = plan_of(&room);
        assert_eq!(planned.is_some(), expected, "{node_says} {pod_says:?}");
        let Some((plan, reasons)) = planned else { continue };
        assert!(reasons.contains("the pod is marked as not ready"), "{reasons}");
        let write = plan.writes().next().unwrap();
        let told = write.on_success.as_ref();
        assert!(told.is_some_and(|event| event.warning && event.reason == "NodeNotReady"));
        let Verb::Patch(Patch::Strategic(patch)) = &write.verb else { panic!("{write}") };
        assert_eq!(patch["status"]["conditions"][0]["status"], "False");
        assert!(patch["status"]["conditions"][0].get("reason").is_none(), "reason and message stay");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_of_pods_before_their_node_was_looked_at_by_a_view_that_is_current() {
    let (mut bench, room) = stranded("Unknown", Some("True"), false);
    let waits = |room: &Pods| {
        let (plan, reasons) = plan_of(room).expect("it is looked at again");
        assert_eq!(plan.requeue_after.is_some(), plan.steps.is_empty(), "{reasons}");
        plan.requeue_after.is_some()
    };
    assert!(waits(&room), "nobody has looked");
    bench.round();
    assert!(!waits(&room));
    tokio::time::advance(BOUND + Duration::from_secs(1)).await;
    assert!(waits(&room), "nothing is delivered");
    bench.renew("kube-system", "leader");
    assert!(!waits(&room));
}

/// Something changes the pod faster than its watch shows, so the condition at the cached version is refused each time.
#[tokio::test(start_paused = true)]
async fn stranded_pod_is_read_live_after_three_conflicts() {
    let (_bench, room) = stranded("Unknown", Some("True"), true);
    let key = Key::new("ns", "web");
    let observe = |reads: Reads| room.observe(&key, &[], &reads);
    let Ok(Observation::Needs(needs)) = observe(Reads::default().contended()) else {
        panic!("it reads live")
    };
    assert_eq!(needs, [Read::Object(&PODS, key.clone())]);
    let live = |ready: &str, uid: &str| {
        let mut pod = pod(Some(ready));
        pod.metadata.uid = uid.into();
        pod.metadata.resource_version = "99".into();
        observe(Reads::default().contended().with_object(&PODS, key.clone(), Ok(Some(Arc::new(pod)))))
    };
    let Ok(Observation::View(view)) = live("True", "web-uid") else { panic!("it is still stranded") };
    let plan = Pods::plan(&view, now());
    let Verb::Patch(Patch::Strategic(patch)) = &plan.writes().next().unwrap().verb else {
        panic!("{plan:?}")
    };
    assert_eq!(patch["metadata"]["resourceVersion"], "99");
    assert!(matches!(live("False", "web-uid"), Ok(Observation::Nothing)), "its condition is False by now");
    assert!(matches!(live("True", "another"), Ok(Observation::Nothing)));
}

fn queued(keys: &KeyMap, old: Option<&AnyObject>, new: Option<&AnyObject>) -> usize {
    let mut count = 0;
    keys(Delta { old, new, initial: false, resync: false }, &mut |_| count += 1);
    count
}

#[test]
fn pods_are_looked_at_when_they_are_bound_and_when_we_have_marked_their_node() {
    let object = |pod: Pod| -> AnyObject { Arc::new(pod) };
    let mut unbound = pod(None);
    unbound.spec.node_name = "".into();
    let (unbound, bound, ready) = (object(unbound), object(pod(None)), object(pod(Some("True"))));
    let keys = of_pods();
    assert_eq!(queued(&keys, Some(&unbound), Some(&bound)), 1);
    assert_eq!(queued(&keys, None, Some(&bound)), 1);
    assert_eq!(queued(&keys, None, Some(&unbound)), 0);
    assert_eq!(queued(&keys, Some(&bound), Some(&ready)), 0);
    assert_eq!(queued(&keys, Some(&bound), None), 0);
    let store = Arc::new(Store::new(&PODS));
    store.upsert(&bound);
    let keys = of_nodes(Indexed::new(&store, &BY_NODE));
    let says = |status: &str, reason: &str| -> AnyObject {
        let mut node = node("lost", "a");
        set(&mut node, "Ready", status);
        node.status.conditions[0].reason = reason.into();
        Arc::new(node)
    };
    let ours = "NodeStatusUnknown";
    for (old, new, reason, count) in [
        ("True", "Unknown", ours, 1),
        ("True", "Unknown", "SaysTheKubelet", 0),
        ("True", "False", "", 0),
        ("False", "Unknown", ours, 0),
        ("Unknown", "True", "", 0),
    ] {
        assert_eq!(
            queued(&keys, Some(&says(old, "")), Some(&says(new, reason))),
            count,
            "{old} {new} {reason}"
        );
    }
}
