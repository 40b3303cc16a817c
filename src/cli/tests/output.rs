//! How answers look.

use std::slice;

use prost_types::Duration;

use super::{now, time};
use crate::admin::proto::event::Details;
use crate::admin::proto::stream_events_response::Item;
use crate::admin::proto::*;
use crate::cli::output::events::EventLines;
use crate::cli::output::table::{Columns, cells};
use crate::cli::output::{Format, Palette, controllers, leader, objects, queues, sync};

fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "default".into(), name: name.into() }
}

/// Switched off for a while, and with something to say in every field.
fn controller() -> Controller {
    Controller {
        name: "deployment-controller".into(),
        aliases: vec!["deployment".into()],
        description: "Rolls out.".into(),
        required_feature_gates: vec![FeatureGate { name: "Gate".into(), enabled: true }],
        enabled_by_default: true,
        cloud_provider: false,
        special_handling: true,
        critical: true,
        desired: Some(DesiredState {
            enabled: false,
            source: DesiredSource::Override as i32,
            r#override: Some(Override {
                enabled: false,
                user: "jane".into(),
                create_time: Some(time(-192)),
                reason: "maintenance".into(),
                expire_time: Some(time(1608)),
                force: true,
            }),
            enabled_without_override: true,
            invalid_override: String::new(),
            ineffective_override: String::new(),
        }),
        phase: Phase::Stopping as i32,
        phase_time: Some(time(-5)),
        health: Health::Inactive as i32,
        service_account: "kube-system/deployment-controller".into(),
        watched_resources: vec![
            WatchedResource {
                resource: "deployments.apps".into(),
                cached_objects: 12,
                synced: true,
                ..Default::default()
            },
            WatchedResource {
                resource: "pods".into(),
                field_selector: "status.phase!=Failed".into(),
                cached_objects: 300,
                synced: false,
            },
        ],
        workers: 5,
        queue_depth: 2,
        oldest_queued_age: Some(seconds(1)),
        syncs: 1234,
        errors: 3,
        last_error: Some(ReconcileError {
            object: Some(key("web")),
            message: "quota\u{1b}".into(),
            time: Some(time(-60)),
        }),
        restarts: 1,
        version: "7".into(),
        ..Controller::default()
    }
}

fn rows(format: Format) -> String {
    let mut plain = controller();
    (plain.name, plain.phase) = ("a".into(), 99);
    plain.desired = None;
    let row = |controller: &Controller| cells(controllers::row(controller, format, now()));
    Columns::default().lines(&[cells(controllers::headings(format)), row(&controller()), row(&plain)])
}

#[test]
fn controllers_in_a_table() {
    let expected = "\
NAME                    DESIRED    SOURCE                PHASE         HEALTH     QUEUED   SYNCS   ERRORS   AGE
deployment-controller   disabled   override (26m left)   Stopping      Inactive   2        1234    3        5s
a                       disabled   <none>                Unknown(99)   Inactive   2        1234    3        5s
";
    assert_eq!(rows(Format::Table), expected);
    let wide = rows(Format::Wide);
    let line = "5         1s       312      1          kube-system/deployment-controller   maintenance";
    assert!(wide.lines().nth(1).unwrap().ends_with(line), "{wide}");
    assert!(wide.lines().nth(2).unwrap().ends_with("<none>"), "{wide}");
}

#[test]
fn a_controller_in_full() {
    let expected = "\
Name:                deployment-controller
Aliases:             deployment
Description:         Rolls out.
Enabled by default:  yes
Special handling:    started before the other controllers
Critical:            disabling it for more than 1h or without --for requires --force
Feature gates:       Gate (on)
Desired:             disabled by override
Override:
  By:                jane
  Set:               2027-01-15T07:56:48Z (3m12s ago)
  Reason:            maintenance
  Ends:              2027-01-15T08:26:48Z (in 26m)
  Force:             yes
  Without override:  enabled
Phase:               Stopping
Since:               2027-01-15T07:59:55Z (5s ago)
Health:              Inactive
Restarts:            1
Service account:     kube-system/deployment-controller
Workers:             5
Queued:              2
Oldest queued:       1s
Syncs:               1234
Errors:              3
Last error:
  Object:            default/web
  Message:           quota\\u{1b}
  Time:              2027-01-15T07:59:00Z (60s ago)
Watched resources:
  RESOURCE           CACHED   SYNCED   SELECTOR
  deployments.apps   12       yes      <none>
  pods               300      no       status.phase!=Failed
Version:             7
";
    assert_eq!(controllers::sheet(&controller(), now()), expected);
}

#[test]
fn what_was_done_in_a_line() {
    let until = "deployment-controller disabled until 2027-01-15T08:26:48Z (26m)";
    assert_eq!(controllers::toggled(&controller(), true, false, now()), format!("{until}\n"));
    assert_eq!(
        controllers::toggled(&controller(), false, true, now()),
        format!("{until}, unchanged (dry run)\n")
    );
    let mut endless = controller();
    endless.desired.as_mut().unwrap().r#override.as_mut().unwrap().expire_time = None;
    let line = controllers::toggled(&endless, true, false, now());
    assert_eq!(line, "deployment-controller disabled until changed\n");
}

fn event() -> Event {
    let object = ObjectReference {
        resource: "deployments.apps".into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: String::new(),
    };
    Event {
        sequence: 42,
        time: Some(prost_types::Timestamp { nanos: 120_000_000, ..time(0) }),
        r#type: EventType::ReconcileFailed as i32,
        severity: Severity::Warning as i32,
        controller: "deployment-controller".into(),
        object: Some(object),
        message: "failed: no\u{1b}[31m".into(),
        trace_id: "00000000000000000000000000000001".into(),
        details: Some(Details::ReconcileFailed(ReconcileFailed {
            queue: "deployment".into(),
            attempt: 2,
            duration: Some(Duration { seconds: 0, nanos: 1_500_000 }),
            retry: true,
            ..Default::default()
        })),
    }
}

#[test]
fn events_in_lines() {
    let mut lines = EventLines::new(Format::Table, Palette::default());
    let line = "2027-01-15T08:00:00.120Z   WARNING   reconcile-failed   deployment-controller   \
                deployments.apps default/web   failed: no\\u{1b}[31m\n";
    assert_eq!(lines.event(&event()), line);
    let bare = Event {
        severity: Severity::Info as i32,
        r#type: EventType::LeadershipChanged as i32,
        ..Event::default()
    };
    assert!(
        lines.event(&bare).starts_with("<none>                     INFO      leadership-changed   <none>  ")
    );
    let dropped = EventsDropped { count: 3, first_sequence: 4, last_sequence: 6 };
    assert_eq!(lines.dropped(&dropped), "-- 3 events lost: 4 to 6 --\n");

    let mut wide = EventLines::new(Format::Wide, Palette::default());
    let shown = wide.event(&event());
    assert!(
        shown.starts_with("42       2027-") && shown.ends_with("   00000000000000000000000000000001\n"),
        "{shown}"
    );

    let mut colored = EventLines::new(Format::Table, Palette { colored: true });
    let shown = colored.event(&event());
    assert!(shown.contains("\u{1b}[33mWARNING\u{1b}[0m   reconcile-failed"), "{shown:?}");
    assert!(!shown.contains("\u{1b}[31m"), "only our own colors: {shown:?}");
}

#[test]
fn leadership_and_queues() {
    let held = Leader {
        holder_identity: "a".into(),
        transitions: 3,
        acquire_time: Some(time(-50)),
        ..Default::default()
    };
    let replicas = [Replica { live: true, ..Default::default() }, Replica::default()];
    assert_eq!(leader::row(&held, &replicas, now()), ["a", "<none>", "3", "50s", "<none>", "1/2 live"]);
    let off = leader::sheet(&GetLeaderResponse::default(), now());
    assert_eq!(off, "Lease:        leader election is off\nAnswered by:  <none>\n");
    let missing = Leader { lease_policy: LeasePolicy::Missing.into(), ..held };
    let shown = leader::sheet(&GetLeaderResponse { leader: Some(missing), ..Default::default() }, now());
    assert!(shown.contains("\nLease policy:  not installed; any account that can write Leases"), "{shown}");
    let overrides = Some(OverridesInForce { count: 2, oldest_time: Some(time(-60)) });
    let shown = leader::sheet(&GetLeaderResponse { overrides, ..Default::default() }, now());
    assert!(shown.contains("Overrides:    2 active, the oldest set "), "{shown}");

    let queue = Queue {
        name: "q".into(),
        controller: "c".into(),
        depth: 1,
        waiting: 2,
        oldest_queued_age: Some(seconds(9)),
        ..Default::default()
    };
    let expected = "\
NAME   CONTROLLER   RESOURCE   DEPTH   IN-FLIGHT   DELAYED   WAITING   FAILING   OLDEST   SYNCS   ERRORS
q      c            <none>     1       0           0         2         0         9s       0       0
";
    assert_eq!(queues::list(slice::from_ref(&queue), Format::Table), expected);
    let reason = "waiting for the cache of pods".to_owned();
    let waiting = WaitingKey { object: Some(key("web")), age: Some(seconds(7)), reason };
    let answer = GetQueueResponse { queue: Some(queue), waiting_keys: vec![waiting], ..Default::default() };
    let shown = queues::sheet(&answer, now());
    assert!(shown.contains("Waiting for a cache:  2\n"), "{shown}");
    assert!(shown.contains("default/web   7s    waiting for the cache of pods\n"), "{shown}");
}

#[test]
fn a_sync_that_failed_says_why() {
    let request =
        SyncObjectRequest { controller: "c".into(), object: Some(key("web")), ..Default::default() };
    let step = |summary: &str, result: ActionResult, error: &str| Action {
        summary: summary.into(),
        result: result as i32,
        error: error.into(),
        ..Action::default()
    };
    let answer = SyncObjectResponse {
        outcome: SyncOutcome::Retrying as i32,
        actions: vec![
            step("create pods default/a", ActionResult::Done, ""),
            step("create pods default/b", ActionResult::Failed, "quota"),
        ],
        message: "quota".into(),
        duration: Some(Duration { seconds: 0, nanos: 2_000_000 }),
        queue: "q".into(),
        ..Default::default()
    };
    let expected = "\
Object:      default/web
Controller:  c
Queue:       q
Outcome:     retrying
Message:     quota
Took:        2ms
Steps:
  STEP                    RESULT   ERROR
  create pods default/a   Done
  create pods default/b   Failed   quota
";
    assert_eq!(sync::sheet(&request, &answer), expected);
    let none = sync::sheet(&request, &SyncObjectResponse::default());
    assert!(none.ends_with("Steps:       none: nothing to do\n"), "{none}");
}

#[test]
fn messages_as_json_and_yaml() {
    let item = StreamEventsResponse { item: Some(Item::Event(event())) };
    let expected = concat!(
        r#"{"event":{"sequence":42,"time":"2027-01-15T08:00:00.120Z","type":"EVENT_TYPE_RECONCILE_FAILED","#,
        r#""severity":"SEVERITY_WARNING","controller":"deployment-controller","object":{"resource":"deployments.apps","#,
        r#""namespace":"default","name":"web","uid":""},"message":"failed: no\u001b[31m","#,
        r#""traceId":"00000000000000000000000000000001","reconcileFailed":{"queue":"deployment","attempt":2,"#,
        r#""duration":"0.001500s","actions":[],"actionsOmitted":0,"error":"","retry":true}}}"#,
        "\n"
    );
    let line = objects::item(Format::Json, "StreamEventsResponse", &item).unwrap();
    assert_eq!(line, expected);
    let dropped = StreamEventsResponse {
        item: Some(Item::Dropped(EventsDropped { count: 1, first_sequence: 2, last_sequence: 2 })),
    };
    let yaml = objects::item(Format::Yaml, "StreamEventsResponse", &dropped).unwrap();
    assert_eq!(yaml, "---\ndropped:\n  count: 1\n  firstSequence: 2\n  lastSequence: 2\n");

    let value = objects::value("Controller", &controller()).unwrap();
    let shown = value.as_object().unwrap();
    // Every field but those that are absent, which only messages can be: all 24 are set here.
    assert_eq!(shown.len(), 24, "{shown:?}");
    assert_eq!(value["desired"]["override"]["expireTime"], "2027-01-15T08:26:48Z");
    assert_eq!(value["syncs"], 1234);
    assert_eq!(value["phase"], "PHASE_STOPPING");
    assert_eq!(objects::value("Controller", &controller()).unwrap().to_string(), value.to_string());
}
