//! `autoscaling/v1`, trimmed: the scale of anything that has one.

use std::sync::Arc;

use bytes::Bytes;

use super::kind::{AnyObject, Object};
use super::meta::ObjectMeta;
use crate::wire::{Message as _, Str, WireError, message};

message! {
    schema SCHEMA;

    /// The scale of an object. Name, UID and resource version are those of the object. Its bytes are kept in `raw`, for it is
    /// rewritten.
    pub struct Scale + raw = "k8s.io.api.autoscaling.v1.Scale" {
        /// The object's metadata, in part.
        1 => metadata: ObjectMeta,
        /// What is wanted.
        2 => spec: ScaleSpec,
        /// What there is.
        3 => status: ScaleStatus,
    }

    /// What is wanted.
    pub struct ScaleSpec = "k8s.io.api.autoscaling.v1.ScaleSpec" {
        /// So many.
        1 => replicas: i32,
    }

    /// What there is.
    pub struct ScaleStatus = "k8s.io.api.autoscaling.v1.ScaleStatus" {
        /// So many.
        1 => replicas: i32,
        /// The label selector of what is counted, as text.
        2 => selector: Str,
    }
}

impl Object for Scale {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn raw(&self) -> Bytes {
        self.raw.0.clone()
    }

    fn size(&self) -> usize {
        self.to_bytes().len() + self.raw.0.len()
    }
}

impl Scale {
    /// Decodes a scale and keeps its bytes.
    pub(crate) fn decode_any(bytes: &Bytes) -> Result<AnyObject, WireError> {
        let mut scale = Self::decode(bytes)?;
        scale.raw = Bytes::copy_from_slice(bytes).into();
        Ok(Arc::new(scale))
    }
}
