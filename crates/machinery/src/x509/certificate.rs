//! Certificates (RFC 5280, section 4).

use jiff::civil::DateTime;
use x509_cert::der::asn1::UintRef;
use x509_cert::der::{Decode as _, Tag};
use x509_cert::spki::ObjectIdentifier;

use super::der::{Elements, Malformed, context};
use super::extensions::Extensions;
use super::name::{attributes, text};

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

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
    pub subject: SubjectName<'a>,
    /// The first second of its validity, since 1970.
    pub not_before: i64,
    /// The last second of its validity, since 1970.
    pub not_after: i64,
    /// The `SubjectPublicKeyInfo`, in DER.
    pub public_key: &'a [u8],
    /// The extensions that chains are judged by.
    pub extensions: Extensions<'a>,
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
        SubjectName::read(issuer, "issuer")?;
        let mut validity = Elements::new(parts.content(Tag::Sequence)?, "validity")?;
        let (not_before, not_after) = (time(&mut validity)?, time(&mut validity)?);
        validity.finish()?;
        let raw_subject = parts.content(Tag::Sequence)?;
        let subject = SubjectName::read(raw_subject, "subject")?;
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
pub struct SubjectName<'a>(Vec<(&'a [u8], String)>);

impl<'a> SubjectName<'a> {
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
        // Not by way of a Timestamp, which ends a day before the year 9999 does.
        Some(time.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs())
    };
    read().ok_or_else(|| of.malformed())
}
