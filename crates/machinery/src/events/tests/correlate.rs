//! Tables and properties of the correlator.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::api::core::ObjectReference;
use crate::api::events::{Event, EventSource};
use crate::api::meta::ObjectMeta;
use crate::events::correlator::{Correlator, MEMORY};
use crate::random::{HashMap, HashSet};
use crate::wire::Time;

fn correlator() -> Correlator {
    Correlator::new("replicaset-controller".into())
}

#[test]
fn a_new_event_is_complete() {
    let mut correlator = correlator();
    let spec = EventSpec { warning: true, ..event(pod("web"), "Created pod: x") };
    let entry = correlator.take(spec, Timestamp::new(1_700_000_000, 5).unwrap()).unwrap();
    let expected = Event {
        metadata: ObjectMeta {
            name: "web.17979cfe362a0005".into(),
            namespace: "ns".into(),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            kind: "Pod".into(),
            namespace: "ns".into(),
            name: "web".into(),
            uid: "uid-web".into(),
            api_version: "v1".into(),
            resource_version: "7".into(),
            field_path: "".into(),
        },
        reason: "SuccessfulCreate".into(),
        message: "Created pod: x".into(),
        source: EventSource { component: "replicaset-controller".into(), host: "".into() },
        first_timestamp: Time::from_seconds(1_700_000_000),
        last_timestamp: Time::from_seconds(1_700_000_000),
        count: 1,
        r#type: "Warning".into(),
        reporting_component: "replicaset-controller".into(),
        reporting_instance: "".into(),
    };
    assert_eq!(entry.event, expected);
    assert!(entry.patch.is_none());
}

#[test]
fn events_about_cluster_scoped_objects_go_to_the_default_namespace() {
    let entry = correlator().take(event(namespace("prod"), "m"), at(0)).unwrap();
    assert_eq!(entry.key().namespace, "default");
    assert_eq!(entry.event.involved_object.namespace, "");
    assert_eq!(entry.event.r#type, "Normal");
}

#[test]
fn names_that_an_event_may_not_have_are_replaced() {
    let long = "a".repeat(240);
    for (object, kept) in
        [("web-0", true), ("a.b", true), ("system:node", false), ("Upper", false), (&long, false)]
    {
        let entry = correlator().take(event(namespace(object), "m"), at(0)).unwrap();
        let name = entry.key().name;
        assert_eq!(name.starts_with(&format!("{object}.")), kept, "{name}");
        assert_eq!(uuid::Uuid::try_parse(&name).is_err(), kept, "{name}");
    }
}

#[test]
fn a_repetition_raises_the_count() {
    let mut correlator = correlator();
    let first = correlator.take(event(pod("web"), "m"), at(0)).unwrap();
    let second = correlator.take(event(pod("web"), "m"), at(5)).unwrap();
    let third = correlator.take(event(pod("web"), "m"), at(9)).unwrap();
    assert_eq!(third.key(), first.key());
    assert_eq!((second.event.count, third.event.count), (2, 3));
    assert_eq!(third.event.first_timestamp, first.event.first_timestamp);
    assert_eq!(third.event.last_timestamp, Time::from_seconds(1_700_000_009));
    assert_eq!(patch(&third), json!({"count": 3, "lastTimestamp": "2023-11-14T22:13:29Z", "message": "m"}));
}

#[test]
fn what_differs_is_another_event() {
    let base = || event(pod("web"), "m");
    let other_uid = Regarding { uid: "other".into(), ..pod("web") };
    for other in [
        event(pod("db"), "m"),
        event(pod("web"), "n"),
        event(other_uid, "m"),
        EventSpec { warning: true, ..base() },
        EventSpec { reason: "FailedCreate", ..base() },
    ] {
        let mut correlator = correlator();
        let first = correlator.take(base(), at(0)).unwrap();
        // At the very same moment: the names must differ all the same.
        let second = correlator.take(other, at(0)).unwrap();
        assert!(second.patch.is_none());
        assert_ne!(first.key(), second.key());
    }
    let newer = Regarding { resource_version: "9".into(), ..pod("web") };
    let mut correlator = correlator();
    correlator.take(base(), at(0)).unwrap();
    assert_eq!(correlator.take(event(newer, "m"), at(1)).unwrap().event.count, 2);
}

#[test]
fn many_similar_events_are_combined() {
    let mut correlator = correlator();
    for n in 0..9 {
        let entry = correlator.take(event(pod("web"), &format!("message {n}")), at(n)).unwrap();
        assert_eq!((entry.event.count, entry.patch.is_none()), (1, true));
    }
    let tenth = correlator.take(event(pod("web"), "message 9"), at(10)).unwrap();
    assert_eq!(tenth.event.message, "(combined from similar events): message 9");
    assert_eq!((tenth.event.reporting_component.as_str(), tenth.patch.is_none()), ("", true));
    let eleventh = correlator.take(event(pod("web"), "message 10"), at(11)).unwrap();
    assert_eq!(eleventh.key(), tenth.key());
    assert_eq!(
        patch(&eleventh),
        json!({
            "count": 2,
            "lastTimestamp": "2023-11-14T22:13:31Z",
            "message": "(combined from similar events): message 10",
        })
    );
    // One of the first nine keeps its own event, another reason is another matter.
    let old = correlator.take(event(pod("web"), "message 3"), at(12)).unwrap();
    assert_eq!((old.event.message.as_str(), old.event.count), ("message 3", 2));
    let reason = EventSpec { reason: "Other", ..event(pod("web"), "message 99") };
    assert_eq!(correlator.take(reason, at(13)).unwrap().event.message, "message 99");
}

#[test]
fn similar_events_far_apart_are_not_combined() {
    for (pause, combined) in [(600, true), (601, false)] {
        let mut correlator = correlator();
        for n in 0..9 {
            correlator.take(event(pod("web"), &format!("message {n}")), at(0)).unwrap();
        }
        let tenth = correlator.take(event(pod("web"), "message 9"), at(pause)).unwrap();
        assert_eq!(tenth.event.message.starts_with("(combined"), combined, "{pause}");
    }
}

#[test]
fn an_object_is_cut_off_after_a_burst() {
    let mut correlator = correlator();
    let mut written = |name: &str, at| correlator.take(event(pod(name), "m"), at);
    for n in 0..25 {
        assert!(written("web", at(0)).is_some(), "{n}");
    }
    assert!(written("web", at(0)).is_none());
    assert!(written("web", at(299)).is_none());
    // What was filtered was counted nevertheless.
    assert_eq!(written("web", at(300)).unwrap().event.count, 28);
    assert!(written("web", at(301)).is_none());
    assert!(written("db", at(301)).is_some());
    // A clock that is set back by a day silences nobody for a day.
    let back = at(-86_400);
    assert!(written("web", back).is_none());
    assert!(written("web", at(-86_400 + 300)).is_some());
}

/// 40 pods of a Job, of which a quota allows 30.
#[test]
fn normal_events_do_not_use_up_the_budget_of_warnings() {
    let warning = |message: &str| EventSpec { warning: true, ..event(pod("web"), message) };
    for (first, second) in [(false, true), (true, false)] {
        let mut correlator = correlator();
        let mut written = |is_warning: bool| {
            let spec = if is_warning { warning("m") } else { event(pod("web"), "m") };
            (0..30).filter_map(|_| correlator.take(spec.clone(), at(0))).count()
        };
        assert_eq!((written(first), written(second)), (25, 25));
    }
}

#[test]
fn memory_is_bounded() {
    let mut correlator = correlator();
    let first = correlator.take(event(pod("pod-0"), "m"), at(0)).unwrap();
    for n in 1..MEMORY {
        correlator.take(event(pod(&format!("pod-{n}")), "m"), at(0)).unwrap();
    }
    // All are known, and knowing the first again makes the second the oldest.
    assert_eq!(correlator.take(event(pod("pod-0"), "m"), at(1)).unwrap().key(), first.key());
    correlator.take(event(pod("one-more"), "m"), at(1)).unwrap();
    assert_eq!(correlator.take(event(pod("pod-0"), "m"), at(2)).unwrap().event.count, 3);
    assert_eq!(correlator.take(event(pod("pod-1"), "m"), at(2)).unwrap().event.count, 1);
}

proptest! {
    /// Whatever happens: there are no more events of a type about an object than its bucket allows, every event that is not a repetition has
    /// a name of its own, and a repetition counts up one that was made.
    #[test]
    fn the_rules_hold_for_any_sequence(
        steps in prop::collection::vec((0_u8..3, 0_u8..15, any::<bool>(), 0_i64..400), 0..300),
    ) {
        let mut correlator = correlator();
        let mut counts: HashMap<Key, i32> = HashMap::default();
        let mut names: HashSet<Key> = HashSet::default();
        let mut admitted = [[0_i64; 2]; 3];
        let mut now = 0;
        for (object, message, warning, pause) in steps {
            // Mostly bursts.
            now += if pause < 300 { 0 } else { pause };
            let spec = EventSpec { warning, ..event(pod(&format!("pod-{object}")), &format!("m{message}")) };
            let Some(entry) = correlator.take(spec, at(now)) else { continue };
            let admitted = &mut admitted[object as usize][usize::from(warning)];
            *admitted += 1;
            prop_assert!(*admitted <= 25 + now / 300);
            let key = entry.key();
            let before = counts.insert(key.clone(), entry.event.count);
            prop_assert!(before.is_none_or(|before| before < entry.event.count));
            prop_assert_eq!(entry.patch.is_some(), entry.event.count > 1);
            if entry.patch.is_none() {
                prop_assert!(names.insert(key));
            }
            prop_assert!(entry.event.first_timestamp <= entry.event.last_timestamp);
        }
    }
}
