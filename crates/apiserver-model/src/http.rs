//! Requests to the model, as clients send them, and its answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, header};
use percent_encoding::percent_decode_str;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use coxswain_machinery::api::meta::{DeleteRequest, Status};
use coxswain_machinery::api::{Kind, kinds};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::text::held_text;
use coxswain_machinery::wire::{Message as _, unwrap_envelope, wrap_envelope};

use super::{
    Deletion, Model, PatchType, Place, Query, Refusal, Stored, access, codec, message, metrics, scale, text,
};

/// What the server says.
pub enum Answer {
    /// A body, and whether it is JSON.
    Body(Vec<u8>, bool),
    /// Frames, each not to be there before its time.
    Frames(mpsc::Receiver<(Instant, Bytes)>),
}

/// A request in Kubernetes' terms.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How it is asked.
    pub method: Method,
    /// Its path, decoded and without the query.
    pub path: String,
    /// The kind that it is about; `None` if the API has no such resource.
    pub kind: Option<&'static Kind>,
    /// The namespace in its path; empty if there is none.
    pub namespace: String,
    /// The name in its path; empty if there is none.
    pub name: String,
    /// `status`, `finalize` …; empty for the object itself.
    pub subresource: String,
    /// Whether it asks for a watch.
    pub is_watch: bool,
    /// The API version and the plural name in its path.
    resource: (String, String),
    query: BTreeMap<String, String>,
    metadata_only: bool,
    content_type: String,
    /// What was sent.
    pub body: Bytes,
}

impl Asked {
    /// What a request asks for.
    pub fn new(parts: &http::request::Parts, body: Bytes) -> Self {
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let query: BTreeMap<String, String> =
            form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        // The API server decodes the path as a whole, before it takes it apart.
        let path: Vec<u8> = percent_decode_str(parts.uri.path()).collect();
        let path = held_text(&path).into_owned();
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match words.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => ("", "", &[][..]),
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, below @ ..] if !below.is_empty() => (*namespace, below),
            _ => ("", rest),
        };
        let word = |at: usize| rest.get(at).copied().unwrap_or_default();
        Self {
            method: parts.method.clone(),
            kind: super::kind(group, version, word(0)),
            resource: (format!("{group}/{version}"), word(0).to_owned()),
            namespace: namespace.to_owned(),
            name: word(1).to_owned(),
            subresource: word(2).to_owned(),
            is_watch: query.contains_key("watch"),
            metadata_only: header(header::ACCEPT).contains("PartialObjectMetadata"),
            content_type: header(header::CONTENT_TYPE).to_owned(),
            query,
            body,
            path,
        }
    }

    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET && self.kind.is_some()
    }

    /// What it does to objects: `create`, `update`, `patch`, `delete`, `deletecollection` or `get`.
    pub fn verb(&self) -> &'static str {
        match self.method.as_str() {
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if self.name.is_empty() => "deletecollection",
            "DELETE" => "delete",
            _ => "get",
        }
    }

    /// The object that it is about. What is created has its name in the body.
    pub fn key(&self) -> Key {
        let name = self.kind.filter(|_| self.name.is_empty() && self.is_write()).and_then(|kind| {
            let object = self.object(kind).ok()?;
            Some(text(&object, "/metadata/name").to_owned())
        });
        Key::new(self.namespace.as_str(), name.as_ref().unwrap_or(&self.name).as_str())
    }

    /// Changes the object in the body.
    pub fn edit(&mut self, edit: impl FnOnce(&mut Json)) {
        let Some(kind) = self.kind else { return };
        let (Ok(mut object), Some(message)) = (self.object(kind), message(kind)) else { return };
        edit(&mut object);
        if self.is_of_scale() {
            self.body = object.to_string().into();
            return;
        }
        let object = codec::encode(message, &object);
        self.body = wrap_envelope(&kind.api_version(), kind.kind, &object).into();
        "application/vnd.kubernetes.protobuf".clone_into(&mut self.content_type);
    }

    /// Whether it is about the scale of an object, which is JSON on the line.
    pub fn is_of_scale(&self) -> bool {
        self.subresource == "scale" && self.kind.is_some_and(scale::has_scale)
    }

    /// What the body says, as JSON.
    pub fn object(&self, kind: &Kind) -> Result<Json, Refusal> {
        let unreadable = || Refusal::new(400, "BadRequest", "the body cannot be read");
        if self.content_type.contains("json") || self.content_type.contains("yaml") {
            let object: Json = serde_json::from_slice(&self.body).map_err(|_| unreadable())?;
            // What the types do not have is dropped.
            return if self.is_of_scale() { Ok(object) } else { typed(kind, &object) };
        }
        let object = unwrap_envelope(&self.body).map_err(|_| unreadable())?;
        let message = message(kind).ok_or_else(unreadable)?;
        codec::decode(message, &object).map_err(|_| unreadable())
    }

    fn deletion(&self) -> Deletion {
        if self.content_type.contains("json") {
            let options: Json = serde_json::from_slice(&self.body).unwrap_or(Json::Null);
            let text = |pointer: &str| text(&options, pointer).to_owned();
            return Deletion {
                uid: text("/preconditions/uid"),
                version: text("/preconditions/resourceVersion"),
                propagation: text("/propagationPolicy"),
                grace: options["gracePeriodSeconds"].as_i64(),
            };
        }
        let object = unwrap_envelope(&self.body).unwrap_or_default();
        let request = DeleteRequest::decode(&object).unwrap_or_default();
        Deletion {
            uid: request.preconditions.uid.to_string(),
            version: request.preconditions.resource_version.to_string(),
            propagation: request.propagation_policy.to_string(),
            grace: request.grace_period_seconds,
        }
    }
}

impl fmt::Display for Asked {
    /// `create pods default/web`, `update replicasets.apps/status default/web`, as a plan shows its writes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kind) = self.kind else { return write!(f, "{} {}", self.method, self.path) };
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        write!(f, "{} {kind}{slash}{} {}", self.verb(), self.subresource, self.key())
    }
}

impl Model {
    /// Answers a request of `by`.
    pub fn answer(&mut self, by: &str, asked: &Asked) -> Result<Answer, Refusal> {
        let json = |value: Json| Ok(Answer::Body(value.to_string().into_bytes(), true));
        match asked.path.as_str() {
            "/healthz" => return Ok(Answer::Body(b"ok".to_vec(), true)),
            "/api" => return json(self.discovery(|row| row.group.is_empty())),
            "/apis" => return json(self.discovery(|row| !row.group.is_empty())),
            _ => {}
        }
        if asked.path == access::REVIEWS {
            let review = serde_json::from_slice(&asked.body);
            let review = review.map_err(|_| Refusal::new(400, "BadRequest", "the review cannot be read"))?;
            return json(self.access.answer(&review, self.now()));
        }
        if let Some((namespace, name)) = metrics::series(&asked.path) {
            return json(self.metrics.answer(namespace, name, self.seconds())?);
        }
        let (api_version, resource) = &asked.resource;
        let is_it = |row: &&&'static Kind| row.resource == *resource && row.api_version() == *api_version;
        let Some(kind) = asked.kind.or_else(|| self.custom.iter().find(is_it).copied()) else {
            return Err(Refusal::new(404, "NotFound", "the server could not find the requested resource"));
        };
        let pair = |name: &str| asked.query.get(name).map_or("", String::as_str);
        let query = Query::new(
            kind,
            asked.metadata_only,
            &asked.namespace,
            pair("fieldSelector"),
            pair("labelSelector"),
        );
        if asked.method == Method::GET && asked.is_watch {
            let initial = asked.query.contains_key("sendInitialEvents");
            return Ok(Answer::Frames(self.watch(query, pair("resourceVersion"), initial)));
        }
        if asked.method == Method::GET && asked.name.is_empty() {
            let token = asked.query.get("continue").map(String::as_str);
            let list = self.list(&query, pair("limit").parse().ok(), token)?;
            return Ok(Answer::Body(list, false));
        }
        if message(kind).is_none() && !self.custom.contains(&kind) {
            let why = format!("{kind} are not stored");
            return Err(Refusal::new(if asked.method == Method::GET { 404 } else { 405 }, "NotFound", why));
        }
        if asked.is_of_scale() {
            return json(self.scale(by, kind, asked)?);
        }
        let stored = self.write(by, kind, asked, &query)?;
        let body = stored.map(|stored| query.envelope(&stored.encoded(asked.metadata_only)));
        Ok(body.map_or_else(Answer::success, |body| Answer::Body(body, false)))
    }

    /// Reads or writes one object. `None` when there is nothing to show.
    fn write(
        &mut self,
        by: &str,
        kind: &'static Kind,
        asked: &Asked,
        query: &Query,
    ) -> Result<Option<Arc<Stored>>, Refusal> {
        let place = Place::new(kind.resource, &asked.namespace, &asked.name);
        let sub = asked.subresource.as_str();
        match (asked.method.as_str(), sub) {
            ("GET", "") => self.get(&place).cloned().map(Some).ok_or_else(|| Refusal::not_found(&place)),
            ("POST", "") => {
                let object = asked.object(kind)?;
                self.create(by, kind.resource, &asked.namespace, object).map(Some)
            }
            ("PUT", "" | "status" | "finalize" | "approval") => {
                let object = asked.object(kind)?;
                self.update(by, &place, sub, |_| Ok(object)).map(Some)
            }
            ("PATCH", "" | "status" | "finalize") => {
                let body: Json = serde_json::from_slice(&asked.body)
                    .map_err(|_| Refusal::new(400, "BadRequest", "the patch cannot be read"))?;
                let unknown = || Refusal::new(415, "UnsupportedMediaType", "a patch of an unknown type");
                let patch = PatchType::of(&asked.content_type).ok_or_else(unknown)?;
                let patched = |held: &Json| typed(kind, &patch.apply(&place, held, &body)?);
                self.update(by, &place, sub, patched).map(Some)
            }
            ("DELETE", "") if asked.name.is_empty() => {
                let how = asked.deletion();
                let all = self.all(kind.resource, &asked.namespace);
                let places: Vec<Place> =
                    all.filter(|stored| query.selects(stored)).map(|stored| stored.place.clone()).collect();
                for place in places {
                    self.delete(by, &place, &how)?;
                }
                Ok(None)
            }
            ("DELETE", "") => self.delete(by, &place, &asked.deletion()).map(Some),
            _ => {
                let why = format!("{} of {kind}/{sub} is not modeled", asked.method);
                Err(Refusal::new(405, "MethodNotAllowed", why))
            }
        }
    }
}

/// An object as its types hold it: without what they do not have, and without zeros that they do not tell from nothing.
fn typed(kind: &Kind, object: &Json) -> Result<Json, Refusal> {
    let Some(message) = message(kind) else { return Ok(object.clone()) };
    let unreadable = |_| Refusal::new(400, "BadRequest", "the object cannot be read");
    codec::decode(message, &codec::encode(message, object)).map_err(unreadable)
}

impl Answer {
    /// It is done, and there is nothing to show.
    pub(super) fn success() -> Self {
        let status = Status { status: "Success".into(), ..Status::default() };
        Self::Body(wrap_envelope("v1", "Status", &status.to_bytes()), false)
    }
}

impl Model {
    /// Returns aggregated discovery of the rows for which `of` is true.
    fn discovery(&self, of: impl Fn(&Kind) -> bool) -> Json {
        let mut groups: BTreeMap<&str, BTreeMap<&str, BTreeMap<&str, Json>>> = BTreeMap::new();
        for row in kinds::ALL.iter().chain(&self.custom).filter(|row| of(row)) {
            let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
            let mut resource = json!({
                "resource": row.resource, "singularResource": row.kind.to_lowercase(), "verbs": verbs,
                "responseKind": { "group": row.group, "version": row.version, "kind": row.kind },
                "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
            });
            if scale::has_scale(row) {
                resource["subresources"] = scale::subresources();
            }
            groups
                .entry(row.group)
                .or_default()
                .entry(row.version)
                .or_default()
                .insert(row.resource, resource);
        }
        let version = |(version, resources): (&str, BTreeMap<&str, Json>)| {
            let resources: Vec<_> = resources.into_values().collect();
            json!({ "version": version, "freshness": "Current", "resources": resources })
        };
        let group = |(name, versions): (&str, BTreeMap<&str, BTreeMap<&str, Json>>)| {
            let versions: Vec<_> = versions.into_iter().map(version).collect();
            json!({ "metadata": { "name": name }, "versions": versions })
        };
        let items: Vec<_> = groups.into_iter().map(group).collect();
        json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items })
    }
}
