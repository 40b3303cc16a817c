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

const LIVES_ARGS: [&str; 6] = [
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=8s",
    "--node-startup-grace-period=10s",
    "--node-eviction-rate=2",
    "--secondary-node-eviction-rate=1.5",
    "--large-cluster-size-threshold=4",
];

const ATTACHING_ARGS: [&str; 1] = ["--attach-detach-reconcile-sync-period=3s"];

const BLOCKS_ARGS: [&str; 3] = [
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
    "--service-cluster-ip-range=10.244.0.0/24,fd00:10:96::/112",
];

const BINDINGS_ARGS: [&str; 1] = ["--pvclaimbinder-sync-period=2s"];

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
/// Who is who, and what they may, and policies about it: each scenario looks at objects of its own, or plays apart.
pub(super) const IDENTITY: Shard = Shard {
    folders: &[
        "bootstrap-signer",
        "certificatesigningrequest-approving",
        "certificatesigningrequest-cleaner",
        "clusterrole-aggregation",
        "token-cleaner",
        "validatingadmissionpolicy-status",
    ],
    beside: &["serviceaccount"],
};
/// What is signed: nobody but scenarios approves it.
pub(super) const SIGNING: Shard =
    Shard { folders: &["certificatesigningrequest-signing"], beside: &["serviceaccount"] };
/// What is done once at the start of a manager, which scenarios start anew.
pub(super) const RESTARTED: Shard =
    Shard { folders: &["legacy-serviceaccount-token-cleaner"], beside: &["serviceaccount"] };
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
/// Volumes that grow, and pods that mount them.
pub(super) const VOLUMES: Shard = Shard {
    folders: &["persistentvolume-expander", "selinux-warning"],
    beside: &["persistentvolume-protection", "persistentvolumeclaim-protection", "serviceaccount"],
};
/// Volumes that are bound and released. What is there is looked at again often.
pub(super) const BINDINGS: Shard = Shard {
    folders: &["persistentvolume-binder"],
    beside: &["persistentvolume-protection", "persistentvolumeclaim-protection", "serviceaccount"],
};
/// Volumes that are attached to nodes, which scenarios make, and whose attachers they play.
pub(super) const ATTACHING: Shard =
    Shard { folders: &["persistentvolume-attach-detach"], beside: &["serviceaccount"] };
/// What drives pods away from nodes, which nobody but scenarios taints; and what is written on few nodes. Without the controller of
/// DaemonSets, which files pods by their nodes, the original drives away only pods that come after the taint.
pub(super) const EVICTIONS: Shard =
    Shard { folders: &["taint-eviction", "ttl"], beside: &["daemonset", "serviceaccount"] };
/// Nodes that come, fall silent and go. All of them are made by scenarios, each in zones of its own.
pub(super) const LIVES: Shard = Shard { folders: &["node-lifecycle"], beside: &["serviceaccount"] };
/// Blocks of addresses for nodes, which all scenarios draw from the same ranges.
pub(super) const BLOCKS: Shard = Shard { folders: &["node-ipam"], beside: &["serviceaccount"] };
/// Devices for pods, which nobody but scenarios allocates.
pub(super) const DEVICES: Shard = Shard { folders: &["resourceclaim"], beside: &["serviceaccount"] };
/// Controllers that are off by default, or do more with gates that are, on a control plane with these and their APIs.
pub(super) const GATED: Shard = Shard {
    folders: &[
        "device-taint-eviction",
        "kube-apiserver-serving-clustertrustbundle-publisher",
        "podcertificaterequest-cleaner",
        "podgroup-protection",
        "resourcepoolstatusrequest",
        "storageversion-garbage-collector",
    ],
    beside: &["job", "serviceaccount"],
};
/// Migrations of what is stored. The original reads what it migrates from the caches of its garbage collector.
/// Differs: lists-by-pages.
pub(super) const MIGRATIONS: Shard =
    Shard { folders: &["storage-version-migrator"], beside: &["garbage-collector", "serviceaccount"] };
/// What is scaled by metrics. The pods are kwok's.
pub(super) const AUTOSCALING: Shard = Shard {
    folders: &["horizontal-pod-autoscaler"],
    beside: &["deployment", "replicaset", "serviceaccount", "statefulset"],
};
pub(super) const ALL: [&Shard; 23] = [
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
    &VOLUMES,
    &BINDINGS,
    &ATTACHING,
    &EVICTIONS,
    &IDENTITY,
    &LIVES,
    &BLOCKS,
    &DEVICES,
    &SIGNING,
    &RESTARTED,
    &GATED,
    &MIGRATIONS,
    &AUTOSCALING,
];

impl Shard {
    /// Whether metrics APIs are looked at.
    pub(super) fn has_metrics(&self) -> bool {
        self.folders == AUTOSCALING.folders
    }

    /// The flag that says which controllers run.
    pub(super) fn controllers(&self) -> String {
        let names = self.folders.iter().chain(self.beside);
        let names: Vec<String> = names.map(|name| format!("{name}-controller")).collect();
        format!("--controllers={}", names.join(","))
    }

    /// Whether its scenarios make all nodes, and nobody plays any.
    pub(super) fn makes_its_nodes(&self) -> bool {
        [LIVES.folders, BLOCKS.folders, ATTACHING.folders].contains(&self.folders)
    }

    /// Flags for its controllers: what takes minutes takes seconds, and few nodes are many.
    pub(super) fn args(&self) -> &'static [&'static str] {
        match self.folders {
            folders if folders == LIVES.folders => &LIVES_ARGS,
            folders if folders == BLOCKS.folders => &BLOCKS_ARGS,
            folders if folders == BINDINGS.folders => &BINDINGS_ARGS,
            folders if folders == ATTACHING.folders => &ATTACHING_ARGS,
            _ => &[],
        }
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

/// Namespaces are named after scenarios, with a number.
#[test]
fn names_of_scenarios_leave_room_for_a_number() {
    let long: Vec<String> = files(Path::new(ROOT)).into_iter().filter(|name| name.len() > 58).collect();
    let long: Vec<&String> = long.iter().filter(|name| folder(name) != "outcomes").collect();
    assert_eq!(long, Vec::<&String>::new());
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
