//! Planted bugs of nodes and of what runs on them.

use http::Method;
use serde_json::{Value as Json, json};

use super::{Mutant, NONE, is};
use crate::invariants::is_active;
use apiserver_model::http::Asked;
use apiserver_model::{Deletion, Model, Place, items, text};

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "all nodes get the same range of addresses",
        breaks: "no address is given twice",
        send: same_range,
        ..NONE
    },
    Mutant {
        name: "a node that lives is given up",
        breaks: "no node is given up that lives",
        after: give_up,
        ..NONE
    },
    Mutant {
        name: "pods leave a node as soon as it is tainted",
        breaks: "no toleration ends early",
        after: drive_away,
        ..NONE
    },
    Mutant {
        name: "all nodes are tainted at once",
        breaks: "nodes are tainted at their rate",
        after: give_all_up,
        ..NONE
    },
];

fn same_range(controller: &str, asked: &mut Asked) {
    if controller == "node-ipam-controller" && is(asked, &Method::PATCH, "nodes") {
        let range = "10.128.0.0/26";
        let patch = json!({ "spec": { "podCIDR": range, "podCIDRs": [range] } });
        asked.body = patch.to_string().into();
    }
}

fn give_up(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = by.strip_suffix("/node-ipam-controller") else { return };
    if !is(asked, &Method::PATCH, "nodes") {
        return;
    }
    let tainted = |node: &mut Json| {
        node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]);
    };
    let place = Place::new("nodes", "", &asked.name);
    drop(model.change(&format!("{manager}/node-lifecycle-controller"), &place, "", tainted));
}

fn give_all_up(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with("/node-ipam-controller") || !is(asked, &Method::PATCH, "nodes") {
        return;
    }
    let nodes: Vec<String> = model.all("nodes", "").map(|node| node.place.name.clone()).collect();
    for name in nodes {
        let mut one = asked.clone();
        one.name = name;
        give_up(model, by, &one);
    }
}

fn drive_away(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = by.strip_suffix("/node-lifecycle-controller") else { return };
    if !is(asked, &Method::PATCH, "nodes")
        || items(model.look("nodes", "", &asked.name), "/spec/taints").is_empty()
    {
        return;
    }
    let tolerates = |pod: &&std::sync::Arc<apiserver_model::Stored>| {
        text(&pod.json, "/spec/nodeName") == asked.name && is_active(&pod.json)
    };
    let places: Vec<Place> = model.all("pods", "").filter(tolerates).map(|pod| pod.place.clone()).collect();
    for place in places {
        drop(model.delete(&format!("{manager}/taint-eviction-controller"), &place, &Deletion::default()));
    }
}
