//! What can go wrong with a request, and whether it is worth another try.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::api::BoxError;
use super::body::AnswerTooLong;
use super::patience::WaitEnded;
use super::request::RequestIntent;
use super::{RequestTimeout, TokenError, TransportError, WritesStopped};
use crate::api::meta::{Status, StatusCause, StatusDetails, StatusMetadata};
use crate::wire::json::{JsonError, read_json};
use crate::wire::{Message, Str, WireError, unwrap_envelope};

/// A request that failed. `request` is its verb and path, without the query.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApiError {
    /// The API server refused it.
    #[error("{request}: {message} ({code}{}{reason})", if reason.is_empty() { "" } else { " " })]
    Refused {
        /// What was asked.
        request: String,
        /// HTTP status code.
        code: u16,
        /// Machine-readable reason; empty when the answer was not a `Status`, except for a create that met a bare 409.
        reason: Str,
        /// The server's message.
        message: String,
        /// The `Status` as it came, for causes and details.
        status: Box<Status>,
        /// When the server asked to come back, from `Retry-After`: the request may be repeated then. [`ApiError::retry_after`] considers the
        /// status as well.
        retry_after: Option<Duration>,
    },
    /// No answer: connection refused or lost, TLS, DNS. A write may or may not have been carried out.
    #[error("{request}: {source}")]
    Transport {
        /// What was asked.
        request: String,
        /// Why.
        source: std::sync::Arc<dyn std::error::Error + Send + Sync>,
    },
    /// No answer in time. A write may or may not have been carried out.
    #[error("{request}: timed out after {after:?}")]
    Timeout {
        /// What was asked.
        request: String,
        /// The limit.
        after: Duration,
    },
    /// The request cannot be built: a segment of its path is not legal, or its URI is too long. Nothing was sent, and the same
    /// request fails again.
    #[error("{request}: {what}")]
    Unaddressable {
        /// The verb and the path without encoding.
        request: String,
        /// The illegal segment, in the words of Kubernetes' own clients.
        what: String,
    },
    /// The answer is longer than the limit. A write has been carried out or not.
    #[error("{request}: the response has more than {limit} bytes")]
    TooLong {
        /// What was asked.
        request: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The answer is not what it should be.
    #[error("{request}: {what}")]
    Malformed {
        /// What was asked.
        request: String,
        /// What is wrong with the answer.
        what: String,
    },
}

/// The reasons of the API: <https://pkg.go.dev/k8s.io/apimachinery/pkg/apis/meta/v1#StatusReason>.
const KNOWN_REASONS: [&str; 20] = [
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ServerTimeout",
    "ServiceUnavailable",
    "StorageReadError",
    "StoreReadError",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
];

/// The longest pause that a server can ask for. A webhook may choose any number: 2³¹ seconds are 68 years.
pub(super) const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(5);

impl ApiError {
    /// The error for a request without an answer.
    pub(super) fn transport(request: &str, source: BoxError) -> Self {
        let request = request.to_owned();
        let source = match source.downcast::<RequestTimeout>() {
            Ok(timeout) => return Self::Timeout { request, after: timeout.0 },
            Err(source) => source,
        };
        let source = match source.downcast::<AnswerTooLong>() {
            Ok(error) => return Self::TooLong { request, limit: error.0 },
            Err(source) => source,
        };
        match source.downcast::<JsonError>() {
            Ok(error) => Self::Malformed { request, what: error.to_string() },
            Err(source) => Self::Transport { request, source: source.into() },
        }
    }

    pub(super) fn malformed(request: &str, error: &WireError) -> Self {
        Self::Malformed { request: request.to_owned(), what: error.to_string() }
    }

    /// The error for an answer that is not a success; `body` is a `Status` in protobuf or JSON, or anything. Without a `Status`, as from a
    /// proxy, 409 in answer to a create means that the object exists, as in kube-controller-manager's client.
    pub(super) fn refused(
        request: &str,
        intent: RequestIntent,
        code: StatusCode,
        retry_after: Option<Duration>,
        body: &Bytes,
    ) -> Self {
        let status = decode_status(body);
        let message = if status.message.is_empty() {
            let text: String = String::from_utf8_lossy(body).trim().chars().take(200).collect();
            if text.is_empty() {
                code.canonical_reason().unwrap_or("no reason given").to_owned()
            } else {
                text
            }
        } else {
            status.message.to_string()
        };
        let is_bare = status.status.is_empty() && status.reason.is_empty();
        let reason = if is_bare && code == StatusCode::CONFLICT && intent == RequestIntent::Create {
            Str::from("AlreadyExists")
        } else {
            status.reason.clone()
        };
        Self::Refused {
            request: request.to_owned(),
            code: code.as_u16(),
            reason,
            message,
            retry_after: retry_after.map(|wait| wait.min(LONGEST_RETRY_AFTER)),
            status: Box::new(status),
        }
    }

    /// The HTTP status code; 0 when there was no answer.
    pub fn code(&self) -> u16 {
        match self {
            Self::Refused { code, .. } => *code,
            _ => 0,
        }
    }

    /// The machine-readable reason; empty when there was no answer.
    pub fn reason(&self) -> &str {
        match self {
            Self::Refused { reason, .. } => reason,
            _ => "",
        }
    }

    /// The server's message as events and conditions show it; our own words when there was no answer.
    pub fn message(&self) -> String {
        match self {
            Self::Refused { message, .. } => message.clone(),
            Self::Unaddressable { what, .. } => what.clone(),
            other => other.to_string(),
        }
    }

    /// Whether the object is not there, or nobody serves such objects.
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Whether who serves such objects says that this one is not there: the answer names it. Where a resource is not
    /// served, nothing can be said about its objects.
    pub fn is_object_not_found(&self) -> bool {
        match self {
            Self::Refused { code: 404, status, .. } => {
                status.details.as_ref().is_some_and(|details| !details.name.is_empty())
            }
            _ => false,
        }
    }

    /// Returns whether the error is a 404 that names no object. Such a 404 proves nothing about the object.
    pub(crate) fn is_unnamed_not_found(&self) -> bool {
        self.is_not_found() && !self.is_object_not_found()
    }

    /// Whether the request was not built, because a segment of its path is not legal or its URI is too long. This is no proof
    /// that no object has such a name.
    pub fn is_unaddressable(&self) -> bool {
        matches!(self, Self::Unaddressable { .. })
    }

    /// Whether a create found the name taken.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// Whether a precondition (uid, resource version) did not hold.
    pub fn is_conflict(&self) -> bool {
        self.is_for("Conflict", StatusCode::CONFLICT)
    }

    /// Whether the object is not valid.
    pub fn is_invalid(&self) -> bool {
        self.is_for("Invalid", StatusCode::UNPROCESSABLE_ENTITY)
    }

    /// Whether it was refused for this reason. Where the API does not know the reason, as of an admission webhook that sets none, the code
    /// counts.
    fn is_for(&self, reason: &str, code: StatusCode) -> bool {
        let held = self.reason();
        held == reason || self.code() == code.as_u16() && !KNOWN_REASONS.contains(&held)
    }

    /// Whether the resource version asked for is too old (`Expired` or `Gone`).
    pub fn is_expired(&self) -> bool {
        self.code() == 410 || self.reason() == "Expired"
    }

    /// Of a list whose position the server has forgotten: where it goes on with the present state instead. Empty if it does not
    /// say.
    pub fn next_page(&self) -> Str {
        match self {
            Self::Refused { status, .. } => status.metadata.r#continue.clone(),
            _ => Str::EMPTY,
        }
    }

    /// Whether `Status` details name this cause.
    pub fn has_cause(&self, cause: &str) -> bool {
        match self {
            Self::Refused { status, .. } => {
                status.details.iter().flat_map(|details| &details.causes).any(|held| held.reason == cause)
            }
            _ => false,
        }
    }

    /// Whether nothing can be made because the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.has_cause("NamespaceTerminating")
    }

    /// Whether the outcome of a write is unknown: it may have been carried out.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Transport { source, .. } => {
                let unsent = source.downcast_ref::<TransportError>().is_some_and(TransportError::is_not_sent)
                    || source.is::<WritesStopped>()
                    || source.is::<WaitEnded>()
                    || source.is::<TokenError>();
                !unsent
            }
            Self::Timeout { .. } | Self::Malformed { .. } | Self::TooLong { .. } => true,
            Self::Unaddressable { .. } => false,
            // Admission precedes the write.
            Self::Refused { code: 500, message, .. } if message.starts_with(FAILED_WEBHOOK) => false,
            Self::Refused { code, reason, .. } => {
                matches!(code, 500 | 502 | 504) || reason.as_str() == "Timeout"
            }
        }
    }

    /// Whether it is a write that was not sent, or a request that is not repeated, because leadership is lost, or the controller or the
    /// manager is being stopped. Nothing is to be reported.
    pub fn is_writes_stopped(&self) -> bool {
        matches!(self, Self::Transport { source, .. } if source.is::<WritesStopped>() || source.is::<WaitEnded>())
    }

    /// How long the server asked to wait, in `Retry-After` or in the status' details.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Refused { retry_after, status, .. } = self else { return None };
        retry_after.or_else(|| {
            let seconds = u64::try_from(status.details.as_ref()?.retry_after_seconds).ok()?;
            (seconds > 0).then(|| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
        })
    }
}

/// Beginning of the API server's message if it could not call an admission webhook whose failure policy is `Fail`.
const FAILED_WEBHOOK: &str = "Internal error occurred: failed calling webhook ";

/// The `Status` in a body; an empty one when it holds none, for the code alone says what went wrong then.
pub(super) fn decode_status(body: &Bytes) -> Status {
    if let Ok(object) = unwrap_envelope(body) {
        return Status::decode(&object).unwrap_or_default();
    }
    status_of_json(&read_json(body).unwrap_or_default())
}

/// A `Status` in JSON: JSON requests get it, and all requests from proxies and the authentication filter. Each field counts by itself: null,
/// or a value of another type, is the zero value.
fn status_of_json(json: &Value) -> Status {
    let text = |value: &Value| value.as_str().map(Str::from).unwrap_or_default();
    let number =
        |value: &Value| value.as_i64().and_then(|number| i32::try_from(number).ok()).unwrap_or_default();
    let cause = |cause: &Value| StatusCause {
        reason: text(&cause["reason"]),
        message: text(&cause["message"]),
        field: text(&cause["field"]),
    };
    let details = json["details"].as_object().map(|_| {
        let details = &json["details"];
        Box::new(StatusDetails {
            name: text(&details["name"]),
            group: text(&details["group"]),
            kind: text(&details["kind"]),
            uid: text(&details["uid"]),
            retry_after_seconds: number(&details["retryAfterSeconds"]),
            causes: details["causes"].as_array().into_iter().flatten().map(cause).collect(),
        })
    });
    Status {
        metadata: StatusMetadata { r#continue: text(&json["metadata"]["continue"]) },
        status: text(&json["status"]),
        message: text(&json["message"]),
        reason: text(&json["reason"]),
        code: number(&json["code"]),
        details,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_admission_webhook_is_no_write_of_unknown_effect() {
        let refused = |code: u16, message: &str| ApiError::Refused {
            request: "POST /api/v1/namespaces/ns/pods".to_owned(),
            code,
            reason: "InternalError".into(),
            message: message.to_owned(),
            status: Box::default(),
            retry_after: None,
        };
        let failed = "Internal error occurred: failed calling webhook \"pods.example.com\": failed to call webhook: \
                      Post \"https://hook.ns.svc:443/pods\": connection refused";
        assert!(!refused(500, failed).is_ambiguous());
        for (code, message) in [
            (500, "Internal error occurred: etcd"),
            (502, failed),
            (504, failed),
            (500, "failed calling webhook"),
        ] {
            assert!(refused(code, message).is_ambiguous(), "{code} {message}");
        }
        assert!(!refused(403, "no").is_ambiguous());
    }

    fn refused(intent: RequestIntent, code: u16, body: &str) -> ApiError {
        let code = StatusCode::from_u16(code).unwrap();
        ApiError::refused("POST /x", intent, code, None, &Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn a_reason_that_the_api_does_not_know_counts_by_its_code() {
        use RequestIntent::{Create, Update};
        let status = |reason: &str| format!(r#"{{"kind":"Status","status":"Failure","reason":"{reason}"}}"#);
        for (intent, code, body, conflict, exists, invalid) in [
            (Create, 409, status("Conflict"), true, false, false),
            (Create, 409, status("AlreadyExists"), false, true, false),
            (Create, 409, status(""), true, false, false),
            (Create, 409, status("TooLate"), true, false, false),
            (Update, 409, status("Forbidden"), false, false, false),
            (Create, 409, String::new(), false, true, false),
            (Create, 409, "conflict".to_owned(), false, true, false),
            (Update, 409, String::new(), true, false, false),
            (Update, 422, String::new(), false, false, true),
            (Update, 422, status("Invalid"), false, false, true),
            (Update, 422, status("Conflict"), true, false, false),
            (Update, 500, status(""), false, false, false),
        ] {
            let error = refused(intent, code, &body);
            let found = (error.is_conflict(), error.is_already_exists(), error.is_invalid());
            assert_eq!(found, (conflict, exists, invalid), "{intent:?} {code} {body}");
        }
    }

    #[test]
    fn each_field_of_a_status_in_json_counts_by_itself() {
        for body in [
            r#"{"reason":"AlreadyExists","details":{"causes":null}}"#,
            r#"{"reason":"AlreadyExists","details":null,"metadata":null,"message":null,"code":null}"#,
            r#"{"reason":"AlreadyExists","code":"409","details":{"name":7,"causes":[null,{"reason":null}]}}"#,
        ] {
            assert!(refused(RequestIntent::Update, 409, body).is_already_exists(), "{body}");
        }
        let body = r#"{"metadata":{"continue":"c"},"message":"m","details":{"name":"n","uid":null,
            "retryAfterSeconds":3,"causes":[{"reason":"NamespaceTerminating","field":null}]}}"#;
        let error = refused(RequestIntent::Create, 403, body);
        assert!(error.is_namespace_terminating() && error.message() == "m");
        assert_eq!((&*error.next_page(), error.retry_after()), ("c", Some(Duration::from_secs(3))));
        assert!(refused(RequestIntent::Get, 404, r#"{"details":{"name":"n"}}"#).is_object_not_found());
    }
}
