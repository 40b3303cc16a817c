//! Volumes half attached, a pod that does not end and a volume that grows change hands, there and back.

use k8s_openapi::api::storage::v1::StorageClass;

use super::*;

const CONTROLLERS: &str = "--controllers=persistentvolume-attach-detach-controller,persistentvolume-binder-controller,\
    persistentvolume-expander-controller,persistentvolumeclaim-protection-controller,\
    persistentvolume-protection-controller,serviceaccount-controller";

impl Stage {
    /// A claim asks for more, and a resizer is at it.
    async fn begins_to_grow(&self, claim: &str) {
        let class = object(
            json!({ "metadata": { "name": "none" }, "provisioner": DRIVER, "allowVolumeExpansion": true }),
        );
        self.all::<StorageClass>().create(&PostParams::default(), &class).await.expect("a class");
        let claims = self.namespace.api::<PersistentVolumeClaim>();
        let larger = Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }));
        // Admission hears of the class a moment later.
        let asked = || async { claims.patch(claim, &PatchParams::default(), &larger).await.is_ok() };
        until("a larger request", LIMIT, asked, |asked| *asked).await;
        self.claim_is(
            claim,
            json!({
                "allocatedResources": { "storage": "2Gi" },
                "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
                "conditions": [{ "type": "Resizing", "status": "True" }],
            }),
        )
        .await;
    }

    /// The resizer is done.
    async fn has_grown(&self, claim: &str, volume: &str) {
        let larger = Patch::Merge(json!({ "spec": { "capacity": { "storage": "2Gi" } } }));
        let volumes = self.all::<PersistentVolume>();
        drop(volumes.patch(volume, &PatchParams::default(), &larger).await.expect("it has grown"));
        self.claim_is(
            claim,
            json!({ "capacity": { "storage": "2Gi" }, "allocatedResourceStatuses": null, "conditions": null }),
        )
        .await;
    }

    async fn claim_is(&self, claim: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let claims = self.namespace.api::<PersistentVolumeClaim>();
        drop(claims.patch_status(claim, &PatchParams::default(), &patch).await.expect("its status"));
    }

    /// A pod is to go, and its container runs on.
    async fn is_ending(&self, pod: &str) {
        self.runs(pod).await;
        let params = DeleteParams::default().grace_period(3600);
        drop(self.namespace.api::<Pod>().delete(pod, &params).await.expect("it is to go"));
    }

    /// Claims, volumes, VolumeAttachments and pods, once two looks see the same; with their versions, so that nothing is written unseen.
    async fn settled(&self) -> Value {
        let list = ListParams::default();
        let look = || async {
            json!([
                self.namespace.api::<PersistentVolumeClaim>().list(&list).await.expect("claims").items,
                self.all::<PersistentVolume>().list(&list).await.expect("volumes").items,
                self.all::<VolumeAttachment>().list(&list).await.expect("attachments").items,
                self.namespace.api::<Pod>().list(&list).await.expect("pods").items,
            ])
        };
        let twice = || async {
            let before = look().await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            (before == look().await).then_some(before)
        };
        until("nothing is written", LIMIT, twice, Option::is_some).await.expect("it was there")
    }
}

#[tokio::test]
async fn volumes_half_attached_change_hands_twice() {
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    let args = [&[CONTROLLERS, "--use-service-account-credentials"][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("attaching").await;
    namespace.default_account().await;
    let stage = Stage { cluster, namespace };
    stage.node("n").await;
    stage.node("m").await;
    for name in ["used", "coming", "unused", "going", "ending"] {
        stage.claim(name).await;
        stage.bind(name, name).await;
    }
    // Attached and used; attached, used, and its pod gone; attached, and asked for; attached, used, and its pod to go.
    let names = ["used", "unused", "going", "ending"];
    for name in names {
        stage.pod(name, "n", name).await;
        let attachment = stage.is_asked_for(name, "n").await;
        stage.attach(&attachment).await;
    }
    until("they are listed", LIMIT, || stage.listed("n"), |listed| listed.len() == names.len()).await;
    let in_use = ["used", "unused", "ending"].map(unique);
    stage.says("n", json!({ "volumesInUse": in_use })).await;
    stage.begins_to_grow("used").await;
    stage.is_ending("ending").await;
    stage.pod("coming", "n", "coming").await;
    let coming = stage.is_asked_for("coming", "n").await;
    stage.delete_pod("unused").await;
    stage.delete_pod("going").await;
    let going = || stage.attachments("going");
    until("it is going", LIMIT, going, |found| {
        found.iter().any(|(_, each)| each.metadata.deletion_timestamp.is_some())
    })
    .await;
    until("three are listed", LIMIT, || stage.listed("n"), |listed| listed.len() == 3).await;
    let before = stage.settled().await;

    let since = plane.audit().len();
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    ours.await_start(LIMIT).await;
    let explained = || async {
        let client = std::process::Command::new(env!("CARGO_BIN_EXE_coxswain"))
            .args(["explain", "node", "n", "--controller", "persistentvolume-attach-detach-controller"])
            .env("KUBECONFIG", &plane.report.kubeconfigs["admin"])
            .output();
        String::from_utf8(client.expect("the program").stdout).expect("text")
    };
    until("it is said what is waited for", LIMIT, explained, |told| {
        let waits =
            "^unused is used by no pod. The node is ready and reports the volume as mounted; the detach waits for the node.";
        told.contains(waits) && told.contains("Volume coming is being attached")
    })
    .await;
    let ours_wrote = || written(&plane, since, Program::Coxswain);
    assert_eq!(stage.settled().await, before, "nothing changes");
    assert_eq!(ours_wrote(), Vec::<String>::new(), "nothing is done that was done");

    // Half of it is gone on with: what was asked for is attached, what goes is gone, and what grows has grown.
    stage.attach(&coming).await;
    let is_listed = |listed: &Vec<String>| listed.contains(&unique("coming")) && listed.len() == 4;
    until("it is listed", LIMIT, || stage.listed("n"), is_listed).await;
    let (_, attachment) = stage.attachments("going").await.remove(0);
    stage.detach(&attachment.metadata.name.expect("a name")).await;
    stage.has_grown("used", "used").await;
    let before = stage.settled().await;
    assert_eq!(ours_wrote(), ["patch /api/v1/nodes/n/status"]);
    assert_eq!(ours.errors(), Vec::<String>::new());

    // And back: the Go manager ends what is left.
    let since = plane.audit().len();
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    go.await_start(LIMIT).await;
    assert_eq!(stage.settled().await, before, "nothing changes");
    // The pod ends at last.
    stage.delete_pod("ending").await;
    stage.says("n", json!({ "volumesInUse": [unique("used")] })).await;
    for name in ["unused", "ending"] {
        let look = || stage.attachments(name);
        until("it goes", LIMIT, look, |found| {
            found.iter().all(|(_, each)| each.metadata.deletion_timestamp.is_some())
        })
        .await;
    }
    until("the list", LIMIT, || stage.listed("n"), |listed| listed.len() == 2).await;
    let theirs = written(&plane, since, Program::Go);
    let theirs: Vec<&String> =
        theirs.iter().filter(|line| !line.starts_with("patch /api/v1/nodes/")).collect();
    assert_eq!(theirs.len(), 2, "two are deleted, and none is made: {theirs:?}");
    assert!(theirs.iter().all(|line| line.starts_with("delete ")), "{theirs:?}");
    go.stop();
    assert_eq!(forbidden(&plane), Vec::<String>::new(), "forbidden by the bootstrap roles");
}
