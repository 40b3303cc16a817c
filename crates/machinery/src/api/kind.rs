//! A kind is a row of functions; the machinery that caches and moves objects is not generic over kinds.
//!
//! The rows stand in the files of their messages, a line each ([`kinds!`]), and [`objects!`] says what is kept of a message
//! that is an object.

use std::any::Any;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::meta::{ObjectMeta, PartialObjectMetadata};
use crate::random::HashSet;
use crate::wire::splice::without;
use crate::wire::{Keep, Message, Str, WireError, field};

/// A cached object: its metadata, and its whole self by downcast (see [`crate::informer::Lister`]).
pub trait Object: Any + Send + Sync + fmt::Debug {
    /// The object's metadata.
    fn meta(&self) -> &ObjectMeta;

    /// The object's encoding without `managedFields`, for kinds that controllers rewrite; otherwise empty.
    fn raw(&self) -> Bytes {
        Bytes::new()
    }

    /// Bytes of the encoding of what is held of it: of what was decoded, and of what [`Object::raw`] keeps beside that.
    fn size(&self) -> usize;
}

/// A shared object of any kind.
pub type AnyObject = Arc<dyn Object>;

/// Group, version and resource (plural), as in a REST path. The core group is `""`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// API group; empty for core.
    pub group: Str,
    /// API version.
    pub version: Str,
    /// Plural resource name.
    pub resource: Str,
}

impl fmt::Display for GroupVersionResource {
    /// `resource.group`, as kubectl names it; `resource` alone for the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

/// The values under which an index files an object.
pub type IndexKeys = SmallVec<[Str; 1]>;

/// Values up to this number are compared with each other; more are hashed.
pub(super) const FEW: usize = 16;

/// The same values in their order, each once. An object whose author chooses how many there are costs time in proportion to them.
pub fn distinct(values: impl IntoIterator<Item = Str>) -> IndexKeys {
    let mut all = IndexKeys::new();
    let mut seen = HashSet::default();
    for value in values {
        let is_new = if all.len() < FEW {
            // Linear: there are few.
            !all.contains(&value)
        } else {
            if seen.is_empty() {
                seen.extend(all.iter().cloned());
            }
            seen.insert(value.clone())
        };
        if is_new {
            all.push(value);
        }
    }
    all
}

/// Membership test for a list. The cost of one test does not grow with the length of the list.
#[derive(Debug)]
pub enum Among<'a, T> {
    /// At most 16 values, compared one by one.
    Few(&'a [T]),
    /// More values, in a hash set.
    Many(HashSet<&'a T>),
}

impl<'a, T: Eq + Hash> Among<'a, T> {
    /// Returns the membership test for `list`.
    pub fn of(list: &'a [T]) -> Self {
        if list.len() <= FEW { Self::Few(list) } else { Self::Many(list.iter().collect()) }
    }

    /// Reports whether the list contains `value`.
    pub fn contains(&self, value: &T) -> bool {
        match self {
            Self::Few(list) => list.contains(value),
            Self::Many(set) => set.contains(value),
        }
    }
}

/// The values of `old` that `new` lacks, in time in proportion to both.
pub fn missing<'a>(old: &'a [Str], new: &[Str]) -> Vec<&'a Str> {
    let new = Among::of(new);
    old.iter().filter(|value| !new.contains(value)).collect()
}

/// A secondary index of a store. Every store is indexed by namespace and name anyway.
pub struct Index {
    /// Unique among the indexes of a kind: whoever asks for one of this name shares it.
    pub name: &'static str,
    /// The values under which the object is filed.
    pub keys: fn(&dyn Object) -> IndexKeys,
}

/// A resource that can be watched and written: where it is, and how it is decoded.
pub struct Kind {
    /// API group; empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// `CamelCase` singular, as in an object's `kind`.
    pub kind: &'static str,
    /// Plural resource name, as in a REST path.
    pub resource: &'static str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether only metadata is asked of the API server (`PartialObjectMetadata`).
    pub metadata_only: bool,
    /// Decodes one object, without its envelope. The bytes belong to a larger buffer: what is kept must be copied.
    pub decode: fn(&Bytes) -> Result<AnyObject, WireError>,
}

/// A group and a version, from which rows are made.
pub(in crate::api) struct ApiVersion {
    pub(in crate::api) group: &'static str,
    pub(in crate::api) version: &'static str,
}

impl ApiVersion {
    /// The core group.
    pub(in crate::api) const CORE: Self = Self { group: "", version: "v1" };

    /// A row of objects that live in namespaces.
    pub(in crate::api) const fn namespaced<T: Decoded>(
        &self,
        kind: &'static str,
        resource: &'static str,
    ) -> Kind {
        let Self { group, version } = *self;
        Kind { group, version, kind, resource, namespaced: true, metadata_only: false, decode: decode::<T> }
    }

    /// A row of objects that live in no namespace.
    pub(in crate::api) const fn cluster_wide<T: Decoded>(
        &self,
        kind: &'static str,
        resource: &'static str,
    ) -> Kind {
        Kind { namespaced: false, ..self.namespaced::<T>(kind, resource) }
    }
}

impl Kind {
    /// The row with a decoder of its own.
    pub(in crate::api) const fn decoded_by(self, decode: fn(&Bytes) -> Result<AnyObject, WireError>) -> Self {
        Self { decode, ..self }
    }

    /// The row of objects of which only metadata is asked.
    pub(in crate::api) const fn metadata_only(self) -> Self {
        Self { metadata_only: true, ..self }
    }
}

/// Declares the rows of a file, and the list of them.
macro_rules! kinds {
    ($($(#[$meta:meta])* $name:ident = $row:expr;)*) => {
        $($(#[$meta])* pub static $name: $crate::api::Kind = $row;)*

        /// The rows of this file.
        pub(in crate::api) static KINDS: &[&$crate::api::Kind] = &[$(&$name),*];
    };
}
pub(in crate::api) use kinds;

/// Makes objects of messages: `+ raw` for those that keep their bytes, `keeps` for what is kept where anybody may add
/// something; everything if it is not said.
macro_rules! objects {
    ($($name:ident $(+ $raw:ident)? $(keeps $keep:expr)?;)*) => {$(
        impl $crate::api::Object for $name {
            fn meta(&self) -> &$crate::api::meta::ObjectMeta {
                &self.metadata
            }

            $(fn raw(&self) -> bytes::Bytes {
                self.$raw.0.clone()
            })?

            fn size(&self) -> usize {
                $crate::wire::Message::to_bytes(self).len() + $crate::api::Object::raw(self).len()
            }
        }

        impl $crate::api::kind::Decoded for $name {
            $(const KEEP: $crate::wire::Keep = $keep;)?

            $(
                const KEEPS_BYTES: bool = true;

                fn keep(&mut self, bytes: bytes::Bytes) {
                    self.$raw = bytes.into();
                }
            )?
        }
    )*};
}
pub(in crate::api) use objects;

/// An object that is decoded from its bytes.
pub(in crate::api) trait Decoded: Message + Object {
    /// What is kept where anybody may add something.
    const KEEP: Keep = Keep::ALL;
    /// Whether the bytes are kept, too.
    const KEEPS_BYTES: bool = false;

    /// Keeps the bytes.
    fn keep(&mut self, bytes: Bytes) {
        drop(bytes);
    }
}

/// Decodes an object, with its bytes if it keeps them.
pub(super) fn decode_kept<T: Decoded>(bytes: &Bytes) -> Result<T, WireError> {
    if !T::KEEPS_BYTES {
        return T::decode_with(bytes, T::KEEP);
    }
    let kept = own_bytes(bytes)?;
    let mut object = T::decode_with(&kept, T::KEEP)?;
    object.keep(kept);
    Ok(object)
}

fn decode<T: Decoded>(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(decode_kept::<T>(bytes)?))
}

/// The object's own buffer, free of the response that it came in, and without `metadata.managedFields`: a write without them
/// leaves the server's as they are.
pub(super) fn own_bytes(bytes: &Bytes) -> Result<Bytes, WireError> {
    const METADATA: u32 = field!(PartialObjectMetadata, metadata);
    const MANAGED_FIELDS: u32 = field!(PartialObjectMetadata, metadata.managedFields);
    without(bytes, METADATA, MANAGED_FIELDS).map(Bytes::from)
}

objects! {
    PartialObjectMetadata;
}

impl Kind {
    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether both are rows of one resource, in whatever form.
    pub fn is_of_resource(&self, other: &Self) -> bool {
        (self.group, self.version, self.resource) == (other.group, other.version, other.resource)
    }

    /// Group, version and resource.
    pub fn gvr(&self) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.into(),
            version: self.version.into(),
            resource: self.resource.into(),
        }
    }
}

impl fmt::Display for Kind {
    /// `resource.group`, as kubectl names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.gvr(), f)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Kind {
    /// A row is equal to itself alone: another one of the same resource may decode its objects into another type, and so must
    /// share neither store nor informer with it. See [`Kind::is_of_resource`].
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Kind {}

impl std::hash::Hash for Kind {
    /// By content, so that it is the same in every process.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.group, self.version, self.resource, self.metadata_only).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FEW, distinct, missing};
    use crate::api::dynamic;
    use crate::model::clock::Stopwatch;
    use crate::wire::Str;

    fn names(count: usize) -> Vec<Str> {
        (0..count).map(|name| Str::from(format!("a-name-of-some-length/{name}"))).collect()
    }

    #[test]
    fn distinct_keeps_the_order_and_each_value_once() {
        for count in [0, 1, FEW - 1, FEW, FEW + 1, 100] {
            let all = names(count);
            let twice = all.iter().flat_map(|name| [name.clone(), name.clone()]).chain(all.iter().cloned());
            assert_eq!(distinct(twice).as_slice(), all, "{count}");
        }
    }

    #[test]
    fn missing_is_what_only_the_old_values_have() {
        for (old, new) in [(0, 0), (3, 2), (2, 3), (FEW + 2, FEW + 1), (100, 50), (50, 100)] {
            let (old, new) = (names(old), names(new));
            let expected: Vec<&Str> = old.iter().skip(new.len()).collect();
            assert_eq!(missing(&old, &new), expected, "{} {}", old.len(), new.len());
        }
    }

    /// A quadratic comparison of the larger lists takes 100 times as long as that of the smaller ones.
    #[test]
    fn ten_times_as_many_values_take_about_ten_times_as_long() {
        let time = |count: usize| {
            let (old, new) = (names(count), names(count));
            let fastest = (0..5).map(|_| {
                let watch = Stopwatch::start();
                assert_eq!(distinct(old.iter().cloned()).len(), count);
                assert!(missing(&old, &new).is_empty());
                watch.elapsed()
            });
            fastest.min().unwrap_or_default()
        };
        let (small, large) = (time(2_000), time(20_000));
        assert!(large < small * 40 + Duration::from_millis(5), "{small:?}, then {large:?}");
    }
    use crate::api::kinds::{ALL, ENDING_NAMESPACES, IP_ADDRESSES, NAMESPACES};

    #[test]
    fn rows_of_one_resource_that_decode_otherwise_are_not_equal() {
        assert_ne!(NAMESPACES, ENDING_NAMESPACES);
        assert!(NAMESPACES.is_of_resource(&ENDING_NAMESPACES));
        let addresses = dynamic::kind("networking.k8s.io", "v1", "IPAddress", "ipaddresses", false);
        assert_ne!(&IP_ADDRESSES, addresses);
        assert!(addresses.is_of_resource(&IP_ADDRESSES));
        for (at, kind) in ALL.iter().enumerate() {
            assert_eq!(ALL.iter().position(|each| each == kind), Some(at));
        }
    }
}
