//! The intent of a request. Deadlines, rate limits and body limits follow from it.

use http::{Method, Request};

use super::Purpose;

/// The longest answer that shows one object: an object is bounded by etcd's request limit (1.5 MiB unless raised), and the
/// reflector accepts watch frames of the same length, so an object that can be watched can be read.
pub(crate) const LONGEST_OBJECT: usize = 16 << 20;

/// The longest list. A page of 500 objects of etcd's largest size has 750 MiB. A server that ignores `limit` (an aggregated
/// API, or a list from the watch cache) answers with everything: 150,000 pods, the most that a cluster is documented to
/// have, of 10 KiB each have 1.5 GiB.
const LONGEST_LIST: usize = 2 << 30;

/// The longest list that is read to find one object. A server that ignores the selector may answer with the whole collection.
const LONGEST_FIND: usize = 4 << 20;

/// The longest document of discovery or OpenAPI. The largest of kube-apiserver's own has 2 MiB; those of a cluster with
/// thousands of custom resources have ten times that.
const LONGEST_DOCUMENT: usize = 64 << 20;

/// Bytes of an error answer that are read. A `Status` is far shorter; the status code alone counts when it is not.
pub(in crate::client) const LONGEST_ERROR: usize = 1 << 20;

/// The intent of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestIntent {
    /// Read one object, or anything of its size.
    Get,
    /// Read one page of a collection.
    List,
    /// List a collection with a field selector for one object.
    Find,
    /// Watch a collection. Only this intent has a response without an end.
    Watch,
    /// Read a document of discovery or OpenAPI.
    Document,
    /// Create an object, or post to a subresource.
    Create,
    /// Replace an object.
    Update,
    /// Patch an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

impl RequestIntent {
    /// Returns the intent of a request. A request that carries none is treated as [`RequestIntent::Get`], the most bounded one.
    pub fn of<B>(request: &Request<B>) -> Self {
        request.extensions().get::<Purpose>().map_or(Self::Get, |purpose| purpose.intent)
    }

    /// Whether the response has no end, so that deadlines, rate limits and measurements leave its body alone.
    pub fn is_watch(self) -> bool {
        self == Self::Watch
    }

    /// Returns the verb as RBAC and audit logs name it.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Get | Self::Document => "get",
            Self::List | Self::Find => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Returns the HTTP method.
    pub fn method(self) -> Method {
        match self {
            Self::Get | Self::List | Self::Find | Self::Watch | Self::Document => Method::GET,
            Self::Create => Method::POST,
            Self::Update => Method::PUT,
            Self::Patch => Method::PATCH,
            Self::Delete | Self::DeleteCollection => Method::DELETE,
        }
    }

    /// Returns how many bytes a successful answer may have. The frames of a watch have this limit each (the reflector checks
    /// it); a watch as a whole has none.
    pub fn body_limit(self) -> usize {
        match self {
            Self::List | Self::DeleteCollection => LONGEST_LIST,
            Self::Find => LONGEST_FIND,
            Self::Document => LONGEST_DOCUMENT,
            Self::Get | Self::Watch | Self::Create | Self::Update | Self::Patch | Self::Delete => {
                LONGEST_OBJECT
            }
        }
    }
}
