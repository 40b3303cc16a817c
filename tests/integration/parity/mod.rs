//! Parity: the same scenarios under Coxswain and under the Go manager have the same outcomes.
//!
//! A scenario is a file in `tests/parity/CONTROLLER/`; its outcome under the Go manager is recorded in
//! `tests/parity/outcomes/CONTROLLER/`. These tests play every scenario under Coxswain and compare. With
//! `COXSWAIN_PARITY_RECORD=TIMES` (`make parity-record`) they play every scenario so many times under the Go manager instead,
//! and write what came out each time. `COXSWAIN_PARITY=TEXT` keeps to the scenarios with TEXT in their names.
//!
//! | module | what |
//! |---|---|
//! | [`shards`] | which scenarios play together, and which controllers run there |
//! | [`scenario`] | the format of a scenario |
//! | [`play`] | performing its steps, and when to look |
//! | [`wire`] | writing objects with strings that are not valid UTF-8 |
//! | [`snapshot`], [`contents`], [`certificates`], [`slices`], [`subsets`], [`names`] | what is seen of a namespace, without what differs from run to run |
//! | [`diff`] | comparing two of those |
//! | [`stored`], [`record`] | how outcomes are stored, and where they come from |
//! | [`writes`], [`metrics`] | how often the managers write, and what they count |
//! | [`report`] | what the test says in the end |

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{
    Activity, Caller, Cluster, ControlPlane, Heartbeats, Manager, MetricsApi, Options, Program, by_depth,
    object, turn_beside_another,
};

mod certificates;
mod contents;
mod diff;
mod metrics;
mod names;
mod play;
mod policies;
mod record;
mod report;
mod scenario;
mod shards;
mod slices;
mod snapshot;
mod stored;
mod subsets;
mod wire;
mod writes;

use play::{Goal, Plane, Stage, play};
use scenario::Scenario;
use shards::{ROOT, Shard, outcome_file};

/// Scenarios play beside each other, and must not wait for each other's requests. A slice is full with few endpoints, and few
/// finished pods may stay. Autoscalers look often, and remember not long.
const ARGS: [&str; 8] = [
    "--horizontal-pod-autoscaler-sync-period=3s",
    "--horizontal-pod-autoscaler-downscale-stabilization=12s",
    "--kube-api-qps=500",
    "--kube-api-burst=1000",
    "--max-endpoints-per-slice=3",
    "--mirroring-max-endpoints-per-subset=5",
    "--terminated-pod-gc-threshold=3",
    "--legacy-service-account-token-clean-up-period=1s",
];
/// Services may have addresses of both families, and kwok plays its own nodes only.
const PLANE: [&str; 4] = [
    "--apiserver-arg=service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
    "--kwok-arg=manage-all-nodes=false",
    "--kwok-arg=manage-nodes-with-label-selector=type=kwok",
    "--audit",
];
/// Nodes that nobody plays and nothing is scheduled to, in a zone each: their pods go on only when they are told to.
const BY_HAND: [(&str, &str); 3] = [("by-hand", "zone-1"), ("by-hand-2", "zone-2"), ("by-hand-3", "zone-3")];
/// The only one where scenarios make the others: it is in no zone and always alive.
const ALIVE: [(&str, &str); 1] = [("by-hand", "")];
/// Scenarios that play at the same time. They mostly wait.
const AT_A_TIME: usize = 12;

#[tokio::test]
async fn workloads_are_as_under_the_go_manager() {
    play_all(&shards::WORKLOADS).await;
}

#[tokio::test]
async fn stateful_workloads_are_as_under_the_go_manager() {
    play_all(&shards::STATEFUL).await;
}

#[tokio::test]
async fn daemons_are_as_under_the_go_manager() {
    play_all(&shards::DAEMONS).await;
}

#[tokio::test]
async fn jobs_are_as_under_the_go_manager() {
    play_all(&shards::JOBS).await;
}

#[tokio::test]
async fn the_network_is_as_under_the_go_manager() {
    play_all(&shards::NETWORK).await;
}

#[tokio::test]
async fn namespaces_are_as_under_the_go_manager() {
    play_all(&shards::NAMESPACES).await;
}

#[tokio::test]
async fn garbage_is_as_under_the_go_manager() {
    play_all(&shards::GARBAGE).await;
}

#[tokio::test]
async fn quotas_are_as_under_the_go_manager() {
    play_all(&shards::QUOTAS).await;
}

#[tokio::test]
async fn schedules_and_cleanup_are_as_under_the_go_manager() {
    play_all(&shards::CLEANUP).await;
}

#[tokio::test]
async fn identities_are_as_under_the_go_manager() {
    play_all(&shards::IDENTITY).await;
}

#[tokio::test]
async fn certificates_are_as_under_the_go_manager() {
    play_all(&shards::SIGNING).await;
}

#[tokio::test]
async fn unused_tokens_are_as_under_the_go_manager() {
    play_all(&shards::RESTARTED).await;
}

#[tokio::test]
async fn protections_are_as_under_the_go_manager() {
    play_all(&shards::PROTECTIONS).await;
}

#[tokio::test]
async fn volumes_are_as_under_the_go_manager() {
    play_all(&shards::VOLUMES).await;
}

#[tokio::test]
async fn bindings_are_as_under_the_go_manager() {
    play_all(&shards::BINDINGS).await;
}

#[tokio::test]
async fn attachments_are_as_under_the_go_manager() {
    play_all(&shards::ATTACHING).await;
}

#[tokio::test]
async fn evictions_by_taints_are_as_under_the_go_manager() {
    play_all(&shards::EVICTIONS).await;
}

#[tokio::test]
async fn the_lives_of_nodes_are_as_under_the_go_manager() {
    play_all(&shards::LIVES).await;
}

#[tokio::test]
async fn blocks_of_addresses_are_given_as_under_the_go_manager() {
    play_all(&shards::BLOCKS).await;
}

#[tokio::test]
async fn devices_are_as_under_the_go_manager() {
    play_all(&shards::DEVICES).await;
}

#[tokio::test]
async fn what_is_off_by_default_is_as_under_the_go_manager() {
    play_all(&shards::GATED).await;
}

#[tokio::test]
async fn migrations_are_as_under_the_go_manager() {
    play_all(&shards::MIGRATIONS).await;
}

#[tokio::test]
async fn autoscaling_is_as_under_the_go_manager() {
    play_all(&shards::AUTOSCALING).await;
}

/// Whoever speaks JSON with the API server does the same: some in `make test`, all in full depth.
#[tokio::test]
async fn the_same_comes_of_json() {
    if recorded_times().is_some() {
        return;
    }
    let shards = by_depth(&[&shards::DAEMONS][..], &shards::ALL[..]);
    for shard in shards {
        play_with(shard, &["--kube-api-content-type=application/json"]).await;
    }
}

async fn play_all(shard: &Shard) {
    play_with(shard, &[]).await;
}

/// How often each scenario is to be recorded; `None` if it is not.
fn recorded_times() -> Option<usize> {
    std::env::var("COXSWAIN_PARITY_RECORD").ok().and_then(|times| times.parse().ok())
}

async fn play_with(shard: &Shard, more: &[&str]) {
    let wanted = std::env::var("COXSWAIN_PARITY").unwrap_or_default();
    let scenarios = shard.scenarios(&wanted);
    if scenarios.is_empty() {
        assert!(!wanted.is_empty(), "there are no such scenarios");
        return;
    }
    let _turn = turn_beside_another().await;
    let times = recorded_times();
    let gated = if shard.is_gated() { ControlPlane::GATED_ARGS } else { &[] };
    let (nodes, by_hand) = if shard.makes_its_nodes() { (0, &ALIVE[..]) } else { (5, &BY_HAND[..]) };
    let control_plane = ControlPlane::start(&Options { nodes, args: [&PLANE[..], gated].concat() });
    let controllers = shard.controllers();
    let args = [&[controllers.as_str()][..], &ARGS, shard.args(), more].concat();
    let manager = if times.is_some() {
        control_plane.go_manager("kube-controller-manager", &args)
    } else {
        control_plane.coxswain("coxswain", &args)
    };
    let cluster = control_plane.cluster().await;
    create_nodes(&cluster, by_hand).await;
    let heartbeats = Heartbeats::start(cluster.client.clone());
    let alive = ALIVE.iter().filter(|_| shard.makes_its_nodes()).map(|(name, _)| (*name).to_owned());
    heartbeats.renew("", alive.collect()).await;
    let metrics = if shard.has_metrics() {
        Some(MetricsApi::start(&control_plane, &cluster.client, &["v1beta2"]).await)
    } else {
        None
    };
    let plane = Plane {
        metrics,
        cluster,
        heartbeats,
        activity: Activity::follow(&control_plane, &manager).await,
        bundle: fs::read_to_string(&control_plane.report.ca_file).expect("the bundle"),
        report: control_plane.report.clone(),
        manager: manager.name.clone(),
    };
    let complaints = match times {
        Some(times) => record::record(&plane, &manager, shard, &scenarios, times).await,
        None => compare(&plane, &scenarios).await,
    };
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
    let root = Path::new(ROOT);
    if times.is_some() {
        let names = scenarios.iter().map(|(name, _)| name.as_str());
        let written = writes::count(&control_plane, Program::Go, names);
        writes::store(root, &record::version(), written).expect("the counts are stored");
    } else {
        judge_work(&control_plane, &manager, shard, &scenarios).await;
    }
}

/// Plays scenarios beside each other, those that must be apart after the others; what was seen of each, by name. What was
/// `recorded` of a scenario is waited for.
async fn perform<'a>(
    plane: &'a Plane,
    scenarios: &[&'a (String, Scenario)],
    recorded: &BTreeMap<&str, Vec<Value>>,
) -> Vec<(&'a str, Result<Stage<'a>, String>)> {
    let run = async |(name, scenario): &'a (String, Scenario)| {
        let goal = recorded.get(name.as_str()).map_or(Goal::Quiet, |looks| Goal::Recorded(looks));
        (name.as_str(), play(plane, name, scenario, goal).await)
    };
    let mut groups: BTreeMap<&str, Vec<&'a (String, Scenario)>> = BTreeMap::new();
    for each in scenarios {
        groups.entry(&each.1.apart).or_default().push(each);
    }
    let mut played: Vec<(&str, Result<Stage<'_>, String>)> = Vec::new();
    for group in groups.into_values() {
        let runs = futures::stream::iter(group.into_iter().map(&run)).buffer_unordered(AT_A_TIME);
        played.extend(runs.collect::<Vec<_>>().await);
    }
    let mut checked = Vec::with_capacity(played.len());
    for (name, stage) in played {
        let stage = match stage {
            Ok(stage) => stage.is_as_it_was().await.map(|()| stage),
            failed => failed,
        };
        checked.push((name, stage));
    }
    checked
}

/// Plays scenarios under Coxswain and compares them with what was recorded.
async fn compare(plane: &Plane, scenarios: &[(String, Scenario)]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut recorded: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (name, scenario) in scenarios {
        match read(name, scenario) {
            Ok(looks) => drop(recorded.insert(name, looks)),
            Err(error) => complaints.push(format!("{name}: {error}")),
        }
    }
    let known: Vec<_> = scenarios.iter().filter(|(name, _)| recorded.contains_key(name.as_str())).collect();
    for (name, stage) in perform(plane, &known, &recorded).await {
        let judged = stage.and_then(|stage| {
            let recorded = &recorded[name];
            report::judge(recorded, &stage.seen, &stage.scenario.differences)?;
            let all = stage.seen.len() == recorded.len();
            all.then_some(()).ok_or_else(|| "it differed for long, and then no more".to_owned())
        });
        complaints.extend(judged.err().map(|error| format!("{name}: {error}")));
    }
    complaints
}

/// What was recorded of a scenario.
fn read(name: &str, scenario: &Scenario) -> Result<Vec<Value>, String> {
    let path = outcome_file(name);
    let text = fs::read_to_string(&path).map_err(|_| "not recorded: run make parity-record".to_owned())?;
    let changes: Vec<Value> =
        serde_yaml_ng::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let recorded = stored::decode(&changes);
    let looks = scenario.looks();
    let stored: Vec<&str> = recorded.iter().filter_map(|look| look["after"].as_str()).collect();
    if looks != stored {
        return Err(format!("it looks at {looks:?}, recorded are {stored:?}: run make parity-record"));
    }
    Ok(recorded)
}

/// What Coxswain wrote, was refused and counted in all scenarios.
async fn judge_work(
    plane: &ControlPlane,
    manager: &Manager<'_>,
    shard: &Shard,
    scenarios: &[(String, Scenario)],
) {
    let root = Path::new(ROOT);
    // Where the outcome differs for a reason, so may the writes.
    let same = scenarios.iter().filter(|(_, scenario)| scenario.differences.is_empty());
    let names = same.map(|(name, _)| name.as_str());
    let counted = writes::count(plane, Program::Coxswain, names);
    let written = writes::judge(&writes::recorded(root), &counted, &writes::kept(root));

    let rules = metrics::Rules::read(root);
    let folders: Vec<&str> = shard.folders.to_vec();
    let is_whole = scenarios.len() == shard.scenarios("").len();
    let grown = rules.of_page(&manager.page(Caller::Admin, "/metrics").await.text);
    let measured = if is_whole {
        metrics::sum(&metrics::recorded(root), &folders).and_then(|recorded| rules.judge(&recorded, &grown))
    } else {
        Ok(())
    };
    let complaints: Vec<String> = [written, measured].into_iter().filter_map(Result::err).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));

    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> =
        forbidden.map(|event| format!("{} {} as {}", event.verb, event.uri, event.user.username)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

async fn create_nodes(cluster: &Cluster, nodes: &[(&str, &str)]) {
    let api: Api<Node> = Api::all(cluster.client.clone());
    for (name, zone) in nodes {
        let node = object(json!({
            "metadata": { "name": name, "labels": { "topology.kubernetes.io/zone": zone } },
            "spec": { "unschedulable": true },
        }));
        api.create(&PostParams::default(), &node).await.expect("the node is created");
        let status = json!({ "status": {
            "allocatable": { "cpu": "64", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await;
        patched.expect("the node is ready");
    }
}
