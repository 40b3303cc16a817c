//! A request of one node that hangs, because a webhook does not answer, delays no other node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use tokio::net::TcpListener;

use super::*;
use crate::harness::{create, turn_beside_another};

const CONTROLLERS: &str =
    "--controllers=persistentvolume-attach-detach-controller,persistentvolume-binder-controller";

#[tokio::test]
async fn a_request_that_hangs_delays_its_own_node_only() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let _manager = plane.coxswain("coxswain", &[CONTROLLERS]);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("hanging").await;
    namespace.default_account().await;
    let stage = Stage { cluster, namespace };
    // It accepts connections, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let silent = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            held.push(stream);
        }
    });
    for name in ["slow", "quick"] {
        stage.node(name).await;
        stage.claim(name).await;
        stage.bind(name, &format!("volume-{name}")).await;
    }
    let webhooks = json!({ "metadata": { "name": "silent" }, "webhooks": [{
        "name": "silent.coxswain.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Ignore", "timeoutSeconds": 30,
        "clientConfig": { "url": format!("https://127.0.0.1:{port}/") },
        "matchConditions": [{ "name": "slow", "expression": "object.spec.nodeName == 'slow'" }],
        "rules": [{ "apiGroups": ["storage.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["volumeattachments"], "scope": "*" }],
    }] });
    create::<ValidatingWebhookConfiguration>(stage.all(), webhooks).await;
    // The API server learns of a webhook some time after it is created.
    let probe = object::<VolumeAttachment>(json!({ "metadata": { "name": "probe" }, "spec": {
        "attacher": DRIVER, "nodeName": "slow", "source": { "persistentVolumeName": "none" } } }));
    let probes = async {
        loop {
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            drop(stage.all::<VolumeAttachment>().create(&dry, &probe).await);
        }
    };
    let is_asked = async |before: usize| {
        let look = || async { asked.load(Ordering::SeqCst) };
        until("a request of the webhook", LIMIT, look, |asked| *asked > before).await
    };
    let before = tokio::select! {
        before = is_asked(0) => before,
        () = probes => unreachable!("it has no end"),
    };
    stage.pod("slow", "slow", "slow").await;
    is_asked(before).await;
    stage.pod("quick", "quick", "quick").await;
    stage.is_asked_for("volume-quick", "quick").await;
    assert!(stage.attachments("volume-slow").await.is_empty(), "the request of the other node still hangs");
    stage.is_asked_for("volume-slow", "slow").await;
    silent.abort();
}
