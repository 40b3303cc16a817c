//! Requests for metadata: in protobuf, in JSON, or as whole objects in JSON, in this order, as kube-controller-manager asks for it.
//!
//! An aggregated API server may offer JSON alone, or ignore what it is asked for. Its objects are garbage collected, counted
//! against quotas and deleted with their namespaces like all others, so answers are read by their media type.

use bytes::Bytes;
use http::header::HeaderValue;

use super::api::ResponseBody;
use super::layers::events;
use crate::wire::json::{JsonError, metadata_event_from_json, metadata_from_json, metadata_list_from_json};

const OBJECT: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
     application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
);
const LIST: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
     application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
);
const WATCH: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;stream=watch,\
     application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
);

/// The JSON of an object is longer than its protobuf, and may be that of the whole object.
const LONGER: usize = 4;

/// The answer that is asked for: metadata of one object, of a list, or of the objects of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataForm {
    Object,
    List,
    Watch,
}

impl MetadataForm {
    const ALL: [Self; 3] = [Self::Object, Self::List, Self::Watch];

    /// Returns the value of the header `Accept`.
    pub(super) fn accept(self) -> HeaderValue {
        match self {
            Self::Object => OBJECT,
            Self::List => LIST,
            Self::Watch => WATCH,
        }
    }

    /// Returns the form that a request asks for; `None` if it asks for no metadata.
    pub(super) fn of(accept: &HeaderValue) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.accept() == accept)
    }

    /// Returns how many bytes an answer in JSON may have that could have `limit` in protobuf.
    pub(super) fn json_limit(self, limit: usize) -> usize {
        match self {
            Self::Object => limit.saturating_mul(LONGER),
            // A list has a limit that no list needs.
            Self::List | Self::Watch => limit,
        }
    }

    /// Makes an answer in JSON into one in protobuf.
    ///
    /// # Errors
    /// It is no such object or list.
    pub(super) fn in_protobuf(self, json: &[u8]) -> Result<Bytes, JsonError> {
        let encoded = match self {
            Self::List => metadata_list_from_json(json)?,
            Self::Object | Self::Watch => metadata_from_json(json)?,
        };
        Ok(encoded.into())
    }
}

/// Makes the body of a watch in JSON into frames of protobuf.
pub(super) fn watch_in_protobuf(body: ResponseBody) -> ResponseBody {
    events(body, metadata_event_from_json)
}
