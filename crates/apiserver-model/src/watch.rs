//! Lists and watches: which objects are asked for, and what is told of them, how late.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use coxswain_machinery::api::Kind;
use coxswain_machinery::wire::json::schema::SCHEMA;
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::wrap_envelope;

use super::{Event, Model, Refusal, Remainder, Stored, codec};

/// Frames that a watch may be behind with. One that is further behind is ended.
const BEHIND: usize = 20_000;

/// Which objects are asked for, and in what form.
#[derive(Clone, Debug)]
pub struct Query {
    /// Of which kind.
    pub kind: &'static Kind,
    /// Whether it is sent as `PartialObjectMetadata`.
    pub metadata_only: bool,
    /// In which namespace; empty for all.
    pub namespace: String,
    fields: Vec<Requirement>,
    labels: Vec<Requirement>,
}

/// A key that has, or has not, one of some values; `None` for any value.
#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    values: Option<Vec<String>>,
    holds: bool,
}

/// A watch that is open.
pub struct Watching {
    query: Query,
    frames: mpsc::Sender<(Instant, Bytes)>,
    /// The version from which it was asked for, which may be of before a restore. What is not later is not sent.
    from: u64,
    /// Nothing arrives before what was sent before it.
    due: Instant,
}

/// How late watches are, by resource.
#[derive(Default)]
pub struct Lag {
    by_resource: BTreeMap<&'static str, (Instant, Duration)>,
}

impl Lag {
    /// Until then, what happens to objects of this resource is told this late.
    pub fn set(&mut self, resource: &'static str, until: Instant, by: Duration) {
        self.by_resource.insert(resource, (until, by));
    }

    /// Nothing is late any more.
    pub fn clear(&mut self) {
        self.by_resource.clear();
    }

    fn due(&self, resource: &str, now: Instant) -> Instant {
        let held = self.by_resource.get(resource).filter(|(until, _)| now < *until);
        held.map_or(now, |(_, by)| now + *by)
    }
}

/// The parts of a selector: commas in parentheses are of a part.
fn parts(selector: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, letter) in selector.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&selector[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&selector[begin..]);
    found.into_iter().filter(|part| !part.is_empty()).collect()
}

fn requirements(selector: &str) -> Vec<Requirement> {
    let one = |spelt: &str| {
        let one_of = |values: &str| {
            let values = values.trim_matches(|letter: char| matches!(letter, '(' | ')' | ' '));
            values.split(',').map(|value| value.trim().to_owned()).collect()
        };
        let (key, values, holds) = if let Some((key, values)) = spelt.split_once(" notin ") {
            (key, Some(one_of(values)), false)
        } else if let Some((key, values)) = spelt.split_once(" in ") {
            (key, Some(one_of(values)), true)
        } else if let Some((key, value)) = spelt.split_once("!=") {
            (key, Some(vec![value.to_owned()]), false)
        } else if let Some((key, value)) = spelt.split_once('=') {
            (key, Some(vec![value.trim_start_matches('=').to_owned()]), true)
        } else {
            (spelt.trim_start_matches('!'), None, !spelt.starts_with('!'))
        };
        Requirement { key: key.to_owned(), values, holds }
    };
    parts(selector).into_iter().map(one).collect()
}

/// The requirements of a field selector, in whose values `\\`, `,` and `=` are escaped.
fn field_requirements(selector: &str) -> Vec<Requirement> {
    let (mut spelt, mut value, mut found) = (String::new(), String::new(), Vec::new());
    let mut operator = None;
    let mut letters = selector.chars().peekable();
    loop {
        match letters.next() {
            None | Some(',') => {
                if let Some(holds) = operator.take() {
                    let values = Some(vec![std::mem::take(&mut value)]);
                    found.push(Requirement { key: std::mem::take(&mut spelt), values, holds });
                }
                if letters.peek().is_none() {
                    return found;
                }
            }
            Some('\\') => value.extend(letters.next()),
            Some('!') if operator.is_none() && letters.next_if_eq(&'=').is_some() => operator = Some(false),
            Some('=') if operator.is_none() => {
                letters.next_if_eq(&'=');
                operator = Some(true);
            }
            Some(letter) if operator.is_none() => spelt.push(letter),
            Some(letter) => value.push(letter),
        }
    }
}

impl Requirement {
    fn admits(&self, found: Option<&str>) -> bool {
        let has = match &self.values {
            Some(wanted) => wanted.iter().any(|wanted| wanted == found.unwrap_or_default()),
            None => found.is_some(),
        };
        has == self.holds
    }
}

impl Query {
    /// Those that both selectors admit, as they are spelt in a query.
    pub fn new(
        kind: &'static Kind,
        metadata_only: bool,
        namespace: &str,
        fields: &str,
        labels: &str,
    ) -> Self {
        let (fields, labels) = (field_requirements(fields), requirements(labels));
        Self { kind, metadata_only, namespace: namespace.to_owned(), fields, labels }
    }

    /// Whether an object is asked for.
    pub fn selects(&self, stored: &Stored) -> bool {
        let field = |wanted: &Requirement| {
            let pointer = format!("/{}", wanted.key.replace('.', "/"));
            wanted.admits(stored.json.pointer(&pointer).and_then(Json::as_str))
        };
        let labels = &stored.json["metadata"]["labels"];
        stored.place.resource == self.kind.resource
            && (self.namespace.is_empty() || self.namespace == stored.place.namespace)
            && self.fields.iter().all(field)
            && self.labels.iter().all(|wanted| wanted.admits(labels[&wanted.key].as_str()))
    }

    /// An object as it is sent.
    pub fn envelope(&self, object: &[u8]) -> Vec<u8> {
        if self.metadata_only {
            wrap_envelope("meta.k8s.io/v1", "PartialObjectMetadata", object)
        } else {
            wrap_envelope(&self.kind.api_version(), self.kind.kind, object)
        }
    }

    fn frame(&self, word: &str, object: &[u8]) -> Bytes {
        framed(word, &self.envelope(object))
    }

    /// Everything up to this version has been told.
    fn bookmark(&self, version: u64, ends_initial: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if ends_initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let message = SCHEMA.named("meta.v1.ObjectMeta").expect("it is in the table");
        let mut object = Vec::new();
        put_bytes(&mut object, 1, &codec::encode(message, &metadata));
        self.frame("BOOKMARK", &object)
    }

    /// What a change is to those who ask for this.
    fn told(&self, event: &Event) -> Option<Bytes> {
        let was = event.before.as_ref().is_some_and(|before| self.selects(before));
        let is = !event.gone && self.selects(&event.after);
        let word = match (was, is) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        Some(self.frame(word, &event.after.encoded(self.metadata_only)))
    }
}

/// A frame of a watch behind its length.
fn framed(word: &str, envelope: &[u8]) -> Bytes {
    let mut extension = Vec::new();
    put_bytes(&mut extension, 1, envelope);
    let mut event = Vec::new();
    put_bytes(&mut event, 1, word.as_bytes());
    put_bytes(&mut event, 2, &extension);
    let mut framed = u32::try_from(event.len()).expect("a small object").to_be_bytes().to_vec();
    framed.extend(event);
    framed.into()
}

impl Model {
    /// A page of a list: at most `limit` objects, or what is left of an earlier one.
    pub fn list(
        &mut self,
        query: &Query,
        limit: Option<usize>,
        token: Option<&str>,
    ) -> Result<Vec<u8>, Refusal> {
        let held = if let Some(token) = token {
            let rest = token.parse().ok().and_then(|number: u64| self.pages.remove(&number));
            rest.ok_or_else(Refusal::expired)?
        } else {
            let all = self.all(query.kind.resource, &query.namespace);
            let objects = all.filter(|stored| query.selects(stored)).cloned().collect();
            Remainder { version: self.version, objects }
        };
        let Remainder { version, mut objects } = held;
        let rest = limit.filter(|&limit| limit < objects.len()).map(|limit| objects.split_off(limit));
        let mut metadata = Vec::new();
        put_bytes(&mut metadata, 2, version.to_string().as_bytes());
        if let Some(objects) = rest {
            let number = self.dice.number();
            put_bytes(&mut metadata, 3, number.to_string().as_bytes());
            self.pages.insert(number, Remainder { version, objects });
        }
        let mut list = Vec::new();
        put_bytes(&mut list, 1, &metadata);
        for stored in &objects {
            put_bytes(&mut list, 2, &stored.encoded(query.metadata_only));
        }
        Ok(wrap_envelope("v1", "List", &list))
    }

    /// Opens a watch: with the present state first, or after a version.
    pub fn watch(&mut self, query: Query, from: &str, initial: bool) -> mpsc::Receiver<(Instant, Bytes)> {
        let (frames, receiver) = mpsc::channel(BEHIND);
        let now = Instant::now();
        let send = |frame| drop(frames.try_send((now, frame)));
        let from: u64 = from.parse().unwrap_or(0);
        if initial {
            for stored in self.all(query.kind.resource, &query.namespace) {
                if query.selects(stored) {
                    send(query.frame("ADDED", &stored.encoded(query.metadata_only)));
                }
            }
            send(query.bookmark(self.version, true));
        } else if from < self.compacted {
            send(framed("ERROR", &Refusal::expired().body()));
            return receiver;
        } else {
            let missed = self.history.iter().filter(|event| event.version > from);
            missed.filter_map(|event| query.told(event)).for_each(send);
        }
        self.watching.push(Watching { query, frames, from, due: now });
        receiver
    }

    /// Tells all watches of a change. Those that nobody reads any more are forgotten.
    pub(super) fn tell(&mut self, event: &Event) {
        if self.deaf && event.gone {
            return;
        }
        let now = Instant::now();
        let due = self.lag.due(event.after.place.resource, now);
        self.watching.retain_mut(|watching| match watching.told(event) {
            None => !watching.frames.is_closed(),
            Some(frame) => watching.send(due, frame),
        });
    }

    /// Tells all watches how far they have come.
    pub fn bookmark(&mut self) {
        let now = Instant::now();
        let (lag, version) = (&self.lag, self.version);
        self.watching.retain_mut(|watching| {
            if version < watching.from {
                return !watching.frames.is_closed();
            }
            let due = lag.due(watching.query.kind.resource, now);
            let frame = watching.query.bookmark(version, false);
            watching.send(due, frame)
        });
    }

    /// Ends watches: all of them, or those of one resource.
    pub fn cut(&mut self, resource: Option<&str>) {
        self.watching.retain(|watching| resource.is_some_and(|named| named != watching.query.kind.resource));
    }
}

impl Watching {
    fn told(&self, event: &Event) -> Option<Bytes> {
        if event.version > self.from { self.query.told(event) } else { None }
    }

    fn send(&mut self, due: Instant, frame: Bytes) -> bool {
        self.due = self.due.max(due);
        self.frames.try_send((self.due, frame)).is_ok()
    }
}
