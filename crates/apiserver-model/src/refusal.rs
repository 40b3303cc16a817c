//! What the API server answers when it does not do what it is asked.

use coxswain_machinery::api::meta::{Status, StatusCause, StatusDetails};
use coxswain_machinery::wire::{Message as _, wrap_envelope};

use super::Place;

/// A `Status` that says no.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The reason, as in `metav1.Status`.
    pub reason: &'static str,
    /// What is wrong, for people.
    pub message: String,
    cause: Option<&'static str>,
    place: Option<Box<Place>>,
    /// After how many seconds it may be tried again.
    pub retry_after: Option<u32>,
}

impl Refusal {
    /// One that is about no object.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), cause: None, place: None, retry_after: None }
    }

    /// One that says when to come back.
    pub fn later(seconds: u32) -> Self {
        let why = "too many requests, please try again later";
        Self { retry_after: Some(seconds), ..Self::new(429, "TooManyRequests", why) }
    }

    fn about(place: &Place, code: u16, reason: &'static str, what: &str) -> Self {
        let message = format!("{} {:?} {what}", place.resource, place.name);
        Self { place: Some(Box::new(place.clone())), ..Self::new(code, reason, message) }
    }

    /// There is no such object.
    pub fn not_found(place: &Place) -> Self {
        Self::about(place, 404, "NotFound", "not found")
    }

    /// There is one of this name.
    pub fn exists(place: &Place) -> Self {
        Self::about(place, 409, "AlreadyExists", "already exists")
    }

    /// It is another, or another version.
    pub fn conflict(place: &Place) -> Self {
        Self::about(place, 409, "Conflict", "cannot be changed: the object has been modified")
    }

    /// An object may not be so.
    pub fn invalid(place: &Place, why: &str) -> Self {
        Self::about(place, 422, "Invalid", why)
    }

    /// What admission says.
    pub fn forbidden(place: &Place, why: &str) -> Self {
        let group = super::group_of(place.resource);
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!("{}{dot}{group} {:?} is forbidden: {why}", place.resource, place.name);
        Self { place: Some(Box::new(place.clone())), ..Self::new(403, "Forbidden", message) }
    }

    /// The namespace is being deleted.
    pub fn terminating(place: &Place) -> Self {
        let why = "cannot be created because its namespace is being terminated";
        Self { cause: Some("NamespaceTerminating"), ..Self::about(place, 403, "Forbidden", why) }
    }

    /// The version is too old.
    pub fn expired() -> Self {
        Self::new(410, "Expired", "the resource version is too old")
    }

    /// The message, without its envelope.
    pub fn status(&self) -> Vec<u8> {
        let details = self.place.as_ref().map(|place| {
            let cause = |reason: &str| StatusCause { reason: reason.into(), ..StatusCause::default() };
            Box::new(StatusDetails {
                name: place.name.as_str().into(),
                group: super::group_of(place.resource).into(),
                kind: place.resource.into(),
                causes: self.cause.map(cause).into_iter().collect(),
                ..StatusDetails::default()
            })
        });
        let status = Status {
            status: "Failure".into(),
            message: self.message.as_str().into(),
            reason: self.reason.into(),
            code: self.code.into(),
            details,
            ..Status::default()
        };
        status.to_bytes()
    }

    /// The `metav1.Status` that says so, in its envelope.
    pub fn body(&self) -> Vec<u8> {
        wrap_envelope("v1", "Status", &self.status())
    }
}
