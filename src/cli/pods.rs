//! The pod of a replica, for `--via-pod`.
//!
//! An identity begins with the name of the machine. In a pod with a network of its own that is the pod's name; in a pod on the
//! host's network, as of kubeadm's static pods, it is the node's.

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use super::discover::machine_of;
use super::error::CliError;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::client::{ApiClient, Query, RequestIntent, RequestPath};

/// Namespace of the replicas' pods.
pub(super) const NAMESPACE: &str = "kube-system";
/// Labels of pods of managers: of the Deployment and the chart, and of static pods made from kubeadm's manifest.
const SELECTORS: [&str; 2] = ["app.kubernetes.io/name=coxswain", "component=kube-controller-manager"];
/// Characters of the name of a machine. Kubernetes cuts the host's name of a pod after these.
const LONGEST_HOST: usize = 63;

#[derive(Deserialize)]
struct PodList {
    items: Vec<Pod>,
}

/// Lists the pods of managers.
pub(super) async fn list(api: &ApiClient) -> Result<Vec<Pod>, CliError> {
    let mut pods = Vec::new();
    for selector in SELECTORS {
        let query = Query::default().with("labelSelector", selector);
        let path = RequestPath::collection(&PODS, NAMESPACE);
        let listed: Result<PodList, _> = api.json(RequestIntent::List, path, &query, None::<&()>).await;
        pods.extend(listed.map_err(CliError::Cluster)?.items);
    }
    Ok(pods)
}

/// Finds the pod of the replica with this identity.
pub(super) fn find<'a>(pods: &'a [Pod], identity: &str) -> Result<&'a str, String> {
    let machine = machine_of(identity);
    let names = pods.iter().filter(|pod| is_on(pod, machine)).filter_map(|pod| pod.metadata.name.as_deref());
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [name] => Ok(name),
        [] => Err(format!(
            "--via-pod: no pod in {NAMESPACE} with label {} runs on node {machine}",
            SELECTORS.join(" or ")
        )),
        several => Err(format!(
            "--via-pod: several pods in {NAMESPACE} run on node {machine}: {}",
            several.join(", ")
        )),
    }
}

/// Whether a process in the pod sees this name of its machine.
fn is_on(pod: &Pod, machine: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let has_ended = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
    if has_ended {
        return false;
    }
    if spec.host_network == Some(true) {
        // A node may be registered by its full name while its kernel has the short one, or the other way round.
        let node = spec.node_name.as_deref().unwrap_or_default();
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let is_short = !node.contains('.') || !machine.contains('.');
        return !node.is_empty()
            && (node.eq_ignore_ascii_case(machine) || (is_short && short(node) == short(machine)));
    }
    let host = spec.hostname.as_deref().or(pod.metadata.name.as_deref()).unwrap_or_default();
    let end = host.len().min(LONGEST_HOST);
    host.get(..end).unwrap_or(host).trim_end_matches(['-', '.']) == machine
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pods(all: &[Value]) -> Vec<Pod> {
        all.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect()
    }

    fn on_node(name: &str, node: &str) -> Value {
        json!({ "metadata": { "name": name }, "spec": { "hostNetwork": true, "nodeName": node, "containers": [] } })
    }

    fn own(name: &str) -> Value {
        json!({ "metadata": { "name": name }, "spec": { "nodeName": "node-a", "containers": [] } })
    }

    #[test]
    fn pod_of_a_replica_is_found_by_the_machine_in_its_identity() {
        let long = format!("{}-x", "a".repeat(62));
        let mut named = own("web");
        named["spec"]["hostname"] = json!("by-hand");
        let mut ended = own("coxswain-old");
        ended["status"] = json!({ "phase": "Failed" });
        let pods = pods(&[
            on_node("kube-controller-manager-node-a", "node-a"),
            on_node("kube-controller-manager-node-b", "node-b.example.org"),
            on_node("kube-controller-manager-unbound", ""),
            own("coxswain-7d9-x2x"),
            own(&long),
            named,
            ended,
        ]);
        for (identity, expected) in [
            ("node-a_1", Some("kube-controller-manager-node-a")),
            ("node-b_2", Some("kube-controller-manager-node-b")),
            ("node-b.example.org_2", Some("kube-controller-manager-node-b")),
            ("node-b.example.com_2", None),
            ("node-a.example.org_1", Some("kube-controller-manager-node-a")),
            ("coxswain-7d9-x2x_3", Some("coxswain-7d9-x2x")),
            (&format!("{}_4", "a".repeat(62)), Some(long.as_str())),
            ("by-hand_5", Some("web")),
            ("web_5", None),
            ("coxswain-old_6", None),
            ("node-c_7", None),
            ("_8", None),
            ("", None),
        ] {
            assert_eq!(find(&pods, identity).ok(), expected, "{identity}");
        }
    }

    #[test]
    fn pod_that_is_not_the_only_one_is_not_chosen() {
        let both = pods(&[on_node("a", "node-a"), on_node("b", "node-a"), on_node("a", "node-a")]);
        let error = find(&both, "node-a_1").unwrap_err();
        assert_eq!(error, "--via-pod: several pods in kube-system run on node node-a: a, b");
        let same = pods(&[on_node("a", "node-a"), on_node("a", "node-a")]);
        assert_eq!(find(&same, "node-a_1"), Ok("a"), "it has both labels");
        let error = find(&[], "node-a_1").unwrap_err();
        assert!(error.contains("runs on node node-a"), "{error}");
    }
}
