//! Claims for devices change hands: made, missed, used, shared, held by others, being deleted; and pods that have to leave their
//! devices in time.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::api::Api;

use super::*;

/// Of what writes are counted.
const KINDS: [&str; 2] = ["resourceclaims", "pods"];
const PROTECTION: &str = "resource.kubernetes.io/delete-protection";

fn spec() -> Value {
    json!({ "devices": { "requests": [{ "name": "gpu", "exactly": { "deviceClassName": "gpu" } }] } })
}

struct Stage(Namespace);

impl Stage {
    fn claims(&self) -> Api<ResourceClaim> {
        self.0.api()
    }

    /// Pods and claims as they are: with resource versions, so that nothing is written unseen.
    async fn state(&self) -> BTreeMap<String, Value> {
        let claims = self.claims().list(&ListParams::default()).await.expect("claims");
        let mut state = BTreeMap::new();
        for claim in claims {
            let name = format!("claim/{}", claim.metadata.name.clone().unwrap_or_default());
            state.insert(name, serde_json::to_value(&claim).expect("JSON"));
        }
        for pod in self.0.pods().await {
            let name = format!("pod/{}", pod.metadata.name.clone().unwrap_or_default());
            state.insert(name, serde_json::to_value(&pod).expect("JSON"));
        }
        state
    }

    /// Waits until a state is so, and two looks, some time apart, see the same.
    async fn settles(
        &self,
        what: &str,
        is_so: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> BTreeMap<String, Value> {
        let look = || async {
            let before = self.state().await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            (is_so(&before) && before == self.state().await).then_some(before)
        };
        until(what, LIMIT, look, Option::is_some).await.expect("it was so")
    }

    async fn template(&self, name: &str) {
        let _: ResourceClaimTemplate =
            self.0.create(json!({ "metadata": { "name": name }, "spec": { "spec": spec() } })).await;
    }

    async fn claim(&self, name: &str) {
        let _: ResourceClaim = self.0.create(json!({ "metadata": { "name": name }, "spec": spec() })).await;
    }

    async fn pod(&self, name: &str, node: Option<&str>, entries: Value) -> Pod {
        self.0
            .create(json!({
                "metadata": { "name": name },
                "spec": {
                    "nodeName": node, "schedulerName": "nobody", "resourceClaims": entries,
                    "containers": [{ "name": "c", "image": "image:1" }],
                },
            }))
            .await
    }

    /// What the scheduler would write.
    async fn allocate(&self, claim: &str, users: &[&Pod]) {
        self.allocate_device(claim, "sound", users).await;
    }

    /// The same of one device. Taints are tolerated for an hour.
    async fn allocate_device(&self, claim: &str, device: &str, users: &[&Pod]) {
        let protected = json!({ "metadata": { "finalizers": [PROTECTION] } });
        let params = PatchParams::default();
        let patched = self.claims().patch(claim, &params, &Patch::Merge(protected)).await;
        drop(patched.expect("it is protected"));
        let users: Vec<Value> = users
            .iter()
            .map(|pod| json!({ "resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid }))
            .collect();
        let tolerations = json!([{ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600 }]);
        let result = json!({
            "request": "gpu", "driver": "gpu.example.com", "pool": "by-hand", "device": device, "tolerations": tolerations,
        });
        let status = json!({ "status": {
            "allocation": { "devices": { "results": [result] } },
            "reservedFor": users,
        } });
        let patched = self.claims().patch_status(claim, &params, &Patch::Merge(status)).await;
        drop(patched.expect("it is allocated"));
    }

    /// Devices with a taint each, which came now or long ago.
    async fn taint(&self, old: &[&str]) {
        let device = |name: &str| {
            let since = if old.contains(&name) { "2020-01-01T00:00:00Z" } else { "2099-01-01T00:00:00Z" };
            let taint = json!([{ "key": "broken", "effect": "NoExecute", "timeAdded": since }]);
            json!({ "name": name, "taints": taint })
        };
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": "by-hand" },
            "spec": {
                "driver": "gpu.example.com", "nodeName": "by-hand",
                "devices": [device("first"), device("second"), { "name": "sound" }],
                "pool": { "name": "by-hand", "generation": 1, "resourceSliceCount": 1 },
            },
        });
        let slices: Api<ResourceSlice> = Api::all(self.0.client.clone());
        let params = PatchParams::apply("takeover").force();
        drop(slices.patch("by-hand", &params, &Patch::Apply(&slice)).await.expect("a slice"));
    }

    async fn phase(&self, pod: &str, phase: &str) {
        let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
        let patched = self.0.api::<Pod>().patch_status(pod, &PatchParams::default(), &patch).await;
        drop(patched.expect("the pod has a phase"));
    }

    async fn populate(&self) {
        self.template("gpu").await;
        for name in ["shared", "unused", "going", "free"] {
            self.claim(name).await;
        }
        let made = json!([{ "name": "gpu", "resourceClaimTemplateName": "gpu" }]);
        self.pod("waits", None, made.clone()).await;
        // Half of what it asks for cannot be made: nothing is recorded.
        let half = json!([
            { "name": "gpu", "resourceClaimTemplateName": "gpu" },
            { "name": "more", "resourceClaimTemplateName": "absent" },
        ]);
        self.pod("half", None, half).await;
        let shares = json!([{ "name": "gpu", "resourceClaimName": "shared" }]);
        let (one, two) = (
            self.pod("one", Some("by-hand"), shares.clone()).await,
            self.pod("two", Some("by-hand"), shares).await,
        );
        for pod in ["one", "two"] {
            self.phase(pod, "Running").await;
        }
        self.allocate("shared", &[&one, &two]).await;
        self.allocate("unused", &[]).await;
        let holds = json!([{ "name": "gpu", "resourceClaimName": "going" }]);
        let holder = self.pod("holder", Some("by-hand"), holds).await;
        self.allocate("going", &[&holder]).await;
        drop(self.claims().delete("going", &DeleteParams::default()).await.expect("it is being deleted"));
        self.taint(&[]).await;
        for device in ["first", "second"] {
            self.claim(device).await;
            let uses = json!([{ "name": "gpu", "resourceClaimName": device }]);
            let pod = self.pod(&format!("on-{device}"), Some("by-hand"), uses).await;
            self.allocate_device(device, device, &[&pod]).await;
        }
        // It has ended, and its record stays.
        self.pod("done", Some("by-hand"), made).await;
        self.settles("the claims are made", |state| made_for(state, "done").len() == 1).await;
        self.phase("done", "Succeeded").await;
    }
}

/// The claims that were made for a pod.
fn made_for(state: &BTreeMap<String, Value>, pod: &str) -> Vec<String> {
    let is_its = |claim: &Value| claim["metadata"]["ownerReferences"][0]["name"] == pod;
    state.iter().filter(|(_, claim)| is_its(claim)).map(|(name, _)| name.clone()).collect()
}

/// Whether a pod's status names so many claims.
fn records(state: &BTreeMap<String, Value>, pod: &str, count: usize) -> bool {
    let recorded = state[&format!("pod/{pod}")]["status"]["resourceClaimStatuses"].as_array();
    recorded.map_or(0, Vec::len) == count
}

/// Whether a pod is being deleted.
fn goes(state: &BTreeMap<String, Value>, pod: &str) -> bool {
    !state[&format!("pod/{pod}")]["metadata"]["deletionTimestamp"].is_null()
}

fn users(state: &BTreeMap<String, Value>, claim: &str) -> usize {
    state[&format!("claim/{claim}")]["status"]["reservedFor"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn claims_change_hands_twice_in_any_state() {
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--audit"] });
    let controllers = format!("{CONTROLLERS},device-taint-eviction-controller,resourceclaim-controller");
    let args = [&[controllers.as_str()][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let cluster = plane.cluster().await;
    let stage = Stage(cluster.namespace("devices").await);
    stage.0.default_account().await;
    Box::pin(stage.populate()).await;
    let before = stage
        .settles("all is as it stays", |state| {
            let is_made = records(state, "waits", 1) && made_for(state, "half").len() == 1;
            is_made && made_for(state, "done").is_empty() && users(state, "shared") == 2
        })
        .await;

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    assert_eq!(stage.settles("it is quiet", |_| true).await, before, "Coxswain changed something");
    let written = |from, program: Program| writes_of(&plane, from, program, &KINDS);
    assert_eq!(written(end, Program::Coxswain), Vec::<String>::new(), "Coxswain wrote when it took over");

    // It does its work meanwhile, on what the other began.
    stage.template("absent").await;
    // The original reserves what others share for pods that have ended, and makes claims for those anew when it starts.
    for pod in ["one", "done"] {
        drop(
            stage
                .0
                .api::<Pod>()
                .delete(pod, &DeleteParams::default().grace_period(0))
                .await
                .expect("it goes"),
        );
    }
    stage.phase("holder", "Succeeded").await;
    stage.taint(&["first"]).await;
    let worked = stage
        .settles("what changed is heeded", |state| {
            let is_heeded = records(state, "half", 2) && users(state, "shared") == 1;
            is_heeded && !state.contains_key("claim/going") && goes(state, "on-first")
        })
        .await;
    assert_eq!(made_for(&worked, "half").len(), 2, "what was made before was found");
    assert!(!goes(&worked, "on-second"), "its time is not over");

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    assert_eq!(stage.settles("it is quiet", |_| true).await, worked, "the Go manager changed something");
    let theirs = written(end, Program::Go);
    assert_eq!(theirs, Vec::<String>::new(), "the Go manager wrote when it got it back");
    // And it ends what ours began.
    stage.phase("two", "Succeeded").await;
    stage.taint(&["first", "second"]).await;
    let is_free = |state: &BTreeMap<String, Value>| {
        state["claim/shared"]["status"]["allocation"].is_null() && goes(state, "on-second")
    };
    stage.settles("the shared one is free, and another goes", is_free).await;
}
