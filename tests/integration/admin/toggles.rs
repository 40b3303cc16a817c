//! Controllers disabled and enabled while there is work: what stops, what goes on, and what is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use coxswain::admin::proto::Phase;
use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::{
    Admin, DEPLOYMENT, LIMIT, REPLICA_SET, WATCH_DEPLOYMENTS, all_run, assert_unharmed, bare, built,
};
use crate::harness::{
    AuditEvent, Caller, Cluster, ControlPlane, Manager, Namespace, Options, Status, by_depth, turn, until,
};

const ACCOUNT: &str = "system:serviceaccount:kube-system:deployment-controller";
/// Within which a disabled controller writes its last.
const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(1);
/// Changes go on for this long after the answer, so that there is something not to be done.
const AFTERMATH: Duration = Duration::from_secs(3);
/// What the Deployment controller watches and others too.
const SHARED: [&str; 2] = ["replicasets", "pods"];
/// Long enough for many changes, short enough for the controllers not to keep up with all of them.
const PACE: Duration = Duration::from_millis(100);

const WARM_UP: usize = 50;
const SEED: u64 = 17;
/// What the flags allow by default would be the pace of the toggles, not what the manager bears.
const UNTHROTTLED: &[&str] = &["--kube-api-qps=500", "--kube-api-burst=1000"];

fn options() -> Options {
    Options { nodes: 5, args: vec!["--audit"] }
}

/// Deployments whose image changes without a pause.
struct Rollouts<'a> {
    namespace: &'a Namespace,
    names: Vec<String>,
    replicas: i32,
}

impl<'a> Rollouts<'a> {
    async fn begin(namespace: &'a Namespace, count: usize, replicas: i32) -> Self {
        let names: Vec<_> = (0..count).map(|at| format!("web-{at}")).collect();
        for name in &names {
            namespace.deployment(name, replicas, json!({})).await;
        }
        Self { namespace, names, replicas }
    }

    /// Rolls one after the other until `work` is done.
    async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let roll = async {
            let mut pace = interval(PACE);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for round in 0_usize.. {
                for name in &self.names {
                    pace.tick().await;
                    self.namespace.set_image(name, &format!("nginx:{}", round % 3)).await;
                }
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            () = roll => unreachable!("it has no end"),
        }
    }

    /// Rolls all to a last image, and waits until nothing is left to do and nothing is left over.
    async fn finish(&self, image: &str) {
        for name in &self.names {
            self.namespace.set_image(name, image).await;
        }
        let observe = || async { self.left_to_do(image).await };
        until("all rollouts to end", LIMIT * 2, observe, Vec::is_empty).await;
        self.assert_no_duplicates().await;
    }

    /// What is not as it should be.
    async fn left_to_do(&self, image: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for name in &self.names {
            let deployment = self.namespace.get_deployment(name).await;
            let status = deployment.status.unwrap_or_default();
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            let seen = status.observed_generation == deployment.metadata.generation;
            if !seen || counts != [Some(self.replicas); 3] {
                wrong.push(format!("{name}: {counts:?}"));
            }
        }
        let pods = self.namespace.pods().await;
        let is_right = |pod: &&Pod| {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            pod.metadata.deletion_timestamp.is_none()
                && containers.into_iter().all(|container| container.image.as_deref() == Some(image))
        };
        let right = pods.iter().filter(is_right).count();
        let expected = self.names.len() * self.replicas as usize;
        if (pods.len(), right) != (expected, expected) {
            wrong.push(format!("{right} of {} pods are right, {expected} should be", pods.len()));
        }
        wrong
    }

    /// Each template has one replica set, and of these one has pods.
    async fn assert_no_duplicates(&self) {
        let sets = self.namespace.replica_sets().await;
        let mut images = BTreeSet::new();
        let mut wanted: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for set in sets.values() {
            let owner = set.metadata.owner_references.as_ref().expect("an owner")[0].name.as_str();
            assert!(images.insert((owner, image_of(set))), "{owner} has two replica sets of one template");
            let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
            wanted.entry(owner).or_default().extend((replicas > 0).then_some(replicas));
        }
        assert_eq!(wanted.len(), self.names.len(), "{wanted:?}");
        assert!(wanted.values().all(|each| *each == [self.replicas]), "{wanted:?}");
        for name in &self.names {
            let status = self.namespace.get_deployment(name).await.status.unwrap_or_default();
            assert_eq!(status.collision_count, None, "{name} made a replica set that was there");
        }
    }
}

fn image_of(set: &ReplicaSet) -> Option<&str> {
    let template = set.spec.as_ref()?.template.as_ref()?;
    template.spec.as_ref()?.containers.first()?.image.as_deref()
}

/// When each write of the Deployment controller was received.
fn writes(plane: &ControlPlane) -> Vec<Timestamp> {
    let audit = plane.audit();
    let own = audit.iter().filter(|event| event.is_write() && event.user.username == ACCOUNT);
    own.map(|event| event.request_received_timestamp).collect()
}

/// The series of a gauge that every running informer has.
async fn informers(manager: &Manager<'_>) -> BTreeSet<String> {
    let page = manager.page(Caller::Admin, "/metrics").await;
    let series = page.text.lines().filter_map(|line| line.strip_prefix("coxswain_informer_objects{"));
    series.filter_map(|rest| Some(rest.rsplit_once('}')?.0.to_owned())).collect()
}

fn watches(informers: &BTreeSet<String>, resource: &str) -> bool {
    informers.iter().any(|series| series.contains(&format!("resource=\"{resource}\"")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_controller_is_silent_and_catches_up_when_it_is_enabled() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&options());
    let manager = plane.coxswain("coxswain", &[]);
    let admin = Admin::master(&plane, &manager);
    all_run(&admin).await;
    // They would keep what the others let go.
    for name in WATCH_DEPLOYMENTS {
        admin.toggle(name, false, true).await.expect("disabled");
    }
    let namespace = plane.cluster().await.namespace("silent").await;
    let rollouts = Rollouts::begin(&namespace, 4, 4).await;
    let before = informers(&manager).await;
    assert!(watches(&before, "deployments") && watches(&before, "replicasets"), "{before:?}");
    let other_before = admin.controller(REPLICA_SET).await;
    let listed = lists(&plane, SHARED);
    assert!(listed.iter().all(|count| *count > 0), "{listed:?}");

    let answered = rollouts
        .during(async {
            until("writes", LIMIT, || async { writes(&plane).len() }, |writes| *writes > 20).await;
            let written = writes(&plane).len();
            until("more writes", LIMIT, || async { writes(&plane).len() }, |now| *now > written).await;
            admin.toggle(DEPLOYMENT, false, false).await.expect("disabled");
            let answered = SystemClock.now();
            // It is time that has to pass: what must not happen has until then to happen.
            sleep(AFTERMATH).await;
            answered
        })
        .await;
    let last = writes(&plane).into_iter().max().expect("it wrote before");
    let lag = last.duration_since(answered);
    eprintln!("the last write came {lag:#} after the answer");
    assert!(lag < SILENT_AFTER, "a write {lag} after the answer");

    // What only it watched is let go; what others watch is not begun anew.
    let stopped = admin.controller(DEPLOYMENT).await;
    assert_eq!((stopped.phase(), stopped.watched_resources.len()), (Phase::Disabled, 0), "{stopped:?}");
    let now = informers(&manager).await;
    let gone: Vec<_> = before.difference(&now).collect();
    assert!(gone.len() == 1 && gone[0].contains("resource=\"deployments\""), "{gone:?}");
    assert_eq!(lists(&plane, SHARED), listed, "what others watch was read anew");

    // The others work on.
    let bare = json!({
        "metadata": { "name": "bare" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "bare" } },
            "template": {
                "metadata": { "labels": { "app": "bare" } },
                "spec": { "containers": [{ "name": "web", "image": "nginx" }] },
            },
        },
    });
    namespace.create::<ReplicaSet>(bare).await;
    let sets = namespace.api::<ReplicaSet>();
    let ready =
        || async { sets.get("bare").await.expect("it").status.and_then(|status| status.ready_replicas) };
    until("two pods", LIMIT, ready, |ready| *ready == Some(2)).await;
    for other in built().into_iter().filter(|name| *name != DEPLOYMENT && !WATCH_DEPLOYMENTS.contains(name)) {
        let other = admin.controller(other).await;
        assert_eq!((other.phase(), other.restarts), (Phase::Running, 0), "{other:?}");
    }
    let other = admin.controller(REPLICA_SET).await;
    assert_eq!(other.phase_time, other_before.phase_time, "it was started anew");
    assert!(other.syncs > other_before.syncs, "{other:?}");
    sets.delete("bare", &kube::api::DeleteParams::default()).await.expect("deleted");
    // No garbage is collected.
    let own = kube::api::ListParams::default().labels("app=bare");
    namespace
        .api::<Pod>()
        .delete_collection(&kube::api::DeleteParams::default(), &own)
        .await
        .expect("deleted");

    admin.toggle(DEPLOYMENT, true, true).await.expect("enabled");
    rollouts.finish("nginx:last").await;
    assert_eq!(informers(&manager).await, before);
    assert_unharmed(&plane, &manager);
}

/// How often each resource was read from the beginning, by the API server's account: an informer that was made anew counts
/// from zero.
fn lists<const N: usize>(plane: &ControlPlane, resources: [&str; N]) -> [usize; N] {
    let audit = plane.audit();
    let begins = |event: &&AuditEvent| {
        event.coxswain().is_some()
            && (event.verb == "list" || event.verb == "watch" && event.uri.contains("sendInitialEvents=true"))
    };
    resources.map(|resource| {
        let of = |event: &&AuditEvent| {
            event.object_ref.resource == resource && event.object_ref.namespace.is_empty()
        };
        audit.iter().filter(begins).filter(of).count()
    })
}

/// What a leak would make grow.
#[derive(Clone, Debug)]
struct Footprint {
    informers: BTreeSet<String>,
    tasks: f64,
    watches: f64,
    threads: u64,
    files: usize,
    resident: u64,
}

impl Footprint {
    async fn of(cluster: &Cluster, manager: &Manager<'_>) -> Self {
        let status = Status::of(manager.pid);
        let page = manager.page(Caller::Admin, "/metrics").await;
        Self {
            informers: informers(manager).await,
            tasks: page
                .metric("coxswain_runtime_alive_tasks{runtime=\"manager\"}")
                .expect("the number of tasks"),
            watches: server_watches(cluster).await,
            threads: status.field("Threads:"),
            files: fs::read_dir(format!("/proc/{}/fd", manager.pid)).expect("its files").count(),
            resident: status.field("VmRSS:"),
        }
    }

    /// Whether it is no more than `before`, but for the connection by which it was looked at, and for what memory
    /// allocators keep.
    fn is_within(&self, before: &Self) -> bool {
        self.informers == before.informers
            && self.tasks <= before.tasks + 4.0
            && self.watches <= before.watches
            && self.threads <= before.threads + 2
            && self.files <= before.files + 4
            && self.resident * 4 <= before.resident * 5
    }
}

/// Watches that the API server has open, whoever opened them.
async fn server_watches(cluster: &Cluster) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = cluster.client.request_text(request).await.expect("metrics");
    let of_watches = text.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{") && line.contains("verb=\"WATCH\"")
    });
    of_watches.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// Flips controllers by chance, most of them without waiting for anything.
async fn toggle(admin: &Admin, dice: &mut StdRng, times: usize) {
    let names = built();
    let mut took = Vec::new();
    let mut enabled: BTreeMap<_, bool> = names.iter().map(|name| (*name, true)).collect();
    for at in 0..times {
        let name = names[dice.random_range(0..names.len())];
        let now = enabled.get_mut(name).expect("one of them");
        *now = !*now;
        let wait = dice.random_ratio(1, 20);
        let began = Instant::now();
        let done = admin.toggle(name, *now, wait).await;
        if !wait {
            took.push(began.elapsed());
        }
        done.unwrap_or_else(|status| panic!("toggle {at}, {name} to {now}: {status:?}"));
        sleep(Duration::from_millis(dice.random_range(0..30))).await;
    }
    took.sort();
    eprintln!("half of the toggles that did not wait took less than {:?}", took[took.len() / 2]);
    for (name, _) in enabled.into_iter().filter(|(_, enabled)| !enabled) {
        admin.toggle(name, true, false).await.expect("enabled");
    }
    all_run(admin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_toggles_leave_nothing_behind() {
    let toggles = by_depth(200, 500);
    let _turn = turn().await;
    let plane = ControlPlane::start(&options());
    let manager = plane.coxswain("coxswain", UNTHROTTLED);
    let admin = Admin::master(&plane, &manager);
    all_run(&admin).await;
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("toggled").await;
    let rollouts = Rollouts::begin(&namespace, 5, 4).await;
    let mut dice = StdRng::seed_from_u64(SEED);

    rollouts.during(toggle(&admin, &mut dice, WARM_UP)).await;
    rollouts.finish("nginx:warm").await;
    let before = Footprint::of(&cluster, &manager).await;
    eprintln!("before: {before:?}");

    let began = SystemClock.now();
    rollouts.during(toggle(&admin, &mut dice, toggles)).await;
    eprintln!("{toggles} toggles in {:#}", SystemClock.now().duration_since(began));
    // Namespaces that came meanwhile have what they need, too.
    let young = cluster.namespace("young").await;
    rollouts.finish("nginx:cold").await;
    let accounts = young.api::<ServiceAccount>();
    let bundles = young.api::<ConfigMap>();
    let furnished = || async {
        let (account, bundle) =
            (accounts.get_opt("default").await, bundles.get_opt("kube-root-ca.crt").await);
        matches!((account, bundle), (Ok(Some(_)), Ok(Some(_))))
    };
    until("a namespace to be furnished", LIMIT, furnished, |done| *done).await;

    let observe = || Footprint::of(&cluster, &manager);
    let after = until("nothing to be left behind", LIMIT, observe, |now| now.is_within(&before)).await;
    eprintln!("after: {after:?}");
    for each in admin.list(&built()).await {
        assert_eq!(each.restarts, 0, "{each:?}");
    }
    // Not all of it may have passed faster than anything could follow.
    let starts = manager.log().matches("\"Controller started\" controller=").count();
    eprintln!("controllers were started {starts} times");
    assert!(starts > toggles / 4, "started {starts} times only");
    assert_unharmed(&plane, &manager);
}

/// Toggles while a Deployment comes up.
const INTERRUPTIONS: usize = 24;
const PODS: usize = 400;
/// Slow enough for the Deployment to take as long as the toggles do, and little enough time to stop in for writes to be cut off.
const INTERRUPTED: &[&str] =
    &["--kube-api-qps=40", "--kube-api-burst=40", "--controller-shutdown-timeout=200ms"];

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_toggled_makes_no_pod_twice() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let manager = plane.coxswain("coxswain", INTERRUPTED);
    let admin = Admin::master(&plane, &manager);
    all_run(&admin).await;
    let namespace = plane.cluster().await.namespace("interrupted").await;
    namespace.default_account().await;
    let mut dice = StdRng::seed_from_u64(SEED);
    namespace.deployment("web", PODS as i32, json!({})).await;
    let made = || async { made_pods(&plane, &namespace) };
    until("the first pods", LIMIT, made, |made| *made > 0).await;
    for _ in 0..INTERRUPTIONS {
        admin.toggle(REPLICA_SET, false, true).await.expect("disabled");
        admin.toggle(REPLICA_SET, true, true).await.expect("enabled");
        sleep(Duration::from_millis(dice.random_range(0..1000))).await;
    }
    let during = made_pods(&plane, &namespace);
    eprintln!("{during} pods were made by the end of the toggles");
    assert!(during > PODS / 20, "the toggles were too quick for anything to happen in between");

    let counted = || async {
        let sets = namespace.replica_sets().await;
        sets.values().filter_map(|set| set.status.as_ref().map(|status| status.replicas)).sum::<i32>()
    };
    until("all pods to be counted", LIMIT * 2, counted, |count| *count == PODS as i32).await;
    // It is time that has to pass: what must not happen has until then to happen.
    sleep(AFTERMATH).await;
    let pods = namespace.pods().await;
    assert!(pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none()));
    // None was ever deleted, so that those which are there are all that ever were.
    let deletes =
        plane.audit().iter().filter(|event| event.is_tried_by_us("delete", "pods", &namespace.name)).count();
    assert_eq!([pods.len(), deletes], [PODS, 0], "pods and deletes");
    assert_unharmed(&plane, &manager);
}

/// How many pods Coxswain has created, and was told so.
fn made_pods(plane: &ControlPlane, namespace: &Namespace) -> usize {
    plane.audit().iter().filter(|event| event.is_done_by_us("create", "pods", &namespace.name)).count()
}
