//! An example of a room, and a test that it may stay this small: a serial loop that follows no object and begins with a seed
//! key, reads JSON, scales a custom resource and applies an object of its own.

use std::sync::Arc;
use std::time::Duration;

use coxswain_machinery::api::Kind;
use coxswain_machinery::api::autoscaling::Scale;
use coxswain_machinery::api::kinds::CONFIG_MAPS;
use coxswain_machinery::api::meta::PartialObjectMetadata;
use coxswain_machinery::client::Faults;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Instance, LiveRead, Loop, LoopSettings, Observation,
    ObserveError, Query, Read, Reads, RequestPath, Room, RoomAdapter,
};
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::wire::Message as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch as ClientPatch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::harness::{ControlPlane, eventually, faulty_clients, object, runtime_on};

const LIMIT: Duration = Duration::from_mins(1);
const GROUP: &str = "farming.example.com";
/// How often the farm is looked at.
const PERIOD: Duration = Duration::from_secs(1);

static FARM_READ: LiveRead = LiveRead {
    controller: "farm-controller",
    name: "farm",
    request: "GET farms",
    when: "A farm is reconciled.",
    idle_per_hour: 0,
};

/// Farms are custom resources. Of these only the scale and JSON are read.
static FARMS: Kind = Kind {
    group: GROUP,
    version: "v1",
    kind: "Farm",
    resource: "farms",
    namespaced: false,
    metadata_only: true,
    decode: |bytes| Ok(Arc::new(PartialObjectMetadata::decode(bytes)?)),
};

static FARM_CONTROLLER: Descriptor = Descriptor {
    name: "farm-controller",
    aliases: &[],
    description: "Gives a farm the workers that it wants, and tells so.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: None,
    event_source: None,
    writes: &[],
    build: Some(build),
};

#[expect(clippy::unnecessary_wraps, reason = "the shape of every room's build")]
fn build(_: &Build<'_>) -> Result<Built, BuildError> {
    let seeds = vec![Key::new("", "home")];
    Ok(Built {
        loops: vec![Loop {
            queue: "farm",
            kind: None,
            settings: LoopSettings { serial: true, seeds, ..LoopSettings::default() },
            wake_ups: Vec::new(),
            reconcile: Arc::new(RoomAdapter::new(Farms)),
        }],
    })
}

struct Farms;

/// A farm, as it is and as it should be.
struct Farm {
    scale: Scale,
    wanted: i64,
}

impl Room for Farms {
    type View = Farm;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<Farm>, ObserveError> {
        if !failures.is_empty() {
            // There is nowhere to write a failure down; the key comes back.
            return Ok(Observation::Nothing);
        }
        let path = RequestPath::object(&FARMS, &key.namespace, &key.name);
        let uri = path.uri(Query::NONE).map_err(|error| ObserveError::Retry(error.to_string()))?;
        let (Some(farm), Some(scale)) = (read.json(&uri), read.scale(&FARMS, key)) else {
            return Ok(Observation::Needs(vec![
                FARM_READ.of(Read::Json(uri)),
                FARM_READ.of(Read::Scale(&FARMS, key.clone())),
            ]));
        };
        let (Ok(farm), Ok(Some(scale))) = (farm, scale) else {
            return Err(ObserveError::Retry(format!("the farm {key} is not there yet")));
        };
        let wanted = farm["spec"]["wanted"].as_i64().unwrap_or_default();
        Ok(Observation::View(Farm { scale: scale.clone(), wanted }))
    }

    fn plan(farm: &Farm, _: Timestamp) -> Plan {
        let mut plan = Plan { requeue_after: Some(PERIOD), ..Plan::default() };
        if i64::from(farm.scale.spec.replicas) == farm.wanted {
            return plan;
        }
        let meta = &farm.scale.metadata;
        let scale = Patch::Merge(json!({
            "metadata": { "uid": meta.uid.to_string(), "resourceVersion": meta.resource_version.to_string() },
            "spec": { "replicas": farm.wanted },
        }));
        let report = Patch::Apply {
            manager: "farm-controller",
            force: true,
            object: json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": { "name": "farm-report", "namespace": "default" },
                "data": { "workers": farm.wanted.to_string() },
            }),
        };
        let scale = Write::new(&FARMS, Key::of(meta), Verb::Patch(scale)).on("scale");
        let report = Write::new(&CONFIG_MAPS, Key::new("default", "farm-report"), Verb::Patch(report));
        plan.steps = vec![Step::Write(scale), Step::Write(report)];
        plan
    }
}

fn definition() -> DynamicObject {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    object(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("farms.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": { "plural": "farms", "singular": "farm", "kind": "Farm" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "subresources": {
                    "scale": { "specReplicasPath": ".spec.workers", "statusReplicasPath": ".status.workers" },
                },
            }],
        },
    }))
}

fn api(client: &kube::Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::all_with(client.clone(), &kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_room_scales_a_custom_resource_and_applies() {
    let plane = ControlPlane::shared();
    let cluster = plane.cluster().await;
    let definitions = api(&cluster.client, "apiextensions.k8s.io", "CustomResourceDefinition");
    definitions.create(&PostParams::default(), &definition()).await.expect("the definition");
    let farms = api(&cluster.client, GROUP, "Farm");
    let farm: DynamicObject = object(json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Farm", "metadata": { "name": "home" },
        "spec": { "wanted": 3, "workers": 1 },
    }));
    eventually("a farm", LIMIT, async || farms.create(&PostParams::default(), &farm).await.is_ok()).await;

    let clients = faulty_clients(&plane.report.kubeconfigs["admin"], &Faults::new(0)).await;
    let runtime = runtime_on(clients);
    let mut instance = Instance::prepare(&FARM_CONTROLLER, &runtime).expect("a controller");
    instance.start(&CancellationToken::new()).await.expect("it starts");
    let reports: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let has = async |workers: i64| {
        let farm = farms.get("home").await.expect("the farm");
        let report = reports.get_opt("farm-report").await.expect("an answer");
        let told = report.and_then(|report| report.data?.remove("workers"));
        farm.data["spec"]["workers"] == workers && told == Some(workers.to_string())
    };
    eventually("three workers", LIMIT, async || has(3).await).await;
    let more = ClientPatch::Merge(json!({ "spec": { "wanted": 5 } }));
    farms.patch("home", &PatchParams::default(), &more).await.expect("the farm wants more");
    eventually("five workers", LIMIT, async || has(5).await).await;
    instance.stop(Some(Duration::from_secs(1)), std::future::pending()).await;
    reports.delete("farm-report", &DeleteParams::default()).await.expect("the report goes");
    definitions.delete(&format!("farms.{GROUP}"), &DeleteParams::default()).await.expect("and the farms");
}
