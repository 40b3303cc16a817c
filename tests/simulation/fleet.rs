//! A large cluster in virtual time: 1,000 nodes with 10,000 pods outlast an API server that is away for two minutes; then they
//! lose a zone, and most of another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use coxswain_machinery::environment::Environment;

use crate::actors;
use crate::faults::Faults;
use crate::invariants::TaintRate;
use crate::managers::manager;
use crate::run::{EPOCH, in_virtual_time};
use crate::server::Server;
use crate::trace::Trace;
use apiserver_model::{items, text};

const NODES: usize = 1000;
const ZONES: usize = 10;
const PODS_ON_EACH: usize = 10;
/// Nodes of the second zone that are lost: more than the 55 % from which on a zone is partially disrupted, and not all.
const LOST_OF_SECOND: usize = 60;
/// How often a kubelet renews its Lease, in seconds: half as often as it does by default, for each costs the model its time.
const RENEW: u64 = 20;
/// For how long a node may be silent, by default.
const GRACE: i64 = 50;
const PRIMARY: f64 = 5.0;
const SECONDARY: f64 = 2.0;
/// For how many seconds pods tolerate that their node is not reachable, by their numbers on the node; `None`: for ever.
const TOLERATIONS: [Option<i64>; PODS_ON_EACH] =
    [Some(0), Some(0), Some(0), Some(0), Some(0), Some(0), Some(20), Some(20), Some(60), None];
const FLAGS: &[&str] = &[
    "--leader-elect=false",
    // Two controllers watch everything, also 50 Leases a second. The third would publish an empty bundle: there is no CA here.
    "--controllers=*,-garbage-collector-controller,-resourcequota-controller,-root-ca-certificate-publisher-controller",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
    "--node-eviction-rate=5",
    "--secondary-node-eviction-rate=2",
];

/// Which nodes live, and whether they reach the API server.
#[derive(Default)]
struct World {
    lost: BTreeSet<usize>,
    is_cut_off: bool,
}

fn name(number: usize) -> String {
    format!("node-{number:04}")
}

fn zone(number: usize) -> String {
    format!("zone-{}", number % ZONES)
}

/// The nodes of a zone.
fn nodes_of(zone: usize) -> impl Iterator<Item = usize> {
    (zone..NODES).step_by(ZONES)
}

/// Everything that there is at the beginning.
fn populate(server: &Server) {
    let now = server.now().to_string();
    for number in 0..NODES {
        actors::add_to(server, &name(number), &zone(number));
        for (at, seconds) in TOLERATIONS.iter().enumerate() {
            let mut toleration = json!({ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" });
            if let Some(seconds) = seconds {
                toleration["tolerationSeconds"] = json!(seconds);
            }
            let pod = json!({
                "metadata": { "name": format!("{}-{at}", name(number)) },
                "spec": {
                    "nodeName": name(number),
                    "containers": [{ "name": "main", "image": "main" }],
                    "tolerations": [toleration],
                },
            });
            server.with(|model| {
                let pod = model.create("user", "pods", "default", pod).expect("a pod");
                drop(actors::change(model, &pod.place, "status", |pod| {
                    pod["status"]["phase"] = json!("Running");
                    actors::make_ready(pod, true, &now);
                }));
            });
        }
    }
}

/// Kubelets that renew their Leases, each in its own second of twenty, for ever.
async fn kubelets(server: Arc<Server>, world: Arc<Mutex<World>>) {
    for second in 0_u64.. {
        sleep(Duration::from_secs(1)).await;
        for number in 0..NODES {
            let lives = {
                let world = world.lock();
                !world.is_cut_off && !world.lost.contains(&number)
            };
            if lives && number as u64 % RENEW == second % RENEW {
                actors::renew(&server, &name(number));
            }
        }
    }
}

/// From now on these nodes are silent, each from its last renewal on, which is now.
fn lose(server: &Server, world: &Mutex<World>, lost: impl Iterator<Item = usize>) -> Timestamp {
    for number in lost {
        actors::renew(server, &name(number));
        world.lock().lost.insert(number);
    }
    server.now()
}

/// Goes on until this is true, which must be within so long.
pub(crate) async fn until(server: &Server, within: Duration, what: &str, is_true: impl Fn(&Server) -> bool) {
    let began = Instant::now();
    while !is_true(server) {
        assert!(began.elapsed() < within, "{what} is not so within {within:?}");
        sleep(Duration::from_secs(5)).await;
    }
}

/// Seconds from `lost` to when each of these nodes was tainted so that pods leave it, in order.
fn tainted(server: &Server, lost: Timestamp, among: impl Iterator<Item = usize>) -> Vec<i64> {
    let of = |node: &Json| -> Option<Timestamp> {
        let is_it = |taint: &&Json| {
            text(taint, "/key") == "node.kubernetes.io/unreachable" && taint["effect"] == "NoExecute"
        };
        let taint = items(node, "/spec/taints").iter().find(is_it)?;
        Some(text(taint, "/timeAdded").parse().expect("a time"))
    };
    let mut times: Vec<i64> = server.with(|model| {
        among
            .filter_map(|number| of(model.look("nodes", "", &name(number))))
            .map(|at| at.duration_since(lost).as_secs())
            .collect()
    });
    times.sort_unstable();
    times
}

/// Waits until so many nodes of a zone are tainted, which must be so many a second; after how many seconds it began.
async fn tainted_at_rate(server: &Server, lost: Timestamp, zone: usize, count: usize, rate: f64) -> i64 {
    until(server, Duration::from_mins(3), &format!("{} is tainted", self::zone(zone)), |server| {
        tainted(server, lost, nodes_of(zone)).len() == count
    })
    .await;
    let times = tainted(server, lost, nodes_of(zone));
    let took = times[count - 1] - times[0];
    let least = ((count - 1) as f64 / rate) as i64;
    assert!((least - 1..=least + 6).contains(&took), "{count} nodes at {rate} a second take {took} s");
    times[0]
}

/// Pods that were deleted, by their names, and when.
fn evicted(server: &Server) -> BTreeMap<String, Timestamp> {
    server.with(|model| {
        let pods = model.all("pods", "").filter_map(|pod| {
            let ends: Timestamp = text(&pod.json, "/metadata/deletionTimestamp").parse().ok()?;
            let grace = pod.json["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            Some((pod.place.name.clone(), ends - SignedDuration::from_secs(grace)))
        });
        pods.collect()
    })
}

/// What managers have written to nodes and pods, by who did it.
fn written(server: &Server) -> BTreeMap<String, u64> {
    let of_fleet = |(what, _): &(String, u64)| what.ends_with(" nodes") || what.ends_with(" pods");
    server.counts().by_agent.into_iter().filter(of_fleet).collect()
}

async fn story(server: &Arc<Server>, world: &Mutex<World>) {
    sleep(Duration::from_mins(1)).await;
    let all = server.with(|model| (model.all("nodes", "").count(), model.all("pods", "").count()));
    assert_eq!(all, (NODES, NODES * PODS_ON_EACH));
    let before = written(server);

    // Nobody reaches the API server, kubelets neither.
    world.lock().is_cut_off = true;
    server.faults(|faults, model| {
        faults.away(Instant::now() + Duration::from_mins(2));
        model.cut(None);
    });
    sleep(Duration::from_mins(2)).await;
    world.lock().is_cut_off = false;
    sleep(Duration::from_secs(90)).await;
    assert_eq!(written(server), before, "nobody is to blame for an outage");
    assert_eq!(evicted(server), BTreeMap::new());

    // A zone is lost as a whole.
    let lost = NODES / ZONES;
    let first = lose(server, world, nodes_of(0));
    let began = tainted_at_rate(server, first, 0, lost, PRIMARY).await;
    assert!((GRACE..=GRACE + 15).contains(&began), "the first is tainted after {began} s");

    // Most of another is: that is less likely to be true.
    let second = lose(server, world, nodes_of(1).take(LOST_OF_SECOND));
    tainted_at_rate(server, second, 1, LOST_OF_SECOND, SECONDARY).await;

    // Who tolerates it for a time has gone after it, and nobody else.
    let gone_of_each = TOLERATIONS.iter().filter(|seconds| seconds.is_some()).count();
    let expected = (lost + LOST_OF_SECOND) * gone_of_each;
    until(server, Duration::from_mins(2), "all pods have gone", |server| evicted(server).len() == expected)
        .await;
    sleep(Duration::from_mins(1)).await;
    let gone = evicted(server);
    assert_eq!(gone.len(), expected);
    for number in nodes_of(0).chain(nodes_of(1).take(LOST_OF_SECOND)) {
        let at = Timestamp::from_second(0).expect("a time");
        let added = tainted(server, at, std::iter::once(number));
        for (place, seconds) in TOLERATIONS.iter().enumerate() {
            let pod = format!("{}-{place}", name(number));
            let Some(seconds) = seconds else {
                assert!(!gone.contains_key(&pod), "{pod} tolerates it for ever");
                continue;
            };
            let stayed = gone[&pod].as_second() - added[0];
            // Both times are whole seconds.
            assert!(
                (*seconds - 1..=seconds + 5).contains(&stayed),
                "{pod} stayed for {stayed} s of {seconds}"
            );
        }
    }
}

#[test]
fn a_large_cluster_outlasts_an_outage_and_loses_a_zone_at_the_rates_of_the_flags() {
    in_virtual_time(1, || async {
        let epoch = Timestamp::from_second(EPOCH).expect("a time");
        let server = Server::new(epoch, 1, Faults::outages(), Trace::new(false), None);
        let of_zones = BTreeMap::from([("zone-1".to_owned(), SECONDARY)]);
        server.checks(|checks| checks.rate(TaintRate { per_second: PRIMARY, of_zones, jitter: 0.5 }));
        populate(&server);
        let world = Arc::<Mutex<World>>::default();
        let alive = CancellationToken::new();
        let environment =
            Environment::simulated(server.now(), server.service(1, alive.clone(), &Arc::default()));
        tokio::select! {
            biased;
            () = server.violated.cancelled() => {}
            () = story(&server, &world) => {}
            ended = manager(FLAGS, CancellationToken::new(), environment) => panic!("the manager has ended: {ended:?}"),
            () = kubelets(Arc::clone(&server), Arc::clone(&world)) => {}
            () = actors::bookmarks(Arc::clone(&server)) => {}
        }
        let (violations, ..) = server.finish();
        assert!(violations.is_empty(), "{violations:#?}");
    });
}
