//! Certificates (RFC 5280, section 4).

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use x509_cert::der::asn1::UintRef;
use x509_cert::der::{Decode as _, Tag};
use x509_cert::spki::ObjectIdentifier;

use super::der::{Elements, Malformed, context};
use super::name::{attributes, text};

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
const NAME_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.30");
const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");

/// The bit of a key usage that allows signing certificates, in its first byte.
const SIGNS_CERTIFICATES: u8 = 0x80 >> 5;

/// A certificate. Nothing here is verified.
#[derive(Clone, Debug)]
pub struct Certificate<'a> {
    /// Version 1, which has no extensions. If false, version 3; version 2 is refused.
    pub is_version_1: bool,
    /// The part that the signature covers, in DER.
    pub signed: &'a [u8],
    /// The algorithm of the signature: the content of an `AlgorithmIdentifier`.
    pub algorithm: &'a [u8],
    /// The bits of the signature.
    pub signature: &'a [u8],
    /// The content of the issuer's name.
    pub issuer: &'a [u8],
    /// The content of the subject's name.
    pub raw_subject: &'a [u8],
    /// The subject's attributes.
    pub subject: Subject<'a>,
    /// The first second of its validity, since 1970.
    pub not_before: i64,
    /// The last second of its validity, since 1970.
    pub not_after: i64,
    /// The `SubjectPublicKeyInfo`, in DER.
    pub public_key: &'a [u8],
    /// The extensions that chains are judged by.
    pub extensions: Extensions<'a>,
}

/// The extensions that chains are judged by.
#[derive(Clone, Debug, Default)]
pub struct Extensions<'a> {
    /// The basic constraints.
    pub basic_constraints: Option<BasicConstraints>,
    /// Whether the key may sign certificates, if there is a key usage.
    pub may_sign: Option<bool>,
    /// The object identifiers of the extended key usage.
    pub purposes: Option<Vec<&'a [u8]>>,
    /// Whether there are name constraints.
    pub has_name_constraints: bool,
    /// Whether a critical extension has a type or a content that Go does not handle, or that this reader does not know.
    pub has_unhandled: bool,
}

/// The basic constraints of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicConstraints {
    /// Whether it may issue certificates.
    pub is_ca: bool,
    /// The number of intermediates that may follow in a chain.
    pub path_length: Option<usize>,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate in DER.
    pub fn read(der: &'a [u8]) -> Result<Self, Malformed> {
        const PART: &str = "certificate";
        let mut outer = Elements::new(der, PART)?;
        let mut parts = Elements::new(outer.content(Tag::Sequence)?, PART)?;
        outer.finish()?;
        let signed = parts.element(Tag::Sequence)?;
        let algorithm = parts.content(Tag::Sequence)?;
        let signature = parts.bytes_of_bits()?;
        parts.finish()?;

        let mut parts = Elements::new(signed.content, PART)?;
        let mut first = parts.next()?.ok_or_else(|| parts.malformed())?;
        let is_version_1 = first.tag != context(0, true);
        if !is_version_1 {
            // An INTEGER of 2 is version 3.
            if first.content != [2, 1, 2] {
                return Err(Malformed("version"));
            }
            first = parts.next()?.ok_or_else(|| parts.malformed())?;
        }
        if first.tag != Tag::Integer || UintRef::from_der(first.der).is_err() {
            return Err(Malformed("serial number"));
        }
        if parts.content(Tag::Sequence)? != algorithm {
            return Err(Malformed("signature algorithm"));
        }
        let issuer = parts.content(Tag::Sequence)?;
        Subject::read(issuer, "issuer")?;
        let mut validity = Elements::new(parts.content(Tag::Sequence)?, "validity")?;
        let (not_before, not_after) = (time(&mut validity)?, time(&mut validity)?);
        validity.finish()?;
        let raw_subject = parts.content(Tag::Sequence)?;
        let subject = Subject::read(raw_subject, "subject")?;
        let public_key = parts.element(Tag::Sequence)?.der;
        let mut extensions = Extensions::default();
        if let Some(last) = parts.next()? {
            if is_version_1 || last.tag != context(3, true) {
                return Err(parts.malformed());
            }
            let mut wrapped = Elements::new(last.content, "extensions")?;
            extensions = Extensions::read(wrapped.content(Tag::Sequence)?)?;
            wrapped.finish()?;
        }
        parts.finish()?;
        Ok(Self {
            is_version_1,
            signed: signed.der,
            algorithm,
            signature,
            issuer,
            raw_subject,
            subject,
            not_before,
            not_after,
            public_key,
            extensions,
        })
    }
}

/// The attributes of a name. All have values of the string types that Go reads; it refuses a certificate with others.
#[derive(Clone, Debug)]
pub struct Subject<'a>(Vec<(&'a [u8], String)>);

impl<'a> Subject<'a> {
    fn read(content: &'a [u8], part: &'static str) -> Result<Self, Malformed> {
        let read = attributes(content, part)?.into_iter();
        let read = read.map(|(identifier, value)| Some((identifier, text(value)?)));
        Ok(Self(read.collect::<Option<_>>().ok_or(Malformed(part))?))
    }

    /// Returns all values of an attribute, in their order.
    pub fn values(&self, of: &ObjectIdentifier) -> impl Iterator<Item = &str> {
        let all = self.0.iter().filter(move |(identifier, _)| *identifier == of.as_bytes());
        all.map(|(_, value)| value.as_str())
    }

    /// Returns the last common name, empty if there is none.
    pub fn common_name(&self) -> &str {
        self.values(&COMMON_NAME).last().unwrap_or_default()
    }

    /// Returns all organizations, in their order.
    pub fn organizations(&self) -> impl Iterator<Item = &str> {
        self.values(&ORGANIZATION)
    }
}

/// An extension of a certificate or of a request.
#[derive(Clone, Copy, Debug)]
pub struct Extension<'a> {
    /// The object identifier, in its encoding.
    pub identifier: &'a [u8],
    /// Whether who does not know it must refuse the certificate.
    pub is_critical: bool,
    /// The content of its OCTET STRING.
    pub value: &'a [u8],
}

impl<'a> Extension<'a> {
    /// Reads the content of an extension's SEQUENCE.
    pub fn read(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut parts = Elements::new(content, "extensions")?;
        let identifier = parts.identifier()?;
        let mut next = parts.next()?.ok_or_else(|| parts.malformed())?;
        let mut is_critical = false;
        if next.tag == Tag::Boolean {
            is_critical = boolean(next.content).ok_or_else(|| parts.malformed())?;
            next = parts.next()?.ok_or_else(|| parts.malformed())?;
        }
        if next.tag != Tag::OctetString {
            return Err(parts.malformed());
        }
        parts.finish()?;
        Ok(Self { identifier, is_critical, value: next.content })
    }
}

impl<'a> Extensions<'a> {
    fn read(content: &'a [u8]) -> Result<Self, Malformed> {
        let (mut found, mut seen) = (Self::default(), BTreeSet::new());
        let mut all = Elements::new(content, "extensions")?;
        while let Some(each) = all.next()? {
            if each.tag != Tag::Sequence {
                return Err(all.malformed());
            }
            let extension = Extension::read(each.content)?;
            if !seen.insert(extension.identifier) {
                return Err(Malformed("extensions: one is there twice"));
            }
            let is_handled = found.add(&extension)?;
            found.has_unhandled |= extension.is_critical && !is_handled;
        }
        Ok(found)
    }

    /// Adds an extension. Returns whether it is handled.
    fn add(&mut self, extension: &Extension<'a>) -> Result<bool, Malformed> {
        let is = |known: &ObjectIdentifier| extension.identifier == known.as_bytes();
        if is(&KEY_USAGE) {
            self.may_sign = Some(may_sign(extension.value)?);
        } else if is(&BASIC_CONSTRAINTS) {
            self.basic_constraints = Some(basic_constraints(extension.value)?);
        } else if is(&EXTENDED_KEY_USAGE) {
            self.purposes = Some(purposes(extension.value)?);
        } else if is(&NAME_CONSTRAINTS) {
            self.has_name_constraints = true;
            return has_known_constraints(extension.value);
        } else if is(&ALTERNATIVE_NAMES) {
            let mut is_known = false;
            let mut names = sequence(extension.value, "alternative names")?;
            while let Some(name) = names.next()? {
                is_known |= is_known_name(name.tag);
            }
            return Ok(is_known);
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// Starts at the first element of a SEQUENCE that is all there is.
fn sequence<'a>(value: &'a [u8], part: &'static str) -> Result<Elements<'a>, Malformed> {
    let mut outer = Elements::new(value, part)?;
    let content = outer.content(Tag::Sequence)?;
    outer.finish()?;
    Elements::new(content, part)
}

fn boolean(content: &[u8]) -> Option<bool> {
    match content {
        [0] => Some(false),
        [0xff] => Some(true),
        _ => None,
    }
}

fn may_sign(value: &[u8]) -> Result<bool, Malformed> {
    let mut outer = Elements::new(value, "key usage")?;
    let bits = outer.content(Tag::BitString)?;
    outer.finish()?;
    match bits {
        [0..=7, first, ..] => Ok(first & SIGNS_CERTIFICATES != 0),
        [0] => Ok(false),
        _ => Err(Malformed("key usage")),
    }
}

fn basic_constraints(value: &[u8]) -> Result<BasicConstraints, Malformed> {
    let mut parts = sequence(value, "basic constraints")?;
    let mut found = BasicConstraints { is_ca: false, path_length: None };
    let mut next = parts.next()?;
    if let Some(flag) = next.filter(|element| element.tag == Tag::Boolean) {
        found.is_ca = boolean(flag.content).ok_or_else(|| parts.malformed())?;
        next = parts.next()?;
    }
    if let Some(length) = next {
        let length = UintRef::from_der(length.der).map_err(|_| parts.malformed())?;
        // No chain is as long as what a byte cannot hold.
        let [length] = length.as_bytes() else { return Err(parts.malformed()) };
        found.path_length = Some(usize::from(*length));
    }
    parts.finish()?;
    Ok(found)
}

fn purposes(value: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let (mut parts, mut found) = (sequence(value, "extended key usage")?, Vec::new());
    while let Some(element) = parts.next()? {
        found.push(Elements::new(element.der, "extended key usage")?.identifier()?);
    }
    Ok(found)
}

/// Whether Go handles names of this kind: email addresses, DNS names, URIs and IP addresses.
fn is_known_name(tag: Tag) -> bool {
    [1, 2, 6, 7].into_iter().any(|number| tag == context(number, false))
}

/// Whether Go handles all names that constraints permit or exclude.
fn has_known_constraints(value: &[u8]) -> Result<bool, Malformed> {
    let (mut kinds, mut all_known) = (sequence(value, "name constraints")?, true);
    while let Some(kind) = kinds.next()? {
        let mut subtrees = Elements::new(kind.content, "name constraints")?;
        while let Some(subtree) = subtrees.next()? {
            let base = Elements::new(subtree.content, "name constraints")?.next()?;
            all_known &= base.is_some_and(|base| is_known_name(base.tag));
        }
    }
    Ok(all_known)
}

/// Reads a time in seconds since 1970: a UTCTime or a GeneralizedTime in the only form that DER allows.
fn time(of: &mut Elements<'_>) -> Result<i64, Malformed> {
    let element = of.next()?.ok_or_else(|| of.malformed())?;
    let read = || {
        let digits = std::str::from_utf8(element.content).ok()?.strip_suffix('Z')?;
        let (year, rest) = match element.tag {
            Tag::UtcTime => digits.split_at_checked(2)?,
            Tag::GeneralizedTime => digits.split_at_checked(4)?,
            _ => return None,
        };
        if rest.len() != 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let mut year: i16 = year.parse().ok()?;
        if element.tag == Tag::UtcTime {
            year += if year < 50 { 2000 } else { 1900 };
        }
        let at = |index: usize| rest[2 * index..2 * index + 2].parse::<i8>().ok();
        let time = DateTime::new(year, at(0)?, at(1)?, at(2)?, at(3)?, at(4)?, 0).ok()?;
        Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
    };
    read().ok_or_else(|| of.malformed())
}
