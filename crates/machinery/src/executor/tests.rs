//! Plans performed against a scripted API server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use tower::util::BoxCloneSyncService;

use super::batch::slow_start;
use super::{
    ActionResult, Events, ExecuteError, Executed, Executor, FinishError, Finisher, Finishers, WriteEffect,
    executed, planned,
};
use crate::api::autoscaling::Scale;
use crate::api::core::ServiceAccount;
use crate::api::kinds::{PODS, SERVICE_ACCOUNTS};
use crate::api::meta::{ObjectMeta, Status, StatusDetails};
use crate::api::pod::Pod;
use crate::client::{ApiClient, BoxError, WritesStopped};
use crate::model::Key;
use crate::model::live_reads::TEST_READ;
use crate::model::plan::{
    Admission, EventSpec, Expect, FinishOrder, Patch, Plan, Regarding, Step, Tolerate, UNPREPARED, Verb,
    Verify, Write,
};
use crate::wire::splice::{Edit, edit, get, put_bytes};
use crate::wire::{Message, Str, Time, Uid, Value, unwrap_envelope, wrap_envelope};

/// For a write that the client does not send.
const STOPPED: u16 = 0;

#[derive(Default)]
struct Script {
    /// Codes and bodies; [`STOPPED`] for a write that is not sent.
    answers: Mutex<VecDeque<(u16, Vec<u8>)>>,
    requests: Mutex<Vec<String>>,
    queries: Mutex<Vec<String>>,
    bodies: Mutex<Vec<Bytes>>,
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
                script.queries.lock().push(request.uri().query().unwrap_or_default().to_owned());
                let body = request.into_body().collect().await?.to_bytes();
                script.bodies.lock().push(body);
                let (code, body) = script.answers.lock().pop_front().ok_or("no answer scripted")?;
                if code == STOPPED {
                    return Err(WritesStopped.into());
                }
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
    // A 404 of an object names it.
    let name = if reason == "NotFound" { "x" } else { "" };
    let details = Some(Box::new(StatusDetails { name: name.into(), ..StatusDetails::default() }));
    let status =
        Status { reason: reason.into(), message: message.into(), code, details, ..Status::default() };
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
async fn write_of_an_object_that_is_gone_emits_its_event_only_if_it_tells_absence() {
    for (tells_absence, events) in [(true, 1), (false, 0)] {
        let script = Arc::new(Script::default());
        script.answer(404, status(404, "NotFound", "gone"));
        let tolerate = Tolerate { absent: true, ..Tolerate::default() };
        let delete = Write { verb: Verb::delete("u".into()), key: Key::new("ns", "gone"), ..create() };
        let steps = vec![Step::Write(Write { tolerate, tells_absence, ..delete })];
        let executed = script.executor().execute(Plan { steps, ..Plan::default() }).await;
        assert!(executed.failures.is_empty(), "{executed:?}");
        assert_eq!(script.events.lock().len(), events);
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
    let delete = Verb::delete("u".into());
    let mut write = Write::new(&PODS, Key::new("ns", "x"), delete);
    write.tolerate = Tolerate { absent: true, ..Tolerate::default() };
    let executed =
        script.executor().execute(Plan { steps: vec![Step::Write(write)], ..Plan::default() }).await;
    assert!(executed.error.is_none());
    assert_eq!(executed.effects[0].change, WriteEffect::Nothing);
}

#[tokio::test]
async fn what_the_server_does_not_do_can_be_tolerated() {
    for (code, unsupported, tolerated) in [
        (405, true, true),
        (404, true, true),
        (406, true, false),
        (415, true, false),
        (403, true, false),
        (500, true, false),
        (405, false, false),
        (415, false, false),
    ] {
        let script = Arc::new(Script::default());
        script.answer(code, status(code.into(), "MethodNotAllowed", "not here"));
        let sweep = Verb::DeleteCollection { propagation: None };
        let mut write = Write::new(&PODS, Key::new("ns", ""), sweep);
        write.tolerate = Tolerate { absent: true, unsupported, ..Tolerate::default() };
        let executed = run(&script, vec![Step::Write(write)]).await;
        assert_eq!(executed.error.is_none(), tolerated, "{code}");
        let nothing = executed.effects.iter().any(|effect| effect.change == WriteEffect::Nothing);
        assert_eq!(nothing, tolerated, "{code}");
    }
}

#[tokio::test]
async fn write_that_is_not_sent_because_writes_have_stopped_emits_no_event() {
    let script = Arc::new(Script::default());
    script.answer(STOPPED, Vec::new());
    let executed = run(&script, vec![Step::Write(create())]).await;
    assert!(executed.canceled.is_some() && executed.stopped, "it is no failure, and the plan has ended");
    assert!(executed.error.is_none() && executed.failures.is_empty() && executed.effects.is_empty());
    assert_eq!(*script.events.lock(), [] as [&str; 0]);
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
    let verify = Verify {
        read: &TEST_READ,
        kind: &PODS,
        key: Key::new("ns", "x"),
        expect: Expect::Alive("another uid".into()),
    };
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

fn delete(name: &str) -> Write {
    Write::new(&PODS, Key::new("ns", name), Verb::delete("u".into()))
}

fn patch(name: &str) -> Write {
    Write::new(&PODS, Key::new("ns", name), Verb::Patch(Patch::Merge(serde_json::json!({}))))
}

async fn run(script: &Arc<Script>, steps: Vec<Step>) -> Executed {
    script.executor().execute(Plan { steps, ..Plan::default() }).await
}

fn results(executed: &Executed) -> Vec<&ActionResult> {
    executed.results.iter().map(|end| &end.result).collect()
}

/// An aggregated API server need not know JSON patches.
#[tokio::test]
async fn json_patch_that_is_not_supported_is_sent_as_a_merge_patch() {
    let operations = serde_json::json!([
        { "op": "test", "path": "/metadata/uid", "value": "uid-x" },
        { "op": "test", "path": "/metadata/finalizers/0", "value": "orphan" },
        { "op": "remove", "path": "/metadata/finalizers/0" },
    ]);
    let write = || Write::new(&PODS, Key::new("ns", "x"), Verb::Patch(Patch::Json(operations.clone())));
    let live = |name: &str| {
        let metadata = ObjectMeta {
            name: "x".into(),
            namespace: "ns".into(),
            uid: format!("uid-{name}").into(),
            resource_version: "3".into(),
            finalizers: vec!["orphan".into()],
            ..ObjectMeta::default()
        };
        wrap_envelope("v1", "Pod", &Pod { metadata, ..Pod::default() }.to_bytes())
    };
    let script = Arc::new(Script::default());
    script.answer(415, status(415, "UnsupportedMediaType", "no JSON patches"));
    script.answer(200, live("x"));
    script.answer(200, pod("x", "4"));
    let executed = run(&script, vec![Step::Write(write())]).await;
    assert_eq!(executed.effects[0].change, WriteEffect::Stored("4".into()));
    let merged: serde_json::Value = serde_json::from_slice(&script.bodies.lock()[2]).unwrap();
    let expected = serde_json::json!({ "uid": "uid-x", "resourceVersion": "3", "finalizers": [] });
    assert_eq!(merged["metadata"], expected);
    // Another object has the name by now.
    let script = Arc::new(Script::default());
    script.answer(415, status(415, "UnsupportedMediaType", "no JSON patches"));
    script.answer(200, live("y"));
    let executed = run(&script, vec![Step::Write(write())]).await;
    assert!(executed.failures[0].is_conflict(), "{executed:?}");
}

#[tokio::test]
async fn a_chain_ends_at_its_first_failure_and_the_others_go_on() {
    let script = Arc::new(Script::default());
    // Both chains send their first write, in this order, then each its second.
    script.answer(403, status(403, "Forbidden", "no"));
    script.answer(200, pod("b", "8"));
    script.answer(200, status(200, "", ""));
    let chains = vec![vec![patch("a"), delete("a")], vec![patch("b"), delete("b")]];
    let executed =
        run(&script, vec![Step::Chains { chains, slow_start: false }, Step::Write(create())]).await;
    let pods = "/api/v1/namespaces/ns/pods";
    let expected = [format!("PATCH {pods}/a"), format!("PATCH {pods}/b"), format!("DELETE {pods}/b")];
    assert_eq!(*script.requests.lock(), expected, "and nothing after them");
    let failed = ActionResult::Failed("no".to_owned());
    let (done, untried) = (&ActionResult::Done, &ActionResult::Planned);
    assert_eq!(results(&executed), [&failed, untried, done, done, untried]);
    assert_eq!((executed.failures[0].verb, executed.failures[0].key.name.as_str()), ("patch", "a"));
    let written: Vec<_> = executed.effects.iter().map(|effect| &effect.change).collect();
    assert_eq!(written, [&WriteEffect::Stored("8".into()), &WriteEffect::Deleted("u".into())]);
}

#[tokio::test]
async fn writes_of_a_chain_that_go_with_the_next_are_all_tried_before_it_ends() {
    let script = Arc::new(Script::default());
    script.answer(403, status(403, "Forbidden", "no"));
    script.answer(200, pod("b", "8"));
    script.answer(403, status(403, "Forbidden", "nor this"));
    let with_next = |write: Write| Write { with_next: true, ..write };
    let chain = vec![with_next(patch("a")), with_next(patch("b")), patch("c"), delete("d")];
    let executed = run(&script, vec![Step::Chains { chains: vec![chain], slow_start: true }]).await;
    let failed = |message: &str| ActionResult::Failed(message.to_owned());
    let (done, untried) = (&ActionResult::Done, &ActionResult::Planned);
    assert_eq!(results(&executed), [&failed("no"), done, &failed("nor this"), untried]);
    assert_eq!(executed.failures.len(), 2, "each is recorded");
    assert!(executed.stopped);
}

#[tokio::test]
async fn a_chain_ends_at_a_conflict_that_is_tolerated_and_nothing_has_failed() {
    let script = Arc::new(Script::default());
    script.answer(409, status(409, "Conflict", "another version"));
    script.answer(200, pod("b", "8"));
    script.answer(200, status(200, "", ""));
    let tolerant =
        |write: Write| Write { tolerate: Tolerate { conflict: true, ..Tolerate::default() }, ..write };
    let chain = |name| vec![tolerant(patch(name)), delete(name)];
    let executed =
        run(&script, vec![Step::Chains { chains: vec![chain("a"), chain("b")], slow_start: false }]).await;
    let (done, untried) = (&ActionResult::Done, &ActionResult::Planned);
    assert_eq!(results(&executed), [&ActionResult::Unneeded, untried, done, done]);
    assert!(executed.outdated && !executed.stopped && executed.failures.is_empty());
}

/// The same write, without which its plan goes on.
fn optional(write: Write) -> Write {
    Write { keep_going: true, ..write }
}

#[tokio::test]
async fn a_plan_goes_on_without_a_write_of_which_it_says_so() {
    let delete = || optional(delete("a"));
    for step in [Step::Write(delete()), Step::Each(vec![delete()]), Step::Batch(vec![delete()])] {
        let script = Arc::new(Script::default());
        script.answer(403, status(403, "Forbidden", "no"));
        script.answer(201, pod("b", "8"));
        let executed = run(&script, vec![step, Step::Write(create())]).await;
        assert_eq!(results(&executed), [&ActionResult::Failed("no".to_owned()), &ActionResult::Done]);
        assert!(!executed.stopped);
        assert_eq!((executed.failures.len(), executed.effects.len()), (1, 1));
        assert!(executed.error.is_some());
    }
}

#[tokio::test]
async fn a_failure_that_ends_a_plan_does_so_beside_one_that_does_not() {
    let script = Arc::new(Script::default());
    script.answer(403, status(403, "Forbidden", "first"));
    script.answer(403, status(403, "Forbidden", "second"));
    let steps = vec![Step::Write(optional(delete("a"))), Step::Write(create()), Step::Write(create())];
    let executed = run(&script, steps).await;
    let failed = |why: &str| ActionResult::Failed(why.to_owned());
    assert_eq!(results(&executed), [&failed("first"), &failed("second"), &ActionResult::Planned]);
    assert!(executed.stopped);
    assert!(executed.error.unwrap().to_string().contains("first"));
}

#[tokio::test]
async fn a_chain_goes_on_without_a_write_of_which_it_says_so() {
    let script = Arc::new(Script::default());
    script.answer(403, status(403, "Forbidden", "no"));
    script.answer(200, status(200, "", ""));
    let chains = vec![vec![optional(patch("a")), delete("a")]];
    let executed = run(&script, vec![Step::Chains { chains, slow_start: false }]).await;
    assert_eq!(results(&executed), [&ActionResult::Failed("no".to_owned()), &ActionResult::Done]);
}

#[tokio::test]
async fn items_are_those_of_the_writes_that_succeeded() {
    let script = Arc::new(Script::default());
    script.answer(404, status(404, "NotFound", "gone"));
    script.answer(201, pod("b", "8"));
    script.answer(403, status(403, "Forbidden", "no"));
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    let item = |item, write| Step::Write(Write { item: Some(item), ..write });
    let steps = vec![
        item(4, Write { tolerate, ..delete("x") }),
        item(2, create()),
        item(3, create()),
        item(1, create()),
    ];
    assert_eq!(run(&script, steps).await.items, [4, 2], "what was tolerated has succeeded");
}

#[tokio::test]
async fn chains_can_start_slowly() {
    let script = Arc::new(Script::default());
    for version in ["7", "8"] {
        script.answer(200, pod("a", version));
    }
    script.answer(403, status(403, "Forbidden", "exceeded quota: q"));
    script.answer(403, status(403, "Forbidden", "exceeded quota: q"));
    let chains = (0..9).map(|_| vec![patch("a"), create()]).collect();
    let executed = run(&script, vec![Step::Chains { chains, slow_start: true }]).await;
    assert_eq!(script.requests.lock().len(), 4, "one chain, then two of which both were refused");
    assert_eq!((executed.effects.len(), executed.failures.len()), (2, 2));
}

#[tokio::test]
async fn a_write_can_build_on_the_last_answer() {
    let script = Arc::new(Script::default());
    let account = |version: &str| {
        let metadata = ObjectMeta {
            name: "x".into(),
            namespace: "ns".into(),
            uid: "u".into(),
            resource_version: version.into(),
            ..ObjectMeta::default()
        };
        let mut object = ServiceAccount { metadata, ..ServiceAccount::default() }.to_bytes();
        // A field that nobody here knows.
        put_bytes(&mut object, 99, b"unknown");
        wrap_envelope("v1", "ServiceAccount", &object)
    };
    script.answer(200, account("7"));
    script.answer(200, account("8"));
    let key = || Key::new("ns", "x");
    let first = Write::new(&SERVICE_ACCOUNTS, key(), Verb::Patch(Patch::Merge(serde_json::json!({}))));
    let edits = vec![Edit::MapSet(&[1, 11], "k".to_owned(), "v".to_owned())];
    let next = || Write::new(&SERVICE_ACCOUNTS, key(), Verb::UpdateLast(edits.clone()));
    let executed = run(&script, vec![Step::Write(first), Step::Write(next())]).await;
    assert!(executed.error.is_none(), "{executed:?}");
    assert_eq!(executed.effects[1].change, WriteEffect::Stored("8".into()));
    assert_eq!(executed.effects[0].answer.as_ref().unwrap().meta().resource_version, "7");
    let sent = unwrap_envelope(&script.bodies.lock()[1]).unwrap();
    let sent_back = ServiceAccount::decode(&sent).unwrap();
    assert_eq!(
        sent_back.metadata.resource_version, "7",
        "on the condition that it still is what was answered"
    );
    assert_eq!(sent_back.metadata.labels.get("k").map(Str::as_str), Some("v"));
    assert_eq!(get(&sent, &[99]).unwrap(), Some(Value::Bytes(b"unknown")));

    // Without an answer there is nothing to build on, and nothing is sent.
    let executed = run(&script, vec![Step::Write(next())]).await;
    assert!(matches!(executed.error, Some(ExecuteError::Unfit { .. })), "{executed:?}");
    assert_eq!(script.requests.lock().len(), 2);
}

#[tokio::test]
async fn subresources_take_and_answer_what_they_do() {
    let script = Arc::new(Script::default());
    let scale = |version: &str, replicas: i32| {
        let metadata = serde_json::json!({ "name": "x", "resourceVersion": version });
        serde_json::json!({ "metadata": metadata, "spec": { "replicas": replicas } })
    };
    script.answer(200, scale("9", 5).to_string().into_bytes());
    script.answer(201, status(201, "", ""));
    script.answer(200, pod("x", "12"));
    let at = |verb| Write::new(&PODS, Key::new("ns", "x"), verb);
    let read = Scale::from_json(scale("8", 3).to_string().as_bytes()).unwrap().raw();
    let body = edit(&read, &[Edit::SetVarint(&[2, 1], 5)]).unwrap();
    let apply = Verb::Patch(Patch::Apply {
        manager: "coxswain",
        force: true,
        object: serde_json::json!({ "status": {} }),
    });
    let steps = vec![
        Step::Write(at(Verb::Update(body.into())).on("scale")),
        Step::Write(at(Verb::Create(Bytes::new())).on("eviction")),
        Step::Write(at(apply).on("status")),
    ];
    let executed = run(&script, steps).await;
    assert!(executed.error.is_none(), "{executed:?}");
    let pod = "/api/v1/namespaces/ns/pods/x";
    let expected =
        [format!("PUT {pod}/scale"), format!("POST {pod}/eviction"), format!("PATCH {pod}/status")];
    assert_eq!(*script.requests.lock(), expected);
    assert_eq!(script.queries.lock()[2], "fieldManager=coxswain&force=true");
    let starts = |at: usize, version: &str, kind: &str| {
        let head = wrap_envelope(version, kind, b"");
        assert!(script.bodies.lock()[at].starts_with(&head[..head.len() - 2]), "{kind}");
    };
    let sent: serde_json::Value = serde_json::from_slice(&script.bodies.lock()[0]).unwrap();
    assert_eq!((&sent["kind"], &sent["spec"]["replicas"]), (&"Scale".into(), &5.into()));
    assert_eq!(sent["metadata"]["resourceVersion"], "8", "on the condition that it still is what was read");
    starts(1, "policy/v1", "Eviction");
    assert_eq!(script.bodies.lock()[2].as_ref(), br#"{"status":{}}"#);
    // The version of a scale is that of the object. What an eviction did is not told.
    let written: Vec<_> = executed.effects.iter().map(|effect| effect.change.clone()).collect();
    let stored = |version: &str| WriteEffect::Stored(version.into());
    assert_eq!(written, [stored("9"), WriteEffect::Unknown, stored("12")]);
    assert_eq!(results(&executed), [&ActionResult::Done; 3]);
}

#[tokio::test]
async fn a_delete_says_which_object_it_means() {
    let script = Arc::new(Script::default());
    let details = Some(Box::new(StatusDetails { uid: "told".into(), ..StatusDetails::default() }));
    let answer = wrap_envelope("v1", "Status", &Status { details, ..Status::default() }.to_bytes());
    script.answer(200, answer);
    let delete = |resource_version| Verb::Delete {
        uid: Uid::default(),
        resource_version,
        propagation: None,
        grace_period: Some(0),
    };
    let at = |verb| Step::Write(Write::new(&PODS, Key::new("ns", "x"), verb));
    let executed = run(&script, vec![at(delete(Some("5".into()))), at(delete(None))]).await;
    assert_eq!(executed.effects[0].change, WriteEffect::Deleted("told".into()));
    assert!(matches!(executed.error, Some(ExecuteError::Unfit { .. })), "{executed:?}");
    // DeleteOptions { gracePeriodSeconds: 0, preconditions: { resourceVersion: "5" } }
    let sent = unwrap_envelope(&script.bodies.lock()[0]).unwrap();
    assert_eq!(sent.as_ref(), b"\x08\x00\x12\x03\x12\x015");
    assert_eq!(script.requests.lock().len(), 1, "without a condition it is not sent");
}

#[tokio::test]
async fn a_404_of_what_is_not_served_is_no_absence() {
    let script = Arc::new(Script::default());
    let page = || b"404 page not found".to_vec();
    script.answer(404, page());
    let mut tolerant = delete("x");
    tolerant.tolerate = Tolerate { absent: true, ..Tolerate::default() };
    let executed = run(&script, vec![Step::Write(tolerant)]).await;
    assert_eq!(executed.failures[0].code, 404);
    script.answer(404, page());
    let verify =
        Verify { read: &TEST_READ, kind: &PODS, key: Key::new("ns", "x"), expect: Expect::Gone("u".into()) };
    let executed = run(&script, vec![Step::Verify(verify)]).await;
    assert_eq!(executed.failures[0].code, 404, "nothing is known of it");
}

#[tokio::test]
async fn a_conflict_can_be_tolerated() {
    let script = Arc::new(Script::default());
    script.answer(409, status(409, "Conflict", "changed"));
    let mut write = patch("x");
    write.tolerate = Tolerate { conflict: true, ..Tolerate::default() };
    let executed = run(&script, vec![Step::Write(write)]).await;
    assert_eq!((executed.error.is_none(), results(&executed)), (true, vec![&ActionResult::Unneeded]));
    assert!(executed.outdated);
}

/// Turns an object into its order, or refuses.
struct Stamp;

impl Finisher for Stamp {
    fn finish<'a>(
        &'a self,
        object: &'a [u8],
        details: &'a serde_json::Value,
    ) -> BoxFuture<'a, Result<Vec<u8>, FinishError>> {
        let finished = details.as_str().map(|text| [object, text.as_bytes()].concat());
        Box::pin(std::future::ready(
            finished.ok_or_else(|| FinishError::Failed("the key is away".to_owned())),
        ))
    }
}

#[tokio::test]
async fn a_finisher_completes_what_is_sent() {
    let script = Arc::new(Script::default());
    script.answer(200, pod("x", "5"));
    let executor = script.executor().with_finishers(Finishers::default().with("stamp", Arc::new(Stamp)));
    let update = |finisher, details: serde_json::Value| {
        let order = FinishOrder { finisher, details };
        let verb = Verb::UpdateFinished { object: Bytes::from_static(b"half "), order };
        vec![Step::Write(Write::new(&PODS, Key::new("ns", "x"), verb).on("status"))]
    };
    let executed = executor.execute(Plan { steps: update("stamp", "done".into()), ..Plan::default() }).await;
    assert!(executed.error.is_none(), "{executed:?}");
    assert_eq!(unwrap_envelope(&script.bodies.lock()[0]).unwrap().as_ref(), b"half done");
    assert_eq!(script.requests.lock()[0], "PUT /api/v1/namespaces/ns/pods/x/status");
    // One that fails is tried again, one that is not there is not; neither is sent.
    for (steps, retriable) in [(update("stamp", 1.into()), true), (update("seal", 1.into()), false)] {
        let executed = executor.execute(Plan { steps, ..Plan::default() }).await;
        assert_eq!(executed.error.unwrap().is_retriable(), retriable);
        assert_eq!(executed.failures[0].code, 0);
    }
    assert_eq!(script.requests.lock().len(), 1);
}

#[tokio::test]
async fn what_comes_before_a_write_must_succeed() {
    let script = Arc::new(Script::default());
    script.answer(200, status(200, "", ""));
    let executor = script.executor().with_finishers(Finishers::default().with("stamp", Arc::new(Stamp)));
    let prepared = |details: serde_json::Value| {
        let prepare = Some(FinishOrder { finisher: "stamp", details });
        Plan { steps: vec![Step::Write(Write { prepare, ..delete("x") })], ..Plan::default() }
    };
    let failed = executor.execute(prepared(1.into())).await;
    let failure = &failed.failures[0];
    assert_eq!((failure.reason.as_str(), failure.message.as_str()), (UNPREPARED, "the key is away"));
    assert!(failed.error.unwrap().is_retriable() && script.requests.lock().is_empty(), "nothing was sent");
    assert!(executor.execute(prepared("done".into())).await.error.is_none());
    assert_eq!(script.requests.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_plan_ends_where_a_budget_is_used_up() {
    let script = Arc::new(Script::default());
    script.answer(200, status(200, "", ""));
    let admission = |per_second| {
        let key = Key::new("ns", "x");
        Step::Admit(Admission { kind: &PODS, key, budget: "zone".into(), per_second, burst: 1 })
    };
    let executor = script.executor();
    let plan =
        |per_second| Plan { steps: vec![admission(per_second), Step::Write(delete("x"))], ..Plan::default() };
    let first = executor.execute(plan(0.1)).await;
    assert_eq!((first.held_back, first.effects.len()), (None, 1));
    let second = executor.clone().execute(plan(0.1)).await;
    assert_eq!(second.held_back, Some(Some(Duration::from_secs(10))));
    assert!(second.error.is_none() && second.effects.is_empty());
    let actions = executed(planned(&plan(0.1)), &second);
    assert_eq!(actions.len(), 1, "the write was not tried");
    assert_eq!(actions[0].summary, "take a token from the rate limiter zone for pods ns/x");
    assert_eq!(
        actions[0].result,
        ActionResult::Failed("the rate limiter has its next token in 10.0 s".to_owned())
    );
    assert_eq!(executor.execute(plan(0.0)).await.held_back, Some(None));
    assert_eq!(script.requests.lock().len(), 1);
}
