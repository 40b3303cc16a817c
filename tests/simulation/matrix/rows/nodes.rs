//! Controllers of nodes.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::{Row, row};
use crate::matrix::seeder::{Seeder, template};

const LIFECYCLE: &str = "node-lifecycle-controller";
const TAINT_EVICTION: &str = "taint-eviction-controller";
/// How often the controller looks at nodes, and how long a node may be silent.
const MONITORS: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_mins(1);
/// Nodes that are ready, so that their zone is not lost.
const HEALTHY: usize = 6;

pub(super) static ROWS: &[Row] = &[
    Row {
        flags: &["--allocate-node-cidrs", "--cluster-cidr=10.128.0.0/16"],
        ..row("node-ipam-controller", "patch nodes", |seeder| {
            seeder.make("nodes", json!({}));
        })
    },
    row("ttl-controller", "patch nodes", |seeder| {
        seeder.make("nodes", json!({}));
    }),
    Row {
        period: MONITORS,
        world: healthy,
        ..row(LIFECYCLE, "patch nodes", |seeder| {
            let name = seeder.tag;
            node(seeder, name, "False", true);
        })
    },
    Row {
        period: MONITORS,
        world: healthy,
        starts_after: GRACE,
        ..row(LIFECYCLE, "patch nodes/status", |seeder| {
            let name = seeder.tag;
            node(seeder, name, "True", false);
        })
    },
    Row {
        period: MONITORS,
        world: healthy,
        starts_after: GRACE,
        ..row(LIFECYCLE, "patch pods/status", |seeder| {
            let name = seeder.tag;
            node(seeder, name, "True", false);
            let pod = bound(seeder);
            let now = seeder.now().to_string();
            seeder.amend("pods", &pod, |pod| {
                pod["status"]["conditions"] =
                    json!([{ "type": "Ready", "status": "True", "lastTransitionTime": now }]);
            });
        })
    },
    row(TAINT_EVICTION, "delete pods", tainted),
    row(TAINT_EVICTION, "patch pods/status", tainted),
];

/// A node with this condition, and a Lease that is renewed if it lives.
fn node(seeder: &mut Seeder<'_>, name: &str, ready: &str, lives: bool) -> Json {
    let now = seeder.now();
    let ready = json!([{
        "type": "Ready", "status": ready, "reason": "Kubelet", "message": "by the kubelet",
        "lastHeartbeatTime": now.to_string(), "lastTransitionTime": now.to_string(),
    }]);
    let node = json!({ "metadata": { "name": name }, "status": { "conditions": ready } });
    let node = seeder.make("nodes", node);
    if lives {
        let spec = json!({
            "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format!("{now:.6}"),
        });
        let metadata = json!({ "name": name, "namespace": "kube-node-lease" });
        seeder.make("leases", json!({ "metadata": metadata, "spec": spec }));
    }
    node
}

fn healthy(seeder: &mut Seeder<'_>) {
    for number in 0..HEALTHY {
        node(seeder, &format!("healthy-{number}"), "True", true);
    }
}

/// A pod that runs on the node of the tag.
fn bound(seeder: &mut Seeder<'_>) -> Json {
    let pod = seeder.make("pods", template());
    let node = seeder.tag;
    seeder.amend("pods", &pod, |pod| {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["phase"] = json!("Running");
    })
}

/// A pod on a node with a taint that it does not tolerate.
fn tainted(seeder: &mut Seeder<'_>) {
    let node = seeder.make("nodes", json!({}));
    seeder.amend("nodes", &node, |node| {
        node["spec"]["taints"] = json!([{ "key": "matrix.test/away", "effect": "NoExecute" }]);
    });
    bound(seeder);
}
