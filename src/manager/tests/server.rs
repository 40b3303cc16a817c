//! An API server within the test: objects, versions, watches, and what it was asked. It answers after a while that the
//! thread's generator decides.
//!
//! It knows the kinds that we do and takes what it is sent for valid: there is no admission, and a patch changes nothing
//! but the version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;

use coxswain_machinery::api::meta::{ObjectMeta, Status};
use coxswain_machinery::api::{Kind, kinds};
use coxswain_machinery::client::{BoxError, HttpService, ResponseBody};
use coxswain_machinery::random;
use coxswain_machinery::wire::splice::{Edit, edit, put_bytes};
use coxswain_machinery::wire::{Message as _, ObjectHead, unwrap_envelope, wrap_envelope};

/// Changes that a watch may be behind with.
const BEHIND: usize = 10_000;

/// Where an object is: its resource, namespace and name.
type Place = (&'static str, String, String);

/// See the module.
pub(super) struct Server {
    began: Instant,
    /// When the first object was made, in seconds.
    epoch: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<Place, Bytes>,
    watches: Vec<Watch>,
    asked: Vec<String>,
}

struct Watch {
    query: Query,
    events: mpsc::Sender<Bytes>,
}

/// Which objects are asked for.
#[derive(Clone)]
struct Query {
    kind: &'static Kind,
    metadata_only: bool,
    namespace: String,
    fields: String,
    labels: String,
}

/// What a path names.
struct Target {
    kind: &'static Kind,
    namespace: String,
    name: Option<String>,
}

fn kind(group: &str, version: &str, resource: &str) -> Option<&'static Kind> {
    let is_it = |row: &&&Kind| (row.group, row.version, row.resource) == (group, version, resource);
    kinds::ALL
        .iter()
        .filter(|row| !row.metadata_only)
        .find(is_it)
        .or_else(|| kinds::ALL.iter().find(is_it))
        .copied()
}

impl Target {
    fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, below @ ..] if !below.is_empty() => (*namespace, below),
            _ => ("", rest),
        };
        let kind = kind(group, version, rest.first()?)?;
        Some(Self { kind, namespace: namespace.to_owned(), name: rest.get(1).map(|&name| name.to_owned()) })
    }

    fn place(&self, name: &str) -> Place {
        (self.kind.resource, self.namespace.clone(), name.to_owned())
    }
}

impl Query {
    fn new(target: &Target, metadata_only: bool, pairs: &BTreeMap<String, String>) -> Self {
        let pair = |name: &str| pairs.get(name).cloned().unwrap_or_default();
        Self {
            kind: target.kind,
            metadata_only,
            namespace: target.namespace.clone(),
            fields: pair("fieldSelector"),
            labels: pair("labelSelector"),
        }
    }

    /// Of selectors it knows `metadata.name=`, `metadata.namespace=` and `LABEL=`.
    fn selects(&self, (resource, namespace, name): &Place, object: &Bytes) -> bool {
        let field = |selector: &str| match selector.split_once('=') {
            Some(("metadata.name", wanted)) => wanted == name,
            Some(("metadata.namespace", wanted)) => wanted == namespace,
            _ => true,
        };
        let has = |selector: &str| {
            let decoded = (self.kind.decode)(object).expect("an object");
            let (key, wanted) = selector.split_once('=').expect("a label's value");
            decoded.meta().labels.iter().any(|(held, value)| *held == *key && *value == *wanted)
        };
        *resource == self.kind.resource
            && (self.namespace.is_empty() || self.namespace == *namespace)
            && self.fields.split(',').all(field)
            && (self.labels.is_empty() || self.labels.split(',').all(has))
    }

    fn envelope(&self, object: &[u8]) -> Vec<u8> {
        if self.metadata_only {
            wrap_envelope("meta.k8s.io/v1", "PartialObjectMetadata", object)
        } else {
            wrap_envelope(&self.kind.api_version(), self.kind.kind, object)
        }
    }

    /// A frame of a watch with its length.
    fn frame(&self, word: &str, object: &[u8]) -> Bytes {
        let mut extension = Vec::new();
        put_bytes(&mut extension, 1, &self.envelope(object));
        let mut event = Vec::new();
        put_bytes(&mut event, 1, word.as_bytes());
        put_bytes(&mut event, 2, &extension);
        let mut framed = u32::try_from(event.len()).unwrap().to_be_bytes().to_vec();
        framed.extend(event);
        framed.into()
    }

    /// The end of what was there when a watch began.
    fn bookmark(&self, version: u64) -> Bytes {
        let annotations = [("k8s.io/initial-events-end", "true")].into_iter().collect();
        let resource_version = version.to_string().into();
        let meta = ObjectMeta { resource_version, annotations, ..ObjectMeta::default() };
        let mut object = Vec::new();
        put_bytes(&mut object, 1, &meta.to_bytes());
        self.frame("BOOKMARK", &object)
    }
}

impl State {
    /// Stores an object as it is now, and tells of it.
    fn put(&mut self, place: Place, object: &[u8], more: Vec<Edit>) -> Bytes {
        self.version += 1;
        let mut edits = vec![Edit::SetBytes(&[1, 6], self.version.to_string().into_bytes())];
        edits.extend(more);
        let stored = Bytes::from(edit(object, &edits).unwrap());
        let word = if self.objects.contains_key(&place) { "MODIFIED" } else { "ADDED" };
        self.tell(word, &place, &stored);
        self.objects.insert(place, stored.clone());
        stored
    }

    fn create(&mut self, target: &Target, object: &[u8], seconds: u64) -> Result<Bytes, StatusCode> {
        let head = ObjectHead::read(object).unwrap();
        let number = self.version + 1;
        let name = match head.name {
            "" => format!(
                "{}{number:05x}",
                (target.kind.decode)(&Bytes::copy_from_slice(object)).unwrap().meta().generate_name
            ),
            name => name.to_owned(),
        };
        let place = target.place(&name);
        if self.objects.contains_key(&place) {
            return Err(StatusCode::CONFLICT);
        }
        let mut created = vec![8];
        put_varint(&mut created, seconds);
        let mut more = vec![
            Edit::SetBytes(&[1, 1], name.into_bytes()),
            Edit::SetBytes(&[1, 5], uuid::Uuid::from_u128(number.into()).to_string().into_bytes()),
            Edit::SetVarint(&[1, 7], 1),
            Edit::SetBytes(&[1, 8], created),
        ];
        if target.kind.namespaced {
            more.push(Edit::SetBytes(&[1, 3], target.namespace.clone().into_bytes()));
        }
        Ok(self.put(place, object, more))
    }

    fn remove(&mut self, place: &Place) -> Option<Bytes> {
        let held = self.objects.remove(place)?;
        self.version += 1;
        let version = vec![Edit::SetBytes(&[1, 6], self.version.to_string().into_bytes())];
        let last = Bytes::from(edit(&held, &version).unwrap());
        self.tell("DELETED", place, &last);
        Some(last)
    }

    fn tell(&mut self, word: &str, place: &Place, object: &Bytes) {
        self.watches.retain(|watch| {
            !watch.query.selects(place, object)
                || watch.events.try_send(watch.query.frame(word, object)).is_ok()
        });
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl Server {
    /// A server without objects, at `epoch` seconds.
    pub(super) fn new(epoch: u64) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), epoch, state: Mutex::default() })
    }

    /// What carries requests to it.
    pub(super) fn service(self: &Arc<Self>) -> HttpService {
        let server = Arc::clone(self);
        HttpService::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let server = Arc::clone(&server);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                server.note(&parts, &body);
                sleep(Duration::from_micros(random::within(500..20_000))).await;
                let answer = server.answer(&parts, &body);
                sleep(Duration::from_micros(random::within(500..20_000))).await;
                Ok::<_, BoxError>(answer)
            }
        }))
    }

    /// All that it was asked: when, what, and a digest of the body.
    pub(super) fn asked(&self) -> Vec<String> {
        self.state.lock().asked.clone()
    }

    /// Does what a user does.
    pub(super) fn create(&self, path: &str, object: &[u8]) {
        let target = Target::parse(path).unwrap();
        self.state.lock().create(&target, object, self.seconds()).unwrap();
    }

    /// Deletes the first of these objects, and says which.
    pub(super) fn delete_first(&self, path: &str) -> String {
        let target = Target::parse(path).unwrap();
        let mut state = self.state.lock();
        let place =
            state.objects.keys().find(|place| place.0 == target.kind.resource && place.1 == target.namespace);
        let place = place.expect("one").clone();
        state.remove(&place);
        place.2
    }

    /// The objects of a resource.
    pub(super) fn count(&self, resource: &str) -> usize {
        self.state.lock().objects.keys().filter(|place| place.0 == resource).count()
    }

    fn seconds(&self) -> u64 {
        self.epoch + self.began.elapsed().as_secs()
    }

    fn note(&self, parts: &http::request::Parts, body: &Bytes) {
        let digest = ring::digest::digest(&ring::digest::SHA256, body);
        let agent = parts.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let line = format!(
            "{:?} {} {} {:02x?} {}",
            self.began.elapsed(),
            parts.method,
            parts.uri,
            &digest.as_ref()[..8],
            agent.unwrap_or_default()
        );
        self.state.lock().asked.push(line);
    }

    fn answer(&self, parts: &http::request::Parts, body: &Bytes) -> Response<ResponseBody> {
        match parts.uri.path() {
            "/healthz" => return text(StatusCode::OK, "ok"),
            "/api" => return text(StatusCode::OK, discovery(|row| row.group.is_empty()).to_string()),
            "/apis" => return text(StatusCode::OK, discovery(|row| !row.group.is_empty()).to_string()),
            _ => {}
        }
        let Some(target) = Target::parse(parts.uri.path()) else { return refusal(StatusCode::NOT_FOUND) };
        let pairs: BTreeMap<String, String> =
            form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let accept = parts.headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let metadata_only = accept.is_some_and(|accept| accept.contains("PartialObjectMetadata"));
        let query = Query::new(&target, metadata_only, &pairs);
        let mut state = self.state.lock();
        let written = match (&parts.method, &target.name) {
            (&Method::GET, None) if pairs.contains_key("watch") => {
                return watch(&mut state, query, pairs.contains_key("sendInitialEvents"));
            }
            (&Method::GET, None) => return list(&state, &query),
            (&Method::GET, Some(name)) => {
                state.objects.get(&target.place(name)).cloned().ok_or(StatusCode::NOT_FOUND)
            }
            (&Method::POST, None) => state.create(&target, &unwrap_envelope(body).unwrap(), self.seconds()),
            (&Method::PUT, Some(name)) => {
                let (object, place) = (unwrap_envelope(body).unwrap(), target.place(name));
                let sent = ObjectHead::read(&object).unwrap().resource_version;
                match state.objects.get(&place) {
                    None => Err(StatusCode::NOT_FOUND),
                    Some(held)
                        if !sent.is_empty() && ObjectHead::read(held).unwrap().resource_version != sent =>
                    {
                        Err(StatusCode::CONFLICT)
                    }
                    Some(_) => Ok(state.put(place, &object, Vec::new())),
                }
            }
            (&Method::PATCH, Some(name)) => match state.objects.get(&target.place(name)).cloned() {
                None => Err(StatusCode::NOT_FOUND),
                Some(held) => Ok(state.put(target.place(name), &held, Vec::new())),
            },
            (&Method::DELETE, Some(name)) => state.remove(&target.place(name)).ok_or(StatusCode::NOT_FOUND),
            _ => Err(StatusCode::METHOD_NOT_ALLOWED),
        };
        written.map_or_else(refusal, |object| text(StatusCode::OK, query.envelope(&object)))
    }
}

fn watch(state: &mut State, query: Query, initial: bool) -> Response<ResponseBody> {
    let (events, receiver) = mpsc::channel(BEHIND);
    if initial {
        for (_, object) in state.objects.iter().filter(|(place, object)| query.selects(place, object)) {
            events.try_send(query.frame("ADDED", object)).unwrap();
        }
        events.try_send(query.bookmark(state.version)).unwrap();
    }
    state.watches.push(Watch { query, events });
    let frames = ReceiverStream::new(receiver).map(|chunk| Ok::<_, BoxError>(Frame::data(chunk)));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

fn list(state: &State, query: &Query) -> Response<ResponseBody> {
    let mut meta = Vec::new();
    put_bytes(&mut meta, 2, state.version.to_string().as_bytes());
    let mut list = Vec::new();
    put_bytes(&mut list, 1, &meta);
    for (_, object) in state.objects.iter().filter(|(place, object)| query.selects(place, object)) {
        put_bytes(&mut list, 2, object);
    }
    text(StatusCode::OK, wrap_envelope("v1", "List", &list))
}

/// Aggregated discovery of these rows.
fn discovery(of: impl Fn(&Kind) -> bool) -> Value {
    let mut groups: BTreeMap<&str, BTreeMap<&str, BTreeMap<&str, Value>>> = BTreeMap::new();
    for row in kinds::ALL.iter().filter(|row| of(row)) {
        let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
        let resource = json!({
            "resource": row.resource, "singularResource": row.kind.to_lowercase(), "verbs": verbs,
            "responseKind": { "group": row.group, "version": row.version, "kind": row.kind },
            "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        });
        groups.entry(row.group).or_default().entry(row.version).or_default().insert(row.resource, resource);
    }
    let version = |(version, resources): (&str, BTreeMap<&str, Value>)| {
        let resources: Vec<_> = resources.into_values().collect();
        json!({ "version": version, "freshness": "Current", "resources": resources })
    };
    let group = |(name, versions): (&str, BTreeMap<&str, BTreeMap<&str, Value>>)| {
        let versions: Vec<_> = versions.into_iter().map(version).collect();
        json!({ "metadata": { "name": name }, "versions": versions })
    };
    let items: Vec<_> = groups.into_iter().map(group).collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items })
}

fn refusal(code: StatusCode) -> Response<ResponseBody> {
    let reason = match code {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        _ => "MethodNotAllowed",
    };
    let status = Status { code: code.as_u16().into(), reason: reason.into(), ..Status::default() };
    text(code, wrap_envelope("v1", "Status", &status.to_bytes()))
}

fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}
