//! Blocks of Pod addresses under faults: nodes come together while answers are lost, writes are refused, watches are cut and the
//! controller is ended in the middle of it. No block is given twice, and none is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coxswain::manager::{Controller, Phase, supervise};
use coxswain_controllers::nodes::node_ipam;
use coxswain_machinery::client::{Fault, FaultRule, Faults};
use coxswain_machinery::framework::{Descriptor, Stop};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::stage::{Shared, shared};
use crate::harness::{by_depth, event_logger, faulty_clients, object, runtime_on, until};

const LIMIT: Duration = Duration::from_mins(3);
const GRACE: Duration = Duration::from_secs(10);
/// As many nodes as there are blocks, with the one that is there.
const NODES: usize = 31;
const CLUSTER: &str = "10.250.0.0/23";
const PREFIX: i32 = 28;
/// How many nodes have their block when the controller is ended without a word.
const ENDS: [usize; 3] = [5, 14, 23];

static BLOCKS: Descriptor = node_ipam::DESCRIPTOR;

/// Watches are cut once all nodes were told of: a list that is never whole would be another matter.
fn suffer(faults: &Faults) {
    let on = |fault, probability| {
        FaultRule::new(fault).method(Method::PATCH).path("*/nodes/*").probability(probability)
    };
    let code = StatusCode::INTERNAL_SERVER_ERROR;
    faults.add(on(Fault::LoseAnswer, 0.1));
    faults.add(on(Fault::Status { code, reason: "InternalError", retry_after: None }, 0.1));
    faults.add(FaultRule::new(Fault::Cut { after: 80_000 }).watch(true).probability(0.5));
}

/// The controller in this process, until it is ended.
struct Running(JoinSet<Stop>);

impl Running {
    async fn start(shared: &Shared, seed: u64) -> Self {
        let faults = Faults::new(seed);
        suffer(&faults);
        let clients = faulty_clients(&shared.plane.report.kubeconfigs["admin"], &faults).await;
        let mut runtime = runtime_on(clients);
        let flags = &mut runtime.config.flags;
        flags.allocate_node_cidrs = true;
        CLUSTER.clone_into(&mut flags.cluster_cidr);
        flags.node_cidr_mask_size = PREFIX;
        let controller = Arc::new(Controller::new(&BLOCKS, Phase::Standby, true, event_logger()));
        let mut tasks = JoinSet::new();
        tasks.spawn(supervise(
            Arc::clone(&controller),
            Arc::new(runtime),
            Some(GRACE),
            CancellationToken::new(),
        ));
        controller.wish(|wish| wish.lead = true);
        Self(tasks)
    }

    /// As if it was killed: nothing that it began is brought to its end, and nothing is remembered.
    async fn kill(mut self) {
        self.0.abort_all();
        while self.0.join_next().await.is_some() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_block_is_given_twice_and_none_is_lost_whatever_fails() {
    // The simulation shows as much in `make test`: see CONTRIBUTING.md.
    if !by_depth(false, true) {
        return;
    }
    let shared = shared().await;
    let nodes: Api<Node> = Api::all(shared.plane.cluster().await.client);
    let mut running = Running::start(&shared, 1).await;
    for at in 0..NODES {
        let node = object(json!({
            "metadata": { "name": format!("blocks-{at}") },
            "spec": { "unschedulable": true },
        }));
        nodes.create(&PostParams::default(), &node).await.expect("the node is created");
    }
    let given = async || {
        let all = nodes.list(&ListParams::default()).await.expect("nodes").items;
        let blocks = all.into_iter().filter_map(|node| node.spec?.pod_cidr);
        let blocks: Vec<String> = blocks.collect();
        let distinct: BTreeSet<&String> = blocks.iter().collect();
        assert_eq!(distinct.len(), blocks.len(), "one was given twice: {blocks:?}");
        blocks.len()
    };
    for (seed, least) in (2..).zip(ENDS) {
        until("nodes have blocks", LIMIT, given, |count| *count >= least).await;
        running.kill().await;
        running = Running::start(&shared, seed).await;
    }
    until("all nodes have one", LIMIT, given, |count| *count == NODES + 1).await;
    running.kill().await;
    // Others look at nodes, too.
    for at in 0..NODES {
        let deleted = nodes.delete(&format!("blocks-{at}"), &DeleteParams::default()).await;
        drop(deleted.expect("it is deleted"));
    }
}
