//! What every namespace gets, and keeps, from its first moment to its last: the account `default`, the CA bundle, and
//! tokens for the accounts that ask for one.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as CoreNamespace, Pod, Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Namespace, until};

const LIMIT: Duration = Duration::from_mins(1);
const BUNDLE: &str = "kube-root-ca.crt";
/// The reason for which pods of a namespace that ends are refused is no reason to try for ever.
const FEW: usize = 10;

async fn account(namespace: &Namespace, name: &str) -> ServiceAccount {
    let api = namespace.api::<ServiceAccount>();
    let observe = || async { api.get_opt(name).await.expect("an answer") };
    until(&format!("the account {name}"), LIMIT, observe, Option::is_some).await.expect("just seen")
}

/// Waits for a published bundle that holds what it should and nothing else, and is not the one with this UID.
async fn bundle(plane: &ControlPlane, namespace: &Namespace, not: Option<&str>) -> ConfigMap {
    let content = std::fs::read_to_string(&plane.report.ca_file).expect("the bundle");
    let expected = [("ca.crt".to_owned(), content)].into();
    let api = namespace.api::<ConfigMap>();
    let observe = || async { api.get_opt(BUNDLE).await.expect("an answer") };
    let seen = until("the CA bundle", LIMIT, observe, |seen| {
        seen.as_ref().is_some_and(|seen| {
            seen.data.as_ref() == Some(&expected) && (not.is_none() || seen.metadata.uid.as_deref() != not)
        })
    })
    .await;
    seen.expect("just seen")
}

#[tokio::test]
async fn a_namespace_has_an_account_and_the_bundle_and_keeps_them() {
    let plane = ControlPlane::shared();
    let namespace = plane.cluster().await.namespace("equipped").await;
    let first = account(&namespace, "default").await;
    let published = bundle(plane, &namespace, None).await;
    let annotations = published.metadata.annotations.clone().unwrap_or_default();
    assert!(annotations.contains_key("kubernetes.io/description"), "{annotations:?}");

    let maps = namespace.api::<ConfigMap>();
    let spoiled = json!({
        "metadata": { "labels": { "kept": "yes" }, "annotations": { "kubernetes.io/description": null } },
        "data": { "ca.crt": "not it", "more": "not wanted" },
    });
    maps.patch(BUNDLE, &PatchParams::default(), &Patch::Merge(spoiled)).await.expect("patched");
    let restored = bundle(plane, &namespace, None).await;
    assert_eq!(restored.metadata.uid, published.metadata.uid, "restored in place");
    assert_eq!(restored.metadata.annotations, published.metadata.annotations);
    assert_eq!(restored.metadata.labels.unwrap_or_default()["kept"], "yes", "labels are nobody's business");

    maps.delete(BUNDLE, &DeleteParams::default()).await.expect("deleted");
    bundle(plane, &namespace, published.metadata.uid.as_deref()).await;

    let accounts = namespace.api::<ServiceAccount>();
    accounts.delete("default", &DeleteParams::default()).await.expect("deleted");
    let second = account(&namespace, "default").await;
    assert_ne!(second.metadata.uid, first.metadata.uid);
}

async fn token_secret(namespace: &Namespace, name: &str, account: &str) -> Secret {
    let body: Value = json!({
        "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": account } },
        "type": "kubernetes.io/service-account-token",
        "data": { "mine": "a2VwdA==" },
    });
    namespace.create(body).await
}

/// Who the API server takes the bearer of a token for.
async fn who_has(plane: &ControlPlane, token: &str) -> String {
    let kubeconfig = Kubeconfig::read_from(&plane.report.kubeconfigs["admin"]).expect("the kubeconfig");
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("the kubeconfig is complete");
    config.auth_info = serde_json::from_value(json!({ "token": token })).expect("a token");
    let reviews: Api<SelfSubjectReview> = Api::all(Client::try_from(config).expect("a client"));
    let review =
        reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.expect("a review");
    review.status.and_then(|status| status.user_info).and_then(|user| user.username).unwrap_or_default()
}

#[tokio::test]
async fn a_token_secret_lives_as_long_as_its_account() {
    let plane = ControlPlane::shared();
    let namespace = plane.cluster().await.namespace("tokens").await;
    let owner: ServiceAccount = namespace.create(json!({ "metadata": { "name": "builder" } })).await;
    token_secret(&namespace, "builder-token", "builder").await;
    let secrets = namespace.api::<Secret>();
    let data = |secret: &Secret, key: &str| {
        let found = secret.data.as_ref().and_then(|data| data.get(key));
        found.map(|value| String::from_utf8(value.0.clone()).expect("text")).unwrap_or_default()
    };
    let get = |name: &'static str| {
        let secrets = &secrets;
        move || async { secrets.get_opt(name).await.expect("an answer") }
    };
    let filled = until("a token", LIMIT, get("builder-token"), |seen| {
        seen.as_ref().is_some_and(|seen| !data(seen, "token").is_empty())
    });
    let filled = filled.await.expect("just seen");
    assert_eq!(data(&filled, "namespace"), namespace.name);
    assert_eq!(data(&filled, "ca.crt"), std::fs::read_to_string(&plane.report.ca_file).expect("the bundle"));
    assert_eq!(data(&filled, "mine"), "kept");
    let annotations = filled.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("kubernetes.io/service-account.uid"), owner.metadata.uid.as_ref());
    let user = format!("system:serviceaccount:{}:builder", namespace.name);
    assert_eq!(who_has(plane, &data(&filled, "token")).await, user);

    // A secret for nobody goes, and so does one whose account goes.
    token_secret(&namespace, "for-nobody", "nobody").await;
    until("the end of a secret for nobody", LIMIT, get("for-nobody"), Option::is_none).await;
    let accounts = namespace.api::<ServiceAccount>();
    accounts.delete("builder", &DeleteParams::default()).await.expect("deleted");
    until("the end of the secret", LIMIT, get("builder-token"), Option::is_none).await;
}

#[tokio::test]
async fn an_account_forgets_a_token_secret_that_is_gone() {
    let plane = ControlPlane::shared();
    let namespace = plane.cluster().await.namespace("references").await;
    let listed = json!([{ "name": "pull" }, { "name": "old-token" }]);
    namespace.create::<ServiceAccount>(json!({ "metadata": { "name": "builder" }, "secrets": listed })).await;
    token_secret(&namespace, "old-token", "builder").await;
    let secrets = namespace.api::<Secret>();
    let observe = || async { secrets.get("old-token").await.expect("the secret") };
    let is_filled = |seen: &Secret| seen.data.as_ref().is_some_and(|data| data.contains_key("token"));
    until("a token", LIMIT, observe, is_filled).await;
    secrets.delete("old-token", &DeleteParams::default()).await.expect("deleted");
    let names = || async {
        let secrets = account(&namespace, "builder").await.secrets.unwrap_or_default();
        secrets.into_iter().filter_map(|secret| secret.name).collect::<Vec<_>>()
    };
    until("the reference to go", LIMIT, names, |names| *names == ["pull"]).await;
}

/// The names of a namespace's pods, those on their way out included.
async fn pod_names(namespace: &Namespace) -> BTreeSet<String> {
    namespace.pods().await.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

async fn replica_set(namespace: &Namespace) {
    let body = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "nginx:1" }] },
            },
        },
    });
    namespace.create::<ReplicaSet>(body).await;
    until("two pods", LIMIT, || pod_names(namespace), |names| names.len() == 2).await;
}

/// Nothing can be made in a namespace that ends. Whoever tries says nothing about it and does not try for ever.
#[tokio::test]
async fn a_namespace_that_ends_is_left_alone() {
    let plane = ControlPlane::shared();
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("ending").await;
    account(&namespace, "default").await;
    bundle(plane, &namespace, None).await;
    replica_set(&namespace).await;
    // It keeps the namespace from its end.
    let held = json!({ "metadata": { "name": "held", "finalizers": ["example.org/test"] } });
    namespace.create::<ConfigMap>(held).await;
    let before = pod_names(&namespace).await;
    let namespaces: Api<CoreNamespace> = Api::all(cluster.client.clone());
    namespaces.delete(&namespace.name, &DeleteParams::default()).await.expect("deletion begins");
    let phase = || async {
        let ending = namespaces.get(&namespace.name).await.expect("it is held");
        ending.status.and_then(|status| status.phase).unwrap_or_default()
    };
    until("the namespace to end", LIMIT, phase, |phase| phase == "Terminating").await;

    // Each of these is something that a controller would put right elsewhere.
    let missing_is_fine = |result: Result<(), kube::Error>| match result {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        result => result.expect("deleted"),
    };
    let now = DeleteParams::default().grace_period(0);
    let deleted = namespace.api::<ServiceAccount>().delete("default", &now).await;
    missing_is_fine(deleted.map(drop));
    missing_is_fine(namespace.api::<ConfigMap>().delete(BUNDLE, &now).await.map(drop));
    let gone = before.first().expect("two pods");
    missing_is_fine(namespace.api::<Pod>().delete(gone, &now).await.map(drop));

    // By the time that another namespace has all it needs, this one's turn has been.
    let other = cluster.namespace("starting").await;
    account(&other, "default").await;
    bundle(plane, &other, None).await;
    replica_set(&other).await;

    assert_eq!(namespace.api::<ServiceAccount>().get_opt("default").await.expect("an answer"), None);
    assert_eq!(namespace.api::<ConfigMap>().get_opt(BUNDLE).await.expect("an answer"), None);
    let after = pod_names(&namespace).await;
    assert!(after.is_subset(&before), "{after:?}");
    assert!(!after.contains(gone), "{after:?}");

    let refused = plane.audit().into_iter().filter(|event| {
        event.coxswain().is_some()
            && event.object_ref.namespace == namespace.name
            && event.response_status.code == 403
    });
    let refused: Vec<String> = refused.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert!(refused.len() <= FEW, "{refused:#?}");
    let manager = plane.running("coxswain");
    let said: Vec<String> =
        manager.errors().into_iter().filter(|line| line.contains(&namespace.name)).collect();
    assert_eq!(said, Vec::<String>::new());

    // Lets go of it, for a manager that ends namespaces.
    let free = json!({ "metadata": { "finalizers": null } });
    namespace
        .api::<ConfigMap>()
        .patch("held", &PatchParams::default(), &Patch::Merge(free))
        .await
        .expect("patched");
}
