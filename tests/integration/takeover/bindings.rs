//! Claims and volumes change hands: bound, half bound, waiting, released, failed.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, PostParams};

use super::*;
use crate::harness::{Cluster, object};

/// Of what writes are counted.
const KINDS: [&str; 2] = ["persistentvolumeclaims", "persistentvolumes"];
/// Claims, and how many of the four writes are done: for Coxswain to go on with, and for the Go manager.
const HALF: [(&str, usize); 3] = [("half-a", 1), ("half-b", 2), ("half-c", 3)];
const AGAIN: [(&str, usize); 3] = [("again-a", 1), ("again-b", 2), ("again-c", 3)];
const BUILT: &str = "persistentvolume-binder-controller";

struct Stage {
    cluster: Cluster,
    namespace: Namespace,
}

impl Stage {
    fn claims(&self) -> Api<PersistentVolumeClaim> {
        self.namespace.api()
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.cluster.client.clone())
    }

    async fn class(&self, name: &str, provisioner: &str) {
        let class = json!({ "metadata": { "name": name }, "provisioner": provisioner });
        let classes: Api<StorageClass> = Api::all(self.cluster.client.clone());
        classes.create(&PostParams::default(), &object(class)).await.expect("a class");
    }

    async fn claim(&self, name: &str, class: &str) -> PersistentVolumeClaim {
        self.namespace
            .create(json!({
                "metadata": { "name": name },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }))
            .await
    }

    async fn volume(&self, name: &str, class: &str, policy: &str, source: Value) {
        let mut volume = json!({
            "metadata": { "name": name },
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "persistentVolumeReclaimPolicy": policy,
            },
        });
        volume["spec"].as_object_mut().expect("fields").extend(source.as_object().expect("a source").clone());
        self.volumes().create(&PostParams::default(), &object(volume)).await.expect("a volume");
    }

    /// The first so many of the four writes that bind a claim to the volume of its name: what a crash behind them leaves.
    async fn half_bind(&self, name: &str, writes: usize) {
        self.link(name).await;
        let (volumes, claims, params) = (self.volumes(), self.claims(), PatchParams::default());
        if writes > 1 {
            let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
            drop(volumes.patch_status(name, &params, &bound).await.expect("it says that it is bound"));
        }
        if writes > 2 {
            let notes = json!({ "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes" });
            let named = json!({ "metadata": { "annotations": notes }, "spec": { "volumeName": name } });
            drop(claims.patch(name, &params, &Patch::Merge(named)).await.expect("it names its volume"));
        }
    }

    async fn link(&self, name: &str) {
        let found = self.claims().get(name).await.expect("the claim");
        let reference = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "name": name,
            "namespace": self.namespace.name, "uid": found.metadata.uid,
        });
        let patch = json!({
            "metadata": { "annotations": { "pv.kubernetes.io/bound-by-controller": "yes" } },
            "spec": { "claimRef": reference },
        });
        let patched = self.volumes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        drop(patched.expect("it is linked"));
    }

    /// A claim that is there no more, from a volume that was bound to it.
    async fn release(&self, claim: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        self.claims().patch(claim, &PatchParams::default(), &patch).await.expect("nothing keeps it");
        self.claims().delete(claim, &DeleteParams::default()).await.expect("it is deleted");
        let patched = self.claims().patch(claim, &PatchParams::default(), &patch).await;
        // It may be gone already.
        drop(patched);
    }

    /// Phases by name.
    async fn phases(&self) -> BTreeMap<String, String> {
        let list = ListParams::default();
        let mut phases = BTreeMap::new();
        for claim in self.claims().list(&list).await.expect("claims") {
            let phase = claim.status.and_then(|status| status.phase).unwrap_or_default();
            phases.insert(format!("claim/{}", claim.metadata.name.unwrap_or_default()), phase);
        }
        for volume in self.volumes().list(&list).await.expect("volumes") {
            let phase = volume.status.and_then(|status| status.phase).unwrap_or_default();
            phases.insert(format!("volume/{}", volume.metadata.name.unwrap_or_default()), phase);
        }
        phases
    }

    async fn become_so(&self, expected: &[(&str, &str)]) {
        let is_so = |phases: &BTreeMap<String, String>| {
            expected.iter().all(|(name, phase)| phases.get(*name).is_some_and(|found| found == phase))
        };
        let what = format!("{expected:?}");
        until(&what, LIMIT, || self.phases(), is_so).await;
    }
}

#[tokio::test]
async fn claims_half_bound_change_hands_twice() {
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--audit"] });
    let controllers = format!("{CONTROLLERS},{BUILT}");
    let args = [&[controllers.as_str(), "--pvclaimbinder-sync-period=1s"][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("bindings").await;
    namespace.default_account().await;
    let stage = Stage { cluster, namespace };
    let csi = || json!({ "csi": { "driver": "example.com", "volumeHandle": "h" } });
    let halves: Vec<&str> = HALF.iter().chain(&AGAIN).map(|(name, _)| *name).collect();
    for class in ["bound", "kept", "failing", "asked"].iter().chain(&halves) {
        stage.class(class, "example.com/p").await;
    }
    for (class, policy, source) in [
        ("bound", "Retain", csi()),
        ("kept", "Retain", csi()),
        ("failing", "Delete", json!({ "nfs": { "server": "s", "path": "/p" } })),
    ] {
        stage.volume(class, class, policy, source).await;
        stage.become_so(&[(&format!("volume/{class}"), "Available")]).await;
        stage.claim(class, class).await;
        stage.become_so(&[(&format!("claim/{class}"), "Bound")]).await;
    }
    stage.release("kept").await;
    stage.release("failing").await;
    for name in ["asked"].iter().chain(&halves) {
        stage.claim(name, name).await;
    }
    let settled = [
        ("volume/kept", "Released"),
        ("volume/failing", "Failed"),
        ("claim/bound", "Bound"),
        ("claim/asked", "Pending"),
        ("claim/half-a", "Pending"),
    ];
    stage.become_so(&settled).await;
    let asked = || async {
        let claims = stage.claims().list(&ListParams::default()).await.expect("claims");
        let is_asked = |claim: &PersistentVolumeClaim| {
            let annotations = claim.metadata.annotations.as_ref();
            annotations.is_some_and(|held| held.contains_key("volume.kubernetes.io/storage-provisioner"))
        };
        claims.iter().filter(|claim| is_asked(claim)).count()
    };
    until("provisioners are asked", LIMIT, asked, |count| *count == 1 + halves.len()).await;
    go.stop();

    // What a crash behind each of the writes leaves, but for the last.
    for (name, writes) in HALF {
        stage.volume(name, name, "Retain", csi()).await;
        stage.half_bind(name, writes).await;
    }
    let end = end_of_log(&plane);
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    for (name, _) in HALF {
        stage.become_so(&[(&format!("claim/{name}"), "Bound"), (&format!("volume/{name}"), "Bound")]).await;
    }
    stage.become_so(&settled[..4]).await;
    let writes = |name: &str| {
        let of_claim = format!("namespaces/{}/persistentvolumeclaims/{name}", stage.namespace.name);
        let of_volume = format!("persistentvolumes/{name}");
        [of_volume.clone(), format!("{of_volume}/status"), of_claim.clone(), format!("{of_claim}/status")]
            .map(|rest| format!("\"update\" \"/api/v1/{rest}\""))
    };
    let plain = |written: Vec<String>| -> Vec<String> {
        let plain =
            written.iter().map(|line| line.split('?').next().unwrap_or_default().trim_end_matches('"'));
        plain.map(|line| format!("{line}\"")).collect()
    };
    let written = plain(writes_of(&plane, end, Program::Coxswain, &KINDS));
    for (name, done) in HALF {
        let all = writes(name);
        let of: Vec<&String> = written.iter().filter(|line| all.contains(line)).collect();
        assert_eq!(of, all[done..].iter().collect::<Vec<_>>(), "the rest of {name}");
    }
    let rest: usize = HALF.iter().map(|(name, done)| writes(name).len() - done).sum();
    assert_eq!(written.len(), rest, "and nothing else: {written:?}");
    ours.stop();

    let end = end_of_log(&plane);
    for (name, writes) in AGAIN {
        stage.volume(name, name, "Retain", csi()).await;
        stage.half_bind(name, writes).await;
    }
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    for (name, _) in AGAIN.iter().chain(&HALF) {
        stage.become_so(&[(&format!("claim/{name}"), "Bound"), (&format!("volume/{name}"), "Bound")]).await;
    }
    stage.become_so(&settled[..4]).await;
    let written = writes_of(&plane, end, Program::Go, &KINDS);
    assert!(written.iter().all(|line| line.contains("/again")), "what ours did was enough: {written:?}");
}
