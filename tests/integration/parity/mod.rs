//! Parity: the same scenarios under Coxswain and under the Go manager have the same outcomes.
//!
//! A scenario is a file in `tests/parity/CONTROLLER/`; its outcome under the Go manager is recorded in
//! `tests/parity/outcomes/CONTROLLER/`. This test plays every scenario under Coxswain and compares. With
//! `COXSWAIN_PARITY_RECORD` set (`make parity-record`) it plays every scenario twice under the Go manager instead, and
//! writes what both times came out. `COXSWAIN_PARITY=TEXT` keeps to the scenarios with TEXT in their names.
//!
//! | module | what |
//! |---|---|
//! | [`scenario`] | the format of a scenario |
//! | [`play`] | performing its steps |
//! | [`snapshot`], [`slices`], [`subsets`], [`names`] | what is seen of a namespace, without what differs from run to run |
//! | [`diff`] | comparing two of those |
//! | [`stored`] | how outcomes are stored |
//! | [`writes`] | how often the managers write |
//! | [`report`] | what the test says in the end |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{Cluster, ControlPlane, Options, binaries, object, turn};

mod diff;
mod names;
mod play;
mod report;
mod scenario;
mod slices;
mod snapshot;
mod stored;
mod subsets;
mod writes;

use play::{Goal, play};
use scenario::Scenario;

/// Both managers run the same controllers, so that nothing else interferes: those with scenarios, but for garbage
/// collection, and those that make pods possible.
const CONTROLLERS: &str = "--controllers=deployment-controller,replicaset-controller,serviceaccount-controller,\
    serviceaccount-token-controller,root-ca-certificate-publisher-controller,endpointslice-controller,\
    endpoints-controller,endpointslice-mirroring-controller,namespace-controller,service-cidr-controller";
/// The scenarios of garbage collection, which would end what others look at, and the controllers that they need.
const COLLECTED: &str = "garbage-collector/";
const COLLECTORS: &str = "--controllers=garbage-collector-controller,serviceaccount-controller";
/// The scenarios of quotas, apart too: others write the status of quotas themselves, and count every write.
const COUNTED: &str = "resourcequota/";
const COUNTERS: &str = "--controllers=resourcequota-controller,serviceaccount-controller,\
    root-ca-certificate-publisher-controller";
/// Scenarios play beside each other, and must not wait for each other's requests. A slice is full with few endpoints.
const ARGS: [&str; 4] = [
    "--kube-api-qps=500",
    "--kube-api-burst=1000",
    "--max-endpoints-per-slice=3",
    "--mirroring-max-endpoints-per-subset=5",
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
/// Scenarios that play at the same time. They mostly wait.
const AT_A_TIME: usize = 12;
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity");

/// Scenarios by name (`deployment/scales`), as far as they are asked for: those of a folder, or those of none that is played
/// apart.
fn scenarios(apart: Option<&str>) -> Vec<(String, Scenario)> {
    let wanted = std::env::var("COXSWAIN_PARITY").unwrap_or_default();
    let names = files(Path::new(ROOT)).into_iter().filter(|name| !name.starts_with("outcomes/"));
    names
        .filter(|name| name.contains(&wanted))
        .filter(|name| [COLLECTED, COUNTED].into_iter().find(|folder| name.starts_with(folder)) == apart)
        .map(|name| {
            let text = fs::read_to_string(file(&name)).expect("a scenario");
            let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, scenario)
        })
        .collect()
}

/// The YAML files one folder below `root`, without their extension.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let name = path.strip_prefix(root).expect("below it").with_extension("");
                found.insert(name.to_str().expect("text").to_owned());
            }
        }
    }
    found
}

fn file(name: &str) -> PathBuf {
    Path::new(ROOT).join(format!("{name}.yaml"))
}

fn outcome_file(name: &str) -> PathBuf {
    file(&format!("outcomes/{name}"))
}

fn recorded(name: &str) -> Result<Vec<Value>, String> {
    let path = outcome_file(name);
    let text = fs::read_to_string(&path).map_err(|_| "not recorded: run make parity-record".to_owned())?;
    let changes: Vec<Value> =
        serde_yaml_ng::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(stored::decode(&changes))
}

#[tokio::test]
async fn outcomes_are_the_go_managers() {
    play_all(scenarios(None), CONTROLLERS).await;
}

#[tokio::test]
async fn outcomes_of_garbage_collection_are_the_go_managers() {
    play_all(scenarios(Some(COLLECTED)), COLLECTORS).await;
}

#[tokio::test]
async fn outcomes_of_quotas_are_the_go_managers() {
    play_all(scenarios(Some(COUNTED)), COUNTERS).await;
}

async fn play_all(scenarios: Vec<(String, Scenario)>, controllers: &str) {
    if scenarios.is_empty() {
        assert!(std::env::var_os("COXSWAIN_PARITY").is_some(), "there are no such scenarios");
        return;
    }
    let _turn = turn().await;
    let recording = std::env::var_os("COXSWAIN_PARITY_RECORD").is_some();
    let plane = ControlPlane::start(&Options { nodes: 5, args: PLANE.to_vec() });
    let args = [&[controllers][..], &ARGS].concat();
    let manager = if recording {
        plane.go_manager("kube-controller-manager", &args)
    } else {
        plane.coxswain("coxswain", &args)
    };
    let cluster = plane.cluster().await;
    create_nodes(&cluster).await;
    let run = async |(name, scenario): &(String, Scenario)| {
        let run = if recording {
            record(&cluster, name, scenario).await
        } else {
            compare(&cluster, name, scenario).await
        };
        run.err().map(|error| format!("{name}: {error}"))
    };
    let mut groups: BTreeMap<&str, Vec<&(String, Scenario)>> = BTreeMap::new();
    for each in &scenarios {
        groups.entry(&each.1.apart).or_default().push(each);
    }
    let mut complaints: Vec<String> = Vec::new();
    for group in groups.into_values() {
        let runs = futures::stream::iter(group.into_iter().map(&run)).buffer_unordered(AT_A_TIME);
        complaints.extend(runs.filter_map(std::future::ready).collect::<Vec<_>>().await);
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
    let root = Path::new(ROOT);
    // Where the outcome differs for a reason, so may the writes.
    let same = scenarios.iter().filter(|(_, scenario)| recording || scenario.differences.is_empty());
    let names = same.map(|(name, _)| name.as_str());
    if recording {
        let written = writes::count(&plane, "kube-controller-manager/", names);
        writes::store(root, &version(), written).expect("the counts are stored");
    } else {
        let judged = writes::judge(&writes::recorded(root), &writes::count(&plane, "coxswain/", names));
        judged.unwrap_or_else(|complaint| panic!("{complaint}"));
        let audit = plane.audit();
        let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
        let forbidden: Vec<_> = forbidden
            .map(|event| format!("{} {} as {}", event.verb, event.uri, event.user.username))
            .collect();
        assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
        assert_eq!(manager.errors(), Vec::<String>::new());
    }
}

async fn create_nodes(cluster: &Cluster) {
    let api: Api<Node> = Api::all(cluster.client.clone());
    for (name, zone) in BY_HAND {
        let node = object(json!({
            "metadata": { "name": name, "labels": { "topology.kubernetes.io/zone": zone } },
            "spec": { "unschedulable": true },
        }));
        api.create(&PostParams::default(), &node).await.expect("the node is created");
        let status = json!({ "status": {
            "allocatable": { "cpu": "64" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await;
        patched.expect("the node is ready");
    }
}

/// Plays a scenario under Coxswain and compares it with what was recorded.
async fn compare(cluster: &Cluster, name: &str, scenario: &Scenario) -> Result<(), String> {
    let recorded = recorded(name)?;
    let looks = scenario.looks();
    let stored: Vec<&str> = recorded.iter().filter_map(|look| look["after"].as_str()).collect();
    if looks != stored {
        return Err(format!("it looks at {looks:?}, recorded are {stored:?}: run make parity-record"));
    }
    let seen = play(cluster, name, scenario, &Goal::Recorded(&recorded)).await?;
    report::judge(&recorded, &seen, &scenario.differences)?;
    if seen.len() == recorded.len() {
        Ok(())
    } else {
        Err("it differed for long, and then no more".to_owned())
    }
}

/// Plays a scenario twice under the Go manager and stores the outcome, which must be the same both times.
async fn record(cluster: &Cluster, name: &str, scenario: &Scenario) -> Result<(), String> {
    let once = || play(cluster, name, scenario, &Goal::Quiet);
    let (first, second) =
        if scenario.apart.is_empty() { tokio::join!(once(), once()) } else { (once().await, once().await) };
    let (first, second) = (first?, second?);
    report::judge(&first, &second, &[])
        .map_err(|error| format!("the original itself does not do the same twice\n{error}"))?;
    let path = outcome_file(name);
    fs::create_dir_all(path.parent().expect("a folder")).map_err(|error| error.to_string())?;
    let body = serde_yaml_ng::to_string(&stored::encode(&first)).map_err(|error| error.to_string())?;
    let text = format!(
        "# Recorded from the Go manager, {}, by `make parity-record`: what is there, then what changed.\n{body}",
        version()
    );
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The Go manager's version.
fn version() -> String {
    let output = Command::new(binaries().join("kube-controller-manager")).arg("--version").output();
    String::from_utf8(output.expect("it runs").stdout).expect("text").trim().to_owned()
}

#[test]
fn every_outcome_has_a_scenario() {
    let outcomes = files(&Path::new(ROOT).join("outcomes"));
    let orphans: Vec<&String> = outcomes.iter().filter(|name| !file(name).is_file()).collect();
    assert_eq!(orphans, Vec::<&String>::new());
}
