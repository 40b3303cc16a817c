//! etcd is restored from a backup under a manager that goes on: what it has learned since the backup never was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use coxswain_machinery::environment::Environment;

use crate::actors;
use crate::faults::Faults;
use crate::managers::manager;
use crate::run::{EPOCH, in_virtual_time};
use crate::server::Server;
use crate::trace::Trace;
use apiserver_model::{Deletion, Place, text};

const FLAGS: &[&str] = &["--controllers=*,-root-ca-certificate-publisher-controller", "--kube-api-qps=500"];
const SETS: &str = "replicasets";
/// Time in which controllers do what they have to.
const SETTLES: Duration = Duration::from_mins(2);
/// Writes after the backup. After the restore, versions do not catch up within a test.
const WRITES: usize = 1000;

/// The UIDs of pods by the ReplicaSets that own them.
type Pods = BTreeMap<String, BTreeSet<String>>;

fn create(server: &Server, name: &str, replicas: u64) {
    let labels = json!({ "app": name });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": "main" }] } });
    let spec = json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "template": template });
    let set = json!({ "metadata": { "name": name }, "spec": spec });
    server.with(|model| drop(model.create("user", SETS, "default", set).expect("a ReplicaSet")));
}

fn scale(server: &Server, name: &str, replicas: u64) {
    let place = Place::new(SETS, "default", name);
    let edit = |set: &mut serde_json::Value| set["spec"]["replicas"] = json!(replicas);
    server.with(|model| drop(model.change("user", &place, "", edit).expect("a change")));
}

/// Deletes a ReplicaSet; the garbage collector deletes its pods.
fn delete(server: &Server, name: &str) {
    let place = Place::new(SETS, "default", name);
    server.with(|model| drop(model.delete("user", &place, &Deletion::default()).expect("a deletion")));
}

fn pods(server: &Server) -> Pods {
    let mut found = Pods::new();
    server.with(|model| {
        for pod in model.all("pods", "default") {
            let uid = text(&pod.json, "/metadata/uid").to_owned();
            let owner = text(&pod.json, "/metadata/ownerReferences/0/name").to_owned();
            found.entry(owner).or_default().insert(uid);
        }
    });
    found
}

fn numbers(pods: &Pods) -> Vec<(&str, usize)> {
    pods.iter().map(|(set, pods)| (set.as_str(), pods.len())).collect()
}

/// Pods that controllers have created and deleted so far.
fn written(server: &Server) -> (u64, u64) {
    let counts = server.counts().by_agent;
    let of = |verb: &str| {
        let ours = counts.iter().filter(|(what, _)| what.ends_with(&format!(" {verb} pods")));
        ours.map(|(_, count)| count).sum()
    };
    (of("create"), of("delete"))
}

async fn story(server: &Server) {
    for (name, replicas) in [("kept", 3), ("grown", 3), ("doomed", 3), ("shrunk", 3)] {
        create(server, name, replicas);
    }
    sleep(SETTLES).await;
    let before = pods(server);
    assert_eq!(numbers(&before), [("doomed", 3), ("grown", 3), ("kept", 3), ("shrunk", 3)]);
    let backup = server.with(|model| model.backup());

    // What the restore undoes: creations, deletions, and an owner that was seen to be absent.
    scale(server, "grown", 6);
    scale(server, "shrunk", 1);
    delete(server, "doomed");
    create(server, "later", 3);
    let note = |number: usize| json!({ "metadata": { "name": format!("note-{number}") } });
    for number in 0..WRITES {
        server.with(|model| {
            drop(model.create("user", "configmaps", "default", note(number)).expect("a ConfigMap"));
        });
    }
    sleep(SETTLES).await;
    assert_eq!(numbers(&pods(server)), [("grown", 6), ("kept", 3), ("later", 3), ("shrunk", 1)]);
    // These are answered, and not seen before the restore.
    server.faults(|_, model| model.lag.set("pods", Instant::now() + SETTLES, SETTLES));
    scale(server, "kept", 5);
    scale(server, "shrunk", 0);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(numbers(&pods(server)), [("grown", 6), ("kept", 5), ("later", 3)]);

    server.faults(|_, model| model.lag.clear());
    server.with(|model| model.go_back_to(&backup));
    let at_restore = written(server);
    sleep(SETTLES).await;
    assert_eq!(pods(server), before, "everything is as it was, and nothing else is done");
    assert_eq!(written(server), at_restore);

    // Whoever wants the same again gets it once.
    scale(server, "kept", 5);
    scale(server, "grown", 6);
    scale(server, "shrunk", 1);
    delete(server, "doomed");
    create(server, "later", 3);
    sleep(SETTLES).await;
    let after = pods(server);
    assert_eq!(numbers(&after), [("grown", 6), ("kept", 5), ("later", 3), ("shrunk", 1)]);
    for (name, uids) in &after {
        let Some(old) = before.get(name) else { continue };
        let is_right = if name == "shrunk" { old.is_superset(uids) } else { uids.is_superset(old) };
        assert!(is_right, "{name}: {old:?} became {uids:?}");
    }
    let (created, deleted) = written(server);
    assert_eq!((created - at_restore.0, deleted - at_restore.1), (3 + 2 + 3, 2 + 3));
}

#[test]
fn controllers_forget_what_a_restore_of_etcd_undoes() {
    in_virtual_time(1, move || async move {
        let epoch = Timestamp::from_second(EPOCH).expect("a time");
        let server = Server::new(epoch, 1, Faults::outages(), Trace::new(false), None);
        server.checks(|checks| checks.is_off = true);
        let service = server.service(1, CancellationToken::new(), &Arc::default());
        let environment = Environment::simulated(server.now(), service);
        tokio::select! {
            biased;
            () = story(&server) => {}
            ended = manager(FLAGS, CancellationToken::new(), environment) => panic!("the manager has ended: {ended:?}"),
            () = actors::bookmarks(Arc::clone(&server)) => panic!("bookmarks never end"),
        }
    });
}
