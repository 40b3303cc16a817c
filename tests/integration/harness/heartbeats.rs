//! Leases of nodes that nobody plays, renewed as kubelets would: those that tests name, until they name others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// How often Leases are renewed: many times within any grace period.
const PERIOD: Duration = Duration::from_millis(500);
/// Leases that are renewed at the same time.
const AT_A_TIME: usize = 8;

/// Names of nodes, by whose they are.
type Alive = BTreeMap<String, BTreeSet<String>>;

/// Renews Leases as long as it lives.
pub(crate) struct Heartbeats {
    leases: Api<Lease>,
    alive: Arc<Mutex<Alive>>,
    _renewing: JoinSet<()>,
}

impl Heartbeats {
    pub(crate) fn start(client: Client) -> Self {
        let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
        let alive = Arc::new(Mutex::new(Alive::new()));
        let mut renewing = JoinSet::new();
        renewing.spawn(renew_all(leases.clone(), Arc::clone(&alive)));
        Self { leases, alive, _renewing: renewing }
    }

    /// From here on the Leases of these nodes are renewed, and those of no others of the same owner.
    pub(crate) async fn renew(&self, whose: &str, nodes: BTreeSet<String>) {
        for node in &nodes {
            renew(&self.leases, node).await;
        }
        self.alive.lock().insert(whose.to_owned(), nodes);
    }
}

async fn renew_all(leases: Api<Lease>, alive: Arc<Mutex<Alive>>) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let nodes: Vec<String> = alive.lock().values().flatten().cloned().collect();
        let renewals = nodes.into_iter().map(async |node: String| renew(&leases, &node).await);
        futures::stream::iter(renewals).buffer_unordered(AT_A_TIME).for_each(|()| async {}).await;
    }
}

async fn renew(leases: &Api<Lease>, node: &str) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": node },
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": 40,
            "renewTime": format!("{:.6}", SystemClock.now()),
        },
    });
    let renewed = leases.patch(node, &PatchParams::apply("parity").force(), &Patch::Apply(&lease)).await;
    drop(renewed.unwrap_or_else(|error| panic!("the Lease of {node} is renewed: {error}")));
}
