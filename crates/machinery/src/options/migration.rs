//! Leader migration (KEP-2436): which controllers may run under a second lock that is shared with another manager, so
//! that they can move between the two without ever running in both.

use serde::Deserialize;

use super::error::{OptionError, OptionWarning};
use super::flags::Flags;
use crate::api::document::Document;
use crate::framework::Descriptor;

/// What this manager is called where controllers are shared out.
const COMPONENT: &str = "kube-controller-manager";
const FLAG: &str = "leader-migration-config";
const DOCUMENT: Document = Document {
    group: "controllermanager.config.k8s.io",
    kind: "LeaderMigrationConfiguration",
    versions: &["v1", "v1beta1", "v1alpha1"],
};

/// How controllers are shared out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderMigration {
    /// The name of the second lock.
    pub leader_name: String,
    /// The kind of the second lock: always `leases`.
    pub resource_lock: String,
    /// Who runs which controller.
    pub controller_leaders: Vec<ControllerLeader>,
}

/// Who runs a controller.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerLeader {
    /// The name of the controller. An alias names none, as in kube-controller-manager: replicas of both must agree on the lock.
    #[serde(default)]
    pub name: String,
    /// The component that runs it; `*` for whichever holds the second lock.
    #[serde(default)]
    pub component: String,
}

/// Under which lock a controller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationLock {
    /// The main one.
    Main,
    /// The one shared with the other manager.
    Migration,
    /// None here: it is the other manager's.
    Other,
}

impl Default for LeaderMigration {
    /// The controllers that talk to a cloud, for whoever holds the second lock.
    fn default() -> Self {
        let leader = |name: &str| ControllerLeader { name: name.to_owned(), component: "*".to_owned() };
        Self {
            leader_name: "cloud-provider-extraction-migration".to_owned(),
            resource_lock: "leases".to_owned(),
            controller_leaders: ["route-controller", "service-controller", "cloud-node-lifecycle-controller"]
                .map(leader)
                .to_vec(),
        }
    }
}

impl LeaderMigration {
    /// Under which lock a controller runs. The token controller always runs under the main one, as in the original: the
    /// second lock is stood for only once it was started.
    pub fn lock_of(&self, descriptor: &Descriptor) -> MigrationLock {
        if descriptor.special {
            return MigrationLock::Main;
        }
        let named = |leader: &&ControllerLeader| leader.name == descriptor.name;
        // Of several entries for one controller the last counts.
        match self.controller_leaders.iter().rev().find(named) {
            None => MigrationLock::Main,
            Some(leader) if leader.component == COMPONENT || leader.component == "*" => {
                MigrationLock::Migration
            }
            Some(_) => MigrationLock::Other,
        }
    }

    /// Warns of entries that name a controller by an alias.
    pub(super) fn warn_of_aliases(&self, registry: &[Descriptor], warnings: &mut Vec<OptionWarning>) {
        for descriptor in registry {
            let names = self.controller_leaders.iter().map(|leader| leader.name.as_str());
            // Linear: a controller has two aliases at most.
            for alias in names.filter(|name| descriptor.aliases.contains(name)) {
                let name = descriptor.name;
                let message = format!("{alias:?} is an alias and matches no controller; use {name:?}");
                warnings.push(OptionWarning::new(FLAG, message));
            }
        }
    }

    /// Reads the flags. `None` if migration is off; what can't be is added to `errors`.
    pub(super) fn complete(flags: &Flags, errors: &mut Vec<OptionError>) -> Option<Self> {
        if !flags.enable_leader_migration {
            return None;
        }
        let path = &flags.leader_migration_config;
        if path.is_empty() {
            return Some(Self::default());
        }
        match Document::read(path, parse) {
            Ok(migration) => Some(migration),
            Err(problems) => {
                let error = |problem| OptionError::file(FLAG, path, problem, DOCUMENT.expected());
                errors.extend(problems.into_iter().map(error));
                None
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    leader_name: String,
    resource_lock: Option<String>,
    #[serde(default)]
    controller_leaders: Option<Vec<ControllerLeader>>,
}

fn parse(text: &str) -> Result<LeaderMigration, Vec<String>> {
    let (document, version): (Configuration, _) = DOCUMENT.decode(text)?;
    let mut problems = Vec::new();
    if document.leader_name.is_empty() {
        problems.push("leaderName is empty".to_owned());
    }
    match document.resource_lock.as_deref() {
        Some(_) if version == "v1" => problems.push("unknown field resourceLock in v1".to_owned()),
        None | Some("" | "leases") => {}
        Some(lock) => problems.push(format!("resourceLock is {lock:?}; allowed: leases")),
    }
    let controller_leaders = document.controller_leaders.unwrap_or_default();
    for (i, leader) in controller_leaders.iter().enumerate() {
        for (field, value) in [("name", &leader.name), ("component", &leader.component)] {
            if value.is_empty() {
                problems.push(format!("controllerLeaders[{i}].{field} is empty"));
            }
        }
    }
    if problems.is_empty() {
        let resource_lock = "leases".to_owned();
        Ok(LeaderMigration { leader_name: document.leader_name, resource_lock, controller_leaders })
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::{ControllerLeader, LeaderMigration, MigrationLock, parse};
    use crate::options::fixture::{find, registry};

    const HEAD: &str = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n";

    #[test]
    fn a_file_is_read() {
        for version in ["v1", "v1beta1", "v1alpha1"] {
            let head = HEAD.replace("/v1", &format!("/{version}"));
            let text = format!("{head}leaderName: m\ncontrollerLeaders:\n- {{name: a, component: b}}\n");
            let migration = parse(&text).unwrap();
            assert_eq!(migration.leader_name, "m");
            assert_eq!(
                migration.controller_leaders,
                [ControllerLeader { name: "a".to_owned(), component: "b".to_owned() }]
            );
        }
        let old = HEAD.replace("/v1", "/v1beta1");
        assert!(parse(&format!("{old}leaderName: m\nresourceLock: leases\n")).is_ok());
    }

    #[test]
    fn everything_wrong_with_a_file_is_said() {
        for (text, expected) in [
            ("hello".to_owned(), vec!["invalid type"]),
            ("a: b".to_owned(), vec!["kind \"\"", "apiVersion \"\""]),
            (HEAD.replace("/v1", "/v2"), vec!["controllermanager.config.k8s.io/v2"]),
            (HEAD.replace("/v1", "v1"), vec!["unknown apiVersion"]),
            (HEAD.replace("Leader", "Lender"), vec!["LenderMigrationConfiguration"]),
            (HEAD.to_owned(), vec!["leaderName is empty"]),
            (format!("{HEAD}leaderName: m\nfoo: bar\n"), vec!["foo"]),
            (format!("{HEAD}leaderName: m\nresourceLock: leases\n"), vec!["unknown field resourceLock"]),
            (
                format!("{}resourceLock: x\ncontrollerLeaders: [{{}}]\n", HEAD.replace("/v1", "/v1beta1")),
                vec![
                    "leaderName",
                    "resourceLock is \"x\"",
                    "controllerLeaders[0].name",
                    "controllerLeaders[0].component",
                ],
            ),
        ] {
            let problems = parse(&text).unwrap_err();
            assert_eq!(problems.len(), expected.len(), "{text}: {problems:?}");
            for (problem, part) in problems.iter().zip(expected) {
                assert!(problem.contains(part), "{text}: {problem}");
            }
        }
    }

    #[test]
    fn a_controller_runs_under_one_lock() {
        let leader =
            |name: &str, component: &str| ControllerLeader { name: name.into(), component: component.into() };
        let migration = LeaderMigration {
            controller_leaders: vec![
                leader("service-lb-controller", "*"),
                leader("node-route-controller", "kube-controller-manager"),
                leader("node-ipam-controller", "cloud-controller-manager"),
                leader("deployment", "*"),
                leader("serviceaccount-token-controller", "*"),
            ],
            ..LeaderMigration::default()
        };
        for (name, lock) in [
            ("service-lb-controller", MigrationLock::Migration),
            ("node-route-controller", MigrationLock::Migration),
            ("node-ipam-controller", MigrationLock::Other),
            ("deployment-controller", MigrationLock::Main),
            ("serviceaccount-token-controller", MigrationLock::Main),
        ] {
            assert_eq!(migration.lock_of(find(name).unwrap()), lock, "{name}");
        }
        let mut warnings = Vec::new();
        migration.warn_of_aliases(registry(), &mut warnings);
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert!(warning.message.contains("\"deployment\" is an alias"), "{warning:?}");
    }
}
