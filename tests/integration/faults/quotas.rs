//! Quotas under faults: what they say is used is what there is, whatever became of the counts in between.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, Secret, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::line::WriteFault;
use super::stage::{LIMIT, Outcome, Place, Scenario, Stage, shared};
use crate::harness::until;

struct Counting;

async fn quota(place: &Place, name: &str, hard: &Value) {
    let _: ResourceQuota =
        place.namespace.create(json!({ "metadata": { "name": name }, "spec": { "hard": hard } })).await;
}

async fn pod(place: &Place, name: &str) {
    let container =
        json!({ "name": "web", "image": "web:1", "resources": { "requests": { "cpu": "100m" } } });
    let spec = json!({
        // Nobody touches it, and it goes at once.
        "schedulerName": "nobody", "terminationGracePeriodSeconds": 0, "containers": [container],
    });
    let _: Pod = place.namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
}

async fn service(place: &Place, name: &str) {
    // Without an address: those are of ranges that others look after.
    let spec = json!({ "clusterIP": "None", "ports": [{ "port": 80 }] });
    let _: Service = place.namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
}

async fn map(place: &Place, name: &str) {
    let _: ConfigMap = place.namespace.create(json!({ "metadata": { "name": name } })).await;
}

async fn secret(place: &Place, name: &str) {
    let _: Secret = place.namespace.create(json!({ "metadata": { "name": name } })).await;
}

async fn delete<K>(place: &Place, names: &[&str])
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
    K::DynamicType: Default,
{
    for name in names {
        let deleted = place.namespace.api::<K>().delete(name, &DeleteParams::default()).await;
        drop(deleted.expect("deleted"));
    }
}

async fn limit(place: &Place, name: &str, hard: &Value) {
    let patch = Patch::Merge(json!({ "spec": { "hard": hard } }));
    let quotas = place.namespace.api::<ResourceQuota>();
    quotas.patch(name, &PatchParams::default(), &patch).await.expect("it is patched");
}

/// What each quota says, by name: how much of how much.
async fn used(place: &Place) -> Outcome {
    let all = place.namespace.api::<ResourceQuota>().list(&ListParams::default()).await.expect("quotas");
    let said = all.items.into_iter().map(|quota| {
        let status = quota.status.unwrap_or_default();
        let (used, hard) = (status.used.unwrap_or_default(), status.hard.unwrap_or_default());
        let all = hard.into_iter().map(|(resource, hard)| {
            let used = used.get(&resource).map_or("nothing", |used| used.0.as_str());
            (resource, Value::from(format!("{used} of {}", hard.0)))
        });
        (quota.metadata.name.unwrap_or_default(), Value::Object(all.collect()))
    });
    said.collect()
}

fn said(of: [(&str, Value); 5]) -> Outcome {
    of.into_iter().map(|(name, said)| (name.to_owned(), said)).collect()
}

impl Scenario for Counting {
    const CONTROLLER: &'static str = "resourcequota-controller";
    const ACCOUNT: &'static str = "resourcequota-controller";

    async fn prepare(place: &Place) {
        place.namespace.default_account().await;
        for at in 0..4 {
            pod(place, &format!("pod-{at}")).await;
            map(place, &format!("map-{at}")).await;
        }
        service(place, "service-0").await;
        service(place, "service-1").await;
        for (name, hard) in [
            ("pods", json!({ "pods": "10", "requests.cpu": "2" })),
            ("maps", json!({ "count/configmaps": "10" })),
            ("services", json!({ "services": "5" })),
            ("secrets", json!({ "count/secrets": "10" })),
        ] {
            quota(place, name, &hard).await;
        }
        let counted = |said: &Outcome| {
            said.len() == 4
                && said["pods"]["pods"] == "4 of 10"
                && said["maps"]["count/configmaps"] == "4 of 10"
                && said["services"]["services"] == "2 of 5"
                && said["secrets"]["count/secrets"] == "0 of 10"
        };
        until("the first counts", LIMIT, || used(place), counted).await;
    }

    async fn act(place: &Place) {
        delete::<Pod>(place, &["pod-0", "pod-1"]).await;
        delete::<ConfigMap>(place, &["map-0"]).await;
        // Admission charges for these while it counts.
        pod(place, "pod-new").await;
        for at in 0..6 {
            map(place, &format!("new-{at}")).await;
            secret(place, &format!("secret-{at}")).await;
        }
        delete::<ConfigMap>(place, &["map-1", "new-0", "new-1", "new-2"]).await;
        delete::<Secret>(place, &["secret-0", "secret-1", "secret-2", "secret-3"]).await;
        delete::<Service>(place, &["service-0"]).await;
        limit(place, "maps", &json!({ "count/configmaps": "20" })).await;
        quota(place, "late", &json!({ "count/configmaps": "30", "requests.cpu": "4" })).await;
    }

    async fn outcome(place: &Place) -> Outcome {
        used(place).await
    }

    fn expected() -> Outcome {
        said([
            ("pods", json!({ "pods": "3 of 10", "requests.cpu": "300m of 2" })),
            ("maps", json!({ "count/configmaps": "5 of 20" })),
            ("services", json!({ "services": "1 of 5" })),
            ("secrets", json!({ "count/secrets": "2 of 10" })),
            ("late", json!({ "count/configmaps": "5 of 30", "requests.cpu": "300m of 4" })),
        ])
    }
}

async fn becomes(place: &Place, quota: &str, resource: &str, amount: &str) {
    let says = |said: &Outcome| said[quota][resource] == amount;
    until(&format!("{amount} {resource}"), LIMIT, || used(place), says).await;
}

/// Its watches are late: of what it counts, and of the quotas themselves. The place was prepared a while ago: nothing is to
/// be counted again by itself.
async fn lags(stage: &Stage<'_>, place: &Place) {
    // Pods go and it does not hear of it: the others are counted, and these are when it does.
    stage.line.hold("pods");
    delete::<Pod>(place, &["pod-0", "pod-1"]).await;
    delete::<ConfigMap>(place, &["map-0"]).await;
    becomes(place, "maps", "count/configmaps", "3 of 10").await;
    assert_eq!(used(place).await["pods"]["pods"], "4 of 10");
    stage.line.release();
    becomes(place, "pods", "pods", "2 of 10").await;

    // It does not hear that admission has charged, and finds as much as the quota seemed to say before.
    stage.line.hold("resourcequotas");
    let before = stage.reconciles().await;
    secret(place, "charged").await;
    delete::<Secret>(place, &["old"]).await;
    let counts = async || stage.reconciles().await;
    until("a count", LIMIT, counts, |counts| *counts > before).await;
    // What it writes over another quota of which it has not heard is refused until it has.
    limit(place, "services", &json!({ "services": "6" })).await;
    delete::<Service>(place, &["service-0"]).await;
    let account = async || stage.line.account(place.name());
    let conflicts = account().await.conflicts();
    until("a conflict", LIMIT, account, |account| account.conflicts() > conflicts).await;
    assert_eq!(used(place).await["secrets"]["count/secrets"], "2 of 10", "as admission says");
    stage.line.release();
    becomes(place, "services", "services", "1 of 6").await;
    becomes(place, "secrets", "count/secrets", "1 of 10").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_used_is_what_there_is() {
    let shared = shared().await;
    let stage = Stage::start::<Counting>(&shared.plane).await;
    let lagging = stage.prepared::<Counting>(WriteFault::None).await;
    stage.leave(&lagging);
    secret(&lagging, "old").await;
    stage.endures_faults::<Counting>().await;
    lags(&stage, &lagging).await;
    stage.stays::<Counting>().await;
}
