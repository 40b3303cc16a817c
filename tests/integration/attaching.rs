//! Volumes that follow their pods, where the test plays nodes and attacher.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{Cluster, ControlPlane, Namespace, Options, Program, object, until};

mod death;
mod handover;
mod hanging;

const LIMIT: Duration = Duration::from_mins(3);
const DRIVER: &str = "csi.example.com";
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Of what writes are counted.
const KINDS: [&str; 4] = ["nodes", "persistentvolumeclaims", "persistentvolumes", "volumeattachments"];
/// Leadership is to move without a long wait.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

/// A cluster in which the test plays nodes and attacher.
struct Stage {
    cluster: Cluster,
    namespace: Namespace,
}

impl Stage {
    fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.cluster.client.clone())
    }

    /// A node that is managed and ready.
    async fn node(&self, name: &str) {
        let node = object(json!({ "metadata": { "name": name, "annotations": { MANAGED: "true" } } }));
        self.all::<Node>().create(&PostParams::default(), &node).await.expect("a node");
        self.says(name, json!({ "conditions": [{ "type": "Ready", "status": "True" }], "allocatable": { "pods": "110", "cpu": "8" } }))
            .await;
    }

    /// A node says something of itself.
    async fn says(&self, node: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        drop(
            self.all::<Node>().patch_status(node, &PatchParams::default(), &patch).await.expect("its status"),
        );
    }

    /// A volume of this name for the claim of that name, which the binder binds.
    async fn bind(&self, claim: &str, volume: &str) {
        let made = object(json!({ "metadata": { "name": volume }, "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": DRIVER, "volumeHandle": volume },
            "claimRef": { "namespace": self.namespace.name, "name": claim },
        } }));
        let volumes = self.all::<PersistentVolume>();
        volumes.create(&PostParams::default(), &made).await.expect("a volume");
        let claims = self.namespace.api::<PersistentVolumeClaim>();
        let phases = || async {
            let (claim, volume) = tokio::join!(claims.get_status(claim), volumes.get_status(volume));
            let of_claim = claim.expect("the claim").status.and_then(|status| status.phase);
            (of_claim, volume.expect("the volume").status.and_then(|status| status.phase))
        };
        until(&format!("{claim} to be bound"), LIMIT, phases, |(claim, volume)| {
            [claim, volume].iter().all(|phase| phase.as_deref() == Some("Bound"))
        })
        .await;
    }

    /// The VolumeAttachments of a volume: the node of each, and whether it is being deleted.
    async fn attachments(&self, volume: &str) -> Vec<(String, VolumeAttachment)> {
        let all = self.all::<VolumeAttachment>().list(&ListParams::default()).await.expect("attachments");
        let of = all.items.into_iter();
        let of = of.filter(|each| each.spec.source.persistent_volume_name.as_deref() == Some(volume));
        of.map(|each| (each.spec.node_name.clone(), each)).collect()
    }

    /// Waits until a volume has a VolumeAttachment on a node, and none elsewhere; its name.
    async fn is_asked_for(&self, volume: &str, node: &str) -> String {
        let look = || self.attachments(volume);
        let found = until(&format!("{volume} on {node}"), LIMIT, look, |found| {
            matches!(&found[..], [(on, each)] if on == node && each.metadata.deletion_timestamp.is_none())
        })
        .await;
        found[0].1.metadata.name.clone().expect("a name")
    }

    /// The attacher does its work.
    async fn attach(&self, name: &str) {
        let attachments = self.all::<VolumeAttachment>();
        let (params, finalizers) =
            (PatchParams::default(), json!({ "metadata": { "finalizers": ["example.com/attacher"] } }));
        drop(attachments.patch(name, &params, &Patch::Merge(finalizers)).await.expect("it has a finalizer"));
        let attached = Patch::Merge(json!({ "status": { "attached": true } }));
        drop(attachments.patch_status(name, &params, &attached).await.expect("it is attached"));
    }

    /// The attacher lets go.
    async fn detach(&self, name: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let freed = self.all::<VolumeAttachment>().patch(name, &PatchParams::default(), &patch).await;
        drop(freed.expect("its finalizer is gone"));
    }

    /// What a node may mount.
    async fn listed(&self, node: &str) -> Vec<String> {
        let status = self.all::<Node>().get(node).await.expect("the node").status;
        let listed = status.and_then(|status| status.volumes_attached).unwrap_or_default();
        listed.into_iter().map(|each| each.name).collect()
    }

    async fn lists(&self, node: &str, volumes: &[&str]) {
        let names: Vec<String> = volumes.iter().map(|volume| unique(volume)).collect();
        until(&format!("what {node} lists"), LIMIT, || self.listed(node), |listed| *listed == names).await;
    }

    /// A pod is at work on a node.
    async fn runs(&self, pod: &str) {
        let status = json!({ "status": { "phase": "Running",
            "containerStatuses": [{ "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": { "running": {} } }],
            "conditions": [{ "type": "Ready", "status": "True" }] } });
        let pods = self.namespace.api::<Pod>();
        drop(pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await.expect("it runs"));
    }

    async fn pod(&self, name: &str, node: &str, claim: &str) {
        let _: Pod = self
            .namespace
            .create(json!({ "metadata": { "name": name }, "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }] } }))
            .await;
    }

    async fn delete_pod(&self, name: &str) {
        let params = DeleteParams::default().grace_period(0);
        drop(self.namespace.api::<Pod>().delete(name, &params).await.expect("it is deleted"));
    }

    async fn claim(&self, name: &str) {
        let _: PersistentVolumeClaim = self
            .namespace
            .create(json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none", "resources": { "requests": { "storage": "1Gi" } } } }))
            .await;
    }
}

fn unique(volume: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^{volume}")
}

/// What a manager wrote to nodes, claims, volumes and VolumeAttachments, from this many requests on.
fn written(plane: &ControlPlane, since: usize, program: Program) -> Vec<String> {
    let audit = plane.audit();
    let own = audit.iter().skip(since).filter(|event| event.is_from(program));
    let own = own.filter(|event| {
        let resource = event.object_ref.resource.as_str();
        event.is_write() && KINDS.contains(&resource)
    });
    own.map(|event| format!("{} {}", event.verb, event.uri)).collect()
}

fn forbidden(plane: &ControlPlane) -> Vec<String> {
    let audit = plane.audit();
    let refused = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    refused.map(|event| format!("{} {}", event.verb, event.uri)).collect()
}
