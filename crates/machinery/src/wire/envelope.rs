//! What Kubernetes wraps around protobuf objects: the `k8s\0` magic with `runtime.Unknown`, lists, watch frames.
//!
//! See "Kubernetes Protobuf encoding" in the API concepts documentation.

use std::borrow::Cow;

use bytes::Bytes;

use super::labels::map_entry_of;
use super::reader::{Reader, WireError};
use super::splice::{get, put_bytes, put_text};
use super::text::Str;
use super::types::Raw;
use super::{field, message, path};

message! {
    schema SCHEMA;

    /// What an object travels in.
    pub(crate) struct Envelope = "k8s.io.apimachinery.pkg.runtime.Unknown" {
        1 => type_meta: TypeMeta,
        2 => raw: Raw,
    }

    /// What the object is.
    pub(crate) struct TypeMeta = "k8s.io.apimachinery.pkg.runtime.TypeMeta" {
        1 => api_version: Str,
        2 => kind: Str,
    }

    /// A list; those of all kinds are alike.
    pub(crate) struct AnyList = "k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList" {
        1 => metadata: ListMeta,
    } + named {
        2 => items,
    }

    /// Metadata of a list.
    pub(crate) struct ListMeta = "k8s.io.apimachinery.pkg.apis.meta.v1.ListMeta" {
        2 => resource_version: Str,
        3 => r#continue: Str,
    }

    /// An event of a watch.
    pub(crate) struct WatchEvent = "k8s.io.apimachinery.pkg.apis.meta.v1.WatchEvent" {
        1 => r#type: Str,
        2 => object: RawExtension,
    }

    /// An object within another.
    pub(crate) struct RawExtension = "k8s.io.apimachinery.pkg.runtime.RawExtension" {
        1 => raw: Raw,
    }

    /// What identifies an object.
    pub(crate) struct HeadMeta = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta" {
        1 => name: Str,
        3 => namespace: Str,
        5 => uid: Str,
        6 => resource_version: Str,
    } + named {
        12 => annotations,
    }

    /// An object: each has its metadata in front.
    pub(crate) struct AnyHead = "k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata" {
        1 => metadata: HeadMeta,
    }
}

/// The four bytes in front of every protobuf object at rest and in transit.
pub const ENVELOPE_MAGIC: &[u8; 4] = b"k8s\0";

/// The object inside of an envelope, sharing its buffer.
pub fn unwrap_envelope(bytes: &Bytes) -> Result<Bytes, WireError> {
    let rest = bytes
        .strip_prefix(ENVELOPE_MAGIC.as_slice())
        .ok_or_else(|| WireError::new("missing k8s magic bytes"))?;
    let mut reader = Reader::new(rest);
    let mut raw: &[u8] = &[];
    while let Some((number, value)) = reader.next_field()? {
        if number == field!(Envelope, raw) {
            raw = value.bytes()?;
        }
    }
    Ok(bytes.slice_ref(raw))
}

/// An envelope around an encoded object, as a request body.
pub fn wrap_envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    put_text(&mut type_meta, field!(TypeMeta, apiVersion), api_version);
    put_text(&mut type_meta, field!(TypeMeta, kind), kind);
    let mut out = Vec::with_capacity(object.len() + type_meta.len() + 16);
    out.extend_from_slice(ENVELOPE_MAGIC);
    put_bytes(&mut out, field!(Envelope, typeMeta), &type_meta);
    put_bytes(&mut out, field!(Envelope, raw), object);
    out
}

/// The `kind` that an envelope names.
pub fn envelope_kind(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let rest = bytes.strip_prefix(ENVELOPE_MAGIC.as_slice())?;
    get(rest, path!(Envelope, typeMeta.kind)).ok()??.text().ok()
}

/// One page of a list.
#[derive(Debug, Default)]
pub struct ListPage {
    /// The items, each an object without envelope, sharing the response's buffer.
    pub items: Vec<Bytes>,
    /// The list's resource version.
    pub resource_version: String,
    /// Where the next page begins; empty on the last.
    pub continue_token: String,
}

/// Takes a list (without envelope) apart.
pub fn decode_list(list: &Bytes) -> Result<ListPage, WireError> {
    const METADATA: u32 = field!(AnyList, metadata);
    const ITEMS: u32 = field!(AnyList, items);
    const VERSION: u32 = field!(ListMeta, resourceVersion);
    const CONTINUE: u32 = field!(ListMeta, continue);
    let mut page = ListPage::default();
    let mut reader = Reader::new(list);
    while let Some((number, value)) = reader.next_field()? {
        match number {
            METADATA => {
                let mut meta = Reader::new(value.bytes()?);
                while let Some((number, value)) = meta.next_field()? {
                    match number {
                        VERSION => page.resource_version = value.text()?.into_owned(),
                        CONTINUE => page.continue_token = value.text()?.into_owned(),
                        _ => {}
                    }
                }
            }
            ITEMS => page.items.push(list.slice_ref(value.bytes()?)),
            _ => {}
        }
    }
    Ok(page)
}

/// What a watch event says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventType {
    /// The object appeared, or was there when the watch began.
    Added,
    /// It changed.
    Modified,
    /// It is gone; this is its final state.
    Deleted,
    /// No object: everything up to this resource version has been sent.
    Bookmark,
    /// A `meta/v1 Status`: the watch failed.
    Error,
    /// A word that we don't know.
    #[default]
    Unknown,
}

impl EventType {
    fn parse(word: &[u8]) -> Self {
        match word {
            b"ADDED" => Self::Added,
            b"MODIFIED" => Self::Modified,
            b"DELETED" => Self::Deleted,
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            _ => Self::Unknown,
        }
    }
}

/// One event of a protobuf watch: the frame behind its four-byte big-endian length.
#[derive(Debug, Default)]
pub struct WatchFrame {
    /// What happened.
    pub kind: EventType,
    /// The object without its envelope; for an error a `meta/v1 Status`.
    pub object: Bytes,
}

impl WatchFrame {
    /// Decodes a frame, sharing its buffer.
    pub fn decode(frame: &Bytes) -> Result<Self, WireError> {
        const TYPE: u32 = field!(WatchEvent, type);
        const OBJECT: u32 = field!(WatchEvent, object);
        let mut event = Self::default();
        let mut reader = Reader::new(frame);
        while let Some((number, value)) = reader.next_field()? {
            match number {
                TYPE => event.kind = EventType::parse(value.bytes()?),
                OBJECT => {
                    let mut extension = Reader::new(value.bytes()?);
                    while let Some((number, value)) = extension.next_field()? {
                        if number == field!(RawExtension, raw) {
                            event.object = unwrap_envelope(&frame.slice_ref(value.bytes()?))?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }
}

/// What identifies an encoded object, read without decoding it: to tell whether it is known already, and to name it
/// when it can't be decoded.
#[derive(Clone, Debug, Default)]
pub struct ObjectHead<'a> {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// Name; empty in a bookmark.
    pub name: Cow<'a, str>,
    /// UID.
    pub uid: Cow<'a, str>,
    /// Resource version.
    pub resource_version: Cow<'a, str>,
    metadata: &'a [u8],
}

impl<'a> ObjectHead<'a> {
    /// Reads an object without envelope.
    pub fn read(object: &'a [u8]) -> Result<Self, WireError> {
        let mut head = Self::default();
        let mut reader = Reader::new(object);
        while let Some((number, value)) = reader.next_field()? {
            if number == field!(AnyHead, metadata) {
                head.metadata = value.bytes()?;
            }
        }
        head.read_metadata()?;
        Ok(head)
    }

    fn read_metadata(&mut self) -> Result<(), WireError> {
        const NAME: u32 = field!(HeadMeta, name);
        const NAMESPACE: u32 = field!(HeadMeta, namespace);
        const UID: u32 = field!(HeadMeta, uid);
        const VERSION: u32 = field!(HeadMeta, resourceVersion);
        let mut reader = Reader::new(self.metadata);
        while let Some((number, value)) = reader.next_field()? {
            match number {
                NAME => self.name = value.text()?,
                NAMESPACE => self.namespace = value.text()?,
                UID => self.uid = value.text()?,
                VERSION => self.resource_version = value.text()?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads of an object what comes before the first malformed field: what names it if it cannot be decoded.
    pub fn salvage(object: &'a [u8]) -> Self {
        const METADATA: u32 = field!(AnyHead, metadata);
        let mut head = Self::default();
        let mut reader = Reader::new(object);
        while let Ok(Some((number, value))) = reader.next_field() {
            if let (METADATA, Ok(metadata)) = (number, value.bytes()) {
                head.metadata = metadata;
            }
        }
        // The fields before an error stay.
        let _ = head.read_metadata();
        head
    }

    /// Whether the annotation `key` has this value.
    pub fn has_annotation(&self, key: &str, content: &str) -> Result<bool, WireError> {
        let mut reader = Reader::new(self.metadata);
        while let Some((number, value)) = reader.next_field()? {
            if number == field!(HeadMeta, annotations)
                && map_entry_of(value)? == (key.as_bytes(), content.as_bytes())
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
