//! Plans performed against a scripted API server.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use tower::util::BoxCloneSyncService;

use super::batch::slow_start;
use super::{Events, Executor, WriteEffect};
use crate::api::core::Pod;
use crate::api::kinds::PODS;
use crate::api::meta::{ObjectMeta, Status};
use crate::client::{ApiClient, BoxError};
use crate::model::Key;
use crate::model::plan::{EventSpec, Expect, Patch, Plan, Regarding, Step, Tolerate, Verb, Verify, Write};
use crate::wire::{Message, Time, wrap_envelope};

#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<(u16, Vec<u8>)>>,
    requests: Mutex<Vec<String>>,
    events: Mutex<Vec<String>>,
}

impl Events for Script {
    fn emit(&self, event: EventSpec) {
        self.events.lock().push(format!("{} {}", event.reason, event.message));
    }
}

impl Script {
    fn executor(self: &Arc<Self>) -> Executor {
        let script = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let script = Arc::clone(&script);
            async move {
                script.requests.lock().push(format!("{} {}", request.method(), request.uri().path()));
                let (code, body) = script.answers.lock().pop_front().ok_or("no answer scripted")?;
                let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
                Response::builder().status(code).body(body).map_err(BoxError::from)
            }
        });
        Executor::new(ApiClient::new(BoxCloneSyncService::new(service), "test"), Arc::clone(self) as _)
    }

    fn answer(&self, code: u16, body: Vec<u8>) {
        self.answers.lock().push_back((code, body));
    }
}

fn pod(name: &str, version: &str) -> Vec<u8> {
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "ns".into(),
        uid: format!("uid-{name}").into(),
        resource_version: version.into(),
        ..ObjectMeta::default()
    };
    wrap_envelope("v1", "Pod", &Pod { metadata, ..Pod::default() }.to_bytes())
}

fn status(code: i32, reason: &str, message: &str) -> Vec<u8> {
    let status = Status { reason: reason.into(), message: message.into(), code, ..Status::default() };
    wrap_envelope("v1", "Status", &status.to_bytes())
}

fn regarding() -> Regarding {
    Regarding { kind: &PODS, key: Key::new("ns", "rs"), uid: "u".into(), resource_version: "1".into() }
}

fn create() -> Write {
    let event = |reason, message: &str| {
        Some(EventSpec { regarding: regarding(), warning: false, reason, message: message.into() })
    };
    Write {
        on_success: event("SuccessfulCreate", "Created pod: {name}"),
        on_failure: event("FailedCreate", "Error creating: {error}"),
        ..Write::new(&PODS, Key::new("ns", ""), Verb::Create(Bytes::from_static(b"\x0a\x00")))
    }
}

#[test]
fn groups_double_and_cover_everything() {
    assert_eq!(slow_start(0).count(), 0);
    assert_eq!(slow_start(1).collect::<Vec<_>>(), [1]);
    assert_eq!(slow_start(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
    for count in 0..600 {
        assert_eq!(slow_start(count).sum::<usize>(), count);
    }
}

#[tokio::test]
async fn a_batch_stops_behind_the_group_that_failed() {
    let script = Arc::new(Script::default());
    script.answer(201, pod("a", "7"));
    script.answer(201, pod("b", "8"));
    script.answer(403, status(403, "Forbidden", "exceeded quota: q"));
    let plan =
        Plan { steps: vec![Step::Batch(vec![create(); 10]), Step::Write(create())], ..Plan::default() };
    let executed = script.executor().execute(plan).await;
    assert_eq!(script.requests.lock().len(), 3);
    assert_eq!(executed.effects.len(), 2);
    assert_eq!(executed.effects[0].change, WriteEffect::Stored("7".into()));
    assert_eq!(executed.effects[0].key, Key::new("ns", "a"));
    assert_eq!(executed.failures.len(), 1);
    assert_eq!(executed.failures[0].message, "exceeded quota: q");
    assert_eq!(
        *script.events.lock(),
        [
            "SuccessfulCreate Created pod: a",
            "SuccessfulCreate Created pod: b",
            "FailedCreate Error creating: exceeded quota: q"
        ]
    );
    assert!(executed.error.unwrap().is_retriable());
}

#[tokio::test]
async fn each_of_independent_writes_is_tried() {
    let script = Arc::new(Script::default());
    script.answer(403, status(403, "Forbidden", "no"));
    script.answer(200, status(200, "", ""));
    script.answer(200, status(200, "", ""));
    let sweep = |namespace: &str| {
        Write::new(&PODS, Key::new(namespace, ""), Verb::DeleteCollection { propagation: None })
    };
    let writes = vec![sweep("a"), sweep("b"), sweep("c")];
    let plan = Plan { steps: vec![Step::Each(writes), Step::Write(create())], ..Plan::default() };
    let executed = script.executor().execute(plan).await;
    let mut requests = script.requests.lock().clone();
    requests.sort();
    let asked = ["a", "b", "c"].map(|namespace| format!("DELETE /api/v1/namespaces/{namespace}/pods"));
    assert_eq!(requests, asked, "and nothing after them");
    assert_eq!(executed.failures.len(), 1);
    assert_eq!(executed.failures[0].verb, "deletecollection");
    let swept: Vec<_> = executed.effects.iter().map(|effect| &effect.change).collect();
    assert_eq!(swept, [&WriteEffect::Swept, &WriteEffect::Swept]);
}

#[tokio::test]
async fn what_is_tolerated_is_no_failure() {
    let script = Arc::new(Script::default());
    script.answer(404, status(404, "NotFound", "gone"));
    let delete = Verb::Delete { uid: "u".into(), resource_version: None, propagation: None };
    let mut write = Write::new(&PODS, Key::new("ns", "x"), delete);
    write.tolerate = Tolerate { absent: true, ..Tolerate::default() };
    let executed =
        script.executor().execute(Plan { steps: vec![Step::Write(write)], ..Plan::default() }).await;
    assert!(executed.error.is_none());
    assert_eq!(executed.effects[0].change, WriteEffect::Nothing);
}

#[tokio::test]
async fn a_lost_answer_leaves_an_unknown_effect() {
    let script = Arc::new(Script::default());
    let executed =
        script.executor().execute(Plan { steps: vec![Step::Write(create())], ..Plan::default() }).await;
    assert_eq!(executed.effects[0].change, WriteEffect::Unknown);
    assert!(executed.error.is_some());
}

#[tokio::test]
async fn a_live_check_that_fails_ends_the_plan_before_its_writes() {
    let script = Arc::new(Script::default());
    script.answer(200, pod("x", "3"));
    let verify =
        Verify { kind: &PODS, key: Key::new("ns", "x"), expect: Expect::Alive("another uid".into()) };
    let patch = Verb::Patch(Patch::Merge(serde_json::json!({})));
    let steps = vec![Step::Verify(verify), Step::Write(Write::new(&PODS, Key::new("ns", "y"), patch))];
    let executed = script.executor().execute(Plan { steps, ..Plan::default() }).await;
    assert_eq!(*script.requests.lock(), ["GET /api/v1/namespaces/ns/pods/x"]);
    assert_eq!(
        executed.error.unwrap().to_string(),
        "pods ns/x: expected uid another uid, not being deleted, found uid uid-x"
    );
}

#[tokio::test]
async fn a_taken_name_comes_with_the_object_in_the_way() {
    let script = Arc::new(Script::default());
    script.answer(409, status(409, "AlreadyExists", "taken"));
    script.answer(200, pod("x", "3"));
    let write = Write::new(&PODS, Key::new("ns", "x"), Verb::Create(Bytes::new()));
    let executed =
        script.executor().execute(Plan { steps: vec![Step::Write(write)], ..Plan::default() }).await;
    assert_eq!(executed.failures[0].existing.as_ref().unwrap().meta().uid, "uid-x");
}

#[tokio::test]
async fn an_object_that_lost_its_last_finalizer_may_be_gone() {
    let answer = |deleting: bool, finalizers: &[&str]| {
        let metadata = ObjectMeta {
            name: "a".into(),
            namespace: "ns".into(),
            uid: "uid-a".into(),
            resource_version: "7".into(),
            deletion_timestamp: if deleting { Time::from_seconds(1) } else { None },
            finalizers: finalizers.iter().map(|&name| name.into()).collect(),
            ..ObjectMeta::default()
        };
        wrap_envelope("v1", "Pod", &Pod { metadata, ..Pod::default() }.to_bytes())
    };
    let stored = || WriteEffect::Stored("7".into());
    for (deleting, finalizers, change) in [
        (false, &[][..], stored()),
        (false, &["held"], stored()),
        (true, &["held"], stored()),
        (true, &[], WriteEffect::Released("uid-a".into(), "7".into())),
    ] {
        let script = Arc::new(Script::default());
        script.answer(200, answer(deleting, finalizers));
        let patch = Verb::Patch(Patch::Merge(serde_json::json!({})));
        let write = Write::new(&PODS, Key::new("ns", "a"), patch);
        let plan = Plan { steps: vec![Step::Write(write)], ..Plan::default() };
        assert_eq!(script.executor().execute(plan).await.effects[0].change, change);
    }
}
