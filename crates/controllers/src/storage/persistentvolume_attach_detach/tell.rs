//! What pods are told of their volumes. Pure.

use std::fmt::Write as _;

use super::source::Source;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{EventSpec, Regarding};

const FAILED: &str = "FailedAttachVolume";

/// It is attached.
pub(super) fn attached(pod: &Regarding, source: Option<&Source>) -> EventSpec {
    EventSpec {
        regarding: pod.clone(),
        warning: false,
        reason: "SuccessfulAttachVolume",
        // The original ends it with a blank.
        // Differs: no.
        message: format!("AttachVolume.Attach succeeded for volume \"{}\" ", name(source)),
    }
}

/// It could not be attached.
pub(super) fn attach_failed(pod: &Regarding, source: Option<&Source>, error: &str) -> EventSpec {
    let message = format!("AttachVolume.Attach failed for volume \"{}\" : {error}", name(source));
    EventSpec { regarding: pod.clone(), warning: true, reason: FAILED, message }
}

/// Another node has it, for these pods. Those of other namespaces are counted and not named.
pub(super) fn exclusive(pod: &Regarding, source: &Source, used_by: &[&Key]) -> EventSpec {
    let mut message = format!("Multi-Attach error for volume \"{}\" ", source.name);
    let (own, others): (Vec<&Key>, Vec<&Key>) =
        used_by.iter().partition(|other| other.namespace == pod.key.namespace);
    let names: Vec<&str> = own.iter().map(|other| other.name.as_str()).collect();
    // Writing to a string does not fail.
    let _ = match (names.is_empty(), others.len()) {
        (true, 0) => write!(
            message,
            "Volume is already exclusively attached to one node and can't be attached to another"
        ),
        (true, number) => {
            write!(message, "Volume is already used by {number} pod(s) in different namespaces")
        }
        (false, 0) => write!(message, "Volume is already used by pod(s) {}", names.join(", ")),
        (false, number) => write!(
            message,
            "Volume is already used by pod(s) {} and {number} pod(s) in different namespaces",
            names.join(", ")
        ),
    };
    EventSpec { regarding: pod.clone(), warning: true, reason: FAILED, message }
}

fn name(source: Option<&Source>) -> &str {
    source.map_or("", |source| source.name.as_str())
}
