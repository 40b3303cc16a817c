//! Rows about Endpoints, EndpointSlices and their mirrors.

use std::sync::Arc;

use serde_json::{Value, json};

use super::scene::{Outcome, Scene};
use super::{Area, Case, Played, Taken, nothing};

pub(super) const AREA: Area = Area {
    cases: &[
        Case { id: "headless-trigger-time", prepare: nothing, play: headless, taken: Taken::Moving },
        Case {
            id: "events-in-namespace",
            prepare: nothing,
            play: refused_endpoints,
            taken: Taken::Unchanged,
        },
        Case { id: "gauges-of-families", prepare: nothing, play: two_families, taken: Taken::Unchanged },
        Case {
            id: "restored-mirrored-slices",
            prepare: nothing,
            play: no_owner,
            taken: Taken::Mended(has_an_owner),
        },
        Case { id: "zones-of-mirrored-slices", prepare: nothing, play: zones, taken: Taken::Moving },
    ],
    plane: &["--apiserver-arg=service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112"],
    args: &[
        "--controllers=endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller",
        "--mirroring-max-endpoints-per-subset=2",
    ],
    has_metrics_apis: false,
    is_recorded: false,
};

async fn service(scene: &Scene, name: &str, more: Value) {
    let mut spec = json!({ "ports": [{ "port": 80 }] });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    scene.create("Service", json!({ "metadata": { "name": name }, "spec": spec })).await;
}

fn addresses(ips: &[&str]) -> Value {
    let ips: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
    json!([{ "addresses": ips, "ports": [{ "port": 8080 }] }])
}

/// A Service without a selector, and its Endpoints.
async fn mirrored(scene: &Scene, name: &str, ips: &[&str]) -> Outcome {
    service(scene, name, json!({})).await;
    scene.create("Endpoints", json!({ "metadata": { "name": name }, "subsets": addresses(ips) })).await;
    scene.waits("a mirrored slice", async || slices(scene, name).await.len().into(), 1.into()).await
}

/// The slices of a Service.
async fn slices(scene: &Scene, service: &str) -> Vec<Value> {
    let all = scene.list("EndpointSlice").await.into_iter();
    all.filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service).collect()
}

/// Lets the controllers look at a Service again, and waits until they have: until they have served a later one.
async fn touch(scene: &Scene, name: &str, round: &str) -> Outcome {
    scene.patch("Service", name, json!({ "metadata": { "annotations": { "look": round } } })).await;
    mirrored(scene, &format!("marker-{round}"), &["192.0.2.77"]).await
}

const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Differs: headless-trigger-time.
fn headless(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        scene.pod("a", json!({ "app": "web" }), Value::Null).await;
        scene.ready("a", &["192.0.2.1"]).await;
        let body = json!({ "metadata": { "name": "web", "labels": { "service.kubernetes.io/headless": "" } },
            "spec": { "clusterIP": "None", "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
        scene.create("Service", body).await;
        let endpoints = async || scene.get("Endpoints", "web").await;
        let count = async || endpoints().await["subsets"].as_array().map_or(0, Vec::len).into();
        scene.waits("the Endpoints", count, 1.into()).await?;
        touch(&scene, "web", "one").await?;
        touch(&scene, "web", "two").await?;
        let has_time = async || endpoints().await["metadata"]["annotations"].get(TRIGGER).is_some().into();
        scene.sees("the trigger time", has_time, false.into(), true.into()).await
    })
}

/// Differs: events-in-namespace.
fn refused_endpoints(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        // Nobody counts it, so admission goes by this.
        let hard = json!({ "count/endpoints": "0" });
        scene
            .create("ResourceQuota", json!({ "metadata": { "name": "none" }, "spec": { "hard": hard } }))
            .await;
        scene.patch_status("ResourceQuota", "none", json!({ "hard": hard, "used": hard })).await;
        let is_refused = async || {
            let dry = kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() };
            let probe = crate::harness::object(
                json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": "probe" } }),
            );
            scene.api("Endpoints").create(&dry, &probe).await.is_err().into()
        };
        scene.waits("the quota is in force", is_refused, true.into()).await?;
        service(&scene, &scene.name, json!({ "selector": { "app": "web" } })).await;
        let look = async || {
            let reason = "FailedToCreateEndpoint";
            let own = scene.events(&scene.name, &scene.name, reason).await;
            let default = scene.events("default", &scene.name, reason).await;
            json!({ "own": !own.is_empty(), "default": !default.is_empty() })
        };
        let (theirs, ours) =
            (json!({ "own": false, "default": true }), json!({ "own": true, "default": false }));
        scene.sees("the namespace of the Event", look, theirs, ours).await
    })
}

/// Differs: gauges-of-families.
fn two_families(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        scene.pod("a", json!({ "app": "web" }), Value::Null).await;
        scene.ready("a", &["192.0.2.1", "2001:db8::1"]).await;
        service(&scene, "web", json!({ "selector": { "app": "web" }, "ipFamilyPolicy": "RequireDualStack" }))
            .await;
        scene
            .waits("a slice of each family", async || slices(&scene, "web").await.len().into(), 2.into())
            .await?;
        // Slices of all Services of the control plane, of which this is the only one of two families.
        let missing = async || {
            let selector = kube::api::ListParams::default()
                .labels("endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io");
            let api: kube::Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
                kube::Api::all(scene.cluster.client.clone());
            let of_families = api.list(&selector).await.expect("slices").items.len();
            let counted = scene.metric("endpoint_slice_controller_num_endpoint_slices", "").await;
            json!(of_families as i64 - counted as i64)
        };
        scene.sees("slices that the gauge lacks", missing, 1.into(), 0.into()).await
    })
}

async fn owners(scene: &Scene) -> Value {
    let slices = slices(scene, "web").await;
    slices
        .first()
        .and_then(|slice| slice["metadata"]["ownerReferences"].as_array())
        .map_or(0, Vec::len)
        .into()
}

/// Differs: restored-mirrored-slices.
fn no_owner(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        mirrored(&scene, "web", &["192.0.2.1"]).await?;
        let slice = slices(&scene, "web").await.remove(0);
        let name = slice["metadata"]["name"].as_str().expect("a name");
        scene.patch("EndpointSlice", name, json!({ "metadata": { "ownerReferences": null } })).await;
        touch(&scene, "web", "one").await?;
        scene.sees("owners of the slice", || owners(&scene), 0.into(), 1.into()).await
    })
}

fn has_an_owner(scene: Arc<Scene>) -> Played {
    Box::pin(async move { scene.waits("owners of the slice", || owners(&scene), 1.into()).await })
}

/// Differs: zones-of-mirrored-slices.
fn zones(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        mirrored(&scene, "web", &["192.0.2.1"]).await?;
        let mut slice = slices(&scene, "web").await.remove(0);
        let name = slice["metadata"]["name"].as_str().expect("a name").to_owned();
        slice["endpoints"][0]["zone"] = "zone-1".into();
        scene.patch("EndpointSlice", &name, json!({ "endpoints": slice["endpoints"] })).await;
        let more = addresses(&["192.0.2.1", "192.0.2.2"]);
        scene.patch("Endpoints", "web", json!({ "subsets": more })).await;
        let endpoints = async || {
            let slices = slices(&scene, "web").await;
            let all =
                slices.first().and_then(|slice| slice["endpoints"].as_array().cloned()).unwrap_or_default();
            let zone =
                all.iter().find(|each| each["addresses"][0] == "192.0.2.1").map(|each| each["zone"].clone());
            json!([all.len(), zone])
        };
        scene.sees("the zone", endpoints, json!([2, null]), json!([2, "zone-1"])).await
    })
}
