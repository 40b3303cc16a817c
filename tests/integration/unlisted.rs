//! A kind that can't be listed: a Secret is encrypted by a key that the API server has no more, and so is refused with all
//! others. Whoever reads no Secrets works, and health says what is wrong.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coxswain::admin::proto::{Health, Phase};
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace as CoreNamespace, ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use crate::admin::{Admin, built};
use crate::harness::{Caller, Cluster, ControlPlane, Namespace, Options, eventually, turn, until};

/// Who watches everything waits half a minute for what does not come.
const LIMIT: Duration = Duration::from_mins(2);
/// The controllers that read Secrets. What the first one does is looked at.
const READERS: [&str; 2] = [TOKENS, "legacy-serviceaccount-token-cleaner-controller"];
const TOKENS: &str = "serviceaccount-token-controller";
/// Where the Secret is stored.
const KEY: &str = "/registry/secrets/default/sealed";
/// What an API server stores that has a key of this name; one that has not can't read it.
const SEALED: &str = "k8s:enc:aescbc:v1:lost:0123456789abcdef0123456789abcdef";

/// Makes controllers that read no Secrets do something, and waits until it is done.
async fn assert_at_work(cluster: &Cluster, namespace: &Namespace) {
    let quota = json!({ "metadata": { "name": "counts" }, "spec": { "hard": { "pods": "100" } } });
    namespace.create::<ResourceQuota>(quota).await;
    eventually("what every namespace has", LIMIT, async || {
        let account = namespace.api::<ServiceAccount>().get_opt("default").await.expect("an answer");
        let bundle = namespace.api::<ConfigMap>().get_opt("kube-root-ca.crt").await.expect("an answer");
        account.is_some() && bundle.is_some()
    })
    .await;
    namespace.deployment("web", 2, json!({})).await;
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] });
    namespace.create::<Service>(json!({ "metadata": { "name": "web" }, "spec": spec })).await;
    eventually("two endpoints that are ready", LIMIT, async || {
        let slices = namespace.api::<EndpointSlice>().list(&ListParams::default()).await.expect("slices");
        let endpoints = slices.items.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let is_ready = |ready: Option<bool>| ready == Some(true);
        endpoints.filter(|each| is_ready(each.conditions.as_ref().and_then(|each| each.ready))).count() == 2
    })
    .await;
    let used = || async {
        let quota = namespace.api::<ResourceQuota>().get("counts").await.expect("the quota");
        quota.status.and_then(|status| status.used)?.get("pods").map(|used| used.0.clone())
    };
    until("the pods to be counted", LIMIT, used, |used| used.as_deref() == Some("2")).await;
    let deployments = namespace.api::<k8s_openapi::api::apps::v1::Deployment>();
    deployments.delete("web", &DeleteParams::background()).await.expect("it is deleted");
    eventually("its pods to be collected", LIMIT, async || namespace.pods().await.is_empty()).await;
    let namespaces: Api<CoreNamespace> = Api::all(cluster.client.clone());
    namespaces.delete(&namespace.name, &DeleteParams::default()).await.expect("it is deleted");
    eventually("the namespace to go", LIMIT, async || {
        namespaces.get_opt(&namespace.name).await.expect("an answer").is_none()
    })
    .await;
}

#[tokio::test]
async fn a_secret_that_cannot_be_decrypted_stops_only_who_reads_secrets() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 2, args: Vec::new() });
    // Tokens of controllers hang on it no more than anything else does.
    assert!(plane.report.manager_args.iter().any(|arg| arg == "--use-service-account-credentials=true"));
    let cluster = plane.cluster().await;
    let (key, value) = (STANDARD.encode(KEY), STANDARD.encode(SEALED));
    plane.etcd("put", &json!({ "key": key, "value": value })).await;
    let secrets: Api<Secret> = Api::all(cluster.client.clone());
    eventually("Secrets can't be listed", LIMIT, async || {
        secrets.list(&ListParams::default()).await.is_err()
    })
    .await;

    let manager = plane.coxswain("coxswain", &[]);
    let admin = Admin::master(&plane, &manager);
    let names = built();
    let others = until(
        "all others to run",
        LIMIT,
        || admin.list(&names),
        |all| {
            let runs = |name: &str| {
                READERS.contains(&name)
                    || all.iter().any(|each| each.name == name && each.phase() == Phase::Running)
            };
            names.iter().all(|name| runs(name))
        },
    )
    .await;
    assert_eq!(others.len(), names.len());
    let namespace = cluster.namespace("sealed").await;
    assert_at_work(&cluster, &namespace).await;

    // It is said by name, with the error, to who may ask; and no probe fails for it.
    let path = format!("/healthz/{TOKENS}");
    let page = async || manager.page(Caller::Admin, &path).await;
    // While the API server begins anew with its own cache, its refusals name no key.
    let page = until("health to name the cache", LIMIT, page, |page| page.text.contains(KEY)).await;
    assert!(
        page.status == 200 && page.text.starts_with("ok, degraded: secrets: not synced for "),
        "{page:?}"
    );
    for path in ["/healthz", "/livez", "/readyz"] {
        let page = manager.page(Caller::Anonymous, path).await;
        assert_eq!((page.status, page.text.as_str()), (200, "ok"), "{path}");
    }
    let slis = manager.page(Caller::Admin, "/metrics/slis").await.text;
    let gauge = format!("kubernetes_healthcheck{{name=\"{TOKENS}\",type=\"healthz\"}} 0");
    assert!(slis.contains(&gauge), "{slis}");
    let told = admin.list(&[TOKENS]).await;
    assert_eq!((told[0].phase(), told[0].health()), (Phase::Starting, Health::Unhealthy), "{told:?}");
    assert!(told[0].health_message.starts_with("secrets: not synced for "), "{told:?}");

    plane.etcd("deleterange", &json!({ "key": key })).await;
    let recovered = || async { admin.list(&[TOKENS]).await.remove(0) };
    until("it to work when the Secret is gone", LIMIT, recovered, |each| each.health() == Health::Healthy)
        .await;
    assert_eq!(manager.page(Caller::Admin, &path).await.text, "ok");
    assert_eq!(manager.exit(), "", "the process that was started runs");
}
