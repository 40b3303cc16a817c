//! What a Lease says about leadership, read from and spliced into its encoding.

use jiff::Timestamp;

use crate::api::coordination::{Lease, MicroTime, WireMicroTime};
use crate::wire::splice::{Edit, put_varint_field};
use crate::wire::{Str, WallTime, field, path};

/// Says in a released Lease which candidate is to be next.
pub const SUCCESSOR_ANNOTATION: &str = "coxswain.dev/successor";
/// The `leaseTransitions` for which [`SUCCESSOR_ANNOTATION`] was meant. Candidates that know neither of them leave both
/// in place; what they release later is for whoever comes first.
pub const SUCCESSOR_TERM_ANNOTATION: &str = "coxswain.dev/successor-term";

/// The leader, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Identity of the holder; empty when released.
    pub holder: Str,
    /// Seconds for which the others must wait after the last change.
    pub duration_seconds: i32,
    /// When the holder took it.
    pub acquired: Timestamp,
    /// When the holder renewed it last.
    pub renewed: Timestamp,
    /// How often it changed hands.
    pub transitions: i32,
    /// The candidate for which it was released; empty while it is held, or when it is for whoever comes first.
    pub successor: Str,
}

impl Record {
    /// The record that `identity` writes to take or renew a Lease whose present record is `previous`.
    pub fn next(previous: Option<&Record>, identity: &str, duration_seconds: i32, now: Timestamp) -> Self {
        let (acquired, transitions) = match previous {
            None => (now, 0),
            // Whom the API server names the holder finds no time, and no change of hands counted.
            Some(held) if held.holder == identity && held.acquired == Timestamp::UNIX_EPOCH => {
                (now, held.transitions)
            }
            Some(held) if held.holder == identity => (held.acquired, held.transitions),
            Some(held) => (now, held.transitions.saturating_add(1)),
        };
        Self {
            holder: identity.into(),
            duration_seconds,
            acquired,
            renewed: now,
            transitions,
            successor: Str::EMPTY,
        }
    }

    /// The record that gives the Lease up, to `successor` if there is one: nobody's, and stale after a second even for
    /// those who don't look at the holder.
    pub fn released(&self, successor: Option<&str>, now: Timestamp) -> Self {
        Self {
            holder: Str::EMPTY,
            duration_seconds: 1,
            acquired: now,
            renewed: now,
            transitions: self.transitions,
            successor: successor.unwrap_or_default().into(),
        }
    }

    /// The changes that put this record into a Lease, all else in it untouched.
    pub fn edits(&self) -> Vec<Edit> {
        let mut edits = vec![
            Edit::set_text(path!(Lease, spec.holderIdentity), &self.holder),
            Edit::SetVarint(
                path!(Lease, spec.leaseDurationSeconds),
                u64::from(self.duration_seconds.max(0).unsigned_abs()),
            ),
            Edit::SetBytes(path!(Lease, spec.acquireTime), micro_time(self.acquired)),
            Edit::SetBytes(path!(Lease, spec.renewTime), micro_time(self.renewed)),
            Edit::SetVarint(
                path!(Lease, spec.leaseTransitions),
                u64::from(self.transitions.max(0).unsigned_abs()),
            ),
        ];
        let annotate = |key: &str, value: &str| {
            let path = path!(Lease, metadata.annotations);
            match self.successor.as_str() {
                "" => Edit::MapRemove(path, key.to_owned()),
                _ => Edit::MapSet(path, key.to_owned(), value.to_owned()),
            }
        };
        if self.holder.is_empty() {
            // What the API server has said of the term that is over.
            edits.push(Edit::Clear(path!(Lease, spec.strategy)));
            edits.push(Edit::Clear(path!(Lease, spec.preferredHolder)));
        }
        edits.push(annotate(SUCCESSOR_ANNOTATION, &self.successor));
        edits.push(annotate(SUCCESSOR_TERM_ANNOTATION, &self.transitions.to_string()));
        edits
    }
}

impl From<&Lease> for Record {
    fn from(lease: &Lease) -> Self {
        let spec = &lease.spec;
        Self {
            holder: spec.holder_identity.clone(),
            duration_seconds: spec.lease_duration_seconds,
            acquired: timestamp(&spec.acquire_time),
            renewed: timestamp(&spec.renew_time),
            transitions: spec.lease_transitions,
            successor: successor(lease),
        }
    }
}

/// For whom a Lease was released; empty when it is held, or the annotation is what an earlier release has left.
fn successor(lease: &Lease) -> Str {
    let annotations = &lease.metadata.annotations;
    let of_this_term = annotations
        .get(SUCCESSOR_TERM_ANNOTATION)
        .is_some_and(|term| *term == *lease.spec.lease_transitions.to_string());
    match annotations.get(SUCCESSOR_ANNOTATION) {
        Some(successor) if of_this_term && lease.spec.holder_identity.is_empty() => Str::from(&**successor),
        _ => Str::EMPTY,
    }
}

pub(super) fn timestamp(at: &MicroTime) -> Timestamp {
    WallTime::new(at.seconds, at.nanos).into()
}

/// `metav1.MicroTime`: seconds and nanoseconds, of which whole microseconds survive.
pub(super) fn micro_time(at: Timestamp) -> Vec<u8> {
    let mut out = Vec::with_capacity(12);
    put_varint_field(&mut out, field!(WireMicroTime, seconds), at.as_second() as u64);
    let micros = at.subsec_nanosecond() / 1000 * 1000;
    if micros > 0 {
        put_varint_field(&mut out, field!(WireMicroTime, nanos), u64::from(micros.unsigned_abs()));
    }
    out
}
