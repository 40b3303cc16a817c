//! The admin API of running managers: what it shows, what it changes, who may, and what it bears.
//!
//! Tests that stop controllers have a control plane of their own, and take turns.

mod caller;
mod crowd;
mod failover;
mod groups;
mod hostile;
mod interruptions;
mod orders;
mod ports;
mod sync;
mod toggles;
mod transcript;

use std::path::PathBuf;
use std::time::Duration;

use coxswain::admin::proto;

pub(crate) use self::caller::Admin;
pub(crate) use self::caller::{Who, files};
use crate::harness::{ControlPlane, Manager, Options, until};

/// How long anything may take.
const LIMIT: Duration = Duration::from_mins(1);
const DEPLOYMENT: &str = "deployment-controller";
const REPLICA_SET: &str = "replicaset-controller";
/// These watch Deployments too, two of them as they watch everything.
const WATCH_DEPLOYMENTS: [&str; 3] =
    ["disruption-controller", "garbage-collector-controller", "resourcequota-controller"];

/// A control plane without nodes: nothing here needs pods.
fn bare() -> Options {
    Options { nodes: 0, args: vec!["--scheduler=false", "--kwok=false", "--audit"] }
}

/// The kubeconfig of a user whose group may view and operate.
fn operator(plane: &ControlPlane) -> PathBuf {
    let root = env!("CARGO_MANIFEST_DIR");
    plane.kubectl(&["apply", "-f", &format!("{root}/deploy/kustomize/roles/operator.yaml")]);
    let role = "--clusterrole=coxswain-admin-operator";
    plane.kubectl(&["create", "clusterrolebinding", "operators", role, "--group=operators"]);
    plane.identity("operator", &["operators"])
}

/// The names of the controllers that are built.
pub(crate) fn built() -> Vec<&'static str> {
    crate::harness::built().map(|row| row.name).collect()
}

/// Waits until every controller that is built runs.
async fn all_run(admin: &Admin) -> Vec<proto::Controller> {
    let built = built();
    let observe = || admin.list(&built);
    until("all controllers to run", LIMIT, observe, |all| {
        all.len() == built.len() && all.iter().all(|each| each.phase() == proto::Phase::Running)
    })
    .await
}

/// Nothing has panicked, and the process is the one that was started.
fn assert_unharmed(plane: &ControlPlane, manager: &Manager<'_>) {
    let log = manager.log();
    let panicked = log.lines().find(|line| line.contains("panicked"));
    assert_eq!(panicked, None, "{} panicked", manager.name);
    assert_eq!(manager.exit(), "", "{} has ended", manager.name);
    assert_eq!(plane.running(&manager.name).pid, manager.pid, "{} was started anew", manager.name);
}
