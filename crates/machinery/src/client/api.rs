//! [`ApiClient`]: Kubernetes requests in protobuf, with JSON where a kind or its server has no other form.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Request, Response};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tower::util::BoxCloneSyncService;

use super::body;
use super::error::{ApiError, decode_status};
use super::layers::{RateClass, RateLimit, RateToken, WriteGate, is_json};
use super::metadata::{MetadataForm, watch_in_protobuf};
use super::patience::Patience;
use super::repeat_budget::ClientRate;
use super::request::{FieldSelector, Label, Query, RequestIntent, RequestPath};
use super::send::refuse;
use crate::api::autoscaling::Scale;
use crate::api::meta::{DeleteRequest, Preconditions};
use crate::api::subresource::{self, SubresourceForm};
use crate::api::{AnyObject, Kind};
use crate::model::Key;
use crate::model::plan::{Patch, Propagation};
use crate::wire::json::read_json;
use crate::wire::text::lossy_text;
use crate::wire::{
    ListPage, Message as _, Str, Uid, WireError, decode_list, envelope_kind, unwrap_envelope, wrap_envelope,
};

/// The error of the layers below: whatever they give, shared so that it can be cloned into a log and a retry.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A response body, streamed.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// What carries requests: transport and layers, already boxed.
pub type HttpService = BoxCloneSyncService<Request<Full<Bytes>>, Response<ResponseBody>, BoxError>;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
const PROTOBUF_WATCH: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A client acting as one identity. Cheap to clone.
#[derive(Clone)]
pub struct ApiClient {
    pub(super) service: HttpService,
    name: Arc<str>,
    /// The limiters among the layers of the service.
    rate: Option<RateLimit>,
    /// The token of the next request.
    pub(super) token: Option<Arc<Mutex<Option<RateToken>>>>,
    /// How it waits for a server that refuses a request and says when to come back; not at all if `None`.
    pub(super) patience: Option<Arc<Patience>>,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Namespace; empty for all.
    pub namespace: String,
    /// Field selector.
    pub field_selector: Option<FieldSelector>,
    /// Label selector.
    pub label_selector: Option<String>,
    /// Page size.
    pub limit: Option<u32>,
    /// Where to go on.
    pub continue_token: Option<String>,
    /// `resourceVersion`; `Some("0")` lets the server answer from its cache, `None` asks for the newest state.
    pub resource_version: Option<String>,
}

/// What to watch.
#[derive(Clone, Debug, Default)]
pub struct WatchQuery {
    /// Namespace; empty for all.
    pub namespace: String,
    /// Field selector.
    pub field_selector: Option<FieldSelector>,
    /// Label selector.
    pub label_selector: Option<String>,
    /// Where to begin.
    pub resource_version: String,
    /// Ask for the present state first, as synthetic `ADDED` events and a marking bookmark (KEP-3157).
    pub send_initial_events: bool,
    /// After this many seconds the server ends the watch.
    pub timeout_seconds: u32,
}

/// How to delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// UID that the object must have.
    pub uid: Option<String>,
    /// Resource version that it must have.
    pub resource_version: Option<String>,
    /// What becomes of dependents.
    pub propagation: Option<Propagation>,
    /// Seconds granted to terminate; the kind's default when absent.
    pub grace_period_seconds: Option<i64>,
}

/// What a delete was answered with.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// UID of the object; empty if the server does not tell.
    pub uid: Uid,
    /// Its last state when the server shows it: with a deletion timestamp while it terminates. `None` when the server
    /// answered with a mere `Status`.
    pub object: Option<AnyObject>,
}

impl ApiClient {
    /// A client that sends through `service`; `name` says in logs whose it is.
    pub fn new(service: HttpService, name: impl Into<Arc<str>>) -> Self {
        Self { service, name: name.into(), patience: None, rate: None, token: None }
    }

    /// Returns the same client, which waits for a server that refuses a request and says when to come back.
    /// Its writes pass `gate`; no repetition of a request begins later than `limit` after its first refusal. The rate limit that the
    /// client has now limits the repetitions.
    pub(crate) fn patient(self, gate: WriteGate, limit: Duration) -> Self {
        let limits = self.rate.as_ref().and_then(|rate| rate.limits.as_ref());
        let rate = limits.map(|limits| {
            let (per_second, burst) = limits.rate();
            ClientRate { per_second, burst }
        });
        Self { patience: Some(Arc::new(Patience::new(gate, limit, rate))), ..self }
    }

    /// Returns the same client, whose callers see every refusal: for those that wait by themselves.
    #[must_use]
    pub fn impatient(self) -> Self {
        Self { patience: None, ..self }
    }

    /// The client whose service has this layer.
    pub(super) fn limited_by(self, rate: RateLimit) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Waits for the token that a request of this class needs. The next request of the client that is returned has it.
    pub(crate) async fn admitted(&self, class: &RateClass) -> Self {
        let token = match &self.rate {
            Some(rate) => rate.acquire(class).await,
            None => None,
        };
        Self { token: token.map(|token| Arc::new(Mutex::new(Some(token)))), ..self.clone() }
    }

    /// Whose client this is: a controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one object, live.
    pub async fn get(&self, kind: &'static Kind, key: &Key) -> Result<AnyObject, ApiError> {
        let path = RequestPath::object(kind, &key.namespace, &key.name);
        let (label, body) = self.unary(RequestIntent::Get, path.into(), accept_object(kind), None).await?;
        decode_object(kind, &label, &body)
    }

    /// Reads one page of a collection.
    pub async fn list(&self, kind: &'static Kind, query: &ListQuery) -> Result<ListPage, ApiError> {
        self.list_as(RequestIntent::List, accept_list(kind), kind, query).await
    }

    /// Lists the namespace of one object with a field selector for its name. The client reads 4 MiB at most. A server may ignore the selector
    /// and list other objects as well.
    pub async fn find(&self, kind: &'static Kind, key: &Key) -> Result<ListPage, ApiError> {
        let query = ListQuery {
            namespace: key.namespace.to_string(),
            field_selector: Some(FieldSelector::name(&key.name)),
            ..ListQuery::default()
        };
        self.list_as(RequestIntent::Find, accept_list(kind), kind, &query).await
    }

    /// Reads one page of a collection, of each object the metadata alone (`PartialObjectMetadata`).
    pub async fn list_metadata(&self, kind: &'static Kind, query: &ListQuery) -> Result<ListPage, ApiError> {
        self.list_as(RequestIntent::List, MetadataForm::List.accept(), kind, query).await
    }

    async fn list_as(
        &self,
        intent: RequestIntent,
        accept: HeaderValue,
        kind: &'static Kind,
        query: &ListQuery,
    ) -> Result<ListPage, ApiError> {
        let pairs = Query::default()
            .with_some("fieldSelector", query.field_selector.as_ref().map(FieldSelector::as_str))
            .with_some("labelSelector", query.label_selector.as_deref())
            .with_some("limit", query.limit.map(|limit| limit.to_string()))
            .with_some("continue", query.continue_token.as_deref())
            .with_some("resourceVersion", query.resource_version.as_deref());
        let path = RequestPath::collection(kind, &query.namespace);
        let (label, body) = self.unary(intent, (path, &pairs).into(), accept, None).await?;
        let list = unwrap_envelope(&body).map_err(|error| ApiError::malformed(label.as_str(), &error))?;
        decode_list(&list).map_err(|error| ApiError::malformed(label.as_str(), &error))
    }

    /// Opens a watch; the body is a sequence of frames.
    pub async fn watch(&self, kind: &'static Kind, query: &WatchQuery) -> Result<ResponseBody, ApiError> {
        let mut pairs = Query::default()
            .with("watch", "true")
            .with("allowWatchBookmarks", "true")
            .with_some("fieldSelector", query.field_selector.as_ref().map(FieldSelector::as_str))
            .with_some("labelSelector", query.label_selector.as_deref());
        if query.send_initial_events {
            pairs = pairs.with("sendInitialEvents", "true").with("resourceVersionMatch", "NotOlderThan");
        }
        if !query.resource_version.is_empty() {
            pairs = pairs.with("resourceVersion", query.resource_version.as_str());
        }
        let pairs = pairs.with("timeoutSeconds", query.timeout_seconds.to_string());
        let path = RequestPath::collection(kind, &query.namespace);
        let accept = if kind.metadata_only { MetadataForm::Watch.accept() } else { PROTOBUF_WATCH };
        let intent = RequestIntent::Watch;
        let (label, response) = self.send(intent, (path, &pairs).into(), accept, None).await?;
        let response = refuse(&label, intent, response).await?;
        let is_translated = kind.metadata_only && is_json(response.headers());
        let body = response.into_body();
        Ok(if is_translated { watch_in_protobuf(body) } else { body })
    }

    /// Creates an object from its encoding (without envelope) and returns it as the server stored it.
    pub async fn create(
        &self,
        kind: &'static Kind,
        namespace: &str,
        object: &[u8],
    ) -> Result<AnyObject, ApiError> {
        let path = RequestPath::collection(kind, namespace);
        let body = envelope(kind, object);
        let (label, body) =
            self.unary(RequestIntent::Create, path.into(), PROTOBUF, Some((PROTOBUF, body))).await?;
        decode_object(kind, &label, &body)
    }

    /// Replaces an object, or a subresource of it, and returns it as the server stored it: the object, or its scale.
    pub async fn update(
        &self,
        kind: &'static Kind,
        key: &Key,
        subresource: Option<&'static str>,
        object: &[u8],
    ) -> Result<AnyObject, ApiError> {
        let path = RequestPath::object(kind, &key.namespace, &key.name).subresource(subresource);
        let form = form(subresource);
        let body = body_of(kind, form, object)
            .map_err(|error| ApiError::malformed(&format!("PUT {path}"), &error))?;
        let (label, body) =
            self.unary(RequestIntent::Update, path.into(), accept_form(form), Some(body)).await?;
        decode_form(kind, form, &label, &body)
    }

    /// Patches an object, or a subresource of it, and returns it as the server stored it: the object, or its scale.
    pub async fn patch(
        &self,
        kind: &'static Kind,
        key: &Key,
        subresource: Option<&'static str>,
        patch: &Patch,
    ) -> Result<AnyObject, ApiError> {
        let content_type = match patch {
            Patch::Merge(_) => "application/merge-patch+json",
            Patch::Strategic(_) => "application/strategic-merge-patch+json",
            Patch::Json(_) => "application/json-patch+json",
            // JSON is YAML.
            Patch::Apply { .. } => "application/apply-patch+yaml",
        };
        let query = match patch {
            Patch::Apply { manager, force, .. } => {
                let force = if *force { "true" } else { "false" };
                Query::default().with("fieldManager", *manager).with("force", force)
            }
            Patch::Merge(_) | Patch::Strategic(_) | Patch::Json(_) => Query::default(),
        };
        let path = RequestPath::object(kind, &key.namespace, &key.name).subresource(subresource);
        let body = Some((HeaderValue::from_static(content_type), json_body(patch.value().to_string())));
        let form = form(subresource);
        let accept = if form == SubresourceForm::Scale { JSON } else { accept_object(kind) };
        let (label, body) = self.unary(RequestIntent::Patch, (path, &query).into(), accept, body).await?;
        decode_form(kind, form, &label, &body)
    }

    /// Posts to a subresource of an object. Returns the object as the server stored it, if the answer shows it.
    pub async fn post(
        &self,
        kind: &'static Kind,
        key: &Key,
        subresource: &'static str,
        body: &[u8],
    ) -> Result<Option<AnyObject>, ApiError> {
        let path = RequestPath::object(kind, &key.namespace, &key.name).subresource(Some(subresource));
        let form = form(Some(subresource));
        let body = body_of(kind, form, body)
            .map_err(|error| ApiError::malformed(&format!("POST {path}"), &error))?;
        let (label, body) =
            self.unary(RequestIntent::Create, path.into(), accept_form(form), Some(body)).await?;
        match form {
            SubresourceForm::Request { .. } => Ok(None),
            SubresourceForm::Object | SubresourceForm::Scale => {
                decode_form(kind, form, &label, &body).map(Some)
            }
        }
    }

    /// Reads the scale of an object, live: an [`autoscaling/v1`](crate::api::autoscaling) `Scale`.
    pub async fn scale(&self, kind: &'static Kind, key: &Key) -> Result<AnyObject, ApiError> {
        let path = RequestPath::object(kind, &key.namespace, &key.name).subresource(Some("scale"));
        let (label, body) = self.unary(RequestIntent::Get, path.into(), JSON, None).await?;
        decode_form(kind, SubresourceForm::Scale, &label, &body)
    }

    /// Deletes an object.
    pub async fn delete(
        &self,
        kind: &'static Kind,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Deletion, ApiError> {
        let path = RequestPath::object(kind, &key.namespace, &key.name);
        let body = Some(delete_options(kind, options));
        let intent = RequestIntent::Delete;
        let (label, response) = self.send(intent, path.into(), accept_object(kind), body).await?;
        let response = refuse(&label, intent, response).await?;
        let form = MetadataForm::Object;
        let is_translated = kind.metadata_only && is_json(response.headers());
        let limit = if is_translated { form.json_limit(intent.body_limit()) } else { intent.body_limit() };
        let body = body::collect(response.into_body(), limit).await;
        let mut body = body.map_err(|source| ApiError::transport(label.as_str(), source))?;
        // What is no object says how the deletion went, or nothing.
        if is_translated && let Ok(object) = form.in_protobuf(&body) {
            body = object;
        }
        let is_object = |answered: &str| {
            answered == kind.kind || (kind.metadata_only && answered == "PartialObjectMetadata")
        };
        if envelope_kind(&body).is_some_and(|answered| is_object(&answered)) {
            let object = decode_object(kind, &label, &body)?;
            return Ok(Deletion { uid: object.meta().uid.clone(), object: Some(object) });
        }
        let details = decode_status(&body).details;
        let uid = details.map(|details| Uid::from(details.uid.as_str())).unwrap_or_default();
        Ok(Deletion { uid, object: None })
    }

    /// Deletes all objects of a kind in a namespace, or begins to. What they were is not told: the answer may be large.
    pub async fn delete_collection(
        &self,
        kind: &'static Kind,
        namespace: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let path = RequestPath::collection(kind, namespace);
        let body = Some(delete_options(kind, options));
        let intent = RequestIntent::DeleteCollection;
        let accept = MetadataForm::List.accept();
        let (label, response) = self.send(intent, path.into(), accept, body).await?;
        let response = refuse(&label, intent, response).await?;
        let drained = body::drain(response.into_body(), intent.body_limit()).await;
        drained.map_err(|source| ApiError::transport(label.as_str(), source))
    }

    /// A JSON request: for kinds that have no protobuf form, and for reviews.
    pub async fn json<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        intent: RequestIntent,
        path: RequestPath<'_>,
        query: &Query<'_>,
        body: Option<&B>,
    ) -> Result<T, ApiError> {
        let body = match body {
            None => None,
            Some(body) => {
                let bytes = serde_json::to_vec(body).map_err(|error| ApiError::Malformed {
                    request: format!("{} {path}", intent.method()),
                    what: error.to_string(),
                })?;
                Some((JSON, Bytes::from(bytes)))
            }
        };
        let (label, body) = self.unary(intent, (path, query).into(), JSON, body).await?;
        read_json(&body).map_err(|error| ApiError::Malformed {
            request: label.as_str().to_owned(),
            what: error.to_string(),
        })
    }

    /// A plain GET, for `/readyz` and the like.
    pub async fn text(&self, path: RequestPath<'_>) -> Result<String, ApiError> {
        let (_, body) =
            self.unary(RequestIntent::Get, path.into(), HeaderValue::from_static("*/*"), None).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

/// A body in JSON that was made of texts of the API: these leave as Go's JSON encoder writes them.
fn json_body(json: String) -> Bytes {
    match lossy_text(&json) {
        Cow::Owned(lossy) => lossy.into(),
        Cow::Borrowed(_) => json.into(),
    }
}

/// What one object is asked for as. Custom resources have no other form in protobuf than their metadata.
fn accept_object(kind: &Kind) -> HeaderValue {
    if kind.metadata_only { MetadataForm::Object.accept() } else { PROTOBUF }
}

/// Returns the `Accept` header for the list of a kind.
fn accept_list(kind: &Kind) -> HeaderValue {
    if kind.metadata_only { MetadataForm::List.accept() } else { PROTOBUF }
}

fn envelope(kind: &Kind, object: &[u8]) -> Bytes {
    wrap_envelope(&kind.api_version(), kind.kind, object).into()
}

fn decode_object(kind: &'static Kind, label: &Label, body: &Bytes) -> Result<AnyObject, ApiError> {
    unwrap_envelope(body)
        .and_then(|object| (kind.decode)(&object))
        .map_err(|error| ApiError::malformed(label.as_str(), &error))
}

/// What is sent to a subresource, and comes back.
fn form(subresource: Option<&'static str>) -> SubresourceForm {
    subresource.map_or(SubresourceForm::Object, subresource::form)
}

/// Scales go as JSON: those of custom resources have no other form.
fn accept_form(form: SubresourceForm) -> HeaderValue {
    if form == SubresourceForm::Scale { JSON } else { PROTOBUF }
}

fn body_of(kind: &Kind, form: SubresourceForm, body: &[u8]) -> Result<(HeaderValue, Bytes), WireError> {
    Ok(match form {
        SubresourceForm::Object => (PROTOBUF, envelope(kind, body)),
        SubresourceForm::Scale => (JSON, json_body(Scale::to_json(body)?.to_string())),
        SubresourceForm::Request { api_version, kind } => {
            (PROTOBUF, wrap_envelope(api_version, kind, body).into())
        }
    })
}

fn decode_form(
    kind: &'static Kind,
    form: SubresourceForm,
    label: &Label,
    body: &Bytes,
) -> Result<AnyObject, ApiError> {
    if form != SubresourceForm::Scale {
        return decode_object(kind, label, body);
    }
    Scale::from_json(body)
        .map_err(|error| ApiError::Malformed { request: label.as_str().to_owned(), what: error.to_string() })
}

/// A delete's body: in JSON for objects of which metadata alone is known, whose server may offer no protobuf.
fn delete_options(kind: &Kind, options: &DeleteOptions) -> (HeaderValue, Bytes) {
    let propagation = options.propagation.map_or("", |propagation| match propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    });
    if kind.metadata_only {
        let mut body = json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
        if let Some(seconds) = options.grace_period_seconds {
            body["gracePeriodSeconds"] = seconds.into();
        }
        if let Some(uid) = &options.uid {
            body["preconditions"]["uid"] = uid.as_str().into();
        }
        if let Some(version) = &options.resource_version {
            body["preconditions"]["resourceVersion"] = version.as_str().into();
        }
        if !propagation.is_empty() {
            body["propagationPolicy"] = propagation.into();
        }
        return (JSON, json_body(body.to_string()));
    }
    let text = |text: &Option<String>| text.as_deref().map(Str::from).unwrap_or_default();
    let request = DeleteRequest {
        grace_period_seconds: options.grace_period_seconds,
        preconditions: Preconditions {
            uid: text(&options.uid),
            resource_version: text(&options.resource_version),
        },
        propagation_policy: propagation.into(),
    };
    (PROTOBUF, wrap_envelope("v1", "DeleteOptions", &request.to_bytes()).into())
}
