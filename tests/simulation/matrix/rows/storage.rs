//! Controllers of storage.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::{Row, Wait, row};
use crate::matrix::fault::Fault;
use crate::matrix::seeder::{DRIVER, Seeder, attachment_name, template};

const BINDER: &str = "persistentvolume-binder-controller";
const ATTACHER: &str = "persistentvolume-attach-detach-controller";
const EXPANDER: &str = "persistentvolume-expander-controller";
const CLAIM_PROTECTION: &str = "persistentvolumeclaim-protection-controller";

pub(super) static ROWS: &[Row] = &[
    row("ephemeral-volume-controller", "create persistentvolumeclaims", |seeder| {
        let mut pod = template();
        let claim = claim(seeder, "")["spec"].clone();
        pod["spec"]["volumes"] =
            json!([{ "name": "data", "ephemeral": { "volumeClaimTemplate": { "spec": claim } } }]);
        seeder.make("pods", pod);
    }),
    row(ATTACHER, "create volumeattachments.storage.k8s.io", |seeder| _ = used_volume(seeder)),
    Row {
        // It says again what is attached.
        period: Duration::from_secs(10),
        ..row(ATTACHER, "patch nodes/status", |seeder| _ = used_volume(seeder))
    },
    row(ATTACHER, "delete volumeattachments.storage.k8s.io", |seeder| {
        let source = csi(seeder);
        bound_claim(seeder, &source, "1Gi", "1Gi");
        let tag = seeder.tag;
        let listed = json!([{ "name": format!("kubernetes.io/csi/{DRIVER}^{tag}"), "devicePath": "" }]);
        let node = attaching_node(seeder);
        seeder.amend("nodes", &node, |node| node["status"]["volumesAttached"] = listed);
        let metadata = json!({ "name": attachment_name(DRIVER, tag) });
        let spec = json!({ "attacher": DRIVER, "nodeName": tag, "source": { "persistentVolumeName": tag } });
        let attachment = json!({ "metadata": metadata, "spec": spec });
        seeder.make_with_status("volumeattachments", attachment, json!({ "attached": true }));
    }),
    Row {
        // One try sends the update that links the volume to its claim twice at most.
        writes_per_pass: 2,
        ..binds(row(BINDER, "update persistentvolumes", unbound))
    },
    binds(row(BINDER, "update persistentvolumes/status", unbound)),
    binds(row(BINDER, "update persistentvolumeclaims", unbound)),
    binds(row(BINDER, "update persistentvolumeclaims/status", unbound)),
    Row {
        recreates: &[Wait {
            answers: &[Fault::TimeoutAfter],
            // See the behavior page `volume-plugins.md`, "Recycle".
            reason: "a Pod of that name that the controller did not see is deleted before another one is created",
        }],
        ..binds(row(BINDER, "create pods", |seeder| _ = recycled(seeder)))
    },
    Row {
        // The answer means that another Pod has the name, which the controller must not delete.
        without: &[Fault::Conflict],
        ..binds(row(BINDER, "delete pods", |seeder| _ = recycled(seeder)))
    },
    binds(row(BINDER, "delete persistentvolumes", |seeder| {
        // There is no such directory.
        let path = format!("/tmp/coxswain-matrix/{}", seeder.tag);
        released(seeder, "Delete", &json!({ "hostPath": { "path": path } }));
    })),
    row(EXPANDER, "patch persistentvolumes", flexible),
    row(EXPANDER, "patch persistentvolumeclaims/status", flexible),
    row("persistentvolume-protection-controller", "update persistentvolumes", |seeder| {
        let volume = volume(seeder, &csi(seeder));
        seeder.make_deleted("persistentvolumes", volume);
    }),
    row(CLAIM_PROTECTION, "update persistentvolumeclaims", |seeder| {
        let claim = claim(seeder, "");
        seeder.make_deleted("persistentvolumeclaims", claim);
    }),
    Row {
        flags: &["--feature-gates=PersistentVolumeClaimUnusedSinceTime=true"],
        ..row(CLAIM_PROTECTION, "update persistentvolumeclaims/status", |seeder| {
            let claim = claim(seeder, "");
            seeder.make("persistentvolumeclaims", claim);
        })
    },
    row(
        "volumeattributesclass-protection-controller",
        "update volumeattributesclasses.storage.k8s.io",
        |seeder| {
            let metadata = json!({ "finalizers": ["kubernetes.io/vac-protection"] });
            seeder.make_deleted(
                "volumeattributesclasses",
                json!({ "metadata": metadata, "driverName": DRIVER }),
            );
        },
    ),
];

/// A row of the binder, which looks at everything every 15 seconds.
const fn binds(row: Row) -> Row {
    Row { period: Duration::from_secs(15), ..row }
}

/// A claim of the tag's class for this volume.
fn claim(seeder: &Seeder<'_>, volume: &str) -> Json {
    json!({ "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": seeder.tag, "volumeName": volume,
        "resources": { "requests": { "storage": "1Gi" } },
    } })
}

fn csi(seeder: &Seeder<'_>) -> Json {
    json!({ "csi": { "driver": DRIVER, "volumeHandle": seeder.tag } })
}

/// A volume of the tag's class, with this source.
fn volume(seeder: &Seeder<'_>, source: &Json) -> Json {
    let mut volume = json!({ "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": seeder.tag,
        "persistentVolumeReclaimPolicy": "Retain",
    } });
    for (name, value) in source.as_object().into_iter().flatten() {
        volume["spec"][name.as_str()] = value.clone();
    }
    volume
}

fn unbound(seeder: &mut Seeder<'_>) {
    let volume = volume(seeder, &csi(seeder));
    seeder.make("persistentvolumes", volume);
    let claim = claim(seeder, "");
    seeder.make("persistentvolumeclaims", claim);
}

/// A claim that has asked for this much, bound to a volume with this source and 1Gi.
fn bound_claim(seeder: &mut Seeder<'_>, source: &Json, has: &str, asks: &str) -> Json {
    let tag = seeder.tag;
    let mut claim = claim(seeder, tag);
    claim["spec"]["resources"]["requests"]["storage"] = json!(asks);
    let status = json!({
        "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": has },
    });
    let claim = seeder.make_with_status("persistentvolumeclaims", claim, status);
    let mut volume = volume(seeder, source);
    volume["spec"]["claimRef"] = json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": tag, "name": tag,
        "uid": claim["metadata"]["uid"],
    });
    seeder.make_with_status("persistentvolumes", volume, json!({ "phase": "Bound" }));
    claim
}

fn attaching_node(seeder: &mut Seeder<'_>) -> Json {
    let annotations = json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
    let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    seeder.make_with_status("nodes", json!({ "metadata": { "annotations": annotations } }), status)
}

/// A pod on the node of the tag that uses a volume.
fn used_volume(seeder: &mut Seeder<'_>) -> Json {
    let source = csi(seeder);
    bound_claim(seeder, &source, "1Gi", "1Gi");
    attaching_node(seeder);
    let tag = seeder.tag;
    let mut pod = template();
    pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": tag } }]);
    pod["spec"]["nodeName"] = json!(tag);
    seeder.make("pods", pod)
}

fn recycled(seeder: &mut Seeder<'_>) -> Json {
    released(seeder, "Recycle", &json!({ "nfs": { "server": "nfs.example.com", "path": "/data" } }))
}

/// A volume whose claim is gone.
fn released(seeder: &mut Seeder<'_>, policy: &str, source: &Json) -> Json {
    let tag = seeder.tag;
    let mut volume = volume(seeder, source);
    volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
    volume["spec"]["claimRef"] = json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": tag, "name": "gone",
        "uid": "00000000-0000-4000-8000-000000000000",
    });
    seeder.make_with_status("persistentvolumes", volume, json!({ "phase": "Bound" }))
}

/// A claim of a FlexVolume that asks for more than it has.
fn flexible(seeder: &mut Seeder<'_>) {
    let tag = seeder.tag;
    let class = json!({
        "metadata": { "name": tag }, "provisioner": "example.com/p", "allowVolumeExpansion": true,
    });
    seeder.make("storageclasses", class);
    bound_claim(seeder, &json!({ "flexVolume": { "driver": "example.com/d" } }), "1Gi", "2Gi");
}
