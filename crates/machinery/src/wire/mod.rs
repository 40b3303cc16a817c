//! The protobuf wire format, read in one pass into compact, interned structures.
//!
//! A trimmed Kubernetes message is declared with [`message!`]: a struct whose fields carry upstream's field
//! numbers and hold only what controllers read. Fields that are not declared are skipped while decoding, so the
//! bytes of an object that will be written back are kept beside it and edited with [`splice`]; nothing here ever
//! re-encodes an object that was decoded.
//!
//! Why not a generated codec: strings that repeat across objects (namespaces, label sets, owner references) are
//! interned while they are decoded, and a template is a slice of the object's own bytes. Generated messages would
//! first allocate all of it once more per event.
//!
//! This module knows nothing of HTTP, kinds or controllers.

mod envelope;
mod few;
mod intern;
pub mod json;
mod labels;
pub mod path;
mod reader;
pub mod splice;
pub mod text;
mod time;
mod types;
mod uid;

#[cfg(test)]
mod tests;

pub(crate) use envelope::SCHEMA as ENVELOPE_SCHEMA;
pub use envelope::{
    ENVELOPE_MAGIC, EventType, ListPage, ObjectHead, WatchFrame, decode_list, envelope_kind, unwrap_envelope,
    wrap_envelope,
};
pub use few::{Few, Present};
#[cfg(any(test, feature = "testing"))]
pub use intern::sweep_interned;
pub use intern::{InternStats, Interner, intern_stats};
pub use labels::Labels;
pub use path::{FieldRow, MessageRow, Path};
pub use path::{field, path};
pub use reader::{RawField, Reader, Value, WireError};
pub use text::Str;
pub use time::{MalformedTime, Time, WallTime};
pub(crate) use types::SCHEMA;
pub use types::{Contents, Data, IntOrString, Map, Quantities, Raw};
pub use uid::Uid;

/// What a decode needs besides the bytes of a field.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The buffer that they came from, which [`Raw`] fields share.
    buffer: &'a bytes::Bytes,
    keep: Keep,
}

/// What is worth keeping of where anybody may add to an object.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// The annotations with these names; all of them if `None`.
    pub annotations: Option<&'static [&'static str]>,
    /// Whether labels are.
    pub labels: bool,
    /// The conditions of these types; all of them if `None`.
    pub conditions: Option<&'static [&'static str]>,
}

impl Keep {
    /// Everything.
    pub const ALL: Self = Self { annotations: None, labels: true, conditions: None };
    /// No annotations.
    pub const LABELS: Self = Self { annotations: Some(&[]), ..Self::ALL };
    /// Neither labels nor annotations.
    pub const BARE: Self = Self { labels: false, ..Self::LABELS };
}

/// A value that can be a field of a message.
pub trait Field: Default {
    /// The message that it holds, one or many of them.
    const MESSAGE: Option<&'static MessageRow> = None;

    /// Takes in one occurrence of the field. Scalars keep the last one, lists and maps collect them.
    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError>;

    /// [`Field::merge`] for fields marked `[interned]`: strings are shared with their equals in other objects.
    fn merge_interned(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        self.merge(value, source)
    }

    /// [`Field::merge`] for the annotations, marked `[selected]`: entries that nobody reads are left out.
    fn merge_selected(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        self.merge(value, source)
    }

    /// [`Field::merge`] for an object's labels, marked `[labels]`: left out where nobody reads them.
    fn merge_labels(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        if source.keep.labels { self.merge(value, source) } else { Ok(()) }
    }

    /// [`Field::merge`] for a list of conditions, marked `[conditions]`: those of which nobody reads the type are left out.
    fn merge_conditions(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        match source.keep.conditions {
            Some(read) if !labels::is_key_among(value, read)? => Ok(()),
            _ => self.merge(value, source),
        }
    }

    /// Appends to `out` what [`Field::merge`] may take of one occurrence, see [`Message::copy_read`].
    fn copy_value(field: RawField<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(field.2);
        Ok(())
    }

    /// Appends the field, with its tag, to `out`; appends nothing for a default value.
    fn encode(&self, number: u32, out: &mut Vec<u8>);

    /// Called once, when the enclosing message is complete: sorts, shares and gives spare capacity back.
    fn finish(&mut self, source: Source<'_>) -> Result<(), WireError> {
        let _ = source;
        Ok(())
    }
}

/// A protobuf message: a struct declared with [`message!`].
pub trait Message: Default {
    /// Full name of the upstream message that this is a part of.
    const UPSTREAM: &'static str;
    /// What is declared of it.
    const ROW: &'static MessageRow;

    /// Takes in the field `number`; one that is not declared is ignored.
    fn merge_field(&mut self, number: u32, value: Value<'_>, source: Source<'_>) -> Result<(), WireError>;

    /// [`Field::copy_value`] of the field that this is an occurrence of; of one that is not declared, nothing.
    fn copy_field(field: RawField<'_>, out: &mut Vec<u8>) -> Result<(), WireError>;

    /// Appends to `out` all that decoding this message may read, and little else, without decoding it: two messages of
    /// which it is the same decode to the same.
    fn copy_read(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.next_raw()? {
            Self::copy_field(field, out)?;
        }
        Ok(())
    }

    /// Appends all declared fields to `out`.
    fn encode_fields(&self, out: &mut Vec<u8>);

    /// Calls [`Field::finish`] on every field.
    fn finish_fields(&mut self, source: Source<'_>) -> Result<(), WireError>;

    /// Decodes a whole message. `Raw` fields share `bytes`' buffer and keep it alive.
    fn decode(bytes: &bytes::Bytes) -> Result<Self, WireError> {
        Self::decode_with(bytes, Keep::ALL)
    }

    /// Like [`Message::decode`], of what is worth keeping.
    fn decode_with(bytes: &bytes::Bytes, keep: Keep) -> Result<Self, WireError> {
        let mut message = Self::default();
        merge_message(&mut message, bytes, Source { buffer: bytes, keep })?;
        Ok(message)
    }

    /// The message's own encoding. Never used on an object that was decoded: what was trimmed is not in it.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        self.encode_fields(&mut out);
        out
    }
}

/// Merges the fields in `bytes`, a part of `source`, into `message`.
pub(crate) fn merge_message<M: Message>(
    message: &mut M,
    bytes: &[u8],
    source: Source<'_>,
) -> Result<(), WireError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next_field()? {
        message.merge_field(number, value, source)?;
    }
    message.finish_fields(source)
}

/// [`Message::copy_read`] of a message in a field, between the tags of a group: its length is another now.
pub(crate) fn copy_message<M: Message>(
    (number, value, _): RawField<'_>,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let tag = |wire_type: u64| u64::from(number) << 3 | wire_type;
    splice::put_varint(out, tag(3));
    M::copy_read(value.bytes()?, out)?;
    splice::put_varint(out, tag(4));
    Ok(())
}

/// Declares trimmed messages: `number => name: Type,`, with `[interned]` behind the type of a string that many
/// objects share. `+ raw` behind its name adds the bytes that it was decoded from, for kinds that are rewritten;
/// `+ name: Type, …` adds something else that the kind's decoder makes of them.
/// `as Message` behind a type says which message an encoded field holds, for [`path!`]. Fields that are written and never
/// read follow the others, without a type: `} + named { 18 => affinity as Affinity, }`.
/// `schema NAME;` in front of the first makes a table of all of them, to be compared with upstream's definitions.
#[doc(hidden)]
#[macro_export]
macro_rules! message {
    (@holds) => { None };
    (@holds $ty:ty) => { <$ty as $crate::wire::Field>::MESSAGE };
    (@holds $($ty:ty)? as $message:ty) => { Some(<$message as $crate::wire::Message>::ROW) };
    (@merge ($($argument:tt)*)) => { $crate::wire::Field::merge($($argument)*) };
    (@merge interned ($($argument:tt)*)) => { $crate::wire::Field::merge_interned($($argument)*) };
    (@merge conditions ($($argument:tt)*)) => { $crate::wire::Field::merge_conditions($($argument)*) };
    (@merge labels ($($argument:tt)*)) => { $crate::wire::Field::merge_labels($($argument)*) };
    (@merge selected ($($argument:tt)*)) => { $crate::wire::Field::merge_selected($($argument)*) };
    (@kept) => { $crate::wire::Raw };
    (@kept $kept:ty) => { $kept };
    (schema $schema:ident; $($(#[$meta:meta])* $vis:vis struct $name:ident $(+ $($raw:ident $(: $kept:ty)?),+)? = $upstream:literal
        $fields:tt $(+ named $named:tt)?)*
    ) => {
        /// Name and fields of every message declared here.
        pub(crate) const $schema: &[&$crate::wire::MessageRow] = &[$(<$name as $crate::wire::Message>::ROW,)*];

        $crate::wire::message! {
            $($(#[$meta])* $vis struct $name $(+ $($raw $(: $kept)?),+)? = $upstream $fields $(+ named $named)?)*
        }
    };
    ($($(#[$meta:meta])* $vis:vis struct $name:ident $(+ $($raw:ident $(: $kept:ty)?),+)? = $upstream:literal {
        $($(#[$field_meta:meta])* $number:literal => $field:ident : $ty:ty $([$mark:ident])? $(as $held:ty)? ,)*
    } $(+ named { $($named:literal => $name_only:ident $(as $named_held:ty)? ,)* })?)*) => {$(
        $(#[$meta])*
        #[doc = concat!("\n\nA part of `", $upstream, "`, with its field numbers.")]
        #[derive(Clone, Debug, Default, PartialEq)]
        $vis struct $name {
            $($(#[$field_meta])* pub $field: $ty,)*
            $($(
                /// What is kept of the whole object: its encoding without `managedFields` if it is rewritten; not a field of
                /// its own.
                pub $raw: $crate::wire::message!(@kept $($kept)?),
            )+)?
        }

        impl $crate::wire::Message for $name {
            const UPSTREAM: &'static str = $upstream;
            const ROW: &'static $crate::wire::MessageRow = &$crate::wire::MessageRow {
                upstream: $upstream,
                fields: &[
                    $($crate::wire::FieldRow {
                        number: $number,
                        name: stringify!($field),
                        message: $crate::wire::message!(@holds $ty $(as $held)?),
                    },)*
                    $($($crate::wire::FieldRow {
                        number: $named,
                        name: stringify!($name_only),
                        message: $crate::wire::message!(@holds $(as $named_held)?),
                    },)*)?
                ],
            };

            fn merge_field(
                &mut self,
                number: u32,
                value: $crate::wire::Value<'_>,
                source: $crate::wire::Source<'_>,
            ) -> Result<(), $crate::wire::WireError> {
                let _ = (value, source);
                match number {
                    $($number => $crate::wire::message!(@merge $($mark)? (&mut self.$field, value, source))
                        .map_err(|error| error.within(stringify!($field))),)*
                    _ => Ok(()),
                }
            }

            fn copy_field(
                field: $crate::wire::RawField<'_>,
                out: &mut Vec<u8>,
            ) -> Result<(), $crate::wire::WireError> {
                let _ = &out;
                match field.0 {
                    $($number => <$ty as $crate::wire::Field>::copy_value(field, out),)*
                    _ => Ok(()),
                }
            }

            fn encode_fields(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::wire::Field::encode(&self.$field, $number, out);)*
            }

            fn finish_fields(
                &mut self,
                source: $crate::wire::Source<'_>,
            ) -> Result<(), $crate::wire::WireError> {
                let _ = source;
                $($crate::wire::Field::finish(&mut self.$field, source)
                    .map_err(|error| error.within(stringify!($field)))?;)*
                Ok(())
            }
        }

        impl $crate::wire::Field for $name {
            const MESSAGE: Option<&'static $crate::wire::MessageRow> =
                Some(<Self as $crate::wire::Message>::ROW);

            fn merge(
                &mut self,
                value: $crate::wire::Value<'_>,
                source: $crate::wire::Source<'_>,
            ) -> Result<(), $crate::wire::WireError> {
                $crate::wire::merge_message(self, value.bytes()?, source)
            }

            fn copy_value(
                field: $crate::wire::RawField<'_>,
                out: &mut Vec<u8>,
            ) -> Result<(), $crate::wire::WireError> {
                $crate::wire::copy_message::<Self>(field, out)
            }

            fn encode(&self, number: u32, out: &mut Vec<u8>) {
                let body = $crate::wire::Message::to_bytes(self);
                if !body.is_empty() {
                    $crate::wire::splice::put_bytes(out, number, &body);
                }
            }
        }
    )*};
}
pub use crate::message;
