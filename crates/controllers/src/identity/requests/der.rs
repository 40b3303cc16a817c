//! Elements of DER by their whole tags: class, constructed bit and number. Every byte belongs to an element that somebody asked for,
//! or reading fails.

use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{Decode as _, Reader as _, SliceReader, Tag, TagNumber, Tagged as _};

use super::RequestError;

/// A run of elements, and the part of a request that it is, for errors.
pub(super) struct Elements<'a> {
    reader: SliceReader<'a>,
    part: &'static str,
}

/// An element with its tag and length (`der`) and without (`content`).
#[derive(Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) tag: Tag,
    pub(super) content: &'a [u8],
    pub(super) der: &'a [u8],
}

impl<'a> Elements<'a> {
    pub(super) fn new(bytes: &'a [u8], part: &'static str) -> Result<Self, RequestError> {
        let reader = SliceReader::new(bytes).map_err(|_| RequestError::Malformed(part))?;
        Ok(Self { reader, part })
    }

    /// Returns the next element of any tag, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Element<'a>>, RequestError> {
        if self.reader.is_finished() {
            return Ok(None);
        }
        let read = self.reader.tlv_bytes().and_then(|der| Ok((der, AnyRef::from_der(der)?)));
        let (der, value) = read.map_err(|_| self.malformed())?;
        Ok(Some(Element { tag: value.tag(), content: value.value(), der }))
    }

    /// Returns the next element, which must have this tag.
    pub(super) fn element(&mut self, tag: Tag) -> Result<Element<'a>, RequestError> {
        self.next()?.filter(|element| element.tag == tag).ok_or_else(|| self.malformed())
    }

    /// Returns the content of the next element, which must have this tag.
    pub(super) fn content(&mut self, tag: Tag) -> Result<&'a [u8], RequestError> {
        Ok(self.element(tag)?.content)
    }

    /// Returns the next element's object identifier, in its encoding.
    pub(super) fn identifier(&mut self) -> Result<&'a [u8], RequestError> {
        let content = self.content(Tag::ObjectIdentifier)?;
        if is_identifier(content) { Ok(content) } else { Err(self.malformed()) }
    }

    /// Returns the next element's bits, which must fill whole bytes.
    pub(super) fn bytes_of_bits(&mut self) -> Result<&'a [u8], RequestError> {
        match self.content(Tag::BitString)? {
            [0, bytes @ ..] => Ok(bytes),
            _ => Err(self.malformed()),
        }
    }

    /// Fails unless all elements were read.
    pub(super) fn finish(self) -> Result<(), RequestError> {
        if self.reader.is_finished() { Ok(()) } else { Err(self.malformed()) }
    }

    pub(super) fn malformed(&self) -> RequestError {
        RequestError::Malformed(self.part)
    }
}

/// The tag of an element that its context defines.
pub(super) const fn context(number: u32, constructed: bool) -> Tag {
    Tag::ContextSpecific { constructed, number: TagNumber(number) }
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
