//! Shared by the tests of the correlator and of the writer.

mod correlate;
mod journal;
mod record;

use jiff::Timestamp;

use super::correlator::Entry;
use crate::api::kinds::{NAMESPACES, PODS};
use crate::model::Key;
use crate::model::plan::{EventSpec, Patch, Regarding};

fn pod(name: &str) -> Regarding {
    Regarding {
        kind: &PODS,
        key: Key::new("ns", name),
        uid: format!("uid-{name}").into(),
        resource_version: "7".into(),
    }
}

fn namespace(name: &str) -> Regarding {
    Regarding { kind: &NAMESPACES, key: Key::new("", name), uid: "u".into(), resource_version: "8".into() }
}

fn event(regarding: Regarding, message: &str) -> EventSpec {
    EventSpec { regarding, warning: false, reason: "SuccessfulCreate", message: message.to_owned() }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// The patch of an entry, as JSON.
fn patch(entry: &Entry) -> serde_json::Value {
    match &entry.patch {
        Some(Patch::Strategic(value)) => value.clone(),
        other => panic!("{other:?} is no strategic merge patch"),
    }
}
