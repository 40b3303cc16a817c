//! Metrics about the process as a whole: what it is, what it leads, what it runs.

use prometheus::{GaugeVec, IntGaugeVec};

use super::metrics::{MetricsError, Registrar};
use super::registry::Registry;

/// What was built: `kubernetes_build_info`, always 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// Major version of Kubernetes that this stands for.
    pub major: String,
    /// Minor version.
    pub minor: String,
    /// `v1.36.3`
    pub git_version: String,
    /// Commit.
    pub git_commit: String,
    /// `clean` or `dirty`.
    pub git_tree_state: String,
    /// When, in RFC 3339.
    pub build_date: String,
    /// The compiler's version; the label is `go_version` for whoever selects by it.
    pub go_version: String,
    /// The compiler.
    pub compiler: String,
    /// Operating system and architecture.
    pub platform: String,
}

impl BuildInfo {
    /// Registers the metric.
    pub fn register(&self, registry: &Registry) -> Result<(), MetricsError> {
        let gauge = Registrar::new(registry).gauges(
            "kubernetes_build_info",
            "Build information; always 1, with the details as labels.",
            &[
                "build_date",
                "compiler",
                "git_commit",
                "git_tree_state",
                "git_version",
                "go_version",
                "major",
                "minor",
                "platform",
            ],
        )?;
        gauge
            .with_label_values(&[
                &self.build_date,
                &self.compiler,
                &self.git_commit,
                &self.git_tree_state,
                &self.git_version,
                &self.go_version,
                &self.major,
                &self.minor,
                &self.platform,
            ])
            .set(1.0);
        Ok(())
    }
}

/// Which versions the process answers for (KEP-4330): `version_info`, always 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionInfo {
    /// Version of the binary.
    pub binary: String,
    /// The component: `kube`.
    pub component: String,
    /// Emulated version.
    pub emulation: String,
    /// Lowest compatible version.
    pub min_compat: String,
}

impl VersionInfo {
    /// Registers the metric.
    pub fn register(&self, registry: &Registry) -> Result<(), MetricsError> {
        let gauge = Registrar::new(registry).gauges(
            "version_info",
            "Versions of a component; always 1, with the binary, emulated and minimum compatible version as labels.",
            &["binary", "component", "emulation", "min_compat"],
        )?;
        gauge.with_label_values(&[&self.binary, &self.component, &self.emulation, &self.min_compat]).set(1.0);
        Ok(())
    }
}

/// A feature gate's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureMetric<'a> {
    /// The gate.
    pub name: &'a str,
    /// `ALPHA`, `BETA`, `DEPRECATED`, or empty when it is generally available.
    pub stage: &'a str,
    /// Whether it is on.
    pub enabled: bool,
}

/// Which feature gates are on: `kubernetes_feature_enabled`.
#[derive(Clone, Debug)]
pub struct FeatureStates(GaugeVec);

impl FeatureStates {
    /// Registers the metric.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let gauge = Registrar::new(registry).gauges(
            "kubernetes_feature_enabled",
            "State of a feature gate, by stage: 1 if enabled, 0 if disabled.",
            &["name", "stage"],
        )?;
        Ok(Self(gauge))
    }

    /// Shows the state of a gate.
    pub fn set(&self, feature: FeatureMetric<'_>) {
        self.0.with_label_values(&[feature.name, feature.stage]).set(if feature.enabled { 1.0 } else { 0.0 });
    }
}

/// What the manager leads and runs.
#[derive(Clone, Debug)]
pub struct ManagerMetrics {
    running: IntGaugeVec,
    leading: IntGaugeVec,
}

impl ManagerMetrics {
    /// Registers `running_managed_controllers` and `leader_election_master_status`.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let registrar = Registrar::new(registry);
        Ok(Self {
            running: registrar.int_gauges(
                "running_managed_controllers",
                "State of a controller in this manager: 1 if running, 0 if not.",
                &["manager", "name"],
            )?,
            leading: registrar.int_gauges(
                "leader_election_master_status",
                "Leadership by Lease name: 1 if this process is the leader, 0 if it is a candidate.",
                &["name"],
            )?,
        })
    }

    /// Shows whether `controller` runs in `manager` (`kube-controller-manager`).
    pub fn set_running(&self, manager: &str, controller: &str, running: bool) {
        self.running.with_label_values(&[manager, controller]).set(i64::from(running));
    }

    /// Shows whether this process holds the lock `lock`; called with `false` when it becomes a candidate.
    pub fn set_leading(&self, lock: &str, leading: bool) {
        self.leading.with_label_values(&[lock]).set(i64::from(leading));
    }
}
