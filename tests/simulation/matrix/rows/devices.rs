//! Controllers of devices.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value as Json, json};

use super::{Row, row};
use crate::matrix::fault::Fault;
use crate::matrix::seeder::{Seeder, owner, template};

const CLAIMS: &str = "resourceclaim-controller";
const TAINTS: &str = "device-taint-eviction-controller";
const POOLS: &str = "resourcepoolstatusrequest-controller";
/// See the behavior page `resourceclaim.md`, "Recovery".
const STAYS: Option<&str> = Some(
    "a finalizer that could not be removed goes with the next deallocation, or when the claim is deleted",
);
/// How often the status of a rule is written at most.
const RULE_RESTS: Duration = Duration::from_secs(10);

pub(super) static ROWS: &[Row] = &[
    row(CLAIMS, "create resourceclaims.resource.k8s.io", templated),
    row(CLAIMS, "patch pods/status", templated),
    Row {
        flags: &["--feature-gates=GenericWorkload=true,DRAWorkloadResourceClaims=true"],
        ..row(CLAIMS, "patch podgroups.scheduling.k8s.io/status", |seeder| {
            seeder.make("resourceclaimtemplates", json!({ "spec": { "spec": wanted() } }));
            let claims = json!([{ "name": "gpu", "resourceClaimTemplateName": seeder.tag }]);
            seeder.make("podgroups", json!({ "spec": { "resourceClaims": claims } }));
        })
    },
    Row {
        may_stay: STAYS,
        ..row(CLAIMS, "update resourceclaims.resource.k8s.io/status", |seeder| _ = unused(seeder))
    },
    Row {
        may_stay: STAYS,
        ..row(CLAIMS, "update resourceclaims.resource.k8s.io", |seeder| _ = unused(seeder))
    },
    row(CLAIMS, "delete resourceclaims.resource.k8s.io", |seeder| {
        let mut pod = template();
        pod["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimTemplateName": seeder.tag }]);
        let pod = seeder.make("pods", pod);
        seeder.amend("pods", &pod, |pod| pod["status"]["phase"] = json!("Succeeded"));
        let metadata = json!({
            "ownerReferences": owner("v1", "Pod", &pod),
            "annotations": { "resource.kubernetes.io/pod-claim-name": "gpu" },
        });
        seeder.make("resourceclaims", json!({ "metadata": metadata, "spec": wanted() }));
    }),
    Row {
        // The answer means that another Pod has the name, which must not be evicted.
        without: &[Fault::Conflict],
        ..row(TAINTS, "delete pods", tainted)
    },
    row(TAINTS, "patch pods/status", tainted),
    Row {
        period: RULE_RESTS,
        flags: &["--feature-gates=DRADeviceTaintRules=true"],
        ..row(TAINTS, "patch devicetaintrules.resource.k8s.io/status", |seeder| {
            let driver = format!("{}.example.com", seeder.tag);
            let taint = json!({ "key": "broken", "value": "yes", "effect": "NoExecute" });
            let spec = json!({ "deviceSelector": { "driver": driver }, "taint": taint });
            seeder.make("devicetaintrules", json!({ "spec": spec }));
        })
    },
    Row {
        flags: &["--feature-gates=DRAResourcePoolStatus=true"],
        ..row(POOLS, "update resourcepoolstatusrequests.resource.k8s.io/status", |seeder| {
            let driver = format!("{}.example.com", seeder.tag);
            slice(seeder, &driver, &Json::Null);
            seeder.make("resourcepoolstatusrequests", json!({ "spec": { "driver": driver } }));
        })
    },
    Row {
        period: Duration::from_mins(10),
        flags: &["--feature-gates=DRAResourcePoolStatus=true"],
        ..row(POOLS, "delete resourcepoolstatusrequests.resource.k8s.io", |seeder| {
            let driver = format!("{}.example.com", seeder.tag);
            let request = seeder.make("resourcepoolstatusrequests", json!({ "spec": { "driver": driver } }));
            let then = seeder.ago(SignedDuration::from_hours(30));
            seeder.amend("resourcepoolstatusrequests", &request, |request| {
                request["metadata"]["creationTimestamp"] = json!(then);
                request["status"] = json!({
                    "poolCount": 0,
                    "conditions": [{
                        "type": "Complete", "status": "True", "reason": "Calculated", "message": "",
                        "lastTransitionTime": then,
                    }],
                });
            });
        })
    },
];

fn wanted() -> Json {
    json!({ "devices": { "requests": [{ "name": "gpu", "exactly": { "deviceClassName": "gpu" } }] } })
}

/// A pod that asks for a claim by template.
fn templated(seeder: &mut Seeder<'_>) {
    seeder.make("resourceclaimtemplates", json!({ "spec": { "spec": wanted() } }));
    let mut pod = template();
    pod["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimTemplateName": seeder.tag }]);
    seeder.make("pods", pod);
}

fn allocation(driver: &str) -> Json {
    json!({ "devices": { "results": [
        { "request": "gpu", "driver": driver, "pool": "gpus", "device": "a" },
    ] } })
}

/// An allocated claim whose last pod is gone.
fn unused(seeder: &mut Seeder<'_>) -> Json {
    let metadata = json!({ "finalizers": ["resource.kubernetes.io/delete-protection"] });
    let claim = seeder.make("resourceclaims", json!({ "metadata": metadata, "spec": wanted() }));
    seeder.amend("resourceclaims", &claim, |claim| {
        claim["status"] = json!({
            "allocation": allocation("gpu.example.com"),
            "reservedFor": [{
                "resource": "pods", "name": "gone", "uid": "00000000-0000-4000-8000-000000000000",
            }],
        });
    })
}

fn slice(seeder: &mut Seeder<'_>, driver: &str, taints: &Json) {
    let mut device = json!({ "name": "a" });
    if !taints.is_null() {
        device["taints"] = taints.clone();
    }
    let pool = json!({ "name": "gpus", "generation": 1, "resourceSliceCount": 1 });
    let spec = json!({ "driver": driver, "pool": pool, "nodeName": "node", "devices": [device] });
    seeder.make("resourceslices", json!({ "spec": spec }));
}

/// A pod that uses a device with a taint.
fn tainted(seeder: &mut Seeder<'_>) {
    let driver = format!("{}.example.com", seeder.tag);
    let now = seeder.now().to_string();
    slice(seeder, &driver, &json!([{ "key": "broken", "effect": "NoExecute", "timeAdded": now }]));
    let mut pod = template();
    pod["spec"]["nodeName"] = json!("node");
    pod["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimName": seeder.tag }]);
    let pod = seeder.make("pods", pod);
    let claim = seeder.make("resourceclaims", json!({ "spec": wanted() }));
    let reserved = json!([{ "resource": "pods", "name": seeder.tag, "uid": pod["metadata"]["uid"] }]);
    seeder.amend("resourceclaims", &claim, |claim| {
        claim["status"] = json!({ "allocation": allocation(&driver), "reservedFor": reserved });
    });
}
