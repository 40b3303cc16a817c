//! Overrides: what is read, what is not, and what it makes of the flags.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::set::edits;
use super::*;
use coxswain_machinery::api::coordination::Lease;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::client::{ApiClient, BoxError, HttpService};
use coxswain_machinery::wire::splice::{Edit, edit, put_bytes};
use coxswain_machinery::wire::{Message, wrap_envelope};

const ON: FlagSelection = FlagSelection { enabled: true, named: false, fixed: false };
const OFF: FlagSelection = FlagSelection { enabled: false, named: true, fixed: false };

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn entry(order: Order, until: Option<Timestamp>, version: u64) -> Entry {
    let (user, reason, replica) = ("jane".to_owned(), "a storm".to_owned(), "node-a_1".to_owned());
    Entry { order, user, time: at(0), reason, until, version, replica, force: None }
}

fn known(name: &str) -> bool {
    name.ends_with("-controller")
}

fn set_of(entries: &[(&str, Entry)]) -> OverrideSet {
    let changes: Vec<_> = entries.iter().map(|(name, entry)| ((*name).to_owned(), entry.clone())).collect();
    OverrideSet::default().with(&changes)
}

#[test]
fn an_entry_survives_its_annotation() {
    for entry in [
        entry(Order::Disabled, Some(at(1800)), 7),
        entry(Order::Enabled, None, u64::MAX),
        Entry { reason: String::new(), user: "système:\"ü\"".to_owned(), ..entry(Order::Default, None, 1) },
    ] {
        assert_eq!(Entry::parse(&entry.to_value().unwrap()), Ok(entry));
    }
}

#[test]
fn what_is_edited_by_hand_needs_little() {
    let by_hand = Entry::parse(r#"{"desired":"disabled","time":"2026-11-21T12:00:00Z"}"#).unwrap();
    assert_eq!((by_hand.order, by_hand.version, by_hand.until), (Order::Disabled, 0, None));
    assert_eq!(by_hand.replica, "", "no replica wrote it");
    let newer = r#"{"desired":"enabled","time":"2026-11-21T12:00:00Z","scope":{"namespaces":["a"]}}"#;
    assert_eq!(Entry::parse(newer).unwrap().order, Order::Enabled);
}

#[test]
fn what_can_not_be_read_is_reported_and_has_no_effect() {
    let long = "x".repeat(MAX_REASON_BYTES + 1);
    let cases = [
        ("", "parse the override"),
        ("disabled", "parse the override"),
        ("{}", "missing field `desired`"),
        (r#"{"desired":"off","time":"2026-11-21T12:00:00Z"}"#, "unknown variant `off`"),
        (r#"{"desired":"disabled","time":"yesterday"}"#, r#"time "yesterday": expected an RFC 3339 time"#),
        (r#"{"desired":"disabled","time":"2026-11-21T12:00:00Z","until":"soon"}"#, r#"until "soon""#),
        (r#"{"desired":"disabled","time":"2026-11-21T12:00:00Z","version":-1}"#, "parse the override"),
        (
            &format!(r#"{{"desired":"disabled","time":"2026-11-21T12:00:00Z","reason":"{long}"}}"#),
            "reason: 1025 bytes",
        ),
        (&" ".repeat(20_000), "20000 bytes"),
    ];
    for (value, complaint) in cases {
        let key = format!("{ANNOTATION_PREFIX}deployment-controller");
        let set = OverrideSet::parse([(key.as_str(), value)], &known);
        let problem = set.problem_of("deployment-controller").unwrap_or_default();
        assert!(problem.contains(complaint), "{value:.40}: {problem}");
        for flags in [ON, OFF] {
            let desired = set.desired("deployment-controller", flags, at(0));
            assert_eq!((desired.enabled, desired.entry), (flags.enabled, None));
        }
        assert_eq!(set.version("deployment-controller"), "invalid");
    }
}

#[test]
fn unknown_names_are_reported_and_foreign_annotations_are_not() {
    let value = entry(Order::Disabled, None, 1).to_value().unwrap();
    let set = OverrideSet::parse(
        [("overrides.coxswain.dev/deployment", value.as_str()), ("kubectl.kubernetes.io/x", "y")],
        &known,
    );
    assert_eq!(set.entries().count(), 0);
    assert_eq!(set.problems().len(), 1);
    assert_eq!(set.problems()[0].key, "overrides.coxswain.dev/deployment");
    assert!(
        set.problems()[0].message.contains("controller \"deployment\" does not exist"),
        "{:?}",
        set.problems()
    );
}

#[test]
fn overrides_for_controllers_of_a_newer_version_are_kept_and_are_no_problem() {
    let order = entry(Order::Disabled, None, 9);
    let by_hand = Entry { replica: String::new(), ..order.clone() };
    let [order_text, hand_text] = [&order, &by_hand].map(|entry| entry.to_value().unwrap());
    let newer = order_text.replace('}', r#","scope":{"namespaces":["a"]}}"#);
    let known = |name: &str| name == "job-controller";
    let key = |name: &str| format!("{ANNOTATION_PREFIX}{name}");
    let parse = |name: &str, value: &str| OverrideSet::parse([(key(name).as_str(), value)], &known);
    for value in [&order_text, &newer] {
        let set = parse("later-controller", value);
        assert_eq!(set.unknown().collect::<Vec<_>>(), [("later-controller", &order)]);
        assert_eq!((set.problems().len(), set.entries().count(), set.next_version()), (0, 0, 10));
    }
    for (name, value) in [
        ("later-controller", hand_text.as_str()),
        ("job", order_text.as_str()),
        ("later-controller", "rubbish"),
    ] {
        let set = parse(name, value);
        assert_eq!((set.problems().len(), set.unknown().count()), (1, 0), "{name} {value}");
    }
}

#[test]
fn overrides_outrank_flags_as_long_as_they_last() {
    let set = set_of(&[
        ("a-controller", entry(Order::Disabled, Some(at(60)), 1)),
        ("b-controller", entry(Order::Enabled, None, 2)),
        ("c-controller", entry(Order::Default, None, 3)),
    ]);
    let desired = |name, flags, now| {
        let desired = set.desired(name, flags, now);
        (desired.enabled, desired.source)
    };
    assert_eq!(desired("a-controller", ON, at(59)), (false, DecidedBy::Override));
    assert_eq!(desired("a-controller", ON, at(60)), (true, DecidedBy::Default));
    assert_eq!(desired("a-controller", OFF, at(60)), (false, DecidedBy::Flag));
    assert_eq!(desired("b-controller", OFF, at(1_000_000)), (true, DecidedBy::Override));
    assert_eq!(desired("c-controller", OFF, at(0)), (false, DecidedBy::Flag));
    assert_eq!(desired("d-controller", ON, at(0)), (true, DecidedBy::Default));
}

#[test]
fn the_next_expiry_is_when_something_changes() {
    let set = set_of(&[
        ("a-controller", entry(Order::Disabled, Some(at(60)), 1)),
        ("b-controller", entry(Order::Disabled, Some(at(30)), 2)),
        ("c-controller", entry(Order::Default, Some(at(10)), 3)),
        ("d-controller", entry(Order::Enabled, None, 4)),
    ]);
    assert_eq!(set.next_expiry(at(0)), Some(at(30)));
    assert_eq!(set.next_expiry(at(30)), Some(at(60)));
    assert_eq!(set.next_expiry(at(60)), None);
    let expired: Vec<_> = set.expired(at(0), at(30)).map(|(name, _)| name).collect();
    assert_eq!(expired, ["b-controller"]);
    assert_eq!(set.expired(at(30), at(59)).count(), 0);
}

#[test]
fn versions_grow_over_all_controllers_and_survive_withdrawal() {
    let set = set_of(&[
        ("a-controller", entry(Order::Disabled, None, 4)),
        ("b-controller", entry(Order::Default, None, 9)),
    ]);
    assert_eq!((set.version("a-controller"), set.version("b-controller")), ("4".into(), "9".into()));
    assert_eq!(set.version("c-controller"), "0");
    assert_eq!(set.next_version(), 10);
}

/// A stored Lease with a field that we don't know.
fn stored(changes: &[(String, Entry)], version: &str) -> Bytes {
    let metadata = ObjectMeta {
        name: LEASE_NAME.into(),
        namespace: LEASE_NAMESPACE.into(),
        resource_version: version.into(),
        uid: "u".into(),
        ..ObjectMeta::default()
    };
    let mut lease = Lease { metadata, ..Lease::default() }.to_bytes();
    put_bytes(&mut lease, 900, b"from the future");
    let mut all = edits(changes).unwrap();
    all.push(Edit::MapSet(&[1, 12], "note".to_owned(), "keep me".to_owned()));
    edit(&lease, &all).unwrap().into()
}

type Asked = Arc<Mutex<Vec<Request<Bytes>>>>;

/// An API server that answers by `answer`, and what it was asked.
fn server(
    answer: impl Fn(&Request<Bytes>) -> (u16, Vec<u8>) + Clone + Send + Sync + 'static,
) -> (HttpService, Asked) {
    let asked = Asked::default();
    let kept = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let (answer, kept) = (answer.clone(), Arc::clone(&kept));
        async move {
            let (parts, body) = request.into_parts();
            let request = Request::from_parts(parts, body.collect().await?.to_bytes());
            let (code, body) = answer(&request);
            kept.lock().push(request);
            let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    (HttpService::new(service), asked)
}

fn store(service: HttpService) -> OverrideStore {
    OverrideStore::new(ApiClient::new(service, "test"), Arc::new(known))
}

fn lease_answer(lease: &[u8]) -> Vec<u8> {
    wrap_envelope("coordination.k8s.io/v1", "Lease", lease)
}

#[tokio::test]
async fn a_write_keeps_all_else_and_carries_the_version_that_was_read() {
    let disabled = entry(Order::Disabled, None, 1);
    let first = stored(&[("a-controller".to_owned(), disabled.clone())], "41");
    let answer = lease_answer(&first);
    // A write is answered with what it wrote.
    let (service, asked) = server(move |request| {
        (200, if request.method() == Method::PUT { request.body().to_vec() } else { answer.clone() })
    });
    let store = store(service);
    let held = store.read().await.unwrap();
    assert_eq!(held.set.entry("a-controller"), Some(&disabled));

    // Characters by which texts of the API stand for bytes: such a user is not written as another one.
    let user = "ren\u{10ffc3}\u{10ffa9}";
    let entry = Entry { user: user.to_owned(), ..entry(Order::Enabled, Some(at(5)), 2) };
    let change = ("b-controller".to_owned(), entry);
    let written = store.write(&held, std::slice::from_ref(&change)).await.unwrap();
    assert_eq!(written.set, held.set.with(std::slice::from_ref(&change)));

    let asked = asked.lock();
    let put = asked.last().unwrap();
    assert_eq!(put.method(), Method::PUT);
    assert!(put.uri().path().ends_with("/namespaces/kube-system/leases/coxswain-overrides"), "{}", put.uri());
    let object = coxswain_machinery::wire::unwrap_envelope(put.body()).unwrap();
    assert!(object.windows(15).any(|window| window == b"from the future"));
    assert!(object.windows(user.len()).any(|window| window == user.as_bytes()));
    let lease = Lease::decode(&object).unwrap();
    assert_eq!(lease.metadata.resource_version, "41");
    assert_eq!(lease.metadata.annotations.get("note").unwrap(), "keep me");
    assert_eq!(lease.metadata.annotations.len(), 3);
}

#[tokio::test]
async fn the_first_override_creates_the_lease() {
    let (service, asked) = server(|request| match *request.method() {
        Method::POST => (201, request.body().to_vec()),
        _ => (
            404,
            br#"{"kind":"Status","reason":"NotFound","code":404,"details":{"name":"coxswain-overrides"}}"#
                .to_vec(),
        ),
    });
    let store = store(service);
    let held = store.read().await.unwrap();
    assert!(held.raw.is_empty());
    let change = ("a-controller".to_owned(), entry(Order::Disabled, None, 1));
    let written = store.write(&held, std::slice::from_ref(&change)).await.unwrap();
    assert_eq!(written.set.entry("a-controller"), Some(&change.1));
    assert_eq!(
        asked.lock().last().unwrap().uri().path(),
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    );
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let cases = [
        (409, "Conflict", "Conflict"),
        (409, "AlreadyExists", "Conflict"),
        (404, "NotFound", "Conflict"),
        (403, "Forbidden", "Unavailable"),
        (504, "Timeout", "Unknown"),
        (500, "InternalError", "Unknown"),
    ];
    for (code, reason, expected) in cases {
        let body = format!(r#"{{"kind":"Status","reason":"{reason}","code":{code},"message":"no"}}"#);
        let (service, _) = server(move |_| (code, body.clone().into_bytes()));
        let change = ("a-controller".to_owned(), entry(Order::Disabled, None, 1));
        let error = store(service).write(&HeldOverrides::default(), &[change]).await.unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{reason}: {error:?}");
    }
}

proptest! {
    /// Whatever stands in the Lease, nothing panics, and what is not an override leaves the flags alone.
    #[test]
    fn arbitrary_annotations_never_panic(value in ".*", enabled: bool, now in 0i64..1_000_000) {
        let key = format!("{ANNOTATION_PREFIX}a-controller");
        let set = OverrideSet::parse([(key.as_str(), value.as_str())], &known);
        let desired = set.desired("a-controller", FlagSelection { enabled, named: false, fixed: false }, at(now));
        if set.entry("a-controller").is_none() {
            prop_assert_eq!(desired.enabled, enabled);
            prop_assert_eq!(set.problems().len(), 1);
        }
    }

    /// Between two expiries nothing changes.
    #[test]
    fn desired_is_constant_up_to_the_next_expiry(
        ends in prop::collection::vec(prop::option::of(0i64..100), 1..5),
        now in 0i64..100,
        later in 0i64..100,
    ) {
        let changes: Vec<_> = ends.iter().enumerate().map(|(index, end)| {
            let until = end.map(at);
            (format!("{index}-controller"), entry(Order::Disabled, until, index as u64 + 1))
        }).collect();
        let set = OverrideSet::default().with(&changes);
        let (now, later) = (at(now), at(later));
        let quiet = later >= now && set.next_expiry(now).is_none_or(|expiry| later < expiry);
        if quiet {
            for (name, _) in &changes {
                prop_assert_eq!(set.desired(name, ON, now), set.desired(name, ON, later));
            }
            prop_assert_eq!(set.expired(now, later).count(), 0);
        }
    }
}

#[test]
fn every_annotation_key_is_one_that_kubernetes_takes() {
    // Name part of a qualified name: at most 63 characters.
    let longest = "kube-apiserver-serving-clustertrustbundle-publisher-controller";
    assert!(longest.len() <= 63);
}

#[test]
fn an_entry_that_became_unreadable_holds_on() {
    let known = |name: &str| name.ends_with("-controller");
    let good = r#"{"desired":"disabled","user":"jane","time":"2026-01-01T00:00:00Z","version":3}"#;
    let key = format!("{ANNOTATION_PREFIX}deployment-controller");
    let before = OverrideSet::parse([(key.as_str(), good)], &known);
    let after = OverrideSet::parse([(key.as_str(), "{ slip")], &known).keeping(&before);
    assert_eq!(after.entry("deployment-controller"), before.entry("deployment-controller"));
    assert!(after.problem_of("deployment-controller").is_some(), "it is reported all the same");
    assert_eq!(OverrideSet::parse([], &known).keeping(&before), OverrideSet::default(), "removal is no slip");
}

#[test]
fn what_no_replica_did_is_told_once() {
    let told = |before: &OverrideSet, after: &OverrideSet| -> Vec<String> {
        by_hand(before, after, at(60)).into_iter().map(|edit| edit.message).collect()
    };
    let nothing = OverrideSet::default();
    let ours = set_of(&[("a-controller", entry(Order::Disabled, None, 1))]);
    assert!(told(&nothing, &ours).is_empty());
    let hand = |order| Entry { replica: String::new(), ..entry(order, None, 2) };
    let edited = set_of(&[("a-controller", hand(Order::Enabled)), ("b-controller", hand(Order::Disabled))]);
    let said = [
        "the override of a-controller was edited outside the admin API: enabled, user \"jane\"",
        "the override of b-controller was edited outside the admin API: disabled, user \"jane\"",
    ];
    assert_eq!(told(&ours, &edited), said);
    assert!(told(&edited, &edited).is_empty());
    // Withdrawn by hand, or taken out; what orders nothing, and did not, is nobody's business.
    let withdrawn = set_of(&[("a-controller", hand(Order::Default))]);
    assert!(told(&edited, &withdrawn)[0].contains("reset to the state that the flags select"));
    assert_eq!(
        told(&edited, &withdrawn)[1],
        "the override of b-controller was removed outside the admin API"
    );
    assert!(told(&nothing, &withdrawn).is_empty());
    let over = set_of(&[("a-controller", Entry { until: Some(at(50)), ..hand(Order::Disabled) })]);
    assert!(told(&nothing, &over).is_empty(), "its time was over before it was seen");
    // What can't be read was written by hand, too.
    let key = format!("{ANNOTATION_PREFIX}a-controller");
    let rubbish = OverrideSet::parse([(key.as_str(), "rubbish")], &known).keeping(&ours);
    let found = told(&ours, &rubbish);
    assert!(found.len() == 1 && found[0].contains("has no effect"), "{found:?}");
}

#[test]
fn disable_only_makes_the_selection_hard() {
    let fixed = FlagSelection { fixed: true, ..OFF };
    for force in [None, Some(false), Some(true)] {
        let enabled = Entry { force, ..entry(Order::Enabled, None, 1) };
        let set = set_of(&[("a-controller", enabled)]);
        assert!(!set.desired("a-controller", fixed, at(0)).enabled, "{force:?}");
        assert!(set.ineffective("a-controller", fixed, at(0)).is_some());
        assert!(set.desired("a-controller", FlagSelection { fixed: true, ..ON }, at(0)).enabled);
    }
    let set = set_of(&[("a-controller", entry(Order::Disabled, None, 1))]);
    assert!(!set.desired("a-controller", FlagSelection { fixed: true, ..ON }, at(0)).enabled);
}

/// An entry as an older version reads it, which skips fields that it does not know.
#[derive(serde::Deserialize)]
struct Older {
    desired: Order,
    time: String,
    version: u64,
}

#[test]
fn entries_of_older_and_newer_versions_are_read_in_both_directions() {
    // As the version before `force` wrote it: it outranks the flags.
    let older =
        r#"{"desired":"enabled","user":"jane","time":"2026-11-21T12:00:00Z","version":3,"replica":"a"}"#;
    let read = Entry::parse(older).unwrap();
    assert_eq!((read.order, read.force, read.outranks_flags()), (Order::Enabled, None, true));
    assert_eq!(read.to_value().unwrap(), older, "and is written as it was");
    for (order, force, older) in [
        (Order::Enabled, true, Order::Enabled),
        // Without force the flags hold, there too.
        (Order::Enabled, false, Order::Default),
        (Order::Disabled, true, Order::Disabled),
        (Order::Disabled, false, Order::Disabled),
    ] {
        let newer = Entry { force: Some(force), ..entry(order, Some(at(60)), 4) };
        let value = newer.to_value().unwrap();
        assert_eq!(Entry::parse(&value), Ok(newer));
        let read: Older = serde_json::from_str(&value).unwrap();
        assert_eq!((read.desired, read.version), (older, 4));
        assert!(read.time.parse::<Timestamp>().is_ok());
    }
}

#[test]
fn overrides_older_than_each_running_replica_are_inherited() {
    let later = |seconds: i64| Entry { time: at(seconds), ..entry(Order::Enabled, None, 2) };
    let set = set_of(&[
        ("a-controller", entry(Order::Disabled, None, 1)),
        ("b-controller", later(50)),
        ("c-controller", entry(Order::Default, None, 3)),
        ("d-controller", entry(Order::Disabled, Some(at(60)), 4)),
    ]);
    assert_eq!(inherited(&set, [at(-1), at(100)], at(70)), None, "a replica has run since before");
    let told = inherited(&set, [at(40), at(100)], at(70)).unwrap();
    assert!(told.contains("a-controller (disabled by \"jane\""), "{told}");
    assert!(["b-", "c-", "d-"].iter().all(|other| !told.contains(other)), "{told}");
    assert!(inherited(&set, [at(51)], at(70)).unwrap().contains("b-controller (enabled"));
    assert_eq!(inherited(&OverrideSet::default(), [at(0)], at(70)), None);
}
