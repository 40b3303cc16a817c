//! Pod CIDRs of nodes: a warning if this replica takes the Lease over in a cluster whose nodes have podCIDRs and it allocates none
//! itself. Without the flags of the former manager everything works until the next node joins, which then has no pod network.

use std::sync::Arc;
use std::time::Duration;

use coxswain_controllers::registry;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::client::{ApiClient, ApiError, ListQuery};
use coxswain_machinery::election::Leadership;
use coxswain_machinery::informer::downcast;
use coxswain_machinery::latest;
use coxswain_machinery::options::Config;
use coxswain_machinery::serve::{HealthCheck, HealthRegistry, Remark};

/// The controller that allocates podCIDRs.
const ALLOCATOR: &str = "node-ipam-controller";
/// Nodes that are read. In a cluster that allocates, nearly all nodes have a podCIDR.
const SAMPLE: u32 = 20;
/// Time between two attempts to read them.
const RETRY: Duration = Duration::from_mins(1);

/// Whether a configuration selects the allocator and does not let it allocate. A `--controllers` without the allocator leaves it to
/// another manager on purpose.
pub(super) fn is_without_allocation(config: &Config) -> bool {
    let is_selected = registry::find(ALLOCATOR).is_some_and(|row| config.selection(row).selected);
    is_selected && !config.flags.allocate_node_cidrs
}

/// Warns once, in the log and as a remark on the health pages, if this replica has taken the Lease over from another holder and
/// nodes have podCIDRs. Returns when this is known.
pub(super) async fn warn_at_takeover(
    mut leadership: latest::Receiver<Leadership>,
    client: &ApiClient,
    health: &HealthRegistry,
) {
    while !is_taken_over(&leadership.borrow_and_update()) {
        if leadership.changed().await.is_err() {
            return;
        }
    }
    let node = loop {
        match first_with_cidr(client).await {
            Ok(node) => break node,
            Err(error) => {
                tracing::debug!(%error, "Failed to read the nodes' podCIDRs; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    if let Some(node) = node {
        tracing::warn!(
            node,
            flag = "--allocate-node-cidrs",
            "Nodes have podCIDRs, but this manager allocates none; new nodes get no pod network unless another component allocates it. \
             Copy --allocate-node-cidrs, --cluster-cidr and --service-cluster-ip-range from the previous manager, \
             for example with coxswain flags-from"
        );
        health.add(Arc::new(NoAllocation));
    }
}

/// Whether this replica leads by a Lease that another holder had before.
fn is_taken_over(leadership: &Leadership) -> bool {
    leadership.leading && leadership.record.as_ref().is_some_and(|record| record.transitions > 0)
}

/// The name of a node that has a podCIDR, of the first nodes.
async fn first_with_cidr(client: &ApiClient) -> Result<Option<String>, ApiError> {
    let query = ListQuery { limit: Some(SAMPLE), ..ListQuery::default() };
    let page = client.list(&NODES, &query).await?;
    // A node that cannot be decoded is skipped: its watch reports it.
    let nodes = page.items.iter().filter_map(|item| (NODES.decode)(item).ok());
    let mut nodes = nodes.filter_map(downcast::<Node>);
    let node = nodes.find(|node| !node.spec.pod_cidrs.is_empty());
    Ok(node.map(|node| node.metadata.name.to_string()))
}

/// A check that passes and has a remark.
struct NoAllocation;

impl HealthCheck for NoAllocation {
    fn name(&self) -> &'static str {
        "nodePodCIDRs"
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn remark(&self) -> Option<Remark> {
        Some(Remark::of("nodes have podCIDRs and --allocate-node-cidrs is off"))
    }
}
