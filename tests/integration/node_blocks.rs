//! Blocks of Pod addresses for nodes: from one manager to the other and back, until none is left, and beside a node of another
//! cluster.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Options, Program, object, until};

const LIMIT: Duration = Duration::from_mins(3);
/// Four blocks; both managers run this and nothing else.
const ARGS: [&str; 8] = [
    "--controllers=node-ipam-controller",
    "--use-service-account-credentials",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.244.0.0/28",
    "--node-cidr-mask-size=30",
    // Leadership is to move without a long wait.
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

async fn create(nodes: &Api<Node>, name: &str, spec: Value) {
    let node = object(json!({ "metadata": { "name": name }, "spec": spec }));
    nodes.create(&PostParams::default(), &node).await.expect("the node is created");
}

async fn delete(nodes: &Api<Node>, name: &str) {
    drop(nodes.delete(name, &DeleteParams::default()).await.expect("it is deleted"));
}

/// Who has which block.
async fn blocks(nodes: &Api<Node>) -> BTreeMap<String, String> {
    let all = nodes.list(&ListParams::default()).await.expect("nodes").items.into_iter();
    let held = all.filter_map(|node| node.metadata.name.zip(node.spec?.pod_cidr));
    held.collect()
}

/// A node is given this block.
async fn gets(nodes: &Api<Node>, name: &str, block: &str) {
    let look = || async { blocks(nodes).await.get(name).cloned() };
    let found = until(&format!("{name} has a block"), LIMIT, look, Option::is_some).await;
    assert_eq!(found.as_deref(), Some(block), "{name}");
}

/// Nodes that a manager has written to, from this many requests on.
fn written(plane: &ControlPlane, since: usize, program: Program) -> Vec<String> {
    let audit = plane.audit();
    let own = audit.iter().skip(since).filter(|event| event.is_from(program));
    let own = own.filter(|event| event.is_write() && event.object_ref.resource == "nodes");
    own.map(|event| event.object_ref.name.clone()).collect()
}

#[tokio::test]
async fn blocks_change_hands_twice_run_out_and_are_never_given_over_what_does_not_fit() {
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    let nodes: Api<Node> = Api::all(plane.cluster().await.client);
    let go = plane.go_manager("go-1", &ARGS);
    for (name, block) in [("a", "10.244.0.0/30"), ("b", "10.244.0.4/30"), ("c", "10.244.0.8/30")] {
        create(&nodes, name, json!({})).await;
        gets(&nodes, name, block).await;
    }
    delete(&nodes, "b").await;

    let since = plane.audit().len();
    go.stop();
    let ours = plane.coxswain("coxswain-1", &ARGS);
    ours.await_start(LIMIT).await;
    // What somebody else has given is known, and a new process begins at the beginning.
    create(&nodes, "d", json!({})).await;
    gets(&nodes, "d", "10.244.0.4/30").await;
    create(&nodes, "e", json!({})).await;
    gets(&nodes, "e", "10.244.0.12/30").await;
    assert_eq!(written(&plane, since, Program::Coxswain), ["d", "e"]);

    // Nothing is left: it is said, and whoever waits has its block when there is one.
    create(&nodes, "f", json!({})).await;
    let explained = |name: &'static str| {
        let plane = &plane;
        move || async move {
            let client = Command::new(env!("CARGO_BIN_EXE_coxswain"))
                .args(["explain", "node", name, "--controller", "node-ipam-controller"])
                .env("KUBECONFIG", &plane.report.kubeconfigs["admin"])
                .output();
            String::from_utf8(client.expect("the program").stdout).expect("text")
        }
    };
    until("it is said that it waits", LIMIT, explained("f"), |told| {
        told.contains(
            "The range 10.244.0.0/28 has no free block; the node waits until another node is deleted.",
        )
    })
    .await;
    let events = || async {
        let path = "jsonpath={.items[*].message}";
        plane.kubectl(&["get", "events", "--field-selector=involvedObject.name=f", "-o", path])
    };
    until("an event", LIMIT, events, |told| told.contains("Node f status is now: CIDRNotAvailable")).await;
    delete(&nodes, "c").await;
    gets(&nodes, "f", "10.244.0.8/30").await;
    assert_eq!(ours.errors(), Vec::<String>::new());

    // The Go manager finds nothing to do, and goes on.
    delete(&nodes, "a").await;
    let since = plane.audit().len();
    ours.stop();
    let go = plane.go_manager("go-2", &ARGS);
    go.await_start(LIMIT).await;
    create(&nodes, "g", json!({})).await;
    gets(&nodes, "g", "10.244.0.0/30").await;
    assert_eq!(written(&plane, since, Program::Go), ["g"]);
    go.stop();

    // A node of another cluster: the original does not start; ours says so, and gives nothing until it is gone.
    delete(&nodes, "d").await;
    create(&nodes, "stranger", json!({ "podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"] })).await;
    let ours = plane.coxswain("coxswain-2", &ARGS);
    ours.await_start(LIMIT).await;
    create(&nodes, "h", json!({})).await;
    let log = || async { ours.log() };
    until("it is said why nothing is given", LIMIT, log, |text| {
        text.contains(
            "allocation of Pod CIDRs is suspended: the existing node stranger has the Pod CIDR 10.9.0.0/24",
        )
    })
    .await;
    until("it is said to who asks", LIMIT, explained("h"), |told| {
        told.contains("Allocation of Pod CIDRs is suspended")
    })
    .await;
    assert!(!blocks(&nodes).await.contains_key("h"));
    delete(&nodes, "stranger").await;
    gets(&nodes, "h", "10.244.0.4/30").await;

    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
}
