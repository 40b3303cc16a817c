//! Replicas that are reached through their pods.

use serde_json::json;

use super::server::*;
use crate::admin::testing::fake::{ME, OTHER};
use crate::cli::environment::Environment;
use crate::cli::error::Exit;

/// The address that all static pods of kubeadm announce.
const LOOPBACK: &str = "127.0.0.1:10257";
const PORT: u16 = 10257;

/// Runs a command on a machine that is no node of the cluster.
async fn run_elsewhere(cluster: &Replica, line: &[&str]) -> Ran {
    let kubeconfig = cluster.kubeconfig(&cluster.authority, &json!({ "token": TOKEN }));
    let variables = [("KUBECONFIG", kubeconfig.to_str().unwrap()), ("COXSWAIN_SERVER", "127.0.0.1:9")];
    let variables = if line.contains(&"--via-pod") { &variables[..] } else { &variables[..1] };
    let mut environment = Environment::new(cluster.manager.clock(), variables);
    environment.host = Some("laptop".to_owned());
    run(environment, line).await
}

#[tokio::test]
async fn replica_on_the_loopback_of_a_node_is_reached_through_its_pod() {
    let cluster = Replica::start().await;
    cluster.announce(&[lease(ME, LOOPBACK, 0, None)], Some(ME));
    cluster.cluster().add_static_pod("node-a", PORT, &cluster.address);
    let ran = run_elsewhere(&cluster, &["controllers"]).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("use --via-pod"), "{ran:?}");
    cluster.seen();

    let ran = run_elsewhere(&cluster, &["controllers", "--via-pod"]).await;
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    let seen = cluster.seen();
    let tunnel = "/api/v1/namespaces/kube-system/pods/kube-controller-manager-node-a/portforward";
    let paths: Vec<&str> = seen.iter().map(|(path, _)| path.as_str()).collect();
    assert!(paths.contains(&tunnel), "{paths:?}");
    let bearer = Some(format!("Bearer {TOKEN}"));
    assert!(seen.iter().all(|(_, token)| *token == bearer), "{seen:?}");
}

#[tokio::test]
async fn leader_among_equal_addresses_is_found_by_its_identity() {
    let (standby, leader) = (Replica::start().await, Replica::start().await);
    standby.manager.lose(OTHER);
    standby.manager.set(|state| state.replicas[1].admin_address = LOOPBACK.to_owned());
    standby.cluster().add_static_pod("node-a", PORT, &standby.address);
    standby.cluster().add_static_pod("node-b", PORT, &leader.address);
    let leases = [
        lease(ME, LOOPBACK, 0, Some(&standby.authority)),
        lease(OTHER, LOOPBACK, 0, Some(&leader.authority)),
    ];
    let line = ["sync", "deployment", "default/web", "--trust-announced-authority", "--via-pod"];
    // The Lease names the leader; a standby names the leader; a replica that has lost the Lease names the leader.
    for (at, holder) in [Some(OTHER), None, Some(ME)].into_iter().enumerate() {
        standby.announce(&leases, holder);
        let ran = run_elsewhere(&standby, &line).await;
        assert_eq!(ran.exit, Exit::Done, "{holder:?}: {ran:?}");
        assert_eq!(leader.manager.state.lock().synced.len(), at + 1, "{holder:?}");
    }
    assert!(standby.manager.state.lock().synced.is_empty());
}

#[tokio::test]
async fn token_does_not_go_through_a_tunnel_to_a_server_that_nobody_vouches_for() {
    let (cluster, impostor) = (Replica::start().await, Replica::start().await);
    cluster.announce(&[lease(ME, LOOPBACK, 0, None)], Some(ME));
    cluster.cluster().add_static_pod("node-a", PORT, &impostor.address);
    let ran = run_elsewhere(&cluster, &["controllers", "--via-pod"]).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("no trusted CA signed it"), "{ran:?}");
    assert!(impostor.seen().is_empty());
}

#[tokio::test]
async fn missing_pods_ports_and_permissions_are_named() {
    let cluster = Replica::start().await;
    cluster.announce(&[lease(ME, LOOPBACK, 0, None)], Some(ME));
    let ran = run_elsewhere(&cluster, &["controllers", "--via-pod"]).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("runs on node node-a"), "{ran:?}");

    cluster.cluster().add_static_pod("node-a", PORT + 1, &cluster.address);
    let ran = run_elsewhere(&cluster, &["controllers", "--via-pod"]).await;
    assert!(ran.exit == Exit::Unreachable && ran.err.contains("connection refused"), "{ran:?}");

    cluster.cluster().forbid(Some("/portforward"));
    let ran = run_elsewhere(&cluster, &["controllers", "--via-pod"]).await;
    assert_eq!(ran.exit, Exit::Unreachable, "{ran:?}");
    let pod = "kube-system/kube-controller-manager-node-a";
    for words in [pod, "responded with 403: pods is forbidden", "`get` and `create` on pods/portforward"] {
        assert!(ran.err.contains(words), "{words}: {ran:?}");
    }

    cluster.cluster().forbid(Some("/pods"));
    let ran = run_elsewhere(&cluster, &["controllers", "--via-pod"]).await;
    assert!(ran.exit == Exit::Denied && ran.err.contains("pods"), "{ran:?}");
}

#[tokio::test]
async fn pod_and_server_exclude_each_other() {
    let cluster = Replica::start().await;
    let ran = run_elsewhere(&cluster, &["controllers", "--via-pod", "--server", LOOPBACK]).await;
    assert!(ran.exit == Exit::Usage && ran.err.contains("--server"), "{ran:?}");
}
