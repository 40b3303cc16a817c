//! What controllers ask for in the registry against what the API server's bootstrap roles give them.

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::{Descriptor, Grant};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use kube::api::{Api, ListParams};

use crate::harness::{Cluster, ControlPlane};

/// The roles of a cluster, by whom they are bound to.
struct Roles {
    cluster_wide: Vec<ClusterRole>,
    bindings: Vec<ClusterRoleBinding>,
    /// Those of single namespaces, each with what is bound to it.
    of_namespaces: Vec<(Role, Vec<RoleBinding>)>,
}

impl Roles {
    async fn read(cluster: &Cluster) -> Self {
        let all = ListParams::default();
        let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
        let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
        let mut of_namespaces = Vec::new();
        for namespace in ["kube-public", "kube-system"] {
            let roles: Api<Role> = Api::namespaced(cluster.client.clone(), namespace);
            let bindings: Api<RoleBinding> = Api::namespaced(cluster.client.clone(), namespace);
            let bindings = bindings.list(&all).await.expect("bindings").items;
            for role in roles.list(&all).await.expect("roles") {
                let is_to_it = |each: &&RoleBinding| {
                    each.role_ref.kind == "Role" && Some(&each.role_ref.name) == role.metadata.name.as_ref()
                };
                let bound = bindings.iter().filter(is_to_it).cloned().collect();
                of_namespaces.push((role, bound));
            }
        }
        Self {
            cluster_wide: roles.list(&all).await.expect("roles").items,
            bindings: bindings.list(&all).await.expect("bindings").items,
            of_namespaces,
        }
    }

    /// The rules of the bootstrap role that is made for a controller.
    fn of(&self, controller: &Descriptor) -> Vec<PolicyRule> {
        let (role, is_subject): (String, IsSubject) = match controller.service_account {
            Some(account) => (
                format!("system:controller:{account}"),
                Box::new(move |subject| {
                    subject.kind == "ServiceAccount"
                        && subject.name == account
                        && subject.namespace.as_deref() == Some("kube-system")
                }),
            ),
            None => (
                "system:kube-controller-manager".to_owned(),
                Box::new(|subject| {
                    subject.kind == "User" && subject.name == "system:kube-controller-manager"
                }),
            ),
        };
        let local = self.of_namespaces.iter().filter(|(_, bindings)| {
            bindings.iter().flat_map(|binding| binding.subjects.iter().flatten()).any(&is_subject)
        });
        // Who works in one namespace knows its objects by name.
        let local: Vec<PolicyRule> = local
            .flat_map(|(role, _)| role.rules.clone().unwrap_or_default())
            .map(|rule| PolicyRule { resource_names: None, ..rule })
            .collect();
        if ["bootstrap-signer-controller", "token-cleaner-controller"].contains(&controller.name) {
            assert!(!local.is_empty(), "{}: no role is bound to it", controller.name);
            return local;
        }
        let bound = self.bindings.iter().any(|binding| {
            binding.role_ref.kind == "ClusterRole"
                && binding.role_ref.name == role
                && binding.subjects.iter().flatten().any(&is_subject)
        });
        assert!(bound, "{}: the role {role} is not bound to it", controller.name);
        let found =
            self.cluster_wide.iter().find(|each| each.metadata.name.as_deref() == Some(role.as_str()));
        let found = found.unwrap_or_else(|| panic!("{}: there is no role {role}", controller.name));
        found.rules.iter().flatten().cloned().collect()
    }
}

/// Tells whether a subject is the one looked for.
type IsSubject = Box<dyn Fn(&Subject) -> bool>;

/// Whether rules let their subject do one thing to all objects of a resource.
fn covered(rules: &[PolicyRule], group: &str, resource: &str, verb: &str) -> bool {
    let names = |listed: &Option<Vec<String>>, wanted: &str| {
        listed.iter().flatten().any(|each| each == "*" || each == wanted)
    };
    let resource_matches = |rule: &PolicyRule| {
        let by_subresource = resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        names(&rule.resources, resource)
            || by_subresource.is_some_and(|pattern| names(&rule.resources, &pattern))
    };
    rules.iter().any(|rule| {
        rule.resource_names.iter().flatten().next().is_none()
            && names(&rule.api_groups, group)
            && resource_matches(rule)
            && names(&Some(rule.verbs.clone()), verb)
    })
}

#[tokio::test]
async fn bootstrap_roles_cover_what_controllers_ask_for() {
    // The roles of controllers that are off by default are there only with their gates.
    let plane = ControlPlane::gated();
    let roles = Roles::read(&plane.cluster().await).await;
    let mut missing = Vec::new();
    let mut checked = 0;
    for row in REGISTRY.iter().filter(|each| each.build.is_some()) {
        assert!(!row.writes.is_empty(), "{} names no grants", row.name);
        let rules = roles.of(row);
        for Grant { group, resource, verbs } in row.writes {
            for verb in *verbs {
                checked += 1;
                if !covered(&rules, group, resource, verb) {
                    missing.push(format!("{}: {verb} {resource} in group {group:?}", row.name));
                }
            }
        }
        // What no controller may do, the judgment must deny.
        assert!(!covered(&rules, "certificates.k8s.io", "signers", "escalate"), "{}", row.name);
    }
    assert_eq!(missing, Vec::<String>::new());
    assert!(checked > 20, "only {checked} grants");
}

#[tokio::test]
async fn the_judgment_knows_roles_apart() {
    let plane = ControlPlane::shared();
    let roles = Roles::read(&plane.cluster().await).await;
    let find = |name: &str| REGISTRY.iter().find(|each| each.name == name).expect("a row");
    let replicasets = roles.of(find("replicaset-controller"));
    assert!(covered(&replicasets, "", "pods", "create"));
    assert!(!covered(&replicasets, "", "pods", "update"), "it may patch, not update");
    assert!(!covered(&replicasets, "apps", "pods", "create"), "another group");
    assert!(!covered(&replicasets, "", "pods/exec", "create"), "a subresource is another resource");
    assert!(!covered(&replicasets, "", "secrets", "get"));
}
