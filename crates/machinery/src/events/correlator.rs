//! What becomes of an event: a new object, a repetition of an old one, or nothing. No I/O, no clock.

use std::hash::Hash;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use serde_json::json;

use crate::api::Kind;
use crate::api::core::ObjectReference;
use crate::api::events::{Event, EventSource};
use crate::api::meta::ObjectMeta;
use crate::bounds::memory_size;
use crate::model::Key;
use crate::model::bucket::{BucketLevel, TokenBucket};
use crate::model::names::is_subdomain;
use crate::model::plan::{EventSpec, Patch, Regarding};
use crate::random::{HashSeed, HashSet};
use crate::wire::{Str, Time, Uid};

/// So much of each sort of memory is kept; what was not used for longest is forgotten.
pub(super) const MEMORY: usize = 4096;
/// From this many different messages on, similar events are combined.
const COMBINE_FROM: usize = 10;
/// Similar events that are further apart are not combined.
const COMBINE_WITHIN: SignedDuration = SignedDuration::from_secs(600);
/// Events of one type about one object that may come at once.
const SPAM_BURST: u32 = 25;
/// After this long one more may come.
const SPAM_REFILL: Duration = Duration::from_mins(5);
/// How combined events begin.
const COMBINED: &str = "(combined from similar events): ";
/// Where events about cluster-scoped objects go.
const DEFAULT_NAMESPACE: &str = "default";

/// What is to be written.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The event as it is now.
    pub(super) event: Event,
    /// How to raise the count of the event that was created before; `None` when it is new.
    pub(super) patch: Option<Patch>,
}

impl Entry {
    /// Where the event is.
    pub(super) fn key(&self) -> Key {
        Key::of(&self.event.metadata)
    }
}

/// One source's memory of its events.
pub(super) struct Correlator {
    component: Str,
    similar: Memory<Subject, Similar>,
    written: Memory<Identity, Written>,
    /// How many more events of a type there may be about an object.
    spam: Memory<Budget, BucketLevel>,
    last_name: i128,
}

/// The object that events are about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct About {
    kind: &'static Kind,
    key: Key,
    uid: Uid,
}

/// The events that share a budget: those of one type about one object. Normal events never use up the budget of Warnings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Budget {
    about: About,
    warning: bool,
}

/// What similar events have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subject {
    about: About,
    warning: bool,
    reason: &'static str,
}

/// What makes an event a repetition: the same subject and message, or the combined events of the subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    subject: Subject,
    message: Option<Str>,
}

/// The messages of similar events.
struct Similar {
    messages: HashSet<Str>,
    last: Timestamp,
}

/// An event that was made.
struct Written {
    name: Str,
    first: Time,
    count: i32,
}

impl Correlator {
    pub(super) fn new(component: Str) -> Self {
        Self { component, similar: Memory::new(), written: Memory::new(), spam: Memory::new(), last_name: 0 }
    }

    /// Takes in what happened `at` some time; `None`: nothing is to be written.
    pub(super) fn take(&mut self, spec: EventSpec, at: Timestamp) -> Option<Entry> {
        let EventSpec { regarding, warning, reason, message } = spec;
        let about = About { kind: regarding.kind, key: regarding.key.clone(), uid: regarding.uid.clone() };
        let subject = Subject { about: about.clone(), warning, reason };
        let message = Str::from(message);
        let identity = if self.is_one_of_many(&subject, &message, at) {
            Identity { subject, message: None }
        } else {
            Identity { subject, message: Some(message.clone()) }
        };
        let combined = identity.message.is_none();
        let written = self.count(identity, &regarding.key.name, at);
        if !self.admits(Budget { about, warning }, at) {
            return None;
        }
        let message = if combined { Str::from(format!("{COMBINED}{message}")) } else { message };
        let last = Time::from(at);
        let patch = (written.count > 1).then(|| {
            Patch::Strategic(json!({
                "count": written.count,
                "lastTimestamp": last.to_string(),
                "message": message,
            }))
        });
        let mut event = new_event(&self.component, regarding, (warning, reason, message), written.name, last);
        event.first_timestamp = Some(written.first);
        event.count = written.count;
        if combined {
            // The original's combined events name no reporter; what sums up several was reported by none of them.
            event.reporting_component = Str::EMPTY;
        }
        Some(Entry { event, patch })
    }

    /// Whether there were so many different messages of this subject lately that this one is combined with others. The
    /// messages that came first go on having events of their own.
    fn is_one_of_many(&mut self, subject: &Subject, message: &Str, at: Timestamp) -> bool {
        let similar =
            self.similar.entry(subject.clone(), || Similar { messages: HashSet::default(), last: at });
        if at.duration_since(similar.last) > COMBINE_WITHIN {
            similar.messages.clear();
        }
        similar.last = at;
        if similar.messages.contains(message) {
            return false;
        }
        if similar.messages.len() + 1 >= COMBINE_FROM {
            return true;
        }
        similar.messages.insert(message.clone());
        false
    }

    /// Counts an event; the first of its identity gets a name.
    fn count(&mut self, identity: Identity, object: &str, at: Timestamp) -> Written {
        // Two events of one moment need two names.
        let last_name = at.as_nanosecond().max(self.last_name + 1);
        let held = self.written.entry(identity, || Written {
            name: event_name(object, last_name),
            first: Time::from(at),
            count: 0,
        });
        if held.count == 0 {
            self.last_name = last_name;
        }
        held.count = held.count.saturating_add(1);
        Written { name: held.name.clone(), first: held.first, count: held.count }
    }

    /// Whether there were not too many events of this type about this object.
    fn admits(&mut self, budget: Budget, at: Timestamp) -> bool {
        let since_epoch = at.duration_since(Timestamp::UNIX_EPOCH).try_into().unwrap_or_default();
        TokenBucket::new(SPAM_REFILL, SPAM_BURST)
            .take(self.spam.entry(budget, BucketLevel::default), since_epoch)
    }
}

/// An event that happened once, `at` this time.
pub(super) fn new_event(
    component: &Str,
    regarding: Regarding,
    (warning, reason, message): (bool, &'static str, Str),
    name: Str,
    at: Time,
) -> Event {
    let namespace = match regarding.key.namespace.as_str() {
        "" => Str::from(DEFAULT_NAMESPACE),
        _ => regarding.key.namespace.clone(),
    };
    Event {
        metadata: ObjectMeta { name, namespace, ..ObjectMeta::default() },
        involved_object: ObjectReference {
            kind: regarding.kind.kind.into(),
            namespace: regarding.key.namespace,
            name: regarding.key.name,
            uid: regarding.uid.to_str(),
            api_version: regarding.kind.api_version().into(),
            resource_version: regarding.resource_version,
            field_path: Str::EMPTY,
        },
        reason: reason.into(),
        message,
        source: EventSource { component: component.clone(), host: Str::EMPTY },
        first_timestamp: Some(at),
        last_timestamp: Some(at),
        count: 1,
        r#type: if warning { "Warning" } else { "Normal" }.into(),
        reporting_component: component.clone(),
        reporting_instance: Str::EMPTY,
    }
}

/// `OBJECT.NANOSECONDS`, or a UUID where that is no name: some objects' names may hold what an event's may not.
pub(super) fn event_name(object: &str, nanoseconds: i128) -> Str {
    let name = format!("{object}.{nanoseconds:x}");
    if is_subdomain(&name) { name.into() } else { crate::random::uuid().to_string().into() }
}

/// A map that forgets what was not used for longest. It grows as it is filled: most sources say little.
struct Memory<K: Hash + Eq, V>(LruCache<K, V, HashSeed>);

impl<K: Hash + Eq, V> Memory<K, V> {
    fn new() -> Self {
        Self(LruCache::unbounded_with_hasher(HashSeed::default()))
    }

    fn entry(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        if self.0.len() >= memory_size(MEMORY) && !self.0.contains(&key) {
            self.0.pop_lru();
        }
        self.0.get_or_insert_mut(key, new)
    }
}
