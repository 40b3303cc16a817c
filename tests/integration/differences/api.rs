//! Rows about garbage collection, namespaces, tokens, bootstrap signatures and admission policies.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PropagationPolicy::{Background, Foreground};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::scene::{Scene, in_seconds};
use super::{Area, Case, Played, Taken, nothing};
use crate::harness::object;

pub(super) const AREA: Area = Area {
    cases: &[
        Case { id: "circles", prepare: deleted_circle, play: circle, taken: Taken::Mended(circle_is_gone) },
        Case { id: "delete-by-version", prepare: nothing, play: dependents, taken: Taken::Unchanged },
        Case {
            id: "signatures-end-with-tokens",
            prepare: cluster_info,
            play: expired_signature,
            taken: Taken::Moving,
        },
        Case { id: "account-read-live", prepare: nothing, play: account, taken: Taken::Unchanged },
        Case { id: "types-of-the-server", prepare: nothing, play: policy, taken: Taken::Unchanged },
        Case { id: "lists-first", prepare: nothing, play: empty_namespace, taken: Taken::Unchanged },
    ],
    plane: &[],
    args: &[
        "--controllers=garbage-collector-controller,namespace-controller,serviceaccount-token-controller,\
         bootstrap-signer-controller,validatingadmissionpolicy-status-controller",
    ],
    has_metrics_apis: false,
    is_recorded: false,
};

fn owner(name: &str, uid: &Value) -> Value {
    json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true }])
}

async fn map(scene: &Scene, name: &str, owners: Value) -> Value {
    let created =
        scene.create("ConfigMap", json!({ "metadata": { "name": name, "ownerReferences": owners } })).await;
    created["metadata"]["uid"].clone()
}

/// Two objects own and block each other, and a user deletes both in the foreground.
fn deleted_circle(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let one = map(&scene, "one", Value::Null).await;
        let other = map(&scene, "other", owner("one", &one)).await;
        scene
            .patch("ConfigMap", "one", json!({ "metadata": { "ownerReferences": owner("other", &other) } }))
            .await;
        for name in ["one", "other"] {
            scene.delete("ConfigMap", name, Foreground).await;
        }
        Ok(())
    })
}

async fn maps(scene: &Scene) -> Value {
    let all = scene.list("ConfigMap").await;
    all.iter().map(|map| map["metadata"]["name"].clone()).collect::<Vec<_>>().into()
}

/// Differs: circles.
fn circle(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let uid = map(&scene, "owner", Value::Null).await;
        map(&scene, "dependent", owner("owner", &uid)).await;
        scene.delete("ConfigMap", "owner", Foreground).await;
        let marker = async || scene.get("ConfigMap", "owner").await;
        scene.waits("another foreground deletion ends", marker, Value::Null).await?;
        scene.sees("the circle", || maps(&scene), json!(["one", "other"]), json!([])).await
    })
}

fn circle_is_gone(scene: Arc<Scene>) -> Played {
    Box::pin(async move { scene.waits("the circle", || maps(&scene), json!([])).await })
}

/// Differs: delete-by-version.
fn dependents(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let uid = map(&scene, "owner", Value::Null).await;
        for at in 0..5 {
            map(&scene, &format!("dependent-{at}"), owner("owner", &uid)).await;
        }
        scene.delete("ConfigMap", "owner", Background).await;
        scene.waits("the dependents", || maps(&scene), json!([])).await?;
        let reads = async || (scene.sent("get", "configmaps") > 0).into();
        scene.sees("GETs before deletes", reads, true.into(), false.into()).await
    })
}

const PUBLIC: &str = "kube-public";
const INFO: &str = "cluster-info";

fn infos(scene: &Scene) -> Api<ConfigMap> {
    Api::namespaced(scene.cluster.client.clone(), PUBLIC)
}

fn cluster_info(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let map =
            object(json!({ "metadata": { "name": INFO }, "data": { "kubeconfig": "apiVersion: v1\n" } }));
        match infos(&scene).create(&PostParams::default(), &map).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
}

async fn bootstrap_token(scene: &Scene, id: &str, seconds: i64) {
    let data = json!({ "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
        "expiration": in_seconds(seconds) });
    let metadata = json!({ "name": format!("bootstrap-token-{id}") });
    let body = json!({ "metadata": metadata, "type": "bootstrap.kubernetes.io/token", "stringData": data });
    scene.create_in("Secret", "kube-system", body).await;
}

/// Whether the ConfigMap has a signature by a token.
async fn is_signed(scene: &Scene, id: &str) -> Value {
    let data = infos(scene).get(INFO).await.expect("the ConfigMap").data.unwrap_or_default();
    data.contains_key(&format!("jws-kubeconfig-{id}")).into()
}

/// Differs: signatures-end-with-tokens.
fn expired_signature(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let short = format!("aa{:04}", scene.number);
        bootstrap_token(&scene, &short, 4).await;
        let end = in_seconds(4);
        scene.waits("a signature", || is_signed(&scene, &short), true.into()).await?;
        scene.waits("the token expires", async || (in_seconds(0) > end).into(), true.into()).await?;
        scene
            .sees(
                "the signature of the expired token",
                || is_signed(&scene, &short),
                true.into(),
                false.into(),
            )
            .await
    })
}

/// Differs: account-read-live.
fn account(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        scene.create("ServiceAccount", json!({ "metadata": { "name": "robot" } })).await;
        let metadata =
            json!({ "name": "robot", "annotations": { "kubernetes.io/service-account.name": "robot" } });
        let body = json!({ "metadata": metadata, "type": "kubernetes.io/service-account-token" });
        scene.create("Secret", body).await;
        let has_token = async || scene.get("Secret", "robot").await["data"]["token"].is_string().into();
        scene.waits("a token", has_token, true.into()).await?;
        let reads = async || (scene.sent("get", "serviceaccounts") > 0).into();
        scene.sees("GETs of the account", reads, false.into(), true.into()).await
    })
}

/// Differs: types-of-the-server.
fn policy(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let rule = json!({ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"] });
        let spec = json!({ "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": "object.spec.replicas < 100" }] });
        let name = scene.own("typed");
        scene
            .create("ValidatingAdmissionPolicy", json!({ "metadata": { "name": name }, "spec": spec }))
            .await;
        let observed = async || {
            scene.get("ValidatingAdmissionPolicy", &name).await["status"]["observedGeneration"].clone()
        };
        scene.waits("the policy is checked", observed, 1.into()).await?;
        let documents = async || {
            let all = scene.all_requests();
            all.iter().any(|event| event.uri.starts_with("/openapi/v3/apis/apps/v1")).into()
        };
        scene.sees("GETs of the OpenAPI document", documents, false.into(), true.into()).await
    })
}

/// Differs: lists-first.
fn empty_namespace(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let name = scene.own("empty");
        scene.create("Namespace", json!({ "metadata": { "name": name } })).await;
        scene.delete("Namespace", &name, Background).await;
        let there = async || scene.get("Namespace", &name).await;
        scene.waits("the namespace", there, Value::Null).await?;
        let deletes = async || {
            let all = scene.all_requests();
            all.iter()
                .any(|event| event.verb == "deletecollection" && event.object_ref.namespace == name)
                .into()
        };
        scene.sees("deletes of empty collections", deletes, true.into(), false.into()).await
    })
}
