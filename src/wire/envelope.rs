//! What Kubernetes wraps around protobuf objects: the `k8s\0` magic with `runtime.Unknown`, lists, watch frames.
//!
//! See "Kubernetes Protobuf encoding" in the API concepts documentation.

use bytes::Bytes;

use super::labels::map_entry_of;
use super::reader::{Reader, WireError};
use super::splice::put_bytes;

/// The four bytes in front of every protobuf object at rest and in transit.
pub const ENVELOPE_MAGIC: &[u8; 4] = b"k8s\0";

/// The object inside of an envelope, sharing its buffer.
pub fn unwrap_envelope(bytes: &Bytes) -> Result<Bytes, WireError> {
    let rest = bytes
        .strip_prefix(ENVELOPE_MAGIC.as_slice())
        .ok_or_else(|| WireError::new("the k8s magic is missing"))?;
    let mut reader = Reader::new(rest);
    let mut raw: &[u8] = &[];
    while let Some((number, value)) = reader.next_field()? {
        if number == 2 {
            raw = value.bytes()?;
        }
    }
    Ok(bytes.slice_ref(raw))
}

/// An envelope around an encoded object, as a request body.
pub fn wrap_envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    put_bytes(&mut type_meta, 1, api_version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut out = Vec::with_capacity(object.len() + type_meta.len() + 16);
    out.extend_from_slice(ENVELOPE_MAGIC);
    put_bytes(&mut out, 1, &type_meta);
    put_bytes(&mut out, 2, object);
    out
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
    let mut page = ListPage::default();
    let mut reader = Reader::new(list);
    while let Some((number, value)) = reader.next_field()? {
        match number {
            1 => {
                let mut meta = Reader::new(value.bytes()?);
                while let Some((number, value)) = meta.next_field()? {
                    match number {
                        2 => value.text()?.clone_into(&mut page.resource_version),
                        3 => value.text()?.clone_into(&mut page.continue_token),
                        _ => {}
                    }
                }
            }
            2 => page.items.push(list.slice_ref(value.bytes()?)),
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
        let mut event = Self::default();
        let mut reader = Reader::new(frame);
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => event.kind = EventType::parse(value.bytes()?),
                2 => {
                    let mut extension = Reader::new(value.bytes()?);
                    while let Some((number, value)) = extension.next_field()? {
                        if number == 1 {
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
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectHead<'a> {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Name; empty in a bookmark.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
    /// Resource version.
    pub resource_version: &'a str,
    metadata: &'a [u8],
}

impl<'a> ObjectHead<'a> {
    /// Reads an object without envelope: its metadata is field 1, as in every Kubernetes object.
    pub fn read(object: &'a [u8]) -> Result<Self, WireError> {
        let mut head = Self::default();
        let mut reader = Reader::new(object);
        while let Some((number, value)) = reader.next_field()? {
            if number == 1 {
                head.metadata = value.bytes()?;
            }
        }
        let mut reader = Reader::new(head.metadata);
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => head.name = value.text()?,
                3 => head.namespace = value.text()?,
                5 => head.uid = value.text()?,
                6 => head.resource_version = value.text()?,
                _ => {}
            }
        }
        Ok(head)
    }

    /// Whether the annotation `key` has this value.
    pub fn has_annotation(&self, key: &str, content: &str) -> Result<bool, WireError> {
        let mut reader = Reader::new(self.metadata);
        while let Some((number, value)) = reader.next_field()? {
            if number == 12 && map_entry_of(value)? == (key, content) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
