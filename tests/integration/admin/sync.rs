//! Reconciling on demand, and explaining what a reconcile would do: a Deployment that a quota holds back.

use coxswain::admin::proto;
use coxswain::admin::proto::SyncOutcome;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tonic::{Code, Status};

use super::caller::reason;
use super::{Admin, DEPLOYMENT, LIMIT, REPLICA_SET};
use crate::harness::{ControlPlane, Namespace, eventually, until};

/// Asks for a reconcile of an object, or what it would do.
async fn sync(
    admin: &Admin,
    controller: &str,
    namespace: &str,
    name: &str,
    explain: bool,
) -> Result<proto::SyncObjectResponse, Status> {
    let object = proto::ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
    let request = proto::SyncObjectRequest {
        controller: controller.to_owned(),
        object: Some(object),
        explain,
        ..Default::default()
    };
    admin.queues().sync_object(request).await.map(tonic::Response::into_inner)
}

/// Reconciles an object; again, where the cache had not seen yet what was written last, as the API has a caller do.
async fn reconcile(admin: &Admin, namespace: &str, name: &str) -> proto::SyncObjectResponse {
    let ask = || async { sync(admin, DEPLOYMENT, namespace, name, false).await.expect("an answer") };
    until("a cache that is up to date", LIMIT, ask, |answer| answer.outcome() != SyncOutcome::StaleCache)
        .await
}

/// A quota in force that lets no replica set in. What counts is its status, which no controller here writes.
async fn forbid_replica_sets(namespace: &Namespace) {
    let none = json!({ "count/replicasets.apps": "0" });
    namespace
        .create::<ResourceQuota>(json!({ "metadata": { "name": "none" }, "spec": { "hard": none } }))
        .await;
    let status = Patch::Merge(json!({ "status": { "hard": none, "used": none } }));
    let quotas = namespace.api::<ResourceQuota>();
    quotas.patch_status("none", &PatchParams::default(), &status).await.expect("the quota's status");
    let probe: ReplicaSet = serde_json::from_value(json!({
        "metadata": { "name": "probe" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": "probe" } },
            "template": {
                "metadata": { "labels": { "app": "probe" } },
                "spec": { "containers": [{ "name": "web", "image": "nginx" }] },
            },
        },
    }))
    .expect("a replica set");
    let sets = namespace.api::<ReplicaSet>();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the quota to be in force", LIMIT, || async { sets.create(&dry_run, &probe).await.is_err() })
        .await;
}

/// The type, resource and result of each step.
fn steps(answer: &proto::SyncObjectResponse) -> Vec<(proto::ActionType, String, proto::ActionResult)> {
    let resource = |action: &proto::Action| action.object.clone().unwrap_or_default().resource;
    answer.actions.iter().map(|action| (action.r#type(), resource(action), action.result())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_explained_and_reconciled_on_demand() {
    let plane = ControlPlane::shared();
    let admin = Admin::master(plane, &plane.running("coxswain"));
    let namespace = plane.cluster().await.namespace("on-demand").await;
    forbid_replica_sets(&namespace).await;
    namespace.deployment("web", 2, json!({})).await;
    let of_name = |controller: &'static str, name: &'static str, explain| {
        sync(&admin, controller, &namespace.name, name, explain)
    };

    // What it would do, as often as it is asked; nothing is done.
    let creates = (proto::ActionType::Create, "replicasets.apps".to_owned(), proto::ActionResult::Planned);
    let observe = || async { of_name("deployment", "web", true).await.expect("an answer") };
    let explained = until("an explanation", LIMIT, observe, |answer| steps(answer).contains(&creates)).await;
    assert_eq!(explained.outcome(), SyncOutcome::Explained, "{explained:?}");
    assert_eq!(explained.queue, "deployment", "{explained:?}");
    let why = "No ReplicaSet has the current template; one is created.";
    assert!(explained.reasons.iter().any(|reason| reason == why), "{explained:?}");
    let create = explained.actions.iter().find(|action| action.r#type() == creates.0).expect("just seen");
    assert!(create.summary.contains(&namespace.name), "{create:?}");
    assert_eq!(namespace.replica_sets().await.len(), 0);

    // It fails, and the answer says why: that is no error of the call.
    let refused = reconcile(&admin, &namespace.name, "web").await;
    assert_eq!(refused.outcome(), SyncOutcome::Retrying, "{refused:?}");
    assert!(refused.message.contains("quota"), "{refused:?}");
    let failed = |action: &proto::Action| action.result() == proto::ActionResult::Failed;
    assert!(refused.actions.iter().any(failed), "{refused:?}");

    // Nothing stands against it any more.
    namespace
        .api::<ResourceQuota>()
        .delete("none", &kube::api::DeleteParams::default())
        .await
        .expect("deleted");
    let observe = || async { of_name("deployment", "web", false).await.expect("an answer") };
    until("a reconcile that gets through", LIMIT, observe, |answer| answer.outcome() == SyncOutcome::Done)
        .await;
    let sets = namespace.api::<ReplicaSet>().list(&ListParams::default()).await.expect("replica sets");
    assert_eq!(sets.items.len(), 1, "{sets:?}");
    let deployments = namespace.api::<Deployment>();
    let status = || async { deployments.get("web").await.expect("it").status.unwrap_or_default() };
    until("two pods", LIMIT, status, |status| status.available_replicas == Some(2)).await;
    let settled = || async { of_name("deployment", "web", true).await.expect("an answer") };
    until("nothing left to do", LIMIT, settled, |answer| answer.actions.is_empty()).await;
    let done = reconcile(&admin, &namespace.name, "web").await;
    assert_eq!((done.outcome(), done.actions.len()), (SyncOutcome::Done, 0), "{done:?}");
    assert!(done.duration.is_some(), "{done:?}");

    for explain in [true, false] {
        let nothing = of_name(DEPLOYMENT, "nobody", explain).await.expect("an answer");
        assert_eq!(nothing.outcome(), SyncOutcome::NoObject, "{nothing:?}");
        assert_eq!(nothing.actions.len(), 0, "{nothing:?}");
    }
    let unknown = of_name("deploymnet", "web", true).await.expect_err("no such controller");
    assert_eq!((unknown.code(), reason(&unknown)), (Code::NotFound, "CONTROLLER_NOT_FOUND".to_owned()));
    let off = of_name("bootstrapsigner", "web", true).await.expect_err("it does not run");
    assert_eq!((off.code(), reason(&off)), (Code::FailedPrecondition, "NOT_RUNNING".to_owned()));
    let shapeless = sync(&admin, REPLICA_SET, "", "", true).await.expect_err("no object");
    assert_eq!(shapeless.code(), Code::InvalidArgument);
}
