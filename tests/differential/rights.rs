//! Rights of a controller that an operator takes away for a while. The roles are those of the whole control plane, so lists with such
//! operations play alone.

use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use crate::plane::Plane;
use crate::play::message;

/// The beginning of the names of the controllers' roles.
const ROLE: &str = "system:controller:";
/// Time that the API server takes to apply a changed role.
const IN_FORCE: Duration = Duration::from_secs(1);

impl Plane {
    /// Takes a right away from a controller.
    pub(crate) async fn forbid(&self, role: &str, verb: &str, resource: &str) -> Result<(), String> {
        let name = format!("{ROLE}{role}");
        let role = self.roles().get(&name).await.map_err(message)?;
        let rules = without(role.rules.as_deref().unwrap_or_default(), verb, resource);
        // Before the write, which may be applied even if its response is lost or the play times out.
        self.changed_roles.lock().push(role);
        self.write_rules(&name, &rules).await
    }

    /// Gives all rights back.
    pub(crate) async fn permit(&self) -> Result<(), String> {
        let changed = self.changed_roles.lock().clone();
        // The first copy of a role is the oldest, so it is written last.
        for role in changed.iter().rev() {
            let name = role.metadata.name.as_deref().unwrap_or_default();
            self.write_rules(name, role.rules.as_deref().unwrap_or_default()).await?;
        }
        self.changed_roles.lock().clear();
        Ok(())
    }

    async fn write_rules(&self, name: &str, rules: &[PolicyRule]) -> Result<(), String> {
        let patch = Patch::Merge(json!({ "rules": rules }));
        self.roles().patch(name, &PatchParams::default(), &patch).await.map_err(message)?;
        sleep(IN_FORCE).await;
        Ok(())
    }

    fn roles(&self) -> Api<ClusterRole> {
        Api::all(self.cluster.client.clone())
    }
}

/// Returns rules without the right to a verb on a resource. Rights to other resources stay.
fn without(rules: &[PolicyRule], verb: &str, resource: &str) -> Vec<PolicyRule> {
    let mut left = Vec::new();
    for rule in rules {
        let resources = rule.resources.clone().unwrap_or_default();
        let (concerned, others): (Vec<String>, Vec<String>) =
            resources.into_iter().partition(|each| each == resource);
        if concerned.is_empty() || rule.verbs.iter().all(|each| each != verb) {
            left.push(rule.clone());
            continue;
        }
        let verbs: Vec<String> = rule.verbs.iter().filter(|each| *each != verb).cloned().collect();
        if !others.is_empty() {
            left.push(PolicyRule { resources: Some(others), ..rule.clone() });
        }
        if !verbs.is_empty() {
            left.push(PolicyRule { resources: Some(concerned), verbs, ..rule.clone() });
        }
    }
    left
}

#[test]
fn right_is_taken_away_from_one_resource_only() {
    let rule = |resources: &[&str], verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(resources.iter().map(|each| (*each).to_owned()).collect()),
        verbs: verbs.iter().map(|each| (*each).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let rules = [rule(&["pods", "pods/status"], &["create", "get"]), rule(&["services"], &["create"])];
    assert_eq!(
        without(&rules, "create", "pods"),
        [
            rule(&["pods/status"], &["create", "get"]),
            rule(&["pods"], &["get"]),
            rule(&["services"], &["create"])
        ]
    );
    assert_eq!(without(&rules, "create", "services"), rules[..1]);
    assert_eq!(without(&rules, "delete", "pods"), rules);
}
