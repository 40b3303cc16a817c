//! The manager's own role against what it asks for: what is refused, and what is granted and never used.

use serde_json::Value;

use super::NAMESPACE;
use crate::harness::{AuditEvent, ControlPlane};

/// Used on API servers alone that do not stream lists: those of here do, and nothing is listed.
const OF_OTHER_SERVERS: [&str; 3] = ["*", "*", "list"];
/// Used when one replica leads twice and says so twice. Orders are events of their own each.
const OF_REPETITIONS: [&str; 3] = ["", "events", "patch"];
/// Used with the feature gate `CoordinatedLeaderElection` alone.
const OF_GATES: &str = "leasecandidates";
const ACCOUNT: &str = "system:serviceaccount:kube-system:coxswain";

/// One verb on one resource, everywhere or in one namespace.
#[derive(Debug)]
struct Granted {
    namespace: Option<&'static str>,
    group: String,
    resource: String,
    verb: String,
}

impl Granted {
    fn covers(&self, event: &AuditEvent) -> bool {
        let matches = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        self.verb == event.verb
            && matches(&self.group, &event.object_ref.api_group)
            && matches(&self.resource, &event.resource())
            && self.namespace.is_none_or(|namespace| namespace == event.object_ref.namespace)
    }
}

/// What the roles called coxswain grant.
fn granted(plane: &ControlPlane) -> Vec<Granted> {
    let mut all = Vec::new();
    for (kind, namespace) in [("clusterrole", None), ("role", Some(NAMESPACE))] {
        let role = plane.kubectl(&["-n", NAMESPACE, "get", kind, "coxswain", "-o", "json"]);
        let role: Value = serde_json::from_str(&role).expect("JSON");
        let texts = |value: &Value| -> Vec<String> {
            let values = value.as_array().expect("a list").iter();
            values.map(|each| each.as_str().expect("text").to_owned()).collect()
        };
        for rule in role["rules"].as_array().expect("rules") {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        let (group, resource) = (group.clone(), resource.clone());
                        all.push(Granted { namespace, group, resource, verb });
                    }
                }
            }
        }
    }
    all
}

/// Nothing that the manager asked for was refused, and everything that it may do it has done.
pub(super) fn assert_exact(plane: &ControlPlane) {
    let events = plane.audit();
    let by_the_manager = |event: &&AuditEvent| event.user.username == ACCOUNT;
    let asked: Vec<&AuditEvent> = events.iter().filter(by_the_manager).collect();
    assert!(asked.len() > 100, "only {} requests", asked.len());
    // As itself, and as its controllers' accounts; people's clients are another matter.
    let is_ours = |event: &&AuditEvent| {
        event.coxswain().is_some() && event.user.username.starts_with("system:serviceaccount:kube-system:")
    };
    let refused = events.iter().filter(is_ours).filter(|event| event.is_forbidden());
    let refused: Vec<String> =
        refused.map(|event| format!("{} {} by {}", event.verb, event.uri, event.user.username)).collect();
    assert_eq!(refused, Vec::<String>::new());
    let granted = granted(plane);
    assert!(granted.len() > 10, "{granted:?}");
    let is_expected = |grant: &&Granted| {
        let held = [grant.group.as_str(), grant.resource.as_str(), grant.verb.as_str()];
        ![OF_OTHER_SERVERS, OF_REPETITIONS].contains(&held) && grant.resource != OF_GATES
    };
    let unused = granted.iter().filter(|grant| !asked.iter().any(|event| grant.covers(event)));
    let unused: Vec<&Granted> = unused.filter(is_expected).collect();
    assert!(unused.is_empty(), "granted and never used: {unused:#?}");
}
