//! A finalizer that keeps an object as long as something uses it: when it is put on, when it is taken off, and why. Who
//! uses the object is for the room to find out.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;

use super::plan::{Tolerate, Verb};
use super::{Key, Plan, Step, Write, words};
use crate::api::meta::{ObjectMeta, PartialObjectMetadata};
use crate::api::{Kind, Object};
use crate::wire::splice::{Edit, edit, get, retain_items};
use crate::wire::text::raw_bytes;
use crate::wire::{Value, WireError, field, path};

/// What there is to decide about a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The object is there to stay and lacks it.
    Put,
    /// The object is being deleted and has it: it goes when nothing uses the object.
    Take,
}

/// What there is to decide about a finalizer of an object; `None` for nothing.
pub fn due(meta: &ObjectMeta, finalizer: &str) -> Option<Due> {
    match (meta.is_deleting(), has(meta, finalizer)) {
        (false, false) => Some(Due::Put),
        (true, true) => Some(Due::Take),
        _ => None,
    }
}

fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|held| held == finalizer)
}

/// Shortest and longest time between two live reads for the users of one object.
const UNHEARD_OF: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_mins(10);

/// Returns the delay until the next live read of an object's users; `lasts` is how long live reads have found users missing from the cache.
/// The cache may never show the end of these users. The reads become rare while nothing changes.
pub fn unheard_after(lasts: Duration) -> Duration {
    lasts.clamp(*UNHEARD_OF.start(), *UNHEARD_OF.end())
}

/// Puts the finalizer on an object that lacks it, and takes it off one that is being deleted and not used.
pub fn plan(kind: &'static Kind, object: &dyn Object, finalizer: &str, is_used: bool) -> Plan {
    let changed = match due(object.meta(), finalizer) {
        Some(Due::Put) => with(&object.raw(), finalizer),
        Some(Due::Take) if !is_used => without(&object.raw(), finalizer),
        _ => return Plan::default(),
    };
    match changed {
        Ok(changed) => {
            let update = Write::new(kind, Key::of(object.meta()), Verb::Update(changed));
            let update = Write { tolerate: Tolerate { absent: true, ..Tolerate::default() }, ..update };
            Plan { steps: vec![Step::Write(update)], ..Plan::default() }
        }
        Err(error) => {
            Plan { retry: Some(format!("{kind} {}: {error}", Key::of(object.meta()))), ..Plan::default() }
        }
    }
}

/// An encoded object with the finalizer behind those that it has.
///
/// # Errors
/// The object is malformed.
pub fn with(object: &[u8], finalizer: &str) -> Result<Bytes, WireError> {
    let push = Edit::push_text(path!(PartialObjectMetadata, metadata.finalizers), finalizer);
    edit(object, &[push]).map(Bytes::from)
}

/// An encoded object without the finalizer; the others stay in their order.
///
/// # Errors
/// The object is malformed.
pub fn without(object: &[u8], finalizer: &str) -> Result<Bytes, WireError> {
    const FINALIZERS: u32 = field!(PartialObjectMetadata, metadata.finalizers);
    let metadata = get(object, path!(PartialObjectMetadata, metadata))?.map(Value::bytes).transpose()?;
    let kept = |held: &[u8]| held != &*raw_bytes(finalizer);
    let metadata = retain_items(metadata.unwrap_or_default(), FINALIZERS, kept)?;
    edit(object, &[Edit::SetBytes(path!(PartialObjectMetadata, metadata), metadata)]).map(Bytes::from)
}

/// Why an object, called `thing`, is kept or may go. `users` says who uses it, as in "it is bound"; `None` if nobody does.
pub fn reasons(meta: &ObjectMeta, finalizer: &str, thing: &str, users: Option<String>) -> Vec<String> {
    let reason = match (due(meta, finalizer), users) {
        (Some(Due::Put), _) => format!("The {thing} lacks the finalizer {finalizer}; it is added."),
        (Some(Due::Take), Some(users)) => {
            format!("The {thing} is being deleted and keeps the finalizer {finalizer} because {users}.")
        }
        (Some(Due::Take), None) => {
            format!("The {thing} is being deleted and nothing uses it; the finalizer {finalizer} is removed.")
        }
        (None, _) if meta.is_deleting() && meta.finalizers.is_empty() => {
            format!("The {thing} is being deleted and has no finalizers.")
        }
        (None, _) if meta.is_deleting() => format!(
            "The {thing} is being deleted and does not have {finalizer}; other finalizers keep it ({}).",
            words::names(&meta.finalizers)
        ),
        (None, Some(users)) => format!("Deletion of the {thing} would wait, because {users}."),
        (None, None) => format!("Nothing uses the {thing}; it can be deleted."),
    };
    vec![reason]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::api::AnyObject;
    use crate::api::kinds::PERSISTENT_VOLUMES;
    use crate::api::storage::PersistentVolume;
    use crate::wire::{Message, Str, Time};

    const OURS: &str = "example.com/ours";

    fn meta(finalizers: &[&str], is_deleting: bool) -> ObjectMeta {
        ObjectMeta {
            name: "a".into(),
            uid: "uid".into(),
            resource_version: "7".into(),
            finalizers: finalizers.iter().map(|held| Str::from(*held)).collect(),
            deletion_timestamp: if is_deleting { Time::from_seconds(1) } else { None },
            ..ObjectMeta::default()
        }
    }

    fn object(metadata: ObjectMeta) -> AnyObject {
        let volume = PersistentVolume { metadata, ..PersistentVolume::default() };
        // A field that nobody has declared.
        let mut bytes = volume.to_bytes();
        bytes.extend([0xfa, 0x3f, 1, b'x']);
        (PERSISTENT_VOLUMES.decode)(&bytes.into()).unwrap()
    }

    /// The finalizers that are written; `None` if nothing is.
    fn written(object: &AnyObject, is_used: bool) -> Option<Vec<Str>> {
        let plan = plan(&PERSISTENT_VOLUMES, &**object, OURS, is_used);
        assert_eq!(plan.retry, None);
        let write = plan.writes().next()?;
        let Verb::Update(bytes) = &write.verb else { panic!("{write}") };
        assert!(write.tolerate.absent && !write.tolerate.conflict);
        let changed = (PERSISTENT_VOLUMES.decode)(bytes).unwrap();
        let (before, after) = (object.meta(), changed.meta());
        assert_eq!((&after.uid, &after.resource_version), (&before.uid, &before.resource_version));
        assert!(bytes.ends_with(&[0xfa, 0x3f, 1, b'x']), "what is unknown stays");
        Some(after.finalizers.clone())
    }

    #[test]
    fn users_that_no_cache_shows_are_read_ever_more_rarely() {
        let after =
            [0, 10, 15, 100, 600, 8000].map(|lasts| unheard_after(Duration::from_secs(lasts)).as_secs());
        assert_eq!(after, [10, 10, 15, 100, 600, 600]);
        let (mut lasts, mut reads) = (Duration::ZERO, 0);
        while lasts < Duration::from_hours(1) {
            lasts += unheard_after(lasts);
            reads += 1;
        }
        assert_eq!(reads, 12, "in the first hour");
    }

    #[test]
    fn it_is_put_on_what_stays_and_taken_off_what_goes_unused() {
        let [a, b] = ["example.com/a", "example.com/b"];
        for (finalizers, is_deleting, is_used, expected) in [
            (&[] as &[&str], false, false, Some(vec![OURS])),
            (&[a, b], false, true, Some(vec![a, b, OURS])),
            (&[OURS], false, false, None),
            (&[a], true, false, None),
            (&[], true, false, None),
            (&[OURS], true, true, None),
            (&[OURS], true, false, Some(vec![])),
            (&[b, OURS, a], true, false, Some(vec![b, a])),
            (&[b, OURS, a], true, true, None),
        ] {
            let found = written(&object(meta(finalizers, is_deleting)), is_used);
            let expected = expected.map(|held| held.into_iter().map(Str::from).collect());
            assert_eq!(found, expected, "{finalizers:?} deleting: {is_deleting} used: {is_used}");
        }
    }

    #[test]
    fn what_is_malformed_is_retried() {
        let volume = PersistentVolume {
            metadata: meta(&[], false),
            raw: Bytes::from_static(&[0x0a, 9]).into(),
            ..PersistentVolume::default()
        };
        let plan = plan(&PERSISTENT_VOLUMES, &volume, OURS, false);
        assert!(
            plan.retry.is_some_and(|error| error.starts_with("persistentvolumes ")) && plan.steps.is_empty()
        );
    }

    #[test]
    fn it_says_what_keeps_an_object() {
        let said = |finalizers: &[&str], is_deleting, users: Option<&str>| {
            reasons(&meta(finalizers, is_deleting), OURS, "volume", users.map(str::to_owned)).remove(0)
        };
        for (text, said) in [
            ("lacks the finalizer example.com/ours; it is added", said(&[], false, None)),
            (
                "keeps the finalizer example.com/ours because it is bound",
                said(&[OURS], true, Some("it is bound")),
            ),
            ("nothing uses it; the finalizer example.com/ours is removed", said(&[OURS], true, None)),
            ("other finalizers keep it (x and y)", said(&["x", "y"], true, None)),
            ("has no finalizers", said(&[], true, None)),
            ("would wait, because it is bound", said(&[OURS], false, Some("it is bound"))),
            ("it can be deleted", said(&[OURS], false, None)),
        ] {
            assert!(said.contains(text), "{text:?} is not in {said:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_there_two_writes_are_never_needed(
            finalizers in prop::collection::vec("[a-c]", 0..4),
            at in prop::option::of(0_usize..4),
            is_deleting: bool,
            is_used: bool,
        ) {
            let mut all: Vec<&str> = finalizers.iter().map(String::as_str).collect();
            if let Some(at) = at {
                all.insert(at.min(all.len()), OURS);
            }
            let found = object(meta(&all, is_deleting));
            if let Some(written) = written(&found, is_used) {
                let others: Vec<&str> = written.iter().map(AsRef::as_ref).filter(|held| *held != OURS).collect();
                prop_assert_eq!(others, finalizers);
                let after = ObjectMeta { finalizers: written, ..found.meta().clone() };
                prop_assert_eq!(due(&after, OURS), None);
                prop_assert!(!(is_deleting && is_used));
            }
            let kept: AnyObject = Arc::clone(&found);
            prop_assert_eq!(due(kept.meta(), OURS).is_some(), is_deleting == at.is_some());
        }
    }
}
