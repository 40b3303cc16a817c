//! Controllers of the API itself: namespaces, garbage, quotas, roles.

use std::time::Duration;

use serde_json::json;

use super::{Row, row};
use crate::matrix::seeder::{Seeder, template};
use apiserver_model::{Deletion, Place};

const GARBAGE: &str = "garbage-collector-controller";
const NAMESPACE: &str = "namespace-controller";
const VERSIONS: &str = "storageversion-garbage-collector-controller";
const MIGRATOR: &str = "storage-version-migrator-controller";
const MIGRATES: &[&str] = &["--feature-gates=StorageVersionMigrator=true"];

pub(super) static ROWS: &[Row] = &[
    row("clusterrole-aggregation-controller", "patch clusterroles.rbac.authorization.k8s.io", |seeder| {
        let tag = seeder.tag;
        let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
        let metadata = json!({ "name": format!("{tag}-part"), "labels": { "part-of": tag } });
        seeder.make("clusterroles", json!({ "metadata": metadata, "rules": rules }));
        let selectors = json!([{ "matchLabels": { "part-of": tag } }]);
        seeder.make("clusterroles", json!({ "aggregationRule": { "clusterRoleSelectors": selectors } }));
    }),
    row(GARBAGE, "delete configmaps", |seeder| {
        owned_map(seeder, &[("gone", "00000000-0000-4000-8000-000000000000")]);
    }),
    Row {
        // A patch that is refused as invalid is decided once more from a live read, because its tests may have failed.
        writes_per_pass: 2,
        ..row(GARBAGE, "patch configmaps", |seeder| {
            let owner = seeder.make("secrets", json!({ "metadata": { "name": "there" } }));
            let uid = owner["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            owned_map(seeder, &[("gone", "00000000-0000-4000-8000-000000000000"), ("there", uid.as_str())]);
        })
    },
    ends(row(NAMESPACE, "update namespaces/finalize", ending_namespace)),
    Row {
        // Objects with finalizers are looked for again after half of 15 seconds, as by kube-controller-manager.
        period: Duration::from_secs(8),
        ..ends(row(NAMESPACE, "update namespaces/status", |seeder| {
            let metadata = json!({ "finalizers": ["matrix.test/held"] });
            seeder.make("configmaps", json!({ "metadata": metadata }));
            ending_namespace(seeder);
        }))
    },
    ends(row(NAMESPACE, "deletecollection pods", |seeder| {
        seeder.make("pods", template());
        ending_namespace(seeder);
    })),
    ends(row(NAMESPACE, "deletecollection configmaps", |seeder| {
        seeder.make("configmaps", json!({}));
        ending_namespace(seeder);
    })),
    Row {
        unsupported: Some("deletecollection configmaps"),
        ..ends(row(NAMESPACE, "delete configmaps", |seeder| {
            seeder.make("configmaps", json!({}));
            ending_namespace(seeder);
        }))
    },
    Row {
        // Each quota is reconciled every five minutes. Two queues have it, each with a backoff of its own.
        period: Duration::from_mins(5),
        writes_per_pass: 2,
        ..row("resourcequota-controller", "update resourcequotas/status", |seeder| {
            seeder.make("resourcequotas", json!({ "spec": { "hard": { "configmaps": "3" } } }));
            seeder.make("configmaps", json!({}));
        })
    },
    Row {
        flags: MIGRATES,
        world: |seeder| migration(seeder, "", "configmaps"),
        ..row(MIGRATOR, "patch configmaps", |seeder| {
            seeder.make("configmaps", json!({}));
        })
    },
    Row {
        flags: MIGRATES,
        single: true,
        ..row(MIGRATOR, "update storageversionmigrations.storagemigration.k8s.io/status", |seeder| {
            migration(seeder, "", "configmaps");
        })
    },
    Row {
        flags: MIGRATES,
        single: true,
        ..row(MIGRATOR, "patch customresourcedefinitions.apiextensions.k8s.io/status", |seeder| {
            let metadata = json!({ "name": "things.matrix.test" });
            let version = json!({ "name": "v1", "served": true, "storage": true });
            let names = json!({ "plural": "things", "kind": "Thing" });
            let spec = json!({
                "group": "matrix.test", "names": names, "scope": "Namespaced", "versions": [version],
            });
            let definition = json!({ "metadata": metadata, "spec": spec });
            seeder.make_with_status(
                "customresourcedefinitions",
                definition,
                json!({ "storedVersions": ["v1"] }),
            );
            migration(seeder, "matrix.test", "things");
        })
    },
    Row {
        flags: &["--feature-gates=APIServerIdentity=true,StorageVersionAPI=true"],
        ..row(VERSIONS, "delete storageversions.internal.apiserver.k8s.io", |seeder| {
            storage_version(seeder, &["gone"]);
        })
    },
    Row {
        flags: &["--feature-gates=APIServerIdentity=true,StorageVersionAPI=true"],
        world: |seeder| {
            let metadata = json!({
                "name": "there", "namespace": "kube-system",
                "labels": { "apiserver.kubernetes.io/identity": "kube-apiserver" },
            });
            let spec = json!({ "holderIdentity": "there", "leaseDurationSeconds": 3600 });
            seeder.make("leases", json!({ "metadata": metadata, "spec": spec }));
        },
        ..row(VERSIONS, "update storageversions.internal.apiserver.k8s.io/status", |seeder| {
            storage_version(seeder, &["gone", "there"]);
        })
    },
    row(
        "validatingadmissionpolicy-status-controller",
        "patch validatingadmissionpolicies.admissionregistration.k8s.io/status",
        |seeder| {
            let rules = json!([{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nothing"], "operations": ["CREATE"],
            }]);
            let spec = json!({
                "matchConstraints": { "resourceRules": rules }, "validations": [{ "expression": "true" }],
            });
            let policy = seeder.make("validatingadmissionpolicies", json!({ "spec": spec }));
            seeder.amend("validatingadmissionpolicies", &policy, |policy| {
                policy["metadata"]["generation"] = json!(1);
            });
        },
    ),
];

/// A row of the namespace controller, whose backoff ends at a minute and which lists all kinds in each try.
const fn ends(row: Row) -> Row {
    Row { period: Duration::from_mins(1), reads_per_try: 70, ..row }
}

/// A `ConfigMap` of these Secrets.
fn owned_map(seeder: &mut Seeder<'_>, owners: &[(&str, &str)]) {
    let owners: Vec<_> = owners
        .iter()
        .map(|(name, uid)| json!({ "apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid }))
        .collect();
    seeder.make("configmaps", json!({ "metadata": { "ownerReferences": owners } }));
}

/// Deletes the namespace of the tag.
fn ending_namespace(seeder: &mut Seeder<'_>) {
    let place = Place::new("namespaces", "", seeder.tag);
    if seeder.model.get(&place).is_none() {
        seeder.make("namespaces", json!({}));
    }
    seeder.model.delete("user", &place, &Deletion::default()).expect("the namespace is there");
}

/// Asks for a migration of a resource.
fn migration(seeder: &mut Seeder<'_>, group: &str, resource: &str) {
    let spec = json!({ "resource": { "group": group, "resource": resource } });
    seeder.make("storageversionmigrations", json!({ "spec": spec }));
}

/// The objects that these API servers store.
fn storage_version(seeder: &mut Seeder<'_>, servers: &[&str]) {
    let name = format!("{}.things", seeder.tag);
    let entries: Vec<_> = servers
        .iter()
        .map(|server| {
            json!({
                "apiServerID": server, "encodingVersion": "v1", "decodableVersions": ["v1"],
                "servedVersions": ["v1"],
            })
        })
        .collect();
    let made = seeder.make("storageversions", json!({ "metadata": { "name": name }, "spec": {} }));
    seeder
        .amend("storageversions", &made, |version| version["status"] = json!({ "storageVersions": entries }));
}
