//! Roles that aggregate, the signed ConfigMap of the cluster and bootstrap tokens change hands: who takes over writes nothing, and
//! goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::{SignedDuration, Unit};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use super::{ELECTION, LIMIT, end_of_log, leads, writes_of};
use crate::harness::{ControlPlane, Options, Program, create, object, until};

const CONTROLLERS: &str = "--controllers=clusterrole-aggregation-controller,bootstrap-signer-controller,\
    token-cleaner-controller,deployment-controller";
const KINDS: [&str; 3] = ["clusterroles", "configmaps", "secrets"];

/// All roles, the ConfigMap and the tokens, as they are stored, versions included.
#[derive(Debug, PartialEq)]
struct State {
    roles: BTreeMap<String, Value>,
    maps: BTreeMap<String, Value>,
    tokens: BTreeMap<String, Value>,
}

impl State {
    async fn of(client: &Client) -> Self {
        let roles = Api::<ClusterRole>::all(client.clone()).list(&ListParams::default()).await;
        Self {
            roles: named(roles.expect("roles").items),
            maps: local::<ConfigMap>(client, "kube-public").await,
            tokens: local::<Secret>(client, "kube-system").await,
        }
    }
}

async fn local<K>(client: &Client, namespace: &str) -> BTreeMap<String, Value>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    named(api.list(&ListParams::default()).await.expect("objects").items)
}

fn named<K: serde::Serialize>(objects: Vec<K>) -> BTreeMap<String, Value> {
    let values = objects.into_iter().map(|each| serde_json::to_value(each).expect("JSON"));
    values.map(|each| (each["metadata"]["name"].as_str().unwrap_or_default().to_owned(), each)).collect()
}

/// Waits until two looks, some time apart, see the same.
async fn quiet(client: &Client) -> State {
    let look = || async {
        let before = State::of(client).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        (before == State::of(client).await).then_some(before)
    };
    until("the cluster is quiet", LIMIT, look, Option::is_some).await.expect("a state")
}

async fn role(client: &Client, name: &str, label: &str, resource: &str) {
    let rules = json!([{ "apiGroups": ["example.com"], "resources": [resource], "verbs": ["list"] }]);
    let metadata = json!({ "name": name, "labels": { label: "true" } });
    create(Api::<ClusterRole>::all(client.clone()), json!({ "metadata": metadata, "rules": rules })).await;
}

/// A bootstrap token that ends in so many seconds.
async fn token(client: &Client, id: &str, seconds: i64) {
    let end = SystemClock.now().round(Unit::Second).expect("a second") + SignedDuration::from_secs(seconds);
    let data = json!({
        "token-id": id,
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-signing": "true",
        "expiration": end.to_string(),
    });
    let metadata = json!({ "name": format!("bootstrap-token-{id}") });
    let secret = json!({ "metadata": metadata, "type": "bootstrap.kubernetes.io/token", "stringData": data });
    create(Api::<Secret>::namespaced(client.clone(), "kube-system"), secret).await;
}

async fn populate(client: &Client) {
    for (name, selected) in [("sum", "sums"), ("empty", "none")] {
        let selectors = json!([{ "matchLabels": { selected: "true" } }]);
        let role =
            json!({ "metadata": { "name": name }, "aggregationRule": { "clusterRoleSelectors": selectors } });
        create(Api::<ClusterRole>::all(client.clone()), role).await;
    }
    for at in 0..20 {
        role(client, &format!("part-{at}"), "sums", &format!("parts{}", at % 15)).await;
    }
    for id in ["aaaaaa", "bbbbbb"] {
        token(client, id, 86_400).await;
    }
    let map = json!({ "metadata": { "name": "cluster-info" }, "data": { "kubeconfig": "apiVersion: v1\n", "more": "x" } });
    create(Api::<ConfigMap>::namespaced(client.clone(), "kube-public"), map).await;
}

/// Whether somebody who may view may list this.
async fn may_list(client: &Client, resource: &str) -> bool {
    let attributes = json!({ "group": "example.com", "resource": resource, "verb": "list" });
    let review = object(json!({ "spec": { "user": "viewer", "resourceAttributes": attributes } }));
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let review = api.create(&PostParams::default(), &review).await.expect("a review");
    review.status.is_some_and(|status| status.allowed)
}

#[tokio::test]
async fn roles_and_tokens_change_hands_twice() {
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--audit"] });
    let client = plane.cluster().await.client;
    let args = [&[CONTROLLERS][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    populate(&client).await;
    let before = quiet(&client).await;
    let rules = |state: &State, name: &str| state.roles[name]["rules"].as_array().map_or(0, Vec::len);
    let keys = |state: &State| {
        let data = state.maps["cluster-info"]["data"].as_object().expect("data");
        data.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(rules(&before, "sum"), 15, "each once");
    assert!(["admin", "edit", "view"].iter().all(|name| rules(&before, name) > 5));
    let signed = ["jws-kubeconfig-aaaaaa", "jws-kubeconfig-bbbbbb", "kubeconfig", "more"];
    assert_eq!(keys(&before), signed);

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    let taken = quiet(&client).await;
    assert_eq!(
        writes_of(&plane, end, Program::Coxswain, &KINDS),
        Vec::<String>::new(),
        "Coxswain wrote when it took over"
    );
    assert_eq!(taken, before, "Coxswain changed something");

    // It does its work meanwhile: who may view may what a new role says, and a token ends, with its signature.
    let viewer = json!({
        "metadata": { "name": "viewer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer" }],
    });
    create(Api::<ClusterRoleBinding>::all(client.clone()), viewer).await;
    assert!(!may_list(&client, "things").await);
    role(&client, "things", "rbac.authorization.k8s.io/aggregate-to-view", "things").await;
    until("a viewer may list things", LIMIT, || may_list(&client, "things"), |may| *may).await;
    token(&client, "cccccc", 3).await;
    let look = || State::of(&client);
    let has_ended =
        |state: &State| !state.tokens.contains_key("bootstrap-token-cccccc") && keys(state) == signed;
    until("a token has ended", LIMIT, look, has_ended).await;
    let worked = quiet(&client).await;
    assert_eq!(rules(&worked, "admin"), rules(&before, "admin") + 1, "by way of edit and view");

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    let back = quiet(&client).await;
    let written = writes_of(&plane, end, Program::Go, &KINDS);
    assert_eq!(written, Vec::<String>::new(), "the Go manager wrote when it got it back");
    assert_eq!(back, worked, "the Go manager changed something");
}
