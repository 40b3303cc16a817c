//! The real external-provisioner, external-attacher and external-resizer beside Coxswain, on a CSI driver that keeps its volumes in
//! memory: claims are provisioned, bound, attached, moved, grown and deleted, and the driver is asked for each in its order. Nobody here
//! needs privileges. The scheduler is the real one, nodes are kwok's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::harness::{Cluster, ControlPlane, Namespace, Options, binaries, by_depth, create, until};

const LIMIT: Duration = Duration::from_mins(3);
const DRIVER: &str = "csi.example.com";
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const NODES: [&str; 2] = ["node-0", "node-1"];
/// Beside the driver, each by a user of its own.
const SIDECARS: [&str; 3] = ["csi-provisioner", "csi-attacher", "csi-resizer"];
/// Claims by how they are bound: at once, and when their pod has a node.
const CLAIMS: [(&str, &str); 2] = [("now", "Immediate"), ("later", "WaitForFirstConsumer")];

struct Stage<'a> {
    plane: &'a ControlPlane,
    cluster: Cluster,
    namespace: Namespace,
    /// Of the driver's socket.
    dir: tempfile::TempDir,
}

fn program(name: &str) -> PathBuf {
    let program = binaries().join(name);
    assert!(
        program.exists(),
        "{name} is not built: tests/controlplane/build.sh builds it with COXSWAIN_FULL=1"
    );
    program
}

impl Stage<'_> {
    fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.cluster.client.clone())
    }

    /// The driver, and who calls it.
    async fn start(&self) {
        let socket = self.dir.path().join("csi.sock");
        self.plane.add("csi-driver", &program("csi-driver"), &[DRIVER, socket.to_str().expect("text")]);
        until("the driver", LIMIT, || async { socket.exists() }, |there| *there).await;
        for name in SIDECARS {
            let kubeconfig = self.plane.identity(name, &["system:masters"]);
            let (kubeconfig, address) = (
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--csi-address={}", socket.display()),
            );
            self.plane.add(name, &program(name), &[&kubeconfig, &address, "--leader-election=false", "-v=4"]);
        }
    }

    /// Classes of the driver, itself, and the nodes that have it. The mock knows one node, by its own name.
    async fn prepare(&self) {
        create(
            self.all::<CSIDriver>(),
            json!({ "metadata": { "name": DRIVER }, "spec": { "attachRequired": true } }),
        )
        .await;
        for (class, mode) in CLAIMS {
            create(
                self.all::<StorageClass>(),
                json!({ "metadata": { "name": class }, "provisioner": DRIVER,
                "volumeBindingMode": mode, "allowVolumeExpansion": true }),
            )
            .await;
        }
        for node in NODES {
            let drivers = json!([{ "name": DRIVER, "nodeID": DRIVER, "topologyKeys": [] }]);
            create(
                self.all::<CSINode>(),
                json!({ "metadata": { "name": node }, "spec": { "drivers": drivers } }),
            )
            .await;
            let managed = Patch::Merge(json!({ "metadata": { "annotations": { MANAGED: "true" } } }));
            let nodes = self.all::<Node>();
            drop(nodes.patch(node, &PatchParams::default(), &managed).await.expect("it is managed"));
        }
    }

    async fn claim(&self, name: &str) {
        let _: PersistentVolumeClaim = self
            .namespace
            .create(json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"],
                "storageClassName": name, "resources": { "requests": { "storage": "1Gi" } } } }))
            .await;
    }

    /// A pod that mounts both claims, for the scheduler to bind to this node.
    async fn pod(&self, name: &str, node: &str) {
        let volume = |(claim, _): (&str, &str)| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } });
        let _: Pod = self
            .namespace
            .create(json!({ "metadata": { "name": name }, "spec": {
                "nodeSelector": { "kubernetes.io/hostname": node }, "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "c", "image": "image:1" }], "volumes": CLAIMS.map(volume),
            } }))
            .await;
    }

    /// The volumes of both claims, once these are bound and of this size.
    async fn volumes(&self, size: &str) -> Vec<PersistentVolume> {
        let claims = self.namespace.api::<PersistentVolumeClaim>();
        let look = || async { claims.list(&ListParams::default()).await.expect("claims").items };
        let is_so = |claim: &PersistentVolumeClaim| {
            let status = json!(claim.status);
            status["phase"] == "Bound"
                && status["capacity"]["storage"] == size
                && status["conditions"].is_null()
        };
        let found = until(&format!("claims of {size}"), LIMIT, look, |found| {
            found.len() == CLAIMS.len() && found.iter().all(is_so)
        })
        .await;
        let mut volumes = Vec::new();
        for claim in found {
            let name = claim.spec.and_then(|spec| spec.volume_name).expect("its volume");
            let volume = self.all::<PersistentVolume>().get(&name).await.expect("the volume");
            let spec = json!(volume.spec);
            assert_eq!(spec["claimRef"]["uid"], json!(claim.metadata.uid), "bound both ways");
            assert_eq!(spec["capacity"]["storage"], size);
            volumes.push(volume);
        }
        volumes
    }

    /// Waits until a node may mount these, and no other node may mount anything.
    async fn are_on(&self, node: Option<&str>, handles: &[String]) {
        let mut names: Vec<String> =
            handles.iter().map(|handle| format!("kubernetes.io/csi/{DRIVER}^{handle}")).collect();
        names.sort();
        let look = || async {
            let nodes =
                self.all::<Node>().list(&ListParams::default()).await.expect("nodes").items.into_iter();
            let mut listed: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for node in nodes {
                for volume in node.status.and_then(|status| status.volumes_attached).unwrap_or_default() {
                    listed
                        .entry(node.metadata.name.clone().unwrap_or_default())
                        .or_default()
                        .push(volume.name);
                }
            }
            for names in listed.values_mut() {
                names.sort();
            }
            listed
        };
        let wanted: BTreeMap<String, Vec<String>> =
            node.map(|node| (node.to_owned(), names.clone())).into_iter().collect();
        until(&format!("what is on {node:?}"), LIMIT, look, |listed| *listed == wanted).await;
    }

    /// Waits until there is nothing of this sort.
    async fn is_gone<K>(&self)
    where
        K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let look = || async {
            self.all::<K>().list_metadata(&ListParams::default()).await.expect("a list").items.len()
        };
        until("nothing to be left", LIMIT, look, |count| *count == 0).await;
    }

    /// What the driver was asked for about a volume, and how it ended, each once if it was asked for several times in a row.
    fn calls(&self, handle: &str) -> Vec<String> {
        let log = self.plane.log("csi-driver");
        let of =
            log.lines().filter_map(|line| line.strip_suffix(handle)?.strip_suffix(' ').map(str::to_owned));
        let mut calls: Vec<String> = of.collect();
        calls.dedup();
        calls
    }

    /// What was told of an object, by its reasons.
    async fn told(&self, name: &str) -> Vec<String> {
        let all = self.namespace.api::<Event>().list(&ListParams::default()).await.expect("events").items;
        let of = all.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        of.filter_map(|event| event.reason).collect()
    }
}

fn handle(volume: &PersistentVolume) -> String {
    json!(volume.spec)["csi"]["volumeHandle"].as_str().expect("a handle").to_owned()
}

#[tokio::test]
async fn real_sidecars_do_what_is_asked_for_and_the_driver_sees_each_step_in_order() {
    if !by_depth(false, true) {
        return;
    }
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials"]);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("sidecars").await;
    namespace.default_account().await;
    let dir = tempfile::tempdir().expect("a directory");
    let stage = Stage { plane: &plane, cluster, namespace, dir };
    stage.prepare().await;
    stage.start().await;

    // One is provisioned at once, the other when the scheduler has chosen a node; both are bound, and attached there.
    for (claim, _) in CLAIMS {
        stage.claim(claim).await;
    }
    stage.pod("first", NODES[0]).await;
    let made = stage.volumes("1Gi").await;
    let handles: Vec<String> = made.iter().map(handle).collect();
    stage.are_on(Some(NODES[0]), &handles).await;

    // They grow where they are.
    let claims = stage.namespace.api::<PersistentVolumeClaim>();
    let larger = Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }));
    for (claim, _) in CLAIMS {
        drop(claims.patch(claim, &PatchParams::default(), &larger).await.expect("a larger request"));
    }
    let grown = stage.volumes("2Gi").await;
    let uids = |volumes: &[PersistentVolume]| -> Vec<Option<String>> {
        volumes.iter().map(|volume| volume.metadata.uid.clone()).collect()
    };
    assert_eq!(uids(&grown), uids(&made), "the same volumes");

    // Their pod goes, and the next one is elsewhere.
    let (pods, now) = (stage.namespace.api::<Pod>(), DeleteParams::default().grace_period(0));
    drop(pods.delete("first", &now).await.expect("it goes"));
    stage.pod("second", NODES[1]).await;
    stage.are_on(Some(NODES[1]), &handles).await;
    assert_eq!(uids(&stage.volumes("2Gi").await), uids(&made), "the same volumes");

    // And everything goes.
    drop(pods.delete("second", &now).await.expect("it goes"));
    stage.are_on(None, &[]).await;
    stage.is_gone::<VolumeAttachment>().await;
    for (claim, _) in CLAIMS {
        drop(claims.delete(claim, &DeleteParams::default()).await.expect("it goes"));
    }
    stage.is_gone::<PersistentVolumeClaim>().await;
    stage.is_gone::<PersistentVolume>().await;

    let expected = [
        "CreateVolume OK",
        "ControllerPublishVolume OK",
        "ControllerExpandVolume OK",
        "ControllerUnpublishVolume OK",
        "ControllerPublishVolume OK",
        "ControllerUnpublishVolume OK",
        "DeleteVolume OK",
    ];
    for handle in &handles {
        assert_eq!(stage.calls(handle), expected, "the volume {handle}");
    }
    for (claim, _) in CLAIMS {
        let told = stage.told(claim).await;
        for reason in
            ["ExternalProvisioning", "ProvisioningSucceeded", "ExternalExpanding", "VolumeResizeSuccessful"]
        {
            assert!(told.iter().any(|found| found == reason), "{reason} of {claim}: {told:?}");
        }
    }
    assert!(stage.told("first").await.contains(&"SuccessfulAttachVolume".to_owned()));
    let audit = plane.audit();
    let refused = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let refused: Vec<_> = refused.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(refused, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}
