//! Claims, volumes, classes and PodGroups that wait for their users, claims that can't be made, and volumes that grow change hands.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};

use super::*;
use crate::harness::{Cluster, object};

/// Of what writes are counted.
const KINDS: [&str; 7] = [
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podgroups",
    "resourcepoolstatusrequests",
    "storageversions",
    "volumeattributesclasses",
];
const BUILT: &str = "ephemeral-volume-controller,persistentvolume-protection-controller,podgroup-protection-controller,\
    persistentvolumeclaim-protection-controller,resourcepoolstatusrequest-controller,\
    volumeattributesclass-protection-controller,persistentvolume-expander-controller,selinux-warning-controller,\
    storageversion-garbage-collector-controller";

/// What two API servers that are not there say of what they store.
const STORED: &str = "stored/fake.things";

struct Stage {
    cluster: Cluster,
    namespace: Namespace,
}

impl Stage {
    fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.cluster.client.clone())
    }

    fn dynamic(&self, group: &str, version: &str, kind: &str, is_namespaced: bool) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.cluster.client.clone();
        if is_namespaced {
            Api::namespaced_with(client, &self.namespace.name, &resource)
        } else {
            Api::all_with(client, &resource)
        }
    }

    fn groups(&self) -> Api<DynamicObject> {
        self.dynamic("scheduling.k8s.io", "v1alpha2", "PodGroup", true)
    }

    fn requests(&self) -> Api<DynamicObject> {
        self.dynamic("resource.k8s.io", "v1alpha3", "ResourcePoolStatusRequest", false)
    }

    /// Everything, as it is: with resource versions, so that nothing is written unseen.
    async fn state(&self) -> BTreeMap<String, Value> {
        let list = ListParams::default();
        let mut state = BTreeMap::new();
        let mut add = |kind: &str, name: Option<String>, object: Result<Value, serde_json::Error>| {
            state.insert(format!("{kind}/{}", name.unwrap_or_default()), object.expect("JSON"));
        };
        for claim in self.namespace.api::<PersistentVolumeClaim>().list(&list).await.expect("claims") {
            add("claim", claim.metadata.name.clone(), serde_json::to_value(&claim));
        }
        for pod in self.namespace.pods().await {
            add("pod", pod.metadata.name.clone(), serde_json::to_value(&pod));
        }
        for volume in self.all::<PersistentVolume>().list(&list).await.expect("volumes") {
            add("volume", volume.metadata.name.clone(), serde_json::to_value(&volume));
        }
        for class in self.all::<VolumeAttributesClass>().list(&list).await.expect("classes") {
            add("class", class.metadata.name.clone(), serde_json::to_value(&class));
        }
        for group in self.groups().list(&list).await.expect("groups") {
            add("group", group.metadata.name.clone(), serde_json::to_value(&group));
        }
        for request in self.requests().list(&list).await.expect("requests") {
            add("request", request.metadata.name.clone(), serde_json::to_value(&request));
        }
        let fake = |version: &DynamicObject| version.name_any().starts_with("fake");
        for version in self.stored().list(&list).await.expect("storage versions").into_iter().filter(fake) {
            add("stored", version.metadata.name.clone(), serde_json::to_value(&version));
        }
        state
    }

    /// Waits until all of these are there, or not, and two looks, some time apart, see the same.
    async fn settles(&self, there: &[&str], gone: &[&str]) -> BTreeMap<String, Value> {
        let look = || async {
            let before = self.state().await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let is_so = there.iter().all(|name| before.contains_key(*name))
                && !gone.iter().any(|name| before.contains_key(*name));
            (is_so && before == self.state().await).then_some(before)
        };
        let what = format!("{there:?} without {gone:?}");
        until(&what, LIMIT, look, Option::is_some).await.expect("it was there")
    }

    fn stored(&self) -> Api<DynamicObject> {
        self.dynamic("internal.apiserver.k8s.io", "v1alpha1", "StorageVersion", false)
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.cluster.client.clone(), "kube-system")
    }

    /// Two API servers are there and say what they store.
    async fn announce(&self) {
        for name in ["fake-a", "fake-b"] {
            let label = json!({ "apiserver.kubernetes.io/identity": "kube-apiserver" });
            let lease = object::<Lease>(json!({ "metadata": { "name": name, "labels": label } }));
            self.leases().create(&PostParams::default(), &lease).await.expect("a Lease");
        }
        let version = object(json!({
            "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
            "metadata": { "name": "fake.things" }, "spec": {},
        }));
        self.stored().create(&PostParams::default(), &version).await.expect("a StorageVersion");
        let entry = |server: &str, version: &str| {
            json!({ "apiServerID": server, "encodingVersion": version,
            "decodableVersions": [version], "servedVersions": [version] })
        };
        let status = json!({ "storageVersions": [entry("fake-a", "v1"), entry("fake-b", "v2")] });
        let patch = Patch::Merge(json!({ "status": status }));
        let patched = self.stored().patch_status("fake.things", &PatchParams::default(), &patch).await;
        drop(patched.expect("it has a status"));
    }

    /// An API server is gone; so many entries are left.
    async fn server_leaves(&self, name: &str, left: usize) {
        self.delete(&self.leases(), name).await;
        let entries = || async {
            let version = self.stored().get("fake.things").await.expect("the StorageVersion");
            version.data["status"]["storageVersions"].as_array().map_or(0, Vec::len)
        };
        until("the entries that are left", LIMIT, entries, |entries| *entries == left).await;
    }

    async fn claim(&self, name: &str, class: Option<&str>) {
        let _: PersistentVolumeClaim = self
            .namespace
            .create(json!({
                "metadata": { "name": name },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "none",
                    "volumeAttributesClassName": class,
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }))
            .await;
    }

    /// A pod that nobody plays.
    async fn pod(&self, name: &str, spec: Value) {
        let mut body = json!({
            "metadata": { "name": name },
            "spec": { "nodeName": "by-hand", "containers": [{ "name": "c", "image": "image:1" }] },
        });
        for (field, value) in spec.as_object().expect("fields") {
            body["spec"][field] = value.clone();
        }
        let _: Pod = self.namespace.create(body).await;
    }

    async fn delete<K>(&self, api: &Api<K>, name: &str)
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let deleted = api.delete(name, &DeleteParams::default().grace_period(0)).await;
        drop(deleted.expect("it is deleted"));
    }

    async fn ask(&self, name: &str) {
        let request = object(json!({
            "apiVersion": "resource.k8s.io/v1alpha3",
            "kind": "ResourcePoolStatusRequest",
            "metadata": { "name": name },
            "spec": { "driver": "example.com" },
        }));
        self.requests().create(&PostParams::default(), &request).await.expect("it is asked");
        let get = || async { self.requests().get(name).await.expect("the request") };
        until("an answer", LIMIT, get, |request| request.data["status"]["poolCount"] == 0).await;
    }

    /// A claim that is bound to a volume of its name, has 1Gi and asks for more.
    async fn grows(&self, name: &str, source: Value) {
        let claim: PersistentVolumeClaim = self
            .namespace
            .create(json!({
                "metadata": { "name": name },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "grows", "volumeName": name,
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }))
            .await;
        let mut volume = json!({
            "metadata": { "name": name },
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "grows",
                "claimRef": { "namespace": self.namespace.name, "name": name, "uid": claim.metadata.uid },
            },
        });
        volume["spec"].as_object_mut().expect("fields").extend(source.as_object().expect("a source").clone());
        let volume = object::<PersistentVolume>(volume);
        self.all().create(&PostParams::default(), &volume).await.expect("a volume");
        let status = json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } });
        self.claim_status(name, status).await;
        let claims = self.namespace.api::<PersistentVolumeClaim>();
        let patch = Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }));
        // Admission hears of the class a moment later.
        let asked = || async { claims.patch(name, &PatchParams::default(), &patch).await.is_ok() };
        until("a larger request", LIMIT, asked, |asked| *asked).await;
    }

    async fn claim_status(&self, name: &str, status: Value) {
        let claims = self.namespace.api::<PersistentVolumeClaim>();
        let patched = claims.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await;
        drop(patched.expect("the claim has a status"));
    }

    /// Waits until a volume says what it was before it grew, or does not.
    async fn is_marked(&self, name: &str, wanted: bool) {
        let volumes = self.all::<PersistentVolume>();
        let look = || async {
            let annotations = volumes.get(name).await.expect("the volume").metadata.annotations;
            annotations.unwrap_or_default().contains_key("volume.alpha.kubernetes.io/pre-resize-capacity")
        };
        until(&format!("{name} grown or not"), LIMIT, look, |marked| *marked == wanted).await;
    }

    /// Volumes that grow, two pods that mount one of them with different labels.
    async fn populate_volumes(&self) {
        let class =
            object::<StorageClass>(json!({ "metadata": { "name": "grows" }, "provisioner": "example.com",
                "allowVolumeExpansion": true }));
        self.all().create(&PostParams::default(), &class).await.expect("a class");
        self.grows("waits", json!({ "csi": { "driver": "example.com", "volumeHandle": "a" } })).await;
        self.grows("flexible", json!({ "flexVolume": { "driver": "example.com/d" } })).await;
        self.is_marked("flexible", true).await;
        for (name, level) in [("labeled", "s0:c1"), ("relabeled", "s0:c2")] {
            let iscsi =
                json!({ "targetPortal": "192.0.2.7:3260", "iqn": "iqn.2026-11.com.example:disk", "lun": 0 });
            let container = json!({ "name": "c", "image": "image:1", "volumeMounts": [{ "name": "disk", "mountPath": "/x" }],
                "securityContext": { "seLinuxOptions": { "level": level } } });
            let volumes = json!([{ "name": "disk", "iscsi": iscsi }]);
            self.pod(name, json!({ "containers": [container], "volumes": volumes })).await;
        }
    }

    async fn populate(&self) {
        let class = |name: &str| {
            object::<VolumeAttributesClass>(
                json!({ "metadata": { "name": name }, "driverName": "example.com",
                "parameters": { "a": "b" } }),
            )
        };
        for name in ["gold", "silver"] {
            self.all().create(&PostParams::default(), &class(name)).await.expect("a class");
        }
        let volume = object::<PersistentVolume>(json!({
            "metadata": { "name": "bound" },
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                "hostPath": { "path": "/tmp/x" }, "claimRef": { "namespace": "x", "name": "y" },
            },
        }));
        self.all().create(&PostParams::default(), &volume).await.expect("a volume");
        self.phase("Bound").await;
        for (name, class) in [("used", Some("gold")), ("free", Some("silver")), ("stuck-b", None)] {
            self.claim(name, class).await;
        }
        let group = object(json!({
            "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": { "name": "gang" },
            "spec": { "schedulingPolicy": { "basic": {} } },
        }));
        self.groups().create(&PostParams::default(), &group).await.expect("a group");
        let used = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "used" } }]);
        self.pod("user", json!({ "volumes": used })).await;
        self.pod("member", json!({ "schedulingGroup": { "podGroupName": "gang" } })).await;
        let ephemeral = |name: &str| {
            let template = json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                "resources": { "requests": { "storage": "1Gi" } } } });
            json!({ "name": name, "ephemeral": { "volumeClaimTemplate": template } })
        };
        self.pod("stuck", json!({ "volumes": [ephemeral("a"), ephemeral("b"), ephemeral("c")] })).await;
        self.ask("before").await;
        let claims = self.namespace.api::<PersistentVolumeClaim>();
        self.delete(&claims, "used").await;
        self.delete(&self.all::<PersistentVolume>(), "bound").await;
        self.delete(&self.all::<VolumeAttributesClass>(), "gold").await;
        self.delete(&self.groups(), "gang").await;
    }

    async fn phase(&self, phase: &str) {
        let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
        let volumes = self.all::<PersistentVolume>();
        let patched = volumes.patch_status("bound", &PatchParams::default(), &patch).await;
        drop(patched.expect("the volume has a phase"));
    }
}

#[tokio::test]
async fn what_is_protected_changes_hands_twice_while_it_goes() {
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: [&["--audit"][..], ControlPlane::GATED_ARGS].concat(),
    });
    let controllers = format!("{CONTROLLERS},{BUILT}");
    let args = [&[controllers.as_str()][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("storage").await;
    namespace.default_account().await;
    let stage = Stage { cluster, namespace };
    stage.populate().await;
    stage.populate_volumes().await;
    stage.announce().await;
    let waiting =
        ["claim/used", "class/gold", "volume/bound", "group/gang", "claim/stuck-a", "request/before", STORED];
    let before = stage.settles(&waiting, &["claim/stuck-c"]).await;

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    assert_eq!(stage.settles(&waiting, &[]).await, before, "Coxswain changed something");
    let written = |from, program: Program| -> Vec<String> {
        // The create that is refused as long as the stranger is there is none: it is not sent.
        writes_of(&plane, from, program, &KINDS)
    };
    assert_eq!(written(end, Program::Coxswain), Vec::<String>::new(), "Coxswain wrote when it took over");

    // It does its work meanwhile: half of what waits goes.
    stage.delete(&stage.namespace.api::<Pod>(), "user").await;
    stage.phase("Released").await;
    stage.delete(&stage.all::<VolumeAttributesClass>(), "silver").await;
    stage.ask("meanwhile").await;
    let grown =
        json!({ "capacity": { "storage": "2Gi" }, "allocatedResourceStatuses": null, "conditions": null });
    stage.claim_status("flexible", json!({ "status": grown })).await;
    stage.is_marked("flexible", false).await;
    stage.server_leaves("fake-b", 1).await;
    let left = ["class/silver", "group/gang", "claim/stuck-a", "request/meanwhile"];
    let worked = stage.settles(&left, &["claim/used", "class/gold", "volume/bound"]).await;

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    assert_eq!(stage.settles(&left, &[]).await, worked, "the Go manager changed something");
    let theirs = written(end, Program::Go);
    assert_eq!(theirs, Vec::<String>::new(), "the Go manager wrote when it got it back");
    // And it ends what ours began.
    stage.delete(&stage.namespace.api::<Pod>(), "member").await;
    let claims = stage.namespace.api::<PersistentVolumeClaim>();
    for name in ["free", "stuck-b"] {
        stage.delete(&claims, name).await;
    }
    stage.settles(&["claim/stuck-c"], &["group/gang", "class/silver", "claim/free"]).await;
}
