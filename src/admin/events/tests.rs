//! The event log: nothing is lost unsaid, nobody waits for a reader.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use prost::Message as _;
use tokio::task::JoinSet;

use super::*;
use crate::admin::manager::{ActionResult, ActionState, ActionVerb, Phase};
use crate::admin::overrides::{Entry, Order};
use crate::admin::proto;
use coxswain_machinery::api::kinds::{DEPLOYMENTS, PODS};
use coxswain_machinery::framework::Requeue;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::clock::ManualClock;

fn log(capacity: usize) -> Arc<EventLog> {
    let clock = ManualClock::new(Timestamp::from_second(1_800_000_000).unwrap());
    Arc::new(EventLog::new("log-1", capacity, Arc::new(clock)))
}

fn started() -> Body {
    Body::ReconcileStarted(ReconcileAttempt {
        queue: "deployment",
        number: 1,
        queue_wait: Duration::from_millis(3),
    })
}

fn publish(log: &EventLog, count: usize) {
    for _ in 0..count {
        log.publish(Some("deployment-controller"), None, None, started());
    }
}

/// All that a replay says, in a short form.
async fn replay(log: &Arc<EventLog>, start: Start) -> Vec<String> {
    replay_of(log, Filter::default(), start).await
}

async fn replay_of(log: &Arc<EventLog>, filter: Filter, start: Start) -> Vec<String> {
    let mut reader = log.read(filter, start, true).unwrap();
    let mut items = Vec::new();
    while let Some(item) = reader.next().await {
        items.push(short(&item));
    }
    items
}

fn short(item: &LogItem) -> String {
    match item {
        LogItem::Started { oldest, newest } => format!("log {oldest}-{newest}"),
        LogItem::Event(event) => event.sequence.to_string(),
        LogItem::Dropped { first, last } => format!("dropped {first}-{last}"),
        LogItem::ReplayFinished(at) => format!("replayed {at}"),
    }
}

#[tokio::test]
async fn the_past_is_replayed_from_where_it_was_asked() {
    let log = log(4);
    assert_eq!(replay(&log, Start::Since(0)).await, ["log 1-0", "replayed 0"]);
    publish(&log, 6);
    assert_eq!(replay(&log, Start::Since(0)).await, ["log 3-6", "3", "4", "5", "6", "replayed 6"]);
    assert_eq!(
        replay(&log, Start::Since(1)).await,
        ["log 3-6", "dropped 2-2", "3", "4", "5", "6", "replayed 6"]
    );
    assert_eq!(replay(&log, Start::Since(4)).await, ["log 3-6", "5", "6", "replayed 6"]);
    assert_eq!(replay(&log, Start::Since(6)).await, ["log 3-6", "replayed 6"]);
    assert_eq!(replay(&log, Start::Last(2)).await, ["log 3-6", "5", "6", "replayed 6"]);
    assert_eq!(replay(&log, Start::Last(100)).await, ["log 3-6", "3", "4", "5", "6", "replayed 6"]);
    assert_eq!(replay(&log, Start::Last(0)).await, ["log 3-6", "replayed 6"]);
    assert_eq!(replay(&log, Start::Live).await, ["log 3-6", "replayed 6"]);
    assert_eq!(log.read(Filter::default(), Start::Since(7), true).err(), Some(CannotStart { newest: 6 }));
    assert_eq!(log.readers(), 0);
}

#[tokio::test]
async fn the_last_ones_are_the_last_that_match() {
    let log = log(10);
    publish(&log, 2);
    log.publish(None, None, None, phase(Phase::Running));
    publish(&log, 3);
    assert_eq!(replay_of(&log, phases(), Start::Last(1)).await, ["log 1-6", "3", "replayed 6"]);
}

fn phase(current: Phase) -> Body {
    Body::PhaseChanged { previous: Phase::Starting, current }
}

fn publish_rare(log: &EventLog, count: usize) {
    for _ in 0..count {
        log.publish(Some("deployment-controller"), None, None, phase(Phase::Running));
    }
}

fn phases() -> Filter {
    Filter { types: Some(bit(proto::EventType::PhaseChanged)), ..Filter::default() }
}

#[tokio::test]
async fn a_flood_of_reconciles_does_not_push_out_what_is_rare() {
    let log = log(8);
    publish_rare(&log, 1);
    publish(&log, 3);
    publish_rare(&log, 1);
    publish(&log, 10);
    let last = ["8", "9", "10", "11", "12", "13", "14", "15", "replayed 15"];
    let all = |first: &[&'static str]| [first, &last].concat();
    // From the beginning, what there is; `oldest` says from where on that is all.
    assert_eq!(replay(&log, Start::Since(0)).await, all(&["log 8-15", "1", "5"]));
    assert_eq!(replay(&log, Start::Last(9)).await, all(&["log 8-15", "5"]));
    assert_eq!(replay(&log, Start::Last(8)).await, all(&["log 8-15"]));
    assert_eq!(replay(&log, Start::Last(100)).await, all(&["log 8-15", "1", "5"]));
    // Who goes on is told of each gap.
    assert_eq!(replay(&log, Start::Since(1)).await, all(&["log 8-15", "dropped 2-4", "5", "dropped 6-7"]));
    assert_eq!(replay(&log, Start::Since(5)).await, all(&["log 8-15", "dropped 6-7"]));
    assert_eq!(replay(&log, Start::Since(6)).await, all(&["log 8-15", "dropped 7-7"]));
    // What a reader of rare events missed were none.
    assert_eq!(replay_of(&log, phases(), Start::Since(1)).await, ["log 8-15", "5", "replayed 15"]);
    assert_eq!(replay_of(&log, phases(), Start::Last(1)).await, ["log 8-15", "5", "replayed 15"]);
    // Rare ones have a bound, too: two, here.
    publish_rare(&log, 1);
    assert_eq!(replay_of(&log, phases(), Start::Since(0)).await, ["log 8-16", "5", "16", "replayed 16"]);
    publish_rare(&log, 2);
    assert_eq!(
        replay_of(&log, phases(), Start::Since(1)).await,
        ["log 17-18", "dropped 2-7", "dropped 16-16", "17", "18", "replayed 18"]
    );
    assert_eq!(
        replay(&log, Start::Since(15)).await,
        ["log 17-18", "dropped 16-16", "17", "18", "replayed 18"]
    );
}

struct Pump {
    _tasks: JoinSet<()>,
}

fn pump(log: &Arc<EventLog>) -> Pump {
    let mut tasks = JoinSet::new();
    let log = Arc::clone(log);
    tasks.spawn(async move { log.run().await });
    Pump { _tasks: tasks }
}

#[tokio::test(start_paused = true)]
async fn live_readers_are_woken() {
    let log = log(16);
    let _pump = pump(&log);
    let mut reader = log.read(Filter::default(), Start::Live, false).unwrap();
    assert_eq!(short(&reader.next().await.unwrap()), "log 1-0");
    assert_eq!(short(&reader.next().await.unwrap()), "replayed 0");
    for round in 0..3 {
        let waiting = async { reader.next().await.map(|item| short(&item)) };
        let publishing = async {
            tokio::task::yield_now().await;
            publish(&log, 1);
        };
        let (item, ()) = tokio::join!(waiting, publishing);
        assert_eq!(item, Some((round + 1).to_string()));
    }
    // Dropped while it waits, a call of next loses nothing.
    assert!(tokio::time::timeout(Duration::from_secs(1), reader.next()).await.is_err());
    publish(&log, 2);
    assert_eq!(short(&reader.next().await.unwrap()), "4");
    assert_eq!(short(&reader.next().await.unwrap()), "5");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_told_what_it_missed_and_a_fast_one_misses_nothing() {
    let log = log(8);
    let _pump = pump(&log);
    let mut slow = log.read(Filter::default(), Start::Live, false).unwrap();
    let mut fast = log.read(Filter::default(), Start::Live, false).unwrap();
    for reader in [&mut slow, &mut fast] {
        reader.next().await;
        reader.next().await;
    }
    for round in 0u64..5 {
        publish(&log, 4);
        for each in 1..=4 {
            assert_eq!(short(&fast.next().await.unwrap()), (round * 4 + each).to_string());
        }
    }
    assert_eq!(short(&slow.next().await.unwrap()), "dropped 1-12");
    assert_eq!(short(&slow.next().await.unwrap()), "13");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_readers_share_one_event_and_one_encoding() {
    let log = log(16);
    let _pump = pump(&log);
    let mut readers: Vec<_> =
        (0..1000).map(|_| log.read(Filter::default(), Start::Since(0), false).unwrap()).collect();
    publish(&log, 1);
    let mut encodings = Vec::new();
    for reader in &mut readers {
        loop {
            if let LogItem::Event(event) = reader.next().await.unwrap() {
                encodings.push(EncodedResponse::of_event(&event).bytes().as_ptr());
                break;
            }
        }
    }
    assert_eq!(encodings.len(), 1000);
    assert!(encodings.iter().all(|pointer| *pointer == encodings[0]));
    assert_eq!(log.readers(), 1000);
    drop(readers);
    assert_eq!(log.readers(), 0);
}

proptest! {
    /// However reading and publishing take turns, and whatever is rare: sequence numbers go up, and what is missing between
    /// them is exactly what the markers say.
    #[test]
    fn gaps_are_what_the_markers_say(
        capacity in 1usize..20,
        start in 0u64..3,
        turns in prop::collection::vec((0usize..40, 0usize..5, 0usize..30), 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let log = log(capacity);
            let _pump = pump(&log);
            publish(&log, 2);
            let mut reader = log.read(Filter::default(), Start::Since(start), false).unwrap();
            let mut expected = start + 1;
            if start == 0 {
                // From the oldest that there is.
                expected = 3 - 2.min(capacity as u64);
            }
            for (published, rare, read) in turns {
                publish(&log, published / 2);
                publish_rare(&log, rare);
                publish(&log, published / 2);
                for _ in 0..read {
                    let next = tokio::time::timeout(Duration::from_secs(1), reader.next()).await;
                    let Ok(item) = next else { break };
                    match item.unwrap() {
                        LogItem::Event(event) => {
                            assert_eq!(event.sequence, expected);
                            expected += 1;
                        }
                        LogItem::Dropped { first, last } => {
                            assert_eq!(first, expected);
                            assert!(last >= first);
                            expected = last + 1;
                        }
                        LogItem::Started { .. } | LogItem::ReplayFinished(_) => {}
                    }
                }
            }
        });
    }
}

fn object(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef { kind: Some(&DEPLOYMENTS), key: Key::new(namespace, name), uid: "u1".into() }
}

fn sample() -> Vec<Arc<LogEvent>> {
    let log = log(100);
    let action = || ActionState {
        verb: ActionVerb::Create,
        kind: &PODS,
        key: Key::new("shop", "web-1"),
        uid: "p1".into(),
        subresource: "",
        summary: "create pods shop/web-1".to_owned(),
        result: ActionResult::Done,
        code: None,
    };
    let attempt = ReconcileAttempt { queue: "deployment", number: 3, queue_wait: Duration::from_millis(5) };
    let duration = Duration::from_micros(1500);
    let entry = Entry {
        order: Order::Disabled,
        user: "jane".to_owned(),
        time: Timestamp::UNIX_EPOCH,
        reason: "a storm".to_owned(),
        until: None,
        version: 1,
        replica: String::new(),
        force: None,
    };
    let web = || Some(object("shop", "web"));
    let deployment = Some("deployment-controller");
    log.publish(deployment, web(), Some([0xab; 16]), Body::ReconcileStarted(attempt));
    log.publish(
        deployment,
        web(),
        None,
        Body::ReconcileFinished { attempt, duration, actions: vec![action(); 120] },
    );
    let error = "quota".to_owned();
    log.publish(
        deployment,
        web(),
        None,
        Body::ReconcileFailed { attempt, duration, actions: vec![], error, retry: true },
    );
    let (queue, cause, delay) = ("deployment", Requeue::Failure, Duration::from_secs(1));
    log.publish(deployment, web(), None, Body::ReconcileRequeued { queue, cause, delay });
    let write = ApiWrite {
        action: action(),
        code: 409,
        reason: "Conflict".into(),
        duration,
        resource_version: "".into(),
    };
    log.publish(deployment, Some(object("other", "web")), None, Body::ApiWrite(Box::new(write)));
    log.publish(Some("job-controller"), None, None, phase(Phase::Failed("no client".to_owned())));
    log.publish(
        None,
        None,
        None,
        Body::LeadershipChanged {
            lease: Key::new("kube-system", "kube-controller-manager"),
            previous: "a".into(),
            holder: "b".into(),
            leading: false,
            transitions: 4,
        },
    );
    let change = OverrideChange::Set;
    log.publish(
        Some("job-controller"),
        None,
        None,
        Body::OverrideChanged { change, entry: Some(entry), user: "jane".to_owned(), problem: String::new() },
    );
    let mut reader = log.read(Filter::default(), Start::Since(0), true).unwrap();
    let mut events = Vec::new();
    while let Some(Some(item)) = futures::FutureExt::now_or_never(reader.next()) {
        if let LogItem::Event(event) = item {
            events.push(event);
        }
    }
    events
}

#[test]
fn filters_let_through_what_was_asked_for() {
    let events = sample();
    let matching = |filter: Filter| -> Vec<u64> {
        events.iter().filter(|event| filter.matches(event)).map(|event| event.sequence).collect()
    };
    let all = Filter::default;
    assert_eq!(matching(all()), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(matching(Filter { controllers: Some(["job-controller"].into()), ..all() }), [6, 8]);
    assert_eq!(matching(Filter { controllers: Some([].into()), ..all() }), [0u64; 0]);
    let in_other = Filter { namespaces: Some(["other".to_owned()].into()), ..all() };
    assert_eq!(matching(in_other), [5]);
    // The key of a migration of storage versions has an API group where others have a namespace.
    let of_group = ObjectRef { kind: None, key: Key::new("apps", "deployments"), uid: "u2".into() };
    let log = log(4);
    log.publish(Some("storage-version-migrator-controller"), Some(of_group), None, started());
    let in_apps = Filter { namespaces: Some(["apps".to_owned()].into()), ..all() };
    let mut reader = log.read(all(), Start::Since(0), true).unwrap();
    let mut published = 0;
    while let Some(Some(item)) = futures::FutureExt::now_or_never(reader.next()) {
        if let LogItem::Event(event) = item {
            published += 1;
            assert!(!in_apps.matches(&event));
        }
    }
    assert_eq!(published, 1);
    assert_eq!(matching(Filter { min_severity: Some(Severity::Warning), ..all() }), [3, 4, 5, 6]);
    assert_eq!(matching(Filter { min_severity: Some(Severity::Error), ..all() }), [6]);
    let types = bit(proto::EventType::ApiWrite) | bit(proto::EventType::LeadershipChanged);
    assert_eq!(matching(Filter { types: Some(types), ..all() }), [5, 7]);
    let reference = |resource: &str, namespace: &str, name: &str| proto::ObjectReference {
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: String::new(),
    };
    let objects = |reference| Filter { objects: vec![reference], ..all() };
    assert_eq!(matching(objects(reference("deployments.apps", "shop", "web"))), [1, 2, 3, 4]);
    assert_eq!(matching(objects(reference("", "", "web"))), [1, 2, 3, 4, 5]);
    assert_eq!(matching(objects(reference("pods", "", ""))), [0u64; 0]);
}

#[test]
fn what_is_sent_is_what_a_client_reads() {
    let events = sample();
    let read: Vec<proto::Event> = events
        .iter()
        .map(|event| {
            let sent = EncodedResponse::of_event(event).encode_to_vec();
            assert_eq!(EncodedResponse::decode(sent.as_slice()).unwrap(), EncodedResponse::of_event(event));
            match proto::StreamEventsResponse::decode(sent.as_slice()).unwrap().item {
                Some(proto::stream_events_response::Item::Event(event)) => event,
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let messages: Vec<_> = read.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "started, attempt 3",
            "120 steps (1.5ms)",
            "failed: quota",
            "retry in 1.0s after a failure",
            "create pods shop/web-1: 409 Conflict",
            "STARTING → FAILED: no client",
            "b holds kube-system/kube-controller-manager",
            "disabled by jane: a storm",
        ]
    );
    assert_eq!(read[0].trace_id, "ab".repeat(16));
    assert_eq!(read[0].severity(), proto::Severity::Debug);
    assert_eq!(read[5].severity(), proto::Severity::Error);
    assert_eq!(read[0].object.as_ref().unwrap().resource, "deployments.apps");
    let Some(proto::event::Details::ReconcileFinished(finished)) = &read[1].details else {
        panic!("{:?}", read[1])
    };
    assert_eq!((finished.actions.len(), finished.actions_omitted, finished.attempt), (100, 20, 3));
    let Some(proto::event::Details::OverrideChanged(changed)) = &read[7].details else {
        panic!("{:?}", read[7])
    };
    assert!(!changed.r#override.as_ref().unwrap().enabled);
}

#[test]
fn publishing_waits_for_no_reader_s_filter() {
    let (done, finished) = std::sync::mpsc::sync_channel(1);
    let test = std::thread::Builder::new();
    #[expect(clippy::disallowed_methods, reason = "a filter under the lock would never come back")]
    let test = test.spawn(move || {
        let log = log(8);
        publish(&log, 3);
        let mut seen = 0;
        let position = log.position(Start::Last(2), &mut |_| {
            seen += 1;
            publish(&log, 1);
            true
        });
        assert!(position.is_ok());
        done.send(seen).unwrap();
    });
    assert_eq!(finished.recv_timeout(Duration::from_secs(30)), Ok(2), "the filter runs under the lock");
    test.unwrap().join().unwrap();
}
