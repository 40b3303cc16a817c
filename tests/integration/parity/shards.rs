//! Which scenarios are played together, on a control plane of their own, and which controllers run there.
//!
//! A folder of scenarios is named after its controller, without `-controller`. Every controller that is built has one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use coxswain_controllers::registry::{REGISTRY, find};

use super::scenario::Scenario;
use crate::harness::is_gated;

pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity");

/// Controllers' scenarios that don't disturb each other.
pub(super) struct Shard {
    /// The folders. Their controllers run.
    pub(super) folders: &'static [&'static str],
    /// What runs beside them.
    beside: &'static [&'static str],
}

pub(super) const WORKLOADS: Shard =
    Shard { folders: &["deployment", "replicaset", "replicationcontroller"], beside: &["serviceaccount"] };
/// DaemonSets, which would run pods on the nodes that others look at.
pub(super) const DAEMONS: Shard = Shard { folders: &["daemonset"], beside: &["serviceaccount"] };
pub(super) const NETWORK: Shard = Shard {
    folders: &["endpoints", "endpointslice", "endpointslice-mirroring", "service-cidr"],
    beside: &["serviceaccount"],
};
/// What every namespace has, and its end, also with things in it that controllers keep up.
pub(super) const NAMESPACES: Shard = Shard {
    folders: &["namespace", "root-ca-certificate-publisher", "serviceaccount", "serviceaccount-token"],
    beside: &["deployment", "replicaset"],
};
/// Pods with claims of their own, which the garbage collector takes away.
pub(super) const STATEFUL: Shard =
    Shard { folders: &["statefulset"], beside: &["serviceaccount", "garbage-collector"] };
/// Jobs, whose dependents the garbage collector takes away.
pub(super) const JOBS: Shard = Shard { folders: &["job"], beside: &["serviceaccount", "garbage-collector"] };
/// Garbage collection, which would end what others look at.
pub(super) const GARBAGE: Shard = Shard { folders: &["garbage-collector"], beside: &["serviceaccount"] };
/// Quotas: others write the status of quotas themselves, and count every write.
pub(super) const QUOTAS: Shard =
    Shard { folders: &["resourcequota"], beside: &["serviceaccount", "root-ca-certificate-publisher"] };
/// What comes by schedule, and what clears up after pods and Jobs. Nobody runs the Jobs and nobody collects garbage: both are played
/// by hand.
pub(super) const CLEANUP: Shard = Shard {
    folders: &["cronjob", "pod-garbage-collector", "ttl-after-finished"],
    beside: &["serviceaccount"],
};
/// Who is who, and what they may: each scenario looks at objects of its own, or plays apart.
pub(super) const IDENTITY: Shard = Shard {
    folders: &[
        "bootstrap-signer",
        "certificatesigningrequest-cleaner",
        "clusterrole-aggregation",
        "token-cleaner",
    ],
    beside: &["serviceaccount"],
};
/// What keeps things from going, each thing its own.
pub(super) const PROTECTIONS: Shard = Shard {
    folders: &[
        "disruption",
        "ephemeral-volume",
        "persistentvolume-protection",
        "persistentvolumeclaim-protection",
        "volumeattributesclass-protection",
    ],
    beside: &["deployment", "replicaset", "replicationcontroller", "serviceaccount", "statefulset"],
};
/// What drives pods away from nodes, which nobody but scenarios taints; and what is written on few nodes. Without the controller of
/// DaemonSets, which files pods by their nodes, the original drives away only pods that come after the taint.
pub(super) const EVICTIONS: Shard =
    Shard { folders: &["taint-eviction", "ttl"], beside: &["daemonset", "serviceaccount"] };
/// Controllers that are off by default, on a control plane with their gates and APIs.
pub(super) const GATED: Shard =
    Shard { folders: &["podgroup-protection", "resourcepoolstatusrequest"], beside: &["serviceaccount"] };
const ALL: [&Shard; 13] = [
    &WORKLOADS,
    &STATEFUL,
    &DAEMONS,
    &JOBS,
    &NETWORK,
    &NAMESPACES,
    &GARBAGE,
    &QUOTAS,
    &CLEANUP,
    &PROTECTIONS,
    &EVICTIONS,
    &IDENTITY,
    &GATED,
];

impl Shard {
    /// The flag that says which controllers run.
    pub(super) fn controllers(&self) -> String {
        let names = self.folders.iter().chain(self.beside);
        let names: Vec<String> = names.map(|name| format!("{name}-controller")).collect();
        format!("--controllers={}", names.join(","))
    }

    /// Whether a gate that is off by default has to be on for them.
    pub(super) fn is_gated(&self) -> bool {
        self.folders.iter().filter_map(|name| find(&format!("{name}-controller"))).any(is_gated)
    }

    /// Its scenarios by name (`deployment/scales`), those with a text in their names.
    pub(super) fn scenarios(&self, wanted: &str) -> Vec<(String, Scenario)> {
        let names = files(Path::new(ROOT)).into_iter();
        let names = names.filter(|name| self.folders.contains(&folder(name)) && name.contains(wanted));
        names
            .map(|name| {
                let text = fs::read_to_string(file(&name)).expect("a scenario");
                let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
                (name, scenario)
            })
            .collect()
    }
}

/// The folder of a scenario.
pub(super) fn folder(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

pub(super) fn file(name: &str) -> PathBuf {
    Path::new(ROOT).join(format!("{name}.yaml"))
}

pub(super) fn outcome_file(name: &str) -> PathBuf {
    file(&format!("outcomes/{name}"))
}

/// The YAML files in folders below `root`, without their extension.
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

#[test]
fn every_outcome_has_a_scenario() {
    let outcomes = files(&Path::new(ROOT).join("outcomes"));
    let orphans: Vec<&String> = outcomes.iter().filter(|name| !file(name).is_file()).collect();
    assert_eq!(orphans, Vec::<&String>::new());
}

#[test]
fn every_controller_that_is_built_is_played_once() {
    let built: BTreeSet<&str> = REGISTRY
        .iter()
        .filter(|row| row.build.is_some())
        .filter_map(|row| row.name.strip_suffix("-controller"))
        .collect();
    let played: Vec<&str> = ALL.iter().flat_map(|shard| shard.folders).copied().collect();
    assert_eq!(
        played.iter().copied().collect::<BTreeSet<_>>(),
        built,
        "folders of scenarios, and controllers"
    );
    assert_eq!(played.len(), built.len(), "a folder is played in one shard");
    for shard in ALL {
        assert!(shard.beside.iter().all(|name| built.contains(name)), "{:?}", shard.beside);
    }
    for folder in &played {
        let all = files(Path::new(ROOT));
        assert!(all.iter().any(|name| self::folder(name) == *folder), "{folder} has no scenarios");
    }
    let strays = files(Path::new(ROOT)).into_iter();
    let strays: Vec<String> =
        strays.filter(|name| !played.contains(&folder(name)) && folder(name) != "outcomes").collect();
    assert_eq!(strays, Vec::<String>::new(), "scenarios that nobody plays");
}
