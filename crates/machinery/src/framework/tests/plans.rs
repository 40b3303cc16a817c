//! How plans end, what their writes were answered, and what is read for them live.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Bench, create, create_another, key, list, pod};
use crate::api::autoscaling::{Scale, ScaleSpec};
use crate::api::kinds::{PODS, SERVICE_CIDRS};
use crate::api::meta::ObjectMeta;
use crate::api::pod::Pod;
use crate::api::{AnyObject, Kind};
use crate::client::{ApiResource, Query, RequestPath, RequestUri};
use crate::executor::{Effect, Finishers, WriteEffect};
use crate::framework::descriptor::Build;
use crate::framework::documents::{AnyDocument, DocumentForm};
use crate::framework::metrics::RoomMetrics;
use crate::framework::reads::{
    AccessQuestion, AccessVerdict, ApiResources, DiscoveryError, ObjectPage, PageQuery, Read, Reads,
};
use crate::framework::rig::Rig;
use crate::framework::watch::CacheSource;
use crate::framework::worker::Outcome;
use crate::model::Key;
use crate::model::plan::{Admission, Cooldown, Plan, Step, Write};
use crate::options::Config;
use crate::telemetry::Registry;

fn refusal(code: u16, reason: &str) -> Vec<u8> {
    let status = serde_json::json!({ "kind": "Status", "reason": reason, "message": "no", "code": code });
    status.to_string().into_bytes()
}

#[tokio::test(start_paused = true)]
async fn a_room_that_does_not_heed_failures_does_not_write_again_at_once() {
    let bench = Bench::new();
    bench.script.heedless.store(true, Ordering::Relaxed);
    bench.plan(vec![create()]);
    bench.plan(vec![create()]);
    bench.server.answer(403, refusal(403, "Forbidden"));
    let outcome = bench.reconcile().await;
    assert!(matches!(outcome, Outcome::Failed { retry: true, quiet: false, .. }), "{outcome:?}");
    assert_eq!((bench.server.1.lock().len(), bench.script.plans.lock().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_and_what_is_not_there_yet_are_no_errors() {
    let bench = Bench::new();
    bench.script.heedless.store(true, Ordering::Relaxed);
    bench.plan(vec![create()]);
    bench.server.answer(409, refusal(409, "Conflict"));
    let conflict = bench.reconcile().await;
    assert!(matches!(conflict, Outcome::Failed { retry: true, quiet: true, .. }), "{conflict:?}");
    let waits = Plan { retry: Some("not approved yet".to_owned()), quiet: true, ..Plan::default() };
    bench.script.plans.lock().push_back(waits);
    let waits = bench.reconcile().await;
    let error = "not approved yet".to_owned();
    let expected = Outcome::Failed {
        error,
        retry: true,
        quiet: true,
        refused: true,
        requeue_after: None,
        not_before: None,
    };
    assert_eq!(waits, expected);
    bench.worker.stats.record(&key(), &conflict, 1);
    assert_eq!((bench.worker.stats.syncs(), bench.worker.stats.errors()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn plan_deadline_holds_although_a_step_fails() {
    let soon = Duration::from_secs(3);
    let bench = Bench::new();
    bench.script.heedless.store(true, Ordering::Relaxed);
    let refused = Plan {
        steps: vec![create()],
        requeue_after: Some(Duration::from_secs(1)),
        deadline: Some(soon),
        ..Plan::default()
    };
    let unfinished = Plan { retry: Some("no".to_owned()), deadline: Some(soon), ..Plan::default() };
    for plan in [refused, unfinished] {
        bench.script.plans.lock().push_back(plan);
        bench.server.answer(403, refusal(403, "Forbidden"));
        let outcome = bench.reconcile().await;
        let Outcome::Failed { retry: true, requeue_after, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(requeue_after, Some(soon));
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_can_end_without_a_retry() {
    let day = Some(Duration::from_hours(24));
    let ends = |steps| Plan { steps, end: true, requeue_after: day, ..Plan::default() };
    // Its own failure.
    let bench = Bench::new();
    bench.script.heedless.store(true, Ordering::Relaxed);
    bench.script.plans.lock().push_back(ends(vec![create()]));
    bench.server.answer(403, refusal(403, "Forbidden"));
    let done = Outcome::Done { writes: 0, requeue_after: day, cooldown: Cooldown::NONE };
    assert_eq!(bench.reconcile().await, done);

    // The failure that it records, if that succeeds.
    for (code, body, ended) in [(201, pod("5"), true), (403, refusal(403, "Forbidden"), false)] {
        let bench = Bench::new();
        bench.plan(vec![create()]);
        bench.script.plans.lock().push_back(ends(vec![create()]));
        bench.server.answer(403, refusal(403, "Forbidden"));
        bench.server.answer(code, body);
        let outcome = bench.reconcile().await;
        assert_eq!(outcome == done, ended, "{outcome:?}");
        assert_eq!(matches!(outcome, Outcome::Failed { retry: true, .. }), !ended, "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_heeds_it_comes_back_when_the_server_has_asked_for_it() {
    for (heeds, waited) in [(true, Duration::from_secs(7)), (false, Duration::from_millis(5))] {
        let mut bench = Bench::new();
        bench.worker.settings.heeds_retry_after = heeds;
        bench.script.heedless.store(true, Ordering::Relaxed);
        bench.plan(vec![create()]);
        let status = serde_json::json!({ "kind": "Status", "reason": "TooManyRequests", "code": 429,
            "details": { "retryAfterSeconds": 7 } });
        bench.server.answer(429, status.to_string().into_bytes());
        bench.worker.queue.add(key());
        let item = bench.worker.queue.get().await.unwrap();
        let began = tokio::time::Instant::now();
        bench.worker.process(item).await;
        bench.worker.queue.get().await.unwrap().done();
        assert_eq!(began.elapsed(), waited);
    }
}

/// A create without which its plan goes on.
fn optional_create() -> Step {
    let Step::Write(write) = create() else { unreachable!() };
    Step::Write(Write { keep_going: true, ..write })
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_plan_went_on_is_retried_and_comes_back_when_that_plan_says() {
    let bench = Bench::new();
    bench.script.heedless.store(true, Ordering::Relaxed);
    let soon = Duration::from_mins(10);
    let plan =
        || Plan { steps: vec![optional_create(), create()], requeue_after: Some(soon), ..Plan::default() };
    bench.script.plans.lock().push_back(plan());
    bench.server.answer(403, refusal(403, "Forbidden"));
    bench.server.answer(201, pod("5"));
    let outcome = bench.reconcile().await;
    assert!(
        matches!(outcome, Outcome::Failed { retry: true, requeue_after, .. } if requeue_after == Some(soon)),
        "{outcome:?}"
    );
    assert_eq!(bench.server.1.lock().len(), 2, "the other was made");
    // What was written must be seen before the retry.
    assert_eq!(bench.reconcile().await, Outcome::Waiting(&PODS));
    bench.store.bookmark("5");

    // With a backoff that is longer than that.
    bench.script.plans.lock().push_back(plan());
    bench.server.answer(403, refusal(403, "Forbidden"));
    bench.server.answer(201, pod("6"));
    for _ in 0..30 {
        bench.worker.queue.add_longest(key());
        bench.worker.queue.count_refusal(&key());
    }
    bench.worker.queue.add(key());
    let item = bench.worker.queue.get().await.unwrap();
    let began = tokio::time::Instant::now();
    bench.worker.process(item).await;
    bench.worker.queue.get().await.unwrap().done();
    assert_eq!(began.elapsed(), soon);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_went_on_is_looked_at_again_and_told_of_what_failed() {
    let bench = Bench::new();
    let looking = Plan { steps: vec![optional_create()], look_again: true, ..Plan::default() };
    bench.script.plans.lock().push_back(looking);
    bench.plan(vec![create()]);
    bench.plan(Vec::new());
    bench.server.answer(403, refusal(403, "Forbidden"));
    bench.server.answer(201, pod("5"));
    let outcome = bench.reconcile().await;
    assert!(matches!(outcome, Outcome::Failed { retry: true, .. }), "{outcome:?}");
    let asked: Vec<usize> = bench.script.asked.lock().iter().map(Vec::len).collect();
    assert_eq!(asked, [0, 1, 1], "the next look is told, and who heeds failures once more at the end");
}

#[tokio::test(start_paused = true)]
async fn a_key_comes_back_when_its_budget_has_a_token() {
    let bench = Bench::new();
    let admission = || {
        let key = Key::new("ns", "web-1");
        Step::Admit(Admission { kind: &PODS, key, budget: "zone".into(), per_second: 0.5, burst: 1 })
    };
    bench.plan(vec![admission(), create()]);
    bench.plan(vec![admission(), create()]);
    bench.server.answer(201, pod("5"));
    let done = |writes, seconds: Option<u64>| {
        let requeue_after = seconds.map(Duration::from_secs);
        Outcome::Done { writes, requeue_after, cooldown: Cooldown::NONE }
    };
    assert_eq!(bench.reconcile().await, done(1, None));
    bench.store.bookmark("5");
    assert_eq!(bench.reconcile().await, done(0, Some(2)));
    assert_eq!(bench.server.1.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_room_sees_what_its_writes_were_answered() {
    let bench = Bench::new();
    let looking = Plan { steps: vec![create()], look_again: true, ..Plan::default() };
    bench.script.plans.lock().push_back(looking);
    bench.plan(vec![create_another()]);
    bench.plan(Vec::new());
    bench.server.answer(201, pod("5"));
    bench.server.answer(500, Vec::new());
    bench.reconcile().await;
    let read = bench.script.read.lock().clone();
    let answered = |read: &str| read.matches("answer: Some").count();
    assert_eq!(read.iter().map(|read| answered(read)).collect::<Vec<_>>(), [0, 1, 1], "{read:#?}");
    assert!(read[2].contains("change: Unknown"), "with the failure it is told of each write: {}", read[2]);

    let effect = |name: &str, subresource, version: &str| {
        let metadata = ObjectMeta { resource_version: version.into(), ..ObjectMeta::default() };
        let answer: AnyObject = Arc::new(Pod { metadata, ..Pod::default() });
        let change = WriteEffect::Stored(version.into());
        Effect { kind: &PODS, key: Key::new("ns", name), subresource, change, answer: Some(answer) }
    };
    let reads = Reads::default()
        .after(effect("a", "", "5"))
        .after(effect("a", "status", "6"))
        .after(effect("b", "", "7"))
        .after(effect("a", "scale", "8"));
    let answer = reads.answer(&PODS, &Key::new("ns", "a")).unwrap();
    assert_eq!(answer.meta().resource_version, "6");
    assert!(reads.answer(&PODS, &Key::new("ns", "c")).is_none() && reads.has_written(&PODS, "ns"));
}

#[tokio::test(start_paused = true)]
async fn more_than_objects_can_be_read_live() {
    let bench = Bench::new();
    let name = || Key::new("ns", "web");
    let question = Arc::new(AccessQuestion {
        user: "system:node:a".into(),
        verb: "create".into(),
        resource: "certificatesigningrequests".into(),
        ..AccessQuestion::default()
    });
    let page = PageQuery { kind: &PODS, namespace: "ns".into(), limit: 2, after: "t1".into() };
    let path = RequestPath::group_version("metrics.k8s.io", "v1beta1").in_namespace("ns").resource("pods");
    let uri = path.uri(&Query::default().with("labelSelector", "a=b")).unwrap();
    bench.script.needs.lock().push_back(vec![
        Read::Scale(&PODS, name()),
        Read::Page(page.clone()),
        Read::Json(uri.clone()),
        Read::Document(&LENGTHS, document("apis/apps/v1")),
        Read::Access(Arc::clone(&question)),
    ]);
    let scale = Scale { spec: ScaleSpec { replicas: 3 }, ..Scale::default() };
    bench.server.answer(200, br#"{"spec": {"replicas": 3}}"#.to_vec());
    bench.server.answer(200, list("7", &["1", "2"]));
    bench.server.answer(200, br#"{"items": [{"usage": "17m"}]}"#.to_vec());
    bench.server.answer(200, br#"{"components": {}}"#.to_vec());
    bench.server.answer(201, br#"{"status": {"allowed": true, "reason": "it may"}}"#.to_vec());
    bench.plan(Vec::new());
    bench.worker.explain(&key()).await;
    let expected = [
        "GET /api/v1/namespaces/ns/pods/web/scale".to_owned(),
        "GET /api/v1/namespaces/ns/pods?limit=2&continue=t1".to_owned(),
        "GET /apis/metrics.k8s.io/v1beta1/namespaces/ns/pods?labelSelector=a%3Db".to_owned(),
        "GET /openapi/v3/apis/apps/v1".to_owned(),
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(),
    ];
    assert_eq!(*bench.server.1.lock(), expected);
    let read = bench.script.read.lock()[0].clone();
    for told in ["ScaleSpec { replicas: 3 }", "resource_version: \"7\"", "17m", "allowed: true"] {
        assert!(read.contains(told), "{told}: {read}");
    }

    // What a room is given in tests is what it asks for.
    let reads = Reads::default()
        .with_scale(&PODS, name(), Ok(Some(scale)))
        .with_page(page.clone(), Ok(ObjectPage { next: "t2".into(), ..ObjectPage::default() }))
        .with_json(uri.clone(), Ok(serde_json::json!(1)))
        .with_document(&LENGTHS, uri.clone(), Ok(Arc::new(7_usize)))
        .with_access(Arc::clone(&question), Ok(AccessVerdict::default()));
    assert_eq!(reads.scale(&PODS, &name()).unwrap().unwrap().unwrap().spec.replicas, 3);
    assert_eq!(reads.page(&page).unwrap().unwrap().next, "t2");
    assert_eq!(**reads.json(&uri).unwrap().unwrap(), 1);
    assert_eq!(*reads.document::<usize>(&LENGTHS, &uri).unwrap().unwrap(), 7);
    assert!(reads.document::<u8>(&LENGTHS, &uri).is_none(), "the form makes something else");
    assert!(!reads.access(&question).unwrap().unwrap().allowed);
    assert!(reads.object(&PODS, &name()).is_none() && reads.json(&document("other")).is_none());
}

/// Where a document of OpenAPI is.
fn document(name: &str) -> RequestUri {
    RequestPath::openapi_document(&format!("/openapi/v3/{name}")).uri(Query::NONE).unwrap()
}

/// Documents of which the length is kept.
static LENGTHS: DocumentForm = DocumentForm {
    name: "lengths",
    longest: 64,
    read: |document| {
        let mut text = String::new();
        document.read_to_string(&mut text).map_err(|error| error.to_string())?;
        let is_whole = text.ends_with('}');
        is_whole.then(|| Arc::new(text.len()) as AnyDocument).ok_or_else(|| "it has no end".to_owned())
    },
};

#[tokio::test(start_paused = true)]
async fn live_read_that_never_ends_is_a_timeout_and_costs_no_other_read_its_answer() {
    let bench = Bench::new();
    let read = |name: &str| Read::Object(&PODS, Key::new("ns", name));
    bench.script.needs.lock().push_back(vec![read("a"), read("b")]);
    bench.server.answer(0, Vec::new());
    bench.server.answer(404, Vec::new());
    bench.plan(Vec::new());
    let began = tokio::time::Instant::now();
    let outcome = bench.reconcile().await;
    assert!(matches!(&outcome, Outcome::Done { .. }), "{outcome:?}");
    let seen = bench.script.read.lock()[0].clone();
    assert!(seen.contains("Timeout") && seen.contains("code: 404"), "{seen}");
    assert_eq!(began.elapsed().as_secs(), 15 * 60);
}

#[tokio::test(start_paused = true)]
async fn documents_are_kept_in_the_form_that_is_asked_for() {
    let bench = Bench::new();
    let read = |name: &str| Read::Document(&LENGTHS, document(name));
    bench.script.needs.lock().push_back(vec![read("whole"), read("half"), read("long")]);
    bench.server.answer(200, b"{\"a\": 1}".to_vec());
    bench.server.answer(200, b"{\"a\": 1".to_vec());
    bench.server.answer(200, vec![b' '; 65]);
    bench.plan(Vec::new());
    bench.worker.explain(&key()).await;
    let read = bench.script.read.lock()[0].clone();
    for told in ["it has no end", "TooLong", "limit: 64", "Document(Ok("] {
        assert!(read.contains(told), "{told}: {read}");
    }
}

#[test]
fn a_controller_can_hang_on_what_is_served() {
    let resource = |version: &str| ApiResource {
        group: "networking.k8s.io".into(),
        version: version.into(),
        resource: "servicecidrs".into(),
        ..ApiResource::default()
    };
    let unread = || DiscoveryError::Stale { group_version: "networking.k8s.io/v1".to_owned() };
    let rig = Rig::new(Config::default());
    let first = |discovered: Option<&ApiResources>| {
        let registry = RoomMetrics::new(Registry::new());
        let store = |kind: &'static Kind, _: Option<&'static str>| rig.store(kind);
        let build = Build {
            config: &Config::default(),
            gate: &|_| true,
            root_ca: None,
            finishers: &Finishers::default(),
            zones: &crate::zones::Zones::bundled(),
            caches: CacheSource::new(&store),
            dynamic: &|_| Arc::default(),
            debug: &|_| {},
            metrics: &registry,
            discovered,
        };
        build.first_served(&[&SERVICE_CIDRS]).map(|kind| kind.resource).map_err(|error| error.to_string())
    };
    assert_eq!(first(None), Err("the API resources are not discovered yet".to_owned()));
    assert_eq!(first(Some(&ApiResources::of(vec![resource("v1")], Vec::new()))), Ok("servicecidrs"));
    let other = ApiResources::of(vec![resource("v2")], Vec::new());
    let skipped = "skipped: not served: servicecidrs (networking.k8s.io/v1)";
    assert_eq!(first(Some(&other)), Err(skipped.to_owned()));
    let unknown = ApiResources::of(Vec::new(), vec![unread()]);
    let not_yet = "discovery of networking.k8s.io/v1 is incomplete";
    assert_eq!(first(Some(&unknown)), Err(not_yet.to_owned()));
}
