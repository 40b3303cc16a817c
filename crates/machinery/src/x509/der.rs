//! Elements of DER by their whole tags: class, constructed bit and number. Every byte belongs to an element that somebody asked for,
//! or reading fails.

use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{Decode as _, Reader as _, SliceReader, Tag, TagNumber, Tagged as _};

/// A part that is not encoded as DER requires, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub struct Malformed(pub &'static str);

/// A run of elements, and the part of the text that it is, for errors.
#[derive(Debug)]
pub struct Elements<'a> {
    reader: SliceReader<'a>,
    part: &'static str,
}

/// An element with its tag and length (`der`) and without (`content`).
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// Class, constructed bit and number.
    pub tag: Tag,
    /// The bytes after the length.
    pub content: &'a [u8],
    /// All bytes.
    pub der: &'a [u8],
}

impl<'a> Elements<'a> {
    /// Starts at the first element.
    pub fn new(bytes: &'a [u8], part: &'static str) -> Result<Self, Malformed> {
        let reader = SliceReader::new(bytes).map_err(|_| Malformed(part))?;
        Ok(Self { reader, part })
    }

    /// Returns the next element of any tag, or `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot return the error with `?`")]
    pub fn next(&mut self) -> Result<Option<Element<'a>>, Malformed> {
        if self.reader.is_finished() {
            return Ok(None);
        }
        let read = self.reader.tlv_bytes().and_then(|der| Ok((der, AnyRef::from_der(der)?)));
        let (der, value) = read.map_err(|_| self.malformed())?;
        Ok(Some(Element { tag: value.tag(), content: value.value(), der }))
    }

    /// Returns the next element, which must have this tag.
    pub fn element(&mut self, tag: Tag) -> Result<Element<'a>, Malformed> {
        self.next()?.filter(|element| element.tag == tag).ok_or_else(|| self.malformed())
    }

    /// Returns the content of the next element, which must have this tag.
    pub fn content(&mut self, tag: Tag) -> Result<&'a [u8], Malformed> {
        Ok(self.element(tag)?.content)
    }

    /// Returns the next element's object identifier, in its encoding.
    pub fn identifier(&mut self) -> Result<&'a [u8], Malformed> {
        let content = self.content(Tag::ObjectIdentifier)?;
        if is_identifier(content) { Ok(content) } else { Err(self.malformed()) }
    }

    /// Returns the next element's object identifier, in its encoding, whose arcs may have any size.
    pub fn long_identifier(&mut self) -> Result<&'a [u8], Malformed> {
        let content = self.content(Tag::ObjectIdentifier)?;
        if has_shortest_arcs(content) { Ok(content) } else { Err(self.malformed()) }
    }

    /// Returns the next element's bits, which must fill whole bytes.
    pub fn bytes_of_bits(&mut self) -> Result<&'a [u8], Malformed> {
        match self.content(Tag::BitString)? {
            [0, bytes @ ..] => Ok(bytes),
            _ => Err(self.malformed()),
        }
    }

    /// Fails unless all elements were read.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.reader.is_finished() { Ok(()) } else { Err(self.malformed()) }
    }

    /// Returns the error for an element that does not belong here.
    pub fn malformed(&self) -> Malformed {
        Malformed(self.part)
    }
}

/// The tag of an element that its context defines.
pub const fn context(number: u32, constructed: bool) -> Tag {
    Tag::ContextSpecific { constructed, number: TagNumber(number) }
}

/// Whether there are arcs, each encoded in its shortest form.
fn has_shortest_arcs(content: &[u8]) -> bool {
    let mut is_within = false;
    for byte in content {
        if !is_within && *byte == 0x80 {
            return false;
        }
        is_within = byte & 0x80 != 0;
    }
    !is_within && !content.is_empty()
}

/// Whether each arc is encoded in its shortest form and fits 31 bits, the range of Go's `asn1.ObjectIdentifier`.
fn is_identifier(content: &[u8]) -> bool {
    let mut arc: Option<u64> = None;
    for byte in content {
        if arc.is_none() && *byte == 0x80 {
            return false;
        }
        let value = arc.unwrap_or_default() << 7 | u64::from(byte & 0x7f);
        if value > i32::MAX as u64 {
            return false;
        }
        arc = (byte & 0x80 != 0).then_some(value);
    }
    arc.is_none() && !content.is_empty()
}
