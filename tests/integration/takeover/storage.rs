//! Claims, volumes, classes and PodGroups that wait for their users, and claims that can't be made, change hands.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};

use super::*;
use crate::harness::{Cluster, object};

/// Of what writes are counted.
const KINDS: [&str; 6] = [
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podgroups",
    "resourcepoolstatusrequests",
    "volumeattributesclasses",
];
const BUILT: &str = "ephemeral-volume-controller,persistentvolume-protection-controller,podgroup-protection-controller,\
    persistentvolumeclaim-protection-controller,resourcepoolstatusrequest-controller,\
    volumeattributesclass-protection-controller";

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
    let waiting =
        ["claim/used", "class/gold", "volume/bound", "group/gang", "claim/stuck-a", "request/before"];
    let before = stage.settles(&waiting, &["claim/stuck-c"]).await;

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    assert_eq!(stage.settles(&waiting, &[]).await, before, "Coxswain changed something");
    let written = |from, agent: &str| -> Vec<String> {
        // The create that is refused as long as the stranger is there is none: it is not sent.
        writes_of(&plane, from, agent, &KINDS)
    };
    assert_eq!(written(end, "coxswain/"), Vec::<String>::new(), "Coxswain wrote when it took over");

    // It does its work meanwhile: half of what waits goes.
    stage.delete(&stage.namespace.api::<Pod>(), "user").await;
    stage.phase("Released").await;
    stage.delete(&stage.all::<VolumeAttributesClass>(), "silver").await;
    stage.ask("meanwhile").await;
    let left = ["class/silver", "group/gang", "claim/stuck-a", "request/meanwhile"];
    let worked = stage.settles(&left, &["claim/used", "class/gold", "volume/bound"]).await;

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    assert_eq!(stage.settles(&left, &[]).await, worked, "the Go manager changed something");
    let theirs = written(end, "kube-controller-manager/");
    assert_eq!(theirs, Vec::<String>::new(), "the Go manager wrote when it got it back");
    // And it ends what ours began.
    stage.delete(&stage.namespace.api::<Pod>(), "member").await;
    let claims = stage.namespace.api::<PersistentVolumeClaim>();
    for name in ["free", "stuck-b"] {
        stage.delete(&claims, name).await;
    }
    stage.settles(&["claim/stuck-c"], &["group/gang", "class/silver", "claim/free"]).await;
}
