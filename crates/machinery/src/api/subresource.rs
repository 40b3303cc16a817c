//! Subresources: what each takes, and what its answer tells of the object.

/// What is sent to a subresource, and what comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubresourceForm {
    /// The object itself, of which one part is written: `status`, `approval`, `finalize` …
    Object,
    /// An `autoscaling/v1` [`Scale`](super::autoscaling::Scale). Its metadata are the object's: name, UID and resource
    /// version.
    Scale,
    /// A request of this version and kind. The answer does not show the object.
    Request {
        /// API version of the body.
        api_version: &'static str,
        /// Kind of the body.
        kind: &'static str,
    },
}

/// The form of a subresource, by its name; an unknown one takes the object.
pub fn form(subresource: &str) -> SubresourceForm {
    let request = |api_version, kind| SubresourceForm::Request { api_version, kind };
    match subresource {
        "scale" => SubresourceForm::Scale,
        "eviction" => request("policy/v1", "Eviction"),
        "binding" => request("v1", "Binding"),
        "token" => request("authentication.k8s.io/v1", "TokenRequest"),
        _ => SubresourceForm::Object,
    }
}
