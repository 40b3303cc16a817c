//! Kinds of objects as people write them for kubectl: `deploy`, `Deployment`, `deployments.apps`,
//! `deployments.v1.apps`.

use std::collections::BTreeSet;

/// The built-in resources that controllers may have queues for: plural and group as kubectl writes them, singular,
/// short names, whether objects live in a namespace.
const BUILT_IN: &[(&str, &str, &[&str], bool)] = &[
    ("certificatesigningrequests.certificates.k8s.io", "certificatesigningrequest", &["csr"], false),
    ("clusterroles.rbac.authorization.k8s.io", "clusterrole", &[], false),
    ("configmaps", "configmap", &["cm"], true),
    ("cronjobs.batch", "cronjob", &["cj"], true),
    ("daemonsets.apps", "daemonset", &["ds"], true),
    ("deployments.apps", "deployment", &["deploy"], true),
    ("endpoints", "endpoints", &["ep"], true),
    ("endpointslices.discovery.k8s.io", "endpointslice", &[], true),
    ("horizontalpodautoscalers.autoscaling", "horizontalpodautoscaler", &["hpa"], true),
    ("jobs.batch", "job", &[], true),
    ("leases.coordination.k8s.io", "lease", &[], true),
    ("namespaces", "namespace", &["ns"], false),
    ("nodes", "node", &["no"], false),
    ("persistentvolumeclaims", "persistentvolumeclaim", &["pvc"], true),
    ("persistentvolumes", "persistentvolume", &["pv"], false),
    ("poddisruptionbudgets.policy", "poddisruptionbudget", &["pdb"], true),
    ("pods", "pod", &["po"], true),
    ("replicasets.apps", "replicaset", &["rs"], true),
    ("replicationcontrollers", "replicationcontroller", &["rc"], true),
    ("resourceclaims.resource.k8s.io", "resourceclaim", &[], true),
    ("resourcequotas", "resourcequota", &["quota"], true),
    ("secrets", "secret", &[], true),
    ("serviceaccounts", "serviceaccount", &["sa"], true),
    ("services", "service", &["svc"], true),
    ("statefulsets.apps", "statefulset", &["sts"], true),
    ("storageclasses.storage.k8s.io", "storageclass", &["sc"], false),
    ("validatingadmissionpolicies.admissionregistration.k8s.io", "validatingadmissionpolicy", &[], false),
    ("volumeattachments.storage.k8s.io", "volumeattachment", &[], false),
];

/// Whether `asked` names `resource`, which is written as plural and group: `deployments.apps`.
pub(super) fn names(asked: &str, resource: &str) -> bool {
    let asked = asked.to_ascii_lowercase();
    if asked == resource {
        return true;
    }
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (word, rest) = asked.split_once('.').unwrap_or((&asked, ""));
    // A version may stand before the group, and for the core group all there is.
    let rest_is_group = match rest.split_once('.') {
        _ if rest.is_empty() || rest == group => true,
        Some((version, rest)) => is_version(version) && rest == group,
        None => is_version(rest) && group.is_empty(),
    };
    if !rest_is_group {
        return false;
    }
    if word == plural {
        return true;
    }
    match BUILT_IN.iter().find(|(held, ..)| *held == resource) {
        Some((_, singular, short, _)) => word == *singular || (rest.is_empty() && short.contains(&word)),
        // A kind that is not built in: most plurals only add a letter.
        None => plural.strip_suffix('s') == Some(word),
    }
}

fn is_version(text: &str) -> bool {
    let mut rest = text.strip_prefix('v').unwrap_or_default().chars();
    rest.next().is_some_and(|first| first.is_ascii_digit())
        && rest.all(|letter| letter.is_ascii_alphanumeric())
}

/// The one of `resources` that `asked` names.
///
/// # Errors
/// Words for people if there is none, or more than one.
pub(super) fn resolve<'a>(
    asked: &str,
    resources: impl IntoIterator<Item = &'a str>,
) -> Result<&'a str, String> {
    let known: BTreeSet<&str> = resources.into_iter().filter(|resource| !resource.is_empty()).collect();
    let matching: Vec<&str> = known.iter().copied().filter(|resource| names(asked, resource)).collect();
    match matching.as_slice() {
        [one] => Ok(one),
        [] if known.is_empty() => Err("no running controller has a queue".to_owned()),
        [] => {
            let known: Vec<_> = known.into_iter().collect();
            Err(format!(
                "KIND {asked:?}: no running controller has a queue for it; queues exist for {}",
                known.join(", ")
            ))
        }
        several => Err(format!("KIND {asked:?} is ambiguous; use {}", several.join(" or "))),
    }
}

/// Whether objects of a resource live in a namespace; `None` if it is not built in.
pub(super) fn is_namespaced(resource: &str) -> Option<bool> {
    BUILT_IN.iter().find(|(held, ..)| *held == resource).map(|(.., namespaced)| *namespaced)
}
