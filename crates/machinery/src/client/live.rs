//! Live reads that are no object and no list: JSON of any path, and whether somebody may do something.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf as _, Bytes};
use http::header::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::ApiClient;
use super::body;
use super::error::ApiError;
use super::request::{Query, RequestIntent, RequestPath, RequestUri, Target};
use super::send::refuse;
use crate::wire::Str;
use crate::wire::json::read_json;
use crate::wire::text::lossy_text;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Whether this user may do this: what a SubjectAccessReview asks. Empty fields match as they do there: no namespace is a
/// cluster-scoped resource, no name is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccessQuestion {
    /// Name of the user.
    pub user: Str,
    /// UID of the user.
    pub uid: Str,
    /// Groups of the user.
    pub groups: Vec<Str>,
    /// What else is known of the user, by key.
    pub extra: Vec<(Str, Vec<Str>)>,
    /// `get`, `create` …
    pub verb: Str,
    /// API group.
    pub group: Str,
    /// Version; `*` for any.
    pub version: Str,
    /// Resource, in the plural.
    pub resource: Str,
    /// Subresource.
    pub subresource: Str,
    /// Namespace.
    pub namespace: Str,
    /// Name of the object.
    pub name: Str,
}

/// The answer to an [`AccessQuestion`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessVerdict {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why, when the authorizers said.
    pub reason: String,
}

/// The pieces of an answer, to be read as a stream. Each is freed when it has been read.
#[derive(Debug, Default)]
pub struct Pieces(pub(super) VecDeque<Bytes>);

impl io::Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(first) = self.0.front_mut() {
            let count = first.len().min(buffer.len());
            first.copy_to_slice(&mut buffer[..count]);
            if !first.is_empty() {
                return Ok(count);
            }
            self.0.pop_front();
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewAnswer {
    status: ReviewStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewStatus {
    allowed: bool,
    denied: bool,
    reason: String,
}

impl ApiClient {
    /// A GET whose answer is JSON of at most `limit` bytes: metrics APIs, the index of OpenAPI.
    pub async fn json_of(&self, uri: &RequestUri, limit: usize) -> Result<Value, ApiError> {
        let pieces = self.read_pieces(RequestIntent::Get, uri, limit).await?;
        let body = pieces.0.into_iter().fold(Vec::new(), |mut body, piece| {
            body.extend_from_slice(&piece);
            body
        });
        read_json(&body).map_err(|error| ApiError::Malformed {
            request: format!("GET {}", uri.path()),
            what: error.to_string(),
        })
    }

    /// A GET whose answer is JSON of at most `limit` bytes, as the pieces in which it came: for documents that are too large to
    /// be held twice.
    pub async fn pieces_of(&self, uri: &RequestUri, limit: usize) -> Result<Pieces, ApiError> {
        self.read_pieces(RequestIntent::Document, uri, limit).await
    }

    async fn read_pieces(
        &self,
        intent: RequestIntent,
        uri: &RequestUri,
        limit: usize,
    ) -> Result<Pieces, ApiError> {
        let (label, response) = self.send(intent, Target::Uri(uri), JSON, None).await?;
        let response = refuse(&label, intent, response).await?;
        let pieces = body::pieces(response.into_body(), limit.min(intent.body_limit())).await;
        pieces.map(Pieces).map_err(|source| ApiError::transport(label.as_str(), source))
    }

    /// Asks the API server whether somebody may do something. The request is a POST, but changes nothing.
    pub async fn review_access(&self, question: &AccessQuestion) -> Result<AccessVerdict, ApiError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": question.spec(),
        });
        let path = RequestPath::ACCESS_REVIEWS;
        let ReviewAnswer { status } =
            self.json(RequestIntent::Create, path, Query::NONE, Some(&review)).await?;
        Ok(AccessVerdict { allowed: status.allowed && !status.denied, reason: status.reason })
    }
}

impl AccessQuestion {
    /// The specification of a review. All texts are of the API, so none leaves in its text form.
    fn spec(&self) -> Value {
        let text = |text: &Str| Value::from(lossy_text(text));
        let texts = |values: &[Str]| -> Value { values.iter().map(text).collect() };
        let extra: serde_json::Map<String, Value> =
            self.extra.iter().map(|(key, values)| (lossy_text(key).into_owned(), texts(values))).collect();
        json!({
            "user": text(&self.user),
            "uid": text(&self.uid),
            "groups": texts(&self.groups),
            "extra": extra,
            "resourceAttributes": {
                "verb": text(&self.verb),
                "group": text(&self.group),
                "version": text(&self.version),
                "resource": text(&self.resource),
                "subresource": text(&self.subresource),
                "namespace": text(&self.namespace),
                "name": text(&self.name),
            },
        })
    }
}
