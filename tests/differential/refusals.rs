//! Refusals of a manager's writes: an admission webhook that each list sets for its namespace.
//!
//! A webhook can answer with every status code, and a change is in force at once. A ValidatingAdmissionPolicy can refuse with 401, 403, 413 and
//! 422 only, about a second after it was written.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{Cluster, ControlPlane, TlsServer, create, eventually, object, webhook};

/// The label of namespaces for whose writes the API server calls the webhook.
pub(crate) const LABEL: (&str, &str) = ("refusals", "on");
/// A namespace in which the webhook refuses the writes of all users.
const PROBE: &str = "probe-of-refusals";
const LIMIT: Duration = Duration::from_mins(1);

/// Status codes and their reasons.
pub(crate) const REASONS: [(u16, &str); 7] = [
    (403, "Forbidden"),
    (404, "NotFound"),
    (409, "Conflict"),
    (422, "Invalid"),
    (429, "TooManyRequests"),
    (500, "InternalError"),
    (503, "ServiceUnavailable"),
];

/// Writes that are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// `CREATE`, `UPDATE` (also of patches) or `DELETE`.
    pub(crate) operation: String,
    /// `RESOURCE` or `RESOURCE/SUBRESOURCE`.
    pub(crate) resource: String,
    pub(crate) code: u16,
    /// Number of writes that are refused, or 0 for all writes.
    pub(crate) times: usize,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.operation, self.resource, self.code, self.times)
    }
}

impl FromStr for Refusal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not OPERATION RESOURCE CODE TIMES");
        let [operation, resource, code, times] = text.split(' ').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let code = code.parse().map_err(|_| wrong())?;
        if REASONS.iter().all(|(known, _)| *known != code) {
            return Err(format!("{code} is no code of a refusal"));
        }
        Ok(Self {
            operation: operation.to_owned(),
            resource: resource.to_owned(),
            code,
            times: times.parse().map_err(|_| wrong())?,
        })
    }
}

/// Refusals in force, by namespace.
type Rules = BTreeMap<String, Vec<Refusal>>;

/// The webhook of a control plane. It stops when `Refusals` is dropped.
pub(crate) struct Refusals {
    rules: Arc<Mutex<Rules>>,
    _webhook: TlsServer,
}

impl Refusals {
    /// Starts the webhook and waits until the API server calls it.
    pub(crate) async fn start(control_plane: &ControlPlane, cluster: &Cluster) -> Self {
        let rules = Arc::new(Mutex::new(Rules::new()));
        let judging = Arc::clone(&rules);
        let (server, config) =
            webhook(control_plane, move |request| judge(request, &mut judging.lock())).await;
        let (key, value) = LABEL;
        let webhooks = json!({ "metadata": { "name": "refusals" }, "webhooks": [{
            "name": "refusals.coxswain.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "clientConfig": config,
            "namespaceSelector": { "matchLabels": { key: value } },
            "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE", "DELETE"],
                "resources": ["*/*"], "scope": "Namespaced" }],
        }] });
        create::<ValidatingWebhookConfiguration>(Api::all(cluster.client.clone()), webhooks).await;
        let refusals = Self { rules, _webhook: server };
        refusals.wait(cluster).await;
        refusals
    }

    async fn wait(&self, cluster: &Cluster) {
        let (key, value) = LABEL;
        let namespace = json!({ "metadata": { "name": PROBE, "labels": { key: value } } });
        create::<Namespace>(Api::all(cluster.client.clone()), namespace).await;
        self.refuse(PROBE, "CREATE configmaps 422 0".parse().expect("a refusal"));
        let config_maps: Api<ConfigMap> = Api::namespaced(cluster.once.clone(), PROBE);
        let probe = object::<ConfigMap>(json!({ "metadata": { "name": "probe" } }));
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let is_refused = async || matches!(config_maps.create(&dry_run, &probe).await, Err(kube::Error::Api(error)) if error.code == 422);
        eventually("the webhook is in force", LIMIT, is_refused).await;
    }

    /// Refuses such writes of the manager in a namespace.
    pub(crate) fn refuse(&self, namespace: &str, refusal: Refusal) {
        self.rules.lock().entry(namespace.to_owned()).or_default().push(refusal);
    }

    /// Ends the refusals in a namespace.
    pub(crate) fn allow(&self, namespace: &str) {
        self.rules.lock().remove(namespace);
    }
}

/// Returns the response to the request of an AdmissionReview, and counts a refusal.
fn judge(request: &Value, rules: &mut Rules) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = text(&request["namespace"]);
    let mut resource = text(&request["resource"]["resource"]);
    let subresource = text(&request["subResource"]);
    if !subresource.is_empty() {
        resource = format!("{resource}/{subresource}");
    }
    let is_concerned = namespace == PROBE || is_manager(&text(&request["userInfo"]["username"]));
    let fits =
        |rule: &&mut Refusal| request["operation"] == rule.operation.as_str() && resource == rule.resource;
    let rules = rules.entry(namespace).or_default();
    let Some(rule) = rules.iter_mut().filter(|_| is_concerned).find(fits) else {
        return json!({ "allowed": true });
    };
    let code = rule.code;
    match rule.times {
        0 => {}
        // The limit is reached: an empty operation matches no request.
        1 => rule.operation.clear(),
        more => rule.times = more - 1,
    }
    let reason = REASONS.iter().find(|(known, _)| *known == code).map_or("", |(_, reason)| reason);
    let mut status = json!({ "code": code, "reason": reason, "message": format!("{resource}: {reason}") });
    if code == 429 {
        status["details"] = json!({ "retryAfterSeconds": 1 });
    }
    json!({ "allowed": false, "status": status })
}

fn is_manager(user: &str) -> bool {
    user == "system:kube-controller-manager" || user.starts_with("system:serviceaccount:kube-system:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(user: &str, operation: &str, resource: &str, subresource: &str) -> Value {
        json!({
            "namespace": "d1x1", "operation": operation, "userInfo": { "username": user },
            "resource": { "resource": resource }, "subResource": subresource,
        })
    }

    #[test]
    fn writes_of_a_manager_that_a_rule_names_are_refused() {
        let controller = "system:serviceaccount:kube-system:replicaset-controller";
        let rule = "CREATE pods 403 0".parse().expect("a refusal");
        let mut rules: Rules = [("d1x1".to_owned(), vec![rule]), ("d1x2".to_owned(), Vec::new())].into();
        let mut code = |user, operation, resource, subresource| {
            judge(&request(user, operation, resource, subresource), &mut rules)["status"]["code"].clone()
        };
        for (user, operation, resource, subresource, expected) in [
            (controller, "CREATE", "pods", "", json!(403)),
            ("system:kube-controller-manager", "CREATE", "pods", "", json!(403)),
            ("kubernetes-admin", "CREATE", "pods", "", Value::Null),
            (controller, "UPDATE", "pods", "", Value::Null),
            (controller, "CREATE", "pods", "eviction", Value::Null),
            (controller, "CREATE", "services", "", Value::Null),
        ] {
            assert_eq!(
                code(user, operation, resource, subresource),
                expected,
                "{user} {operation} {resource}"
            );
        }
    }

    #[test]
    fn rule_ends_after_its_number_of_times() {
        let rule = "UPDATE jobs/status 429 2".parse().expect("a refusal");
        let mut rules: Rules = [("d1x1".to_owned(), vec![rule])].into();
        let job = request("system:kube-controller-manager", "UPDATE", "jobs", "status");
        let answers: Vec<Value> = (0..3).map(|_| judge(&job, &mut rules)).collect();
        assert_eq!(answers[0]["status"]["reason"], "TooManyRequests");
        assert_eq!(answers[1]["status"]["details"]["retryAfterSeconds"], 1);
        assert_eq!(answers[2], json!({ "allowed": true }));
    }

    #[test]
    fn refusal_is_read_back_from_its_line() {
        for (code, _) in REASONS {
            let line = format!("DELETE pods {code} 1");
            assert_eq!(line.parse::<Refusal>().map(|refusal| refusal.to_string()), Ok(line));
        }
        for line in ["", "CREATE pods 403", "CREATE pods 200 0", "CREATE pods x 0", "CREATE pods 403 -1"] {
            assert!(line.parse::<Refusal>().is_err(), "{line}");
        }
    }
}
