//! [`ApiClient`]: Kubernetes requests in protobuf, with JSON where a kind has no other form.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::error::{ApiError, decode_status};
use crate::api::autoscaling::Scale;
use crate::api::meta::{DeleteRequest, Preconditions};
use crate::api::subresource::{self, SubresourceForm};
use crate::api::{AnyObject, Kind};
use crate::model::Key;
use crate::model::plan::{Patch, Propagation};
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
const PROTOBUF_METADATA: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
);
const PROTOBUF_METADATA_LIST: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
);
const PROTOBUF_METADATA_WATCH: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;stream=watch",
);
/// Objects per page of a list that is read to its end.
const LIST_PAGE: u32 = 500;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A client acting as one identity. Cheap to clone.
#[derive(Clone)]
pub struct ApiClient {
    service: HttpService,
    name: Arc<str>,
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
    pub field_selector: Option<String>,
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
    pub field_selector: Option<String>,
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
        Self { service, name: name.into() }
    }

    /// Whose client this is: a controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one object, live.
    pub async fn get(&self, kind: &'static Kind, key: &Key) -> Result<AnyObject, ApiError> {
        let path = kind.object_path(&key.namespace, &key.name, None);
        let (label, body) = self.unary(Method::GET, &path, "", accept_object(kind), None).await?;
        decode_object(kind, &label, &body)
    }

    /// Reads one page of a collection.
    pub async fn list(&self, kind: &'static Kind, query: &ListQuery) -> Result<ListPage, ApiError> {
        let accept = if kind.metadata_only { PROTOBUF_METADATA_LIST } else { PROTOBUF };
        self.list_as(accept, kind, query).await
    }

    /// Reads one page of a collection, of each object the metadata alone (`PartialObjectMetadata`).
    pub async fn list_metadata(&self, kind: &'static Kind, query: &ListQuery) -> Result<ListPage, ApiError> {
        self.list_as(PROTOBUF_METADATA_LIST, kind, query).await
    }

    async fn list_as(
        &self,
        accept: HeaderValue,
        kind: &'static Kind,
        query: &ListQuery,
    ) -> Result<ListPage, ApiError> {
        let mut pairs: Vec<(&str, String)> = Vec::new();
        push(&mut pairs, "fieldSelector", query.field_selector.as_ref());
        push(&mut pairs, "labelSelector", query.label_selector.as_ref());
        push(&mut pairs, "limit", query.limit.map(|limit| limit.to_string()).as_ref());
        push(&mut pairs, "continue", query.continue_token.as_ref());
        push(&mut pairs, "resourceVersion", query.resource_version.as_ref());
        let path = kind.collection_path(&query.namespace);
        let (label, body) = self.unary(Method::GET, &path, &encode_query(&pairs), accept, None).await?;
        let list = unwrap_envelope(&body).map_err(|error| ApiError::malformed(&label, &error))?;
        decode_list(&list).map_err(|error| ApiError::malformed(&label, &error))
    }

    /// Opens a watch; the body is a sequence of frames.
    pub async fn watch(&self, kind: &'static Kind, query: &WatchQuery) -> Result<ResponseBody, ApiError> {
        let mut pairs: Vec<(&str, String)> =
            vec![("watch", "true".to_owned()), ("allowWatchBookmarks", "true".to_owned())];
        push(&mut pairs, "fieldSelector", query.field_selector.as_ref());
        push(&mut pairs, "labelSelector", query.label_selector.as_ref());
        if query.send_initial_events {
            pairs.push(("sendInitialEvents", "true".to_owned()));
            pairs.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
        }
        if !query.resource_version.is_empty() {
            pairs.push(("resourceVersion", query.resource_version.clone()));
        }
        pairs.push(("timeoutSeconds", query.timeout_seconds.to_string()));
        let path = kind.collection_path(&query.namespace);
        let accept = if kind.metadata_only { PROTOBUF_METADATA_WATCH } else { PROTOBUF_WATCH };
        let (label, response) = self.send(Method::GET, &path, &encode_query(&pairs), accept, None).await?;
        let response = refuse(&label, response).await?;
        Ok(response.into_body())
    }

    /// Creates an object from its encoding (without envelope) and returns it as the server stored it.
    pub async fn create(
        &self,
        kind: &'static Kind,
        namespace: &str,
        object: &[u8],
    ) -> Result<AnyObject, ApiError> {
        let path = kind.collection_path(namespace);
        let body = envelope(kind, object);
        let (label, body) = self.unary(Method::POST, &path, "", PROTOBUF, Some((PROTOBUF, body))).await?;
        decode_object(kind, &label, &body)
    }

    /// Replaces an object, or a subresource of it, and returns it as the server stored it: the object, or its scale.
    pub async fn update(
        &self,
        kind: &'static Kind,
        key: &Key,
        subresource: Option<&str>,
        object: &[u8],
    ) -> Result<AnyObject, ApiError> {
        let path = kind.object_path(&key.namespace, &key.name, subresource);
        let form = form(subresource);
        let body = body_of(kind, form, object).map_err(|error| ApiError::malformed(&path, &error))?;
        let (label, body) = self.unary(Method::PUT, &path, "", accept_form(form), Some(body)).await?;
        decode_form(kind, form, &label, &body)
    }

    /// Patches an object, or a subresource of it, and returns it as the server stored it: the object, or its scale.
    pub async fn patch(
        &self,
        kind: &'static Kind,
        key: &Key,
        subresource: Option<&str>,
        patch: &Patch,
    ) -> Result<AnyObject, ApiError> {
        let content_type = match patch {
            Patch::Merge(_) => "application/merge-patch+json",
            Patch::Strategic(_) => "application/strategic-merge-patch+json",
            Patch::Json(_) => "application/json-patch+json",
            // JSON is YAML.
            Patch::Apply { .. } => "application/apply-patch+yaml",
        };
        let mut pairs: Vec<(&str, String)> = Vec::new();
        if let Patch::Apply { manager, force, .. } = patch {
            pairs.push(("fieldManager", (*manager).to_owned()));
            pairs.push(("force", force.to_string()));
        }
        let target = kind.object_path(&key.namespace, &key.name, subresource);
        let body = Some((HeaderValue::from_static(content_type), patch.value().to_string().into()));
        let form = form(subresource);
        let accept = if form == SubresourceForm::Scale { JSON } else { accept_object(kind) };
        let (label, body) = self.unary(Method::PATCH, &target, &encode_query(&pairs), accept, body).await?;
        decode_form(kind, form, &label, &body)
    }

    /// Posts to a subresource of an object. Returns the object as the server stored it, if the answer shows it.
    pub async fn post(
        &self,
        kind: &'static Kind,
        key: &Key,
        subresource: &str,
        body: &[u8],
    ) -> Result<Option<AnyObject>, ApiError> {
        let path = kind.object_path(&key.namespace, &key.name, Some(subresource));
        let form = form(Some(subresource));
        let body = body_of(kind, form, body).map_err(|error| ApiError::malformed(&path, &error))?;
        let (label, body) = self.unary(Method::POST, &path, "", accept_form(form), Some(body)).await?;
        match form {
            SubresourceForm::Request { .. } => Ok(None),
            SubresourceForm::Object | SubresourceForm::Scale => {
                decode_form(kind, form, &label, &body).map(Some)
            }
        }
    }

    /// Reads the scale of an object, live: an [`autoscaling/v1`](crate::api::autoscaling) `Scale`.
    pub async fn scale(&self, kind: &'static Kind, key: &Key) -> Result<AnyObject, ApiError> {
        let path = kind.object_path(&key.namespace, &key.name, Some("scale"));
        let (label, body) = self.unary(Method::GET, &path, "", JSON, None).await?;
        decode_form(kind, SubresourceForm::Scale, &label, &body)
    }

    /// Deletes an object.
    pub async fn delete(
        &self,
        kind: &'static Kind,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Deletion, ApiError> {
        let path = kind.object_path(&key.namespace, &key.name, None);
        let body = wrap_envelope("v1", "DeleteOptions", &encode_delete_options(options));
        let (label, body) =
            self.unary(Method::DELETE, &path, "", accept_object(kind), Some((PROTOBUF, body.into()))).await?;
        let expected = if kind.metadata_only { "PartialObjectMetadata" } else { kind.kind };
        if envelope_kind(&body).is_some_and(|answered| answered == expected) {
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
        let path = kind.collection_path(namespace);
        let body = wrap_envelope("v1", "DeleteOptions", &encode_delete_options(options));
        let body = Some((PROTOBUF, body.into()));
        self.unary(Method::DELETE, &path, "", PROTOBUF_METADATA_LIST, body).await.map(|_| ())
    }

    /// Reads a whole collection page by page and decodes it.
    pub async fn list_all(&self, kind: &'static Kind, namespace: &str) -> Result<Vec<AnyObject>, ApiError> {
        let mut query =
            ListQuery { namespace: namespace.to_owned(), limit: Some(LIST_PAGE), ..ListQuery::default() };
        let mut objects = Vec::new();
        loop {
            let page = self.list(kind, &query).await?;
            for item in &page.items {
                let object = (kind.decode)(item).map_err(|error| {
                    ApiError::malformed(&format!("GET {}", kind.collection_path(namespace)), &error)
                })?;
                objects.push(object);
            }
            if page.continue_token.is_empty() {
                return Ok(objects);
            }
            query.continue_token = Some(page.continue_token);
        }
    }

    /// A JSON request to any path: for kinds that have no protobuf form, and for reviews.
    pub async fn json<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &str,
        body: Option<&B>,
    ) -> Result<T, ApiError> {
        let body = match body {
            None => None,
            Some(body) => {
                let bytes = serde_json::to_vec(body).map_err(|error| ApiError::Malformed {
                    request: format!("{method} {path}"),
                    what: error.to_string(),
                })?;
                Some((JSON, Bytes::from(bytes)))
            }
        };
        let (label, body) = self.unary(method, path, query, JSON, body).await?;
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::Malformed { request: label, what: error.to_string() })
    }

    /// A plain GET, for `/readyz` and the like.
    pub async fn text(&self, path: &str) -> Result<String, ApiError> {
        let (_, body) = self.unary(Method::GET, path, "", HeaderValue::from_static("*/*"), None).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// A GET of a document that is asked for again and again: `None` when it still is what `etag` names.
    pub(super) async fn document(
        &self,
        path: &str,
        accept: &'static str,
        etag: Option<&HeaderValue>,
    ) -> Result<Option<(Bytes, Option<HeaderValue>)>, ApiError> {
        let mut request = Request::builder().uri(path).header(ACCEPT, accept);
        if let (Some(headers), Some(etag)) = (request.headers_mut(), etag) {
            headers.insert(IF_NONE_MATCH, etag.clone());
        }
        let (label, response) = self.dispatch(format!("GET {path}"), request, Bytes::new()).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        let response = refuse(&label, response).await?;
        let etag = response.headers().get(ETAG).cloned();
        Ok(Some((read(&label, response.into_body()).await?, etag)))
    }

    async fn unary(
        &self,
        method: Method,
        path: &str,
        query: &str,
        accept: HeaderValue,
        body: Option<(HeaderValue, Bytes)>,
    ) -> Result<(String, Bytes), ApiError> {
        let (label, response) = self.send(method, path, query, accept, body).await?;
        let response = refuse(&label, response).await?;
        let body = read(&label, response.into_body()).await?;
        Ok((label, body))
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &str,
        accept: HeaderValue,
        body: Option<(HeaderValue, Bytes)>,
    ) -> Result<(String, Response<ResponseBody>), ApiError> {
        let label = format!("{method} {path}");
        let uri = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let mut request = Request::builder().method(method).uri(uri).header(ACCEPT, accept);
        let body = body.map_or_else(Bytes::new, |(content_type, body)| {
            if let Some(headers) = request.headers_mut() {
                headers.insert(CONTENT_TYPE, content_type);
            }
            body
        });
        self.dispatch(label, request, body).await
    }

    async fn dispatch(
        &self,
        label: String,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<(String, Response<ResponseBody>), ApiError> {
        let request = request
            .body(Full::new(body))
            .map_err(|error| ApiError::Malformed { request: label.clone(), what: error.to_string() })?;
        match self.service.clone().oneshot(request).await {
            Ok(response) => Ok((label, response)),
            Err(source) => Err(ApiError::transport(&label, source)),
        }
    }
}

/// Reads a response to its end.
async fn read(label: &str, body: ResponseBody) -> Result<Bytes, ApiError> {
    match body.collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(source) => Err(ApiError::transport(label, source)),
    }
}

fn push<'a>(pairs: &mut Vec<(&'a str, String)>, name: &'a str, value: Option<&String>) {
    if let Some(value) = value {
        pairs.push((name, value.clone()));
    }
}

fn encode_query(pairs: &[(&str, String)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// What one object is asked for as. Custom resources have no other form in protobuf than their metadata.
fn accept_object(kind: &Kind) -> HeaderValue {
    if kind.metadata_only { PROTOBUF_METADATA } else { PROTOBUF }
}

fn envelope(kind: &Kind, object: &[u8]) -> Bytes {
    wrap_envelope(&kind.api_version(), kind.kind, object).into()
}

fn decode_object(kind: &'static Kind, label: &str, body: &Bytes) -> Result<AnyObject, ApiError> {
    unwrap_envelope(body)
        .and_then(|object| (kind.decode)(&object))
        .map_err(|error| ApiError::malformed(label, &error))
}

/// What is sent to a subresource, and comes back.
fn form(subresource: Option<&str>) -> SubresourceForm {
    subresource.map_or(SubresourceForm::Object, subresource::form)
}

/// Scales go as JSON: those of custom resources have no other form.
fn accept_form(form: SubresourceForm) -> HeaderValue {
    if form == SubresourceForm::Scale { JSON } else { PROTOBUF }
}

fn body_of(kind: &Kind, form: SubresourceForm, body: &[u8]) -> Result<(HeaderValue, Bytes), WireError> {
    Ok(match form {
        SubresourceForm::Object => (PROTOBUF, envelope(kind, body)),
        SubresourceForm::Scale => (JSON, Scale::to_json(body)?.to_string().into()),
        SubresourceForm::Request { api_version, kind } => {
            (PROTOBUF, wrap_envelope(api_version, kind, body).into())
        }
    })
}

fn decode_form(
    kind: &'static Kind,
    form: SubresourceForm,
    label: &str,
    body: &Bytes,
) -> Result<AnyObject, ApiError> {
    if form != SubresourceForm::Scale {
        return decode_object(kind, label, body);
    }
    Scale::from_json(body)
        .map_err(|error| ApiError::Malformed { request: label.to_owned(), what: error.to_string() })
}

/// A delete's body, without its envelope.
fn encode_delete_options(options: &DeleteOptions) -> Vec<u8> {
    let text = |text: &Option<String>| text.as_deref().map(Str::from).unwrap_or_default();
    let propagation = options.propagation.map_or("", |propagation| match propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    });
    let request = DeleteRequest {
        grace_period_seconds: options.grace_period_seconds,
        preconditions: Preconditions {
            uid: text(&options.uid),
            resource_version: text(&options.resource_version),
        },
        propagation_policy: propagation.into(),
    };
    request.to_bytes()
}

/// Turns an answer that is not a success into its error.
pub(super) async fn refuse(
    label: &str,
    response: Response<ResponseBody>,
) -> Result<Response<ResponseBody>, ApiError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse().ok())
        .map(Duration::from_secs);
    let body = read(label, response.into_body()).await?;
    Err(ApiError::refused(label, code, retry_after, &body))
}
