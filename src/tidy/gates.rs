//! Gates: each that touches what is built is asked for, or `--help` says why it has no effect.

use std::path::{Path, PathBuf};

use coxswain_machinery::options::gates::{TABLE, WITHOUT_EFFECT};

use super::{CRATES, sources};

/// Gates of the controllers that are built, and of the manager itself. All others are of the API server, of other components
/// or of controllers that are not built.
const TOUCHING: &[&str] = &[
    "APIServerIdentity",
    "AtomicFIFO",
    "ClientsAllowCARotation",
    "ClientsAllowCBOR",
    "ClientsAllowTLSCacheGC",
    "ClientsPreferCBOR",
    "ClusterTrustBundle",
    "ComponentFlagz",
    "ComponentStatusz",
    "ContextualLogging",
    "ControllerManagerReleaseLeaderElectionLockOnExit",
    "CoordinatedLeaderElection",
    "DRADeviceTaintRules",
    "DRADeviceTaints",
    "DRAExtendedResource",
    "DRAPrioritizedList",
    "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims",
    "DeploymentReplicaSetTerminatingReplicas",
    "DynamicResourceAllocation",
    "GenericWorkload",
    "HPAConfigurableTolerance",
    "HPAScaleToZero",
    "InOrderInformers",
    "InOrderInformersBatchProcess",
    "InPlacePodVerticalScaling",
    "InformerResourceVersion",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
    "MaxUnavailableStatefulSet",
    "MultiCIDRServiceAllocator",
    "MutableSchedulingDirectivesForSuspendedJobs",
    "NativeHistograms",
    "OrderedNamespaceDeletion",
    "PersistentVolumeClaimUnusedSinceTime",
    "PodCertificateRequest",
    "PodDeletionCost",
    "PodLevelResources",
    "PreferSameTrafficDistribution",
    "RecoverVolumeExpansionFailure",
    "RemoteRequestHeaderUID",
    "SELinuxChangePolicy",
    "StaleControllerConsistencyDaemonSet",
    "StaleControllerConsistencyJob",
    "StaleControllerConsistencyReplicaSet",
    "StaleControllerConsistencyStatefulSet",
    "StatefulSetSemanticRevisionComparison",
    "StorageVersionAPI",
    "StorageVersionMigrator",
    "TaintTolerationComparisonOperators",
    "UnauthenticatedHTTP2DOSMitigation",
    "UnlockWhileProcessingFIFO",
    "VolumeAttributesClass",
    "WatchListClient",
    "WorkloadWithJob",
];

/// Whether one of these texts stands somewhere in the program.
fn is_anywhere(texts: &[String], sources: &[(PathBuf, String)]) -> bool {
    let is_other = |path: &Path| {
        let path = path.to_string_lossy();
        path.contains("tests")
            || path.contains("options/gates")
            || path.ends_with("tidy/gates.rs")
            || path.ends_with("registry.rs")
    };
    let mut asking = sources.iter().filter(|(path, _)| !is_other(path));
    asking.any(|(_, source)| texts.iter().any(|text| source.contains(text.as_str())))
}

/// What comes of a gate is for the tests of who asks for it.
#[test]
fn each_gate_of_what_is_built_is_asked_for_or_said_to_have_no_effect() {
    assert!(TOUCHING.is_sorted() && WITHOUT_EFFECT.is_sorted());
    let sources: Vec<_> = CRATES.into_iter().flat_map(sources).collect();
    let without_effect = |name: &str| WITHOUT_EFFECT.iter().any(|(held, _)| *held == name);
    for name in TOUCHING {
        assert!(TABLE.iter().any(|gate| gate.name == *name), "{name} is a gate");
        assert_ne!(is_anywhere(&[format!("\"{name}\"")], &sources), without_effect(name), "{name}");
    }
    for gate in TABLE.iter().filter(|gate| !TOUCHING.contains(&gate.name)) {
        let name = gate.name;
        let asks = ["enabled(", "gate(", "gate)("].map(|asks| format!("{asks}\"{name}\")"));
        assert!(!is_anywhere(&asks, &sources) && !without_effect(name), "{name} touches us");
    }
}
