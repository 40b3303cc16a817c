//! Checks the access rights of the manager and of the accounts of its controllers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_yaml_ng::Value;

use super::flags::Manager;
use super::{ACCESS_UNKNOWN, CONTROLLER_ACCESS, Check, Finding, MANAGER_ACCESS};
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::EVENTS_GRANT;
use coxswain_machinery::options::SelectionState;

/// The roles of the manager itself.
const ROLES: &str = include_str!("../../../deploy/kustomize/overlays/deployment/rbac.yaml");
/// Namespace of the manager, of its Leases and of the accounts of its controllers.
const NAMESPACE: &str = "kube-system";
/// Rules that only a feature gate needs.
const OF_GATES: &str = "leasecandidates";
/// Groups and resources of controllers that kube-apiserver's roles allow only with a feature gate, or for one name alone.
const NOT_ASKED: [(&str, &str); 5] = [
    ("scheduling.k8s.io", "podgroups"),
    ("scheduling.k8s.io", "podgroups/status"),
    ("scheduling.k8s.io", "workloads"),
    ("resource.k8s.io", "devicetaintrules"),
    ("resource.k8s.io", "devicetaintrules/status"),
];
/// Account whose role allows one ConfigMap by its name.
const BOOTSTRAP_SIGNER: &str = "bootstrap-signer";
/// The manager's own user in clusters of kubeadm.
pub(in crate::cli) const USER: &str = "system:kube-controller-manager";

/// One verb on one resource, everywhere or in one namespace, for one user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cli) struct Question {
    /// The controllers' account in [`NAMESPACE`]; `None` for the manager's own user.
    pub(in crate::cli) account: Option<&'static str>,
    namespace: &'static str,
    group: String,
    resource: String,
    verb: String,
    name: &'static str,
}

/// The SubjectAccessReview of a question.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: ReviewSpec<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewSpec<'a> {
    user: String,
    groups: &'static [&'static str],
    resource_attributes: ResourceAttributes<'a>,
}

#[derive(Debug, Serialize)]
struct ResourceAttributes<'a> {
    namespace: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    verb: &'a str,
    name: &'a str,
}

/// The answer to a [`Review`].
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Answer {
    pub(in crate::cli) status: AnswerStatus,
}

/// The status of an [`Answer`].
#[derive(Debug, Deserialize)]
pub(in crate::cli) struct AnswerStatus {
    #[serde(default)]
    pub(in crate::cli) allowed: bool,
}

impl Question {
    /// The user that is asked about.
    fn user(&self, manager: &str) -> String {
        self.account.map_or_else(
            || manager.to_owned(),
            |account| format!("system:serviceaccount:{NAMESPACE}:{account}"),
        )
    }

    /// The review of this question, in this namespace.
    pub(in crate::cli) fn review<'a>(&'a self, manager: &str, namespace: &'a str) -> Review<'a> {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let groups: &[&str] = match self.account {
            Some(_) => {
                &["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]
            }
            None => &["system:authenticated"],
        };
        let (group, verb, name) = (self.group.as_str(), self.verb.as_str(), self.name);
        let resource_attributes = ResourceAttributes { namespace, group, resource, subresource, verb, name };
        Review {
            api_version: "authorization.k8s.io/v1",
            kind: "SubjectAccessReview",
            spec: ReviewSpec { user: self.user(manager), groups, resource_attributes },
        }
    }

    /// The namespaces in which it is enough to be allowed. Some controllers have roles in single namespaces alone.
    pub(in crate::cli) fn namespaces(&self) -> &'static [&'static str] {
        match (self.account, self.namespace) {
            (_, NAMESPACE) => &[NAMESPACE],
            (Some(_), _) => &["", NAMESPACE, "kube-public"],
            (None, _) => &[""],
        }
    }
}

/// Returns the questions about a manager with these flags and the controllers that they select.
pub(in crate::cli) fn questions(manager: Option<&Manager>) -> BTreeSet<Question> {
    let config = manager.map(Manager::selection).unwrap_or_default();
    // Without the flags of a manager those of kubeadm are assumed, which give each controller an account.
    let has_accounts = manager.is_none() || config.flags.use_service_account_credentials;
    let mut questions = BTreeSet::new();
    let mut accounts = BTreeSet::new();
    for descriptor in REGISTRY.iter().filter(|descriptor| descriptor.build.is_some()) {
        if !matches!(config.controller_state(descriptor), SelectionState::Enabled) {
            continue;
        }
        let account = descriptor.service_account.filter(|_| has_accounts);
        accounts.extend(account);
        // Roles allow no events to controllers without events in kube-controller-manager. A refused event stops no controller.
        let of_manager = Some(&EVENTS_GRANT).filter(|_| account.is_none());
        for grant in descriptor.writes.iter().chain(of_manager) {
            let is_by_name = account == Some(BOOTSTRAP_SIGNER) && grant.resource == "configmaps";
            if account.is_some() && (is_by_name || NOT_ASKED.contains(&(grant.group, grant.resource))) {
                continue;
            }
            questions.extend(grant.verbs.iter().map(|verb| Question {
                account,
                namespace: "",
                group: grant.group.to_owned(),
                resource: grant.resource.to_owned(),
                verb: (*verb).to_owned(),
                name: "",
            }));
        }
    }
    for (namespace, rule) in rules() {
        let texts = |field: &str| -> Vec<String> {
            let items = rule[field].as_sequence().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let names: Vec<&'static str> =
            if rule["resourceNames"].is_null() { vec![""] } else { accounts.iter().copied().collect() };
        for group in texts("apiGroups") {
            for resource in texts("resources").into_iter().filter(|resource| resource != OF_GATES) {
                for verb in texts("verbs") {
                    questions.extend(names.iter().map(|&name| {
                        let (group, resource, verb) = (group.clone(), resource.clone(), verb.clone());
                        Question { account: None, namespace, group, resource, verb, name }
                    }));
                }
            }
        }
    }
    questions
}

/// The rules of the roles called `coxswain`, each with the namespace for which it is.
fn rules() -> Vec<(&'static str, Value)> {
    let mut rules = Vec::new();
    let documents = ROLES.split("\n---\n").filter_map(|text| serde_yaml_ng::from_str::<Value>(text).ok());
    for document in documents {
        let namespace = if document["kind"] == "Role" { NAMESPACE } else { "" };
        rules.extend(
            document["rules"].as_sequence().into_iter().flatten().map(|rule| (namespace, rule.clone())),
        );
    }
    rules
}

/// Reports what is not allowed. `asked` is the number of questions, or why they could not be asked.
pub(in crate::cli) fn check(asked: &Result<usize, String>, denied: &[Question], manager: &str) -> Check {
    let asked = match asked {
        Ok(asked) => asked,
        Err(why) => {
            return Check::made("access", "not known", vec![Finding::new(ACCESS_UNKNOWN, why.clone())]);
        }
    };
    let mut findings = Vec::new();
    let users: BTreeSet<(Option<&str>, String)> =
        denied.iter().map(|question| (question.account, question.user(manager))).collect();
    for (account, user) in users {
        let missing = denied.iter().filter(|question| question.account == account).map(|question| {
            let Question { group, resource, verb, namespace, name, .. } = question;
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            let name = if name.is_empty() { String::new() } else { format!(" {name}") };
            let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
            format!("{verb} {resource}{group}{name}{place}")
        });
        let missing: Vec<String> = missing.collect();
        let entry = if account.is_some() { CONTROLLER_ACCESS } else { MANAGER_ACCESS };
        findings.push(Finding::new(entry, format!("{user} may not {}", missing.join(", "))));
    }
    Check::made(
        "access",
        format!("{asked} permissions of {manager} and of the controllers' accounts"),
        findings,
    )
}
