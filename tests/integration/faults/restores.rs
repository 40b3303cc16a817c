//! etcd is restored from a backup, under load and under a manager that goes on. Nothing is deleted that the backup has, and what is
//! wanted afterwards happens at once, and once. Differs: etcd-restores.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::harness::{ControlPlane, Namespace, Options, turn, until};

const LIMIT: Duration = Duration::from_mins(3);
/// In this time nothing more happens.
const SILENCE: Duration = Duration::from_secs(5);
/// Writes after the backup: in the time of this test the restored versions do not catch up.
const WRITES: usize = 3000;
const SETS: usize = 12;
const EACH: usize = 10;

/// The names of pods that are not being deleted, by ReplicaSet. No name is used twice.
type Pods = BTreeMap<String, BTreeSet<String>>;

fn name(at: usize) -> String {
    format!("set-{at:02}")
}

/// `None` while the API server is away.
async fn pods(namespace: &Namespace) -> Option<Pods> {
    let mut found = Pods::new();
    for pod in namespace.api::<Pod>().list(&ListParams::default()).await.ok()?.items {
        if pod.metadata.deletion_timestamp.is_none() {
            let app = pod.metadata.labels.unwrap_or_default().remove("app").unwrap_or_default();
            found.entry(app).or_default().insert(pod.metadata.name.unwrap_or_default());
        }
    }
    Some(found)
}

async fn settled(namespace: &Namespace, wanted: &BTreeMap<String, usize>) -> Pods {
    let are_right = |seen: &Option<Pods>| {
        let numbers = |pods: &Pods| {
            pods.iter().map(|(set, pods)| (set.clone(), pods.len())).collect::<BTreeMap<_, _>>()
        };
        seen.as_ref().is_some_and(|pods| numbers(pods) == *wanted)
    };
    until("the pods that are wanted", LIMIT, || pods(namespace), are_right).await.unwrap_or_default()
}

async fn scale(sets: &Api<ReplicaSet>, name: &str, replicas: usize) {
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let patched = || async {
        sets.patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(|error| error.to_string())
    };
    until("the scale is set", LIMIT, patched, Result::is_ok).await.expect("checked");
}

async fn delete(sets: &Api<ReplicaSet>, name: &str) {
    drop(sets.delete(name, &DeleteParams::background()).await.expect("the deletion"));
}

/// Pods that Coxswain has created and deleted so far.
fn written(plane: &ControlPlane, namespace: &Namespace) -> (usize, usize) {
    let all = plane.audit();
    let count = |verb| all.iter().filter(|entry| entry.is_done_by_us(verb, "pods", &namespace.name)).count();
    (count("create"), count("delete"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Does something to the control plane that takes its time.
async fn operate(plane: &Arc<ControlPlane>, work: impl FnOnce(&ControlPlane) + Send + 'static) {
    let plane = Arc::clone(plane);
    tokio::task::spawn_blocking(move || work(&plane)).await.expect("done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_restored_under_load_deletes_no_pod_of_the_backup() {
    let _turn = turn().await;
    // Without nodes: other components have caches of their own, and would have to be restarted.
    let plane = Arc::new(ControlPlane::start(&Options { nodes: 0, args: vec!["--audit"] }));
    // Longer than etcd is away: losing the Lease would end the manager, as it should.
    let args = [
        "--leader-elect-lease-duration=90s",
        "--leader-elect-renew-deadline=60s",
        "--kube-api-qps=200",
        "--kube-api-burst=300",
    ];
    let coxswain = plane.coxswain("coxswain", &args);
    let namespace = plane.cluster().await.namespace("restores").await;
    namespace.default_account().await;
    let sets = namespace.api::<ReplicaSet>();
    let mut wanted = BTreeMap::new();
    for at in 0..SETS {
        namespace.replica_set(&name(at), EACH).await;
        wanted.insert(name(at), EACH);
    }
    let before = settled(&namespace, &wanted).await;

    // The backup is made in the middle of a scale.
    scale(&sets, &name(0), 2 * EACH).await;
    wanted.insert(name(0), 2 * EACH);
    let store = plane.report.dir.join("etcd");
    let backup = plane.report.dir.join("etcd-backup");
    let (from, to) = (store.clone(), backup.clone());
    operate(&plane, move |plane| {
        plane.operate("stop", "etcd");
        copy(&from, &to);
        plane.operate("start", "etcd");
    })
    .await;

    // What the restore undoes.
    scale(&sets, &name(1), 2 * EACH).await;
    scale(&sets, &name(2), 1).await;
    delete(&sets, &name(3)).await;
    namespace.replica_set("later", EACH).await;
    let mut undone = wanted.clone();
    undone.extend([(name(1), 2 * EACH), (name(2), 1), ("later".to_owned(), EACH)]);
    undone.remove(&name(3));
    settled(&namespace, &undone).await;
    for _ in 0..WRITES {
        plane.report.etcd("put", &json!({ "key": "bm90ZQ==", "value": "bm90ZQ==" })).await;
    }
    for at in 4..8 {
        scale(&sets, &name(at), 2 * EACH).await;
    }
    operate(&plane, move |plane| {
        plane.operate("kill", "kube-apiserver");
        plane.operate("kill", "etcd");
        fs::remove_dir_all(&store).expect("it is removed");
        copy(&backup, &store);
        plane.operate("start", "etcd");
        plane.operate("start", "kube-apiserver");
    })
    .await;

    let restored = settled(&namespace, &wanted).await;
    tokio::time::sleep(SILENCE).await;
    assert_eq!(pods(&namespace).await.as_ref(), Some(&restored));
    for (set, pods) in &before {
        assert!(restored[set].is_superset(pods), "{set}: {pods:?} became {:?}", restored[set]);
    }
    let (created, deleted) = written(&plane, &namespace);

    // Whoever wants the same again gets it once.
    scale(&sets, &name(1), 2 * EACH).await;
    scale(&sets, &name(2), 1).await;
    delete(&sets, &name(3)).await;
    namespace.replica_set("later", EACH).await;
    settled(&namespace, &undone).await;
    tokio::time::sleep(SILENCE).await;
    let after = pods(&namespace).await.unwrap_or_default();
    assert!(
        after[&name(1)].is_superset(&restored[&name(1)]) && after[&name(2)].is_subset(&restored[&name(2)])
    );
    assert_eq!(written(&plane, &namespace), (created + 2 * EACH, deleted + 2 * EACH - 1));
    assert_eq!(coxswain.exit(), "", "{}", coxswain.log());
    let noticed = coxswain.log().matches("Resource versions decreased").count();
    assert_eq!(noticed, 1, "one restore is noticed once");
    coxswain.stop();
}
