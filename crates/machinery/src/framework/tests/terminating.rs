//! Creates in a namespace that is terminating.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Bench, key, pod};
use crate::api::AnyObject;
use crate::api::kinds::PODS;
use crate::api::meta::ObjectMeta;
use crate::api::pod::Pod;
use crate::executor::ActionResult;
use crate::framework::terminating::TerminatingOwners;
use crate::framework::worker::Outcome;
use crate::model::Key;
use crate::model::plan::{Patch, Step, Tolerate, Verb, Write};

fn terminating() -> Vec<u8> {
    let causes = serde_json::json!([{ "reason": "NamespaceTerminating" }]);
    let status = serde_json::json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "details": { "causes": causes } });
    status.to_string().into_bytes()
}

/// Creates of two pods, and a patch of the owner.
fn steps() -> Vec<Step> {
    let create = Write {
        tolerate: Tolerate { namespace_terminating: true, ..Tolerate::default() },
        ..Write::new(&PODS, Key::new("ns", ""), Verb::Create(Bytes::from_static(b"\x0a\x00")))
    };
    let patch = Write::new(&PODS, key(), Verb::Patch(Patch::Merge(serde_json::json!({}))));
    vec![Step::Batch(vec![create.clone(), create]), Step::Write(patch)]
}

fn show_owner(bench: &Bench, uid: &str) {
    let metadata = ObjectMeta {
        name: "web".into(),
        namespace: "ns".into(),
        uid: uid.into(),
        resource_version: "1".into(),
        ..ObjectMeta::default()
    };
    bench.store.upsert(&(Arc::new(Pod { metadata, ..Pod::default() }) as AnyObject));
}

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.worker.settings.withholds_refused_creates = true;
    bench
}

/// Reconciles the steps, and returns the verbs that the server was asked for and the delay after which the key is reconciled again.
async fn asked(bench: &Bench, refused: usize) -> (Vec<String>, Option<Duration>) {
    bench.plan(steps());
    (0..refused).for_each(|_| bench.server.answer(403, terminating()));
    bench.server.answer(200, pod("1"));
    bench.server.1.lock().clear();
    let (outcome, actions) = bench.worker.reconcile(&key(), &|| {}).await;
    let Outcome::Done { requeue_after, .. } = outcome else { panic!("{outcome:?}") };
    let results: Vec<&ActionResult> = actions.iter().map(|action| &action.result).collect();
    assert_eq!(results, [&ActionResult::Unneeded, &ActionResult::Unneeded, &ActionResult::Done]);
    let verb = |request: &String| request.split(' ').next().unwrap_or_default().to_owned();
    let verbs = bench.server.1.lock().iter().map(verb).collect();
    (verbs, requeue_after)
}

fn sent(seconds: Option<u64>) -> (Vec<String>, Option<Duration>) {
    (["POST", "POST", "PATCH"].map(str::to_owned).to_vec(), seconds.map(Duration::from_secs))
}

fn withheld(seconds: u64) -> (Vec<String>, Option<Duration>) {
    (vec!["PATCH".to_owned()], Some(Duration::from_secs(seconds)))
}

/// As kube-controller-manager, which waits for the refused create until its expectation expires.
#[tokio::test(start_paused = true)]
async fn create_that_a_terminating_namespace_refuses_is_not_sent_again_for_five_minutes() {
    let bench = bench();
    show_owner(&bench, "first");
    assert_eq!(asked(&bench, 2).await, sent(Some(300)));
    // Other writes go on.
    assert_eq!(asked(&bench, 0).await, withheld(300));
    tokio::time::advance(Duration::from_secs(299)).await;
    assert_eq!(asked(&bench, 0).await, withheld(1));
    bench.plan(steps());
    let explained = bench.worker.explain(&key()).await;
    let reason = "The namespace is terminating and rejected a create; further creates are suspended for 1 s.";
    assert_eq!(explained.reasons, [reason]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(asked(&bench, 2).await, sent(Some(300)));
    // Another object of the same name may be in another namespace of the same name.
    show_owner(&bench, "second");
    assert_eq!(asked(&bench, 2).await, sent(Some(300)));
}

/// An API server that takes the namespace for terminating although it was created again must not stop the controller of Services.
#[tokio::test(start_paused = true)]
async fn other_controllers_send_each_create() {
    let bench = Bench::new();
    show_owner(&bench, "first");
    for _ in 0..2 {
        assert_eq!(asked(&bench, 2).await, sent(None));
    }
}

#[tokio::test(start_paused = true)]
async fn create_of_a_key_without_an_object_is_always_sent() {
    let bench = bench();
    for _ in 0..2 {
        assert_eq!(asked(&bench, 2).await, sent(None));
    }
}

#[tokio::test(start_paused = true)]
async fn create_is_sent_again_after_its_key_was_absent() {
    let bench = bench();
    show_owner(&bench, "first");
    assert_eq!(asked(&bench, 2).await, sent(Some(300)));
    bench.worker.queue.add(key());
    let item = bench.worker.queue.get().await.unwrap();
    bench.worker.process(item).await;
    assert_eq!(asked(&bench, 2).await, sent(Some(300)));
}

/// The namespace and the owner are created again while the writes of the first owner are under way.
#[tokio::test(start_paused = true)]
async fn refusal_counts_for_the_owner_for_which_it_was_planned() {
    let bench = bench();
    show_owner(&bench, "first");
    let mut first = steps();
    first.rotate_right(1);
    bench.plan(first);
    bench.server.answer(5, pod("1"));
    (0..2).for_each(|_| bench.server.answer(403, terminating()));
    let becomes_another = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        show_owner(&bench, "second");
    };
    let reconciled = async { bench.worker.reconcile(&key(), &|| {}).await };
    tokio::join!(reconciled, becomes_another);
    assert_eq!(asked(&bench, 2).await, sent(Some(300)));
}

#[tokio::test(start_paused = true)]
async fn refused_creates_are_forgotten() {
    let owners = TerminatingOwners::default();
    let refuse = |name: &str| owners.add(&Key::new("ns", name), "uid".into());
    refuse("a");
    refuse("b");
    owners.remove(&Key::new("ns", "b"));
    tokio::time::advance(Duration::from_secs(299)).await;
    refuse("b");
    assert_eq!(owners.sizes(), (2, 3));
    tokio::time::advance(Duration::from_secs(1)).await;
    refuse("c");
    assert_eq!(owners.sizes(), (2, 2), "that of b is younger");
    assert!(owners.withheld_for(&Key::new("ns", "b"), &"uid".into()).is_some());
    tokio::time::advance(Duration::from_mins(5)).await;
    refuse("d");
    assert_eq!(owners.sizes(), (1, 1));
}
