//! Every row of the table of kinds is what API servers serve under its group, version and resource.

use std::collections::{BTreeMap, BTreeSet};

use coxswain_machinery::api::Kind;
use coxswain_machinery::api::kinds::ALL;
use kube::Client;

use crate::harness::ControlPlane;

/// The versions that only the gated control plane serves.
const OFF_BY_DEFAULT: &[&str] = &[
    "certificates.k8s.io/v1alpha1",
    "certificates.k8s.io/v1beta1",
    "coordination.k8s.io/v1beta1",
    "internal.apiserver.k8s.io/v1alpha1",
    "resource.k8s.io/v1alpha3",
    "resource.k8s.io/v1beta2",
    "scheduling.k8s.io/v1alpha2",
    "storagemigration.k8s.io/v1beta1",
];

/// What is not as the server has it, and the group versions that it does not serve at all.
async fn compare(client: &Client) -> (Vec<String>, BTreeSet<String>) {
    let mut by_version: BTreeMap<String, Vec<&Kind>> = BTreeMap::new();
    for kind in ALL.iter() {
        by_version.entry(kind.api_version()).or_default().push(kind);
    }
    let (mut wrong, mut unserved) = (Vec::new(), BTreeSet::new());
    for (version, kinds) in by_version {
        let served = if version.contains('/') {
            client.list_api_group_resources(&version).await
        } else {
            client.list_core_api_resources(&version).await
        };
        let served = match served {
            Ok(served) => served.resources,
            Err(kube::Error::Api(refused)) if refused.code == 404 => {
                unserved.insert(version);
                continue;
            }
            Err(error) => panic!("{version}: {error}"),
        };
        for kind in kinds {
            let ours = Some((kind.kind, kind.namespaced));
            let theirs = served.iter().find(|each| each.name == kind.resource);
            let theirs = theirs.map(|each| (each.kind.as_str(), each.namespaced));
            if ours != theirs {
                wrong.push(format!("{version} {}: {ours:?} here, {theirs:?} there", kind.resource));
            }
        }
    }
    (wrong, unserved)
}

#[tokio::test]
async fn every_kind_is_served_where_all_apis_are_on() {
    let client = ControlPlane::gated().cluster().await.client;
    assert_eq!(compare(&client).await, (Vec::new(), BTreeSet::new()));
}

#[tokio::test]
async fn every_kind_but_the_known_ones_is_served_by_default() {
    let client = ControlPlane::shared().cluster().await.client;
    let off = OFF_BY_DEFAULT.iter().map(|&version| version.to_owned()).collect();
    assert_eq!(compare(&client).await, (Vec::new(), off));
}
