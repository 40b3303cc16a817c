//! Controllers of identities: accounts, tokens and certificates.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::SignedDuration;
use serde_json::{Value as Json, json};

use super::{Row, row};
use crate::actors::{kubelet_request, permit_kubelets};
use crate::matrix::fault::Fault;
use crate::matrix::seeder::Seeder;
use apiserver_model::{Deletion, Place};

const APPROVER: &str = "certificatesigningrequest-approving-controller";
const BUNDLES: &str = "kube-apiserver-serving-clustertrustbundle-publisher-controller";
const LEGACY: &str = "legacy-serviceaccount-token-cleaner-controller";
const PUBLISHER: &str = "root-ca-certificate-publisher-controller";
const TOKENS: &str = "serviceaccount-token-controller";
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// The age of objects that were made long ago.
const OLD: SignedDuration = SignedDuration::from_hours(90 * 24);
const DAY: Duration = Duration::from_hours(24);

pub(super) static ROWS: &[Row] = &[
    Row {
        single: true,
        ..row("bootstrap-signer-controller", "update configmaps", |seeder| {
            let metadata = json!({ "name": "cluster-info", "namespace": "kube-public" });
            seeder.make("configmaps", json!({ "metadata": metadata, "data": { "kubeconfig": "where" } }));
            bootstrap_token(seeder, "abcdef", "2099-01-01T00:00:00Z");
        })
    },
    Row {
        world: |seeder| permit_kubelets(seeder.model),
        ..row(APPROVER, "update certificatesigningrequests.certificates.k8s.io/approval", request)
    },
    Row {
        world: |seeder| permit_kubelets(seeder.model),
        // The answer is the effect.
        without: &[Fault::Undone],
        ..row(APPROVER, "create subjectaccessreviews.authorization.k8s.io", request)
    },
    row(
        "certificatesigningrequest-cleaner-controller",
        "delete certificatesigningrequests.certificates.k8s.io",
        |seeder| {
            let spec = kubelet_request(seeder.tag);
            let request = seeder.make("certificatesigningrequests", json!({ "spec": spec }));
            let created = seeder.ago(OLD);
            seeder.amend("certificatesigningrequests", &request, |request| {
                request["metadata"]["creationTimestamp"] = json!(created);
            });
        },
    ),
    Row {
        files: true,
        ..row(
            "certificatesigningrequest-signing-controller",
            "update certificatesigningrequests.certificates.k8s.io/status",
            |seeder| {
                let spec = kubelet_request(seeder.tag);
                let request = seeder.make("certificatesigningrequests", json!({ "spec": spec }));
                let now = seeder.now().to_string();
                seeder.amend("certificatesigningrequests", &request, |request| {
                    request["status"]["conditions"] = json!([{
                        "type": "Approved", "status": "True", "reason": "ByHand",
                        "lastUpdateTime": now, "lastTransitionTime": now,
                    }]);
                });
            },
        )
    },
    Row {
        files: true,
        single: true,
        flags: &["--feature-gates=ClusterTrustBundle=true"],
        ..row(BUNDLES, "create clustertrustbundles.certificates.k8s.io", |_| {})
    },
    Row {
        files: true,
        single: true,
        flags: &["--feature-gates=ClusterTrustBundle=true"],
        ..row(BUNDLES, "delete clustertrustbundles.certificates.k8s.io", |seeder| {
            seeder.make(
                "clustertrustbundles",
                json!({
                    "metadata": { "name": "kubernetes.io:kube-apiserver-serving:old" },
                    "spec": { "signerName": "kubernetes.io/kube-apiserver-serving", "trustBundle": "old" },
                }),
            );
        })
    },
    Row {
        files: true,
        single: true,
        flags: &["--feature-gates=ClusterTrustBundle=true"],
        later: |seeder| {
            let bundles = seeder.model.all("clustertrustbundles", "");
            let places: Vec<Place> = bundles.map(|bundle| bundle.place.clone()).collect();
            for place in places {
                let edited = seeder
                    .model
                    .change("user", &place, "", |held| held["spec"]["trustBundle"] = json!("another"));
                edited.expect("the bundle is there");
            }
        },
        ..row(BUNDLES, "update clustertrustbundles.certificates.k8s.io", |_| {})
    },
    Row {
        period: DAY,
        world: tracked,
        flags: &["--legacy-service-account-token-clean-up-period=24h"],
        ..row(LEGACY, "patch secrets", |seeder| legacy_token(seeder, &json!({})))
    },
    Row {
        period: DAY,
        world: tracked,
        flags: &["--legacy-service-account-token-clean-up-period=24h"],
        ..row(LEGACY, "delete secrets", |seeder| {
            legacy_token(seeder, &json!({ "kubernetes.io/legacy-token-invalid-since": "2020-01-02" }));
        })
    },
    Row { files: true, ..row(PUBLISHER, "create configmaps", namespace) },
    Row {
        files: true,
        ..row(PUBLISHER, "update configmaps", |seeder| {
            let metadata = json!({ "name": "kube-root-ca.crt" });
            seeder.make("configmaps", json!({ "metadata": metadata, "data": { "ca.crt": "another" } }));
        })
    },
    row("serviceaccount-controller", "create serviceaccounts", namespace),
    Row {
        files: true,
        ..row(TOKENS, "update secrets", |seeder| {
            seeder.make("serviceaccounts", json!({}));
            let uid = json!("");
            token(seeder, &uid);
        })
    },
    Row {
        files: true,
        ..row(TOKENS, "delete secrets", |seeder| {
            let uid = json!("00000000-0000-4000-8000-000000000000");
            token(seeder, &uid);
        })
    },
    Row {
        files: true,
        later: |seeder| {
            let secret = Place::new("secrets", seeder.tag, seeder.tag);
            let how = Deletion::default();
            seeder.model.delete("user", &secret, &how).expect("the Secret is there");
        },
        ..row(TOKENS, "update serviceaccounts", |seeder| {
            let secrets = json!([{ "name": seeder.tag }]);
            let account = seeder.make("serviceaccounts", json!({ "secrets": secrets }));
            token(seeder, &account["metadata"]["uid"]);
        })
    },
    row("token-cleaner-controller", "delete secrets", |seeder| {
        let id = seeder.tag;
        bootstrap_token(seeder, id, "2020-01-01T00:00:00Z");
    }),
];

fn namespace(seeder: &mut Seeder<'_>) {
    seeder.make("namespaces", json!({}));
}

fn encoded(text: &str) -> Json {
    json!(BASE64_STANDARD.encode(text))
}

fn bootstrap_token(seeder: &mut Seeder<'_>, id: &str, expiration: &str) {
    let secret = json!({
        "metadata": {
            "name": format!("bootstrap-token-{id}"), "namespace": "kube-system",
        },
        "type": "bootstrap.kubernetes.io/token",
        "data": {
            "token-id": encoded(id), "token-secret": encoded("0123456789abcdef"),
            "usage-bootstrap-signing": encoded("true"), "expiration": encoded(expiration),
        },
    });
    seeder.make("secrets", secret);
}

fn request(seeder: &mut Seeder<'_>) {
    let spec = kubelet_request(seeder.tag);
    seeder.make("certificatesigningrequests", json!({ "spec": spec }));
}

/// API servers have noted for years which tokens are used.
fn tracked(seeder: &mut Seeder<'_>) {
    let metadata = json!({
        "name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system",
    });
    seeder.make("configmaps", json!({ "metadata": metadata, "data": { "since": "2020-01-01" } }));
}

fn token_of(account: &str, uid: &Json) -> Json {
    let annotations = json!({
        "kubernetes.io/service-account.name": account, "kubernetes.io/service-account.uid": uid,
    });
    json!({ "metadata": { "annotations": annotations }, "type": TOKEN_TYPE })
}

fn token(seeder: &mut Seeder<'_>, uid: &Json) {
    let mut secret = token_of(seeder.tag, uid);
    if uid == "" {
        secret["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": seeder.tag });
    }
    seeder.make("secrets", secret);
}

/// A token that was made for an account long ago.
fn legacy_token(seeder: &mut Seeder<'_>, labels: &Json) {
    let secrets = json!([{ "name": seeder.tag }]);
    let account = seeder.make("serviceaccounts", json!({ "secrets": secrets }));
    let mut secret = token_of(seeder.tag, &account["metadata"]["uid"]);
    secret["metadata"]["labels"] = labels.clone();
    secret["data"] = json!({ "token": encoded("x") });
    let secret = seeder.make("secrets", secret);
    let created = seeder.ago(OLD);
    seeder.amend("secrets", &secret, |secret| secret["metadata"]["creationTimestamp"] = json!(created));
}
