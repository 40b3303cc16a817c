//! What a decision costs: observing and planning one key, by the number of pods that it rests on.

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::api::core::{Node, Service, ServicePort};
use coxswain_machinery::api::kinds::{self, PODS, REPLICA_SETS, RESOURCE_QUOTAS, SERVICES};
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::{Pod, PodCondition, PodIp};
use coxswain_machinery::api::quota::ResourceQuota;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::framework::{Loop, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::options::Config;
use coxswain_machinery::wire::{IntOrString, Labels, Time};
use jiff::Timestamp;

const SIZES: [usize; 3] = [10, 1000, 5000];
/// Pods where instructions are counted.
const COUNTED: usize = 1000;
const NODES: usize = 100;
const NOW: i64 = 1_750_100_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).expect("a time")
}

/// A controller by itself.
struct Room {
    rig: Rig,
    work: Loop,
    key: Key,
}

impl Room {
    fn new(controller: &str, rig: Rig, key: Key) -> Self {
        let descriptor = REGISTRY.iter().find(|each| each.name == controller).expect("it is registered");
        let built = rig.build(descriptor.build.expect("it is built")).expect("it builds");
        let work = built.loops.into_iter().next().expect("a loop");
        Self { rig, work, key }
    }

    /// Carries out whatever there is to do, which is so many writes; then `change` makes one more.
    fn settled(self, writes: usize, change: impl FnOnce(&Rig)) -> Self {
        let room = self.work.reconcile.as_ref();
        let settle = || self.rig.settle(room, &self.key, now()).expect("it settles");
        assert_eq!(settle(), writes);
        change(&self.rig);
        let plan = self.rig.plan(room, &self.key, now()).expect("it plans").expect("it is there");
        assert_eq!(plan.steps.len(), 1, "what is measured writes once: {plan:?}");
        self
    }

    fn plan(&self) -> impl Sized {
        self.work.reconcile.plan(&self.key, &[], &Reads::default(), now())
    }
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "1".into(),
        generation: 1,
        creation_timestamp: Time::from_seconds(NOW - 5000),
        ..ObjectMeta::default()
    }
}

fn labels() -> Labels {
    [("app", "web")].into_iter().collect()
}

fn pod(at: usize, ready: bool) -> Pod {
    let mut pod = Pod { metadata: meta(&format!("web-{at:05}")), ..Pod::default() };
    pod.metadata.labels = labels();
    pod.metadata.owner_references = vec![OwnerReference {
        kind: "ReplicaSet".into(),
        name: "web".into(),
        uid: "web-uid".into(),
        api_version: "apps/v1".into(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }];
    pod.spec.node_name = format!("node-{}", at % NODES).into();
    pod.status.phase = "Running".into();
    pod.status.pod_ips = vec![PodIp { ip: format!("10.{}.{}.7", at / 250, at % 250).into() }];
    pod.status.conditions = vec![PodCondition {
        r#type: "Ready".into(),
        status: if ready { "True" } else { "False" }.into(),
        last_transition_time: Time::from_seconds(NOW - 1000),
        ..PodCondition::default()
    }];
    pod
}

fn with_pods(pods: usize) -> Rig {
    let rig = Rig::new(Config::default());
    for at in 0..NODES {
        let metadata = ObjectMeta { namespace: "".into(), ..meta(&format!("node-{at}")) };
        rig.add(&kinds::NODES, &Node { metadata, ..Node::default() }).expect("a node");
    }
    for at in 0..pods {
        rig.add(&PODS, &pod(at, true)).expect("a pod");
    }
    rig
}

/// A Service with so many pods.
fn with_service(pods: usize) -> Rig {
    let rig = with_pods(pods);
    let mut service = Service { metadata: meta("web"), ..Service::default() };
    service.spec.selector = labels();
    service.spec.cluster_ip = "10.96.0.1".into();
    service.spec.r#type = "ClusterIP".into();
    service.spec.ip_families = vec!["IPv4".into()];
    service.spec.ports = vec![ServicePort {
        protocol: "TCP".into(),
        port: 80,
        target_port: Some(IntOrString::Int(8080)),
        ..ServicePort::default()
    }];
    rig.add(&SERVICES, &service).expect("a service");
    rig
}

/// A Service whose slices show all its pods, of which one has just turned unready.
fn service(pods: usize) -> Room {
    let room = Room::new("endpointslice-controller", with_service(pods), Key::new("default", "web"));
    room.settled(pods.div_ceil(100), |rig| rig.add(&PODS, &pod(pods / 2, false)).expect("a pod"))
}

/// A Service whose Endpoints show the first thousand of its pods, of which one has just turned unready.
fn endpoints(pods: usize) -> Room {
    let room = Room::new("endpoints-controller", with_service(pods), Key::new("default", "web"));
    room.settled(1, |rig| rig.add(&PODS, &pod(0, false)).expect("a pod"))
}

/// A quota for all pods of a namespace, of which one has just come to its end.
fn quota(pods: usize) -> Room {
    let rig = with_pods(pods);
    let mut quota = ResourceQuota { metadata: meta("quota"), ..ResourceQuota::default() };
    quota.spec.hard = [("pods", "10k"), ("requests.cpu", "1k")].into_iter().collect();
    rig.add(&RESOURCE_QUOTAS, &quota).expect("a quota");
    let room = Room::new("resourcequota-controller", rig, Key::new("default", "quota"));
    room.settled(1, |rig| {
        let mut done = pod(pods / 2, false);
        done.status.phase = "Succeeded".into();
        rig.add(&PODS, &done).expect("a pod");
    })
}

/// A ReplicaSet with all its pods, of which one has just turned unready.
fn replica_set(pods: usize) -> Room {
    let rig = with_pods(pods);
    let mut set = coxswain_machinery::api::apps::ReplicaSet { metadata: meta("web"), ..Default::default() };
    set.spec.replicas = Some(i32::try_from(pods).expect("few"));
    set.spec.selector.match_labels = labels();
    rig.add(&REPLICA_SETS, &set).expect("a ReplicaSet");
    let room = Room::new("replicaset-controller", rig, Key::new("default", "web"));
    room.settled(1, |rig| rig.add(&PODS, &pod(pods / 2, false)).expect("a pod"))
}

/// A Service's flip, again and again.
pub(crate) fn endpointslice_plans() -> impl FnMut() {
    let room = service(COUNTED);
    move || drop(divan::black_box(room.plan()))
}

/// A ReplicaSet's flip, again and again.
pub(crate) fn replicaset_plans() -> impl FnMut() {
    let room = replica_set(COUNTED);
    move || drop(divan::black_box(room.plan()))
}

#[divan::bench(args = SIZES)]
fn endpointslice_flip(bencher: divan::Bencher<'_, '_>, pods: usize) {
    let room = service(pods);
    bencher.bench_local(|| room.plan());
}

#[divan::bench(args = SIZES)]
fn replicaset_flip(bencher: divan::Bencher<'_, '_>, pods: usize) {
    let room = replica_set(pods);
    bencher.bench_local(|| room.plan());
}

#[divan::bench(args = SIZES)]
fn endpoints_flip(bencher: divan::Bencher<'_, '_>, pods: usize) {
    let room = endpoints(pods);
    bencher.bench_local(|| room.plan());
}

#[divan::bench(args = SIZES)]
fn resourcequota_change(bencher: divan::Bencher<'_, '_>, pods: usize) {
    let room = quota(pods);
    bencher.bench_local(|| room.plan());
}
