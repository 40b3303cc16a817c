//! Requests for certificates (PKCS#10, RFC 2986) as approvers see them and as certificates are made of them.
//!
//! Anybody who may create a CertificateSigningRequest chooses every byte of a request. The API server, admission plugins and most
//! approvers judge it by the reading of Go's `encoding/pem` and `crypto/x509`. This reader returns the same reading or an error. It
//! refuses every element that Go would skip without an error, except what Go ignores and certificates never contain: attributes and
//! extensions of other types, and other kinds of names. The tests in `differential` compare both readings.
//!
//! [`CertificateRequest::from_pem`] is the only way to read a request. Everything that follows takes its value: rules, the
//! verification of the signature, and the certificate. This module decides nothing.

mod signature;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use x509_cert::der::Decode as _;
use x509_cert::der::Tag;
use x509_cert::der::asn1::IntRef;
use x509_cert::spki::ObjectIdentifier;

use super::pem::{self, PemError};
use coxswain_machinery::framework::Parser;
use coxswain_machinery::x509::{self, Element, Elements, Extension, Malformed, context, text, uri};
use signature::{Algorithm, PublicKey};

/// The label of the PEM block.
const LABEL: &str = "CERTIFICATE REQUEST";
const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// The longest text that is parsed, in bytes. The API server stores no longer one with etcd's default limit of 1.5 MiB for a request.
const LONGEST: usize = 3 << 19;

/// Parses a request. Its value is a [`ParsedRequest`].
pub(super) static PARSER: Parser = Parser {
    name: "certificate request",
    parse: |text| Arc::new(ParsedRequest(CertificateRequest::from_pem(text))),
};

/// Parses a request and verifies its signature. Its value is a [`VerifiedRequest`].
pub(super) static VERIFIER: Parser = Parser {
    name: "certificate request and its signature",
    parse: |text| {
        let request = CertificateRequest::from_pem(text).map_err(VerifyError::Unreadable);
        Arc::new(VerifiedRequest(request.and_then(|request| match request.verify() {
            Ok(()) => Ok(request),
            Err(error) => Err(VerifyError::Unsigned(Box::new(request), error)),
        })))
    },
};

/// The value of [`PARSER`].
#[derive(Debug)]
pub(super) struct ParsedRequest(pub(super) Result<CertificateRequest, RequestError>);

/// The value of [`VERIFIER`].
#[derive(Debug)]
pub(super) struct VerifiedRequest(pub(super) Result<CertificateRequest, VerifyError>);

/// A request that is not signed.
#[derive(Debug)]
pub(super) enum VerifyError {
    Unreadable(RequestError),
    /// Its own key has not signed it. The signer's rules are checked before this is an error.
    Unsigned(Box<CertificateRequest>, RequestError),
}

/// A request that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    #[error("the request has {0} bytes; the limit is {LONGEST}")]
    TooLong(usize),
    #[error("PEM block type must be {LABEL}")]
    Label,
    #[error("malformed PEM: {0}")]
    Pem(PemError),
    /// A part has another form than Go's reader and this one agree on.
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    #[error("malformed request: duplicate requested extension")]
    Twice,
    #[error("the signature of the request does not match its public key")]
    Signature,
}

impl From<Malformed> for RequestError {
    fn from(Malformed(part): Malformed) -> Self {
        Self::Malformed(part)
    }
}

/// A request that was read. All of its parts come from the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateRequest {
    subject: Vec<(Attribute, String)>,
    names: Vec<AlternativeName>,
    public_key: PublicKey,
    /// The part that the signature covers.
    signed: Bytes,
    algorithm: Algorithm,
    signature: Bytes,
}

/// An attribute type that certificates keep of a subject, in the order in which certificates contain them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Attribute {
    Country,
    Province,
    Locality,
    Street,
    PostalCode,
    Organization,
    Unit,
    CommonName,
    SerialNumber,
}

impl Attribute {
    pub(super) const ALL: [Self; 9] = [
        Self::Country,
        Self::Province,
        Self::Locality,
        Self::Street,
        Self::PostalCode,
        Self::Organization,
        Self::Unit,
        Self::CommonName,
        Self::SerialNumber,
    ];

    /// Returns its object identifier, 2.5.4.N.
    pub(super) fn identifier(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Self::Country => "2.5.4.6",
            Self::Province => "2.5.4.8",
            Self::Locality => "2.5.4.7",
            Self::Street => "2.5.4.9",
            Self::PostalCode => "2.5.4.17",
            Self::Organization => "2.5.4.10",
            Self::Unit => "2.5.4.11",
            Self::CommonName => "2.5.4.3",
            Self::SerialNumber => "2.5.4.5",
        })
    }
}

/// An alternative name of a kind that certificates keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AlternativeName {
    Dns(String),
    Email(String),
    /// Four bytes or sixteen.
    Ip(Vec<u8>),
    /// In the form that `net/url` prints.
    Uri(String),
}

impl CertificateRequest {
    /// Reads the request in the first PEM block of a text.
    pub(super) fn from_pem(text: &[u8]) -> Result<Self, RequestError> {
        if text.len() > LONGEST {
            return Err(RequestError::TooLong(text.len()));
        }
        let der = pem::first_block(text, LABEL).map_err(|error| match error {
            PemError::Label => RequestError::Label,
            error => RequestError::Pem(error),
        })?;
        let all = Bytes::from(der);
        let mut outer = Elements::new(&all, "request")?;
        let mut parts = Elements::new(outer.content(Tag::Sequence)?, "request")?;
        outer.finish()?;
        let signed = parts.element(Tag::Sequence)?;
        let algorithm = Algorithm::read(&all, parts.content(Tag::Sequence)?)?;
        let signature = all.slice_ref(parts.bytes_of_bits()?);
        parts.finish()?;

        let mut parts = Elements::new(signed.content, "request")?;
        // Go reads any version that fits its int. No approver judges by it.
        let version = parts.element(Tag::Integer)?;
        if IntRef::from_der(version.der).is_err() || version.content.len() > size_of::<i64>() {
            return Err(RequestError::Malformed("version"));
        }
        let subject = subject(parts.content(Tag::Sequence)?)?;
        let key = parts.element(Tag::Sequence)?;
        let public_key = PublicKey::read(&all, key.der, key.content)?;
        let names = requested_names(parts.content(context(0, true))?)?;
        parts.finish()?;
        Ok(Self { subject, names, public_key, signed: all.slice_ref(signed.der), algorithm, signature })
    }

    /// Fails unless the request is signed by its own key.
    pub(super) fn verify(&self) -> Result<(), RequestError> {
        let is_signed =
            signature::is_signed(&self.public_key, &self.algorithm, &self.signed, &self.signature);
        if is_signed { Ok(()) } else { Err(RequestError::Signature) }
    }

    /// Returns all values of an attribute of the subject, in their order.
    pub(super) fn values(&self, of: Attribute) -> impl Iterator<Item = &str> {
        self.subject.iter().filter(move |(attribute, _)| *attribute == of).map(|(_, value)| value.as_str())
    }

    /// Returns the last common name of the subject, empty if it has none.
    pub(super) fn common_name(&self) -> &str {
        self.values(Attribute::CommonName).last().unwrap_or_default()
    }

    /// Returns the alternative names, in their order.
    pub(super) fn names(&self) -> &[AlternativeName] {
        &self.names
    }

    /// Returns the public key, a `SubjectPublicKeyInfo` in DER.
    pub(super) fn public_key(&self) -> &[u8] {
        &self.public_key.der
    }
}

/// Reads the attributes of a subject that certificates keep. The others must have a form that Go reads, too.
fn subject(content: &[u8]) -> Result<Vec<(Attribute, String)>, RequestError> {
    let mut found = Vec::new();
    for (identifier, value) in x509::attributes(content, "subject")? {
        let kept = Attribute::ALL.into_iter().find(|kept| kept.identifier().as_bytes() == identifier);
        match (kept, text(value)) {
            (Some(kept), Some(value)) => found.push((kept, value)),
            (None, Some(_)) => {}
            (None, None) if is_ignored(value) => {}
            (_, None) => return Err(RequestError::Malformed("value of the subject")),
        }
    }
    Ok(found)
}

/// Whether Go accepts and ignores a value, such as an `x500UniqueIdentifier`. Only for attributes that no certificate contains.
fn is_ignored(value: Element<'_>) -> bool {
    match value.tag {
        Tag::OctetString | Tag::VisibleString => true,
        Tag::BitString => value.content.starts_with(&[0]),
        _ => false,
    }
}

/// Reads the alternative names that the attributes of a request ask for.
fn requested_names(content: &[u8]) -> Result<Vec<AlternativeName>, RequestError> {
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    let mut attributes = Elements::new(content, "attributes")?;
    while let Some(attribute) = attributes.next()? {
        if attribute.tag != Tag::Sequence {
            return Err(attributes.malformed().into());
        }
        let mut parts = Elements::new(attribute.content, "attributes")?;
        let identifier = parts.identifier()?;
        let values = parts.content(Tag::Set)?;
        parts.finish()?;
        if identifier != EXTENSION_REQUEST.as_bytes() {
            continue;
        }
        // Go reads the first value alone.
        let mut values = Elements::new(values, "attributes")?;
        let mut extensions = Elements::new(values.content(Tag::Sequence)?, "extensions")?;
        values.finish()?;
        while let Some(extension) = extensions.next()? {
            if extension.tag != Tag::Sequence {
                return Err(extensions.malformed().into());
            }
            // The certificate sets its own critical flag.
            let Extension { identifier, value, .. } = Extension::read(extension.content)?;
            if !seen.insert(identifier) {
                return Err(RequestError::Twice);
            }
            if identifier == ALTERNATIVE_NAMES.as_bytes() {
                names = alternative_names(value)?;
            }
        }
    }
    Ok(names)
}

fn alternative_names(value: &[u8]) -> Result<Vec<AlternativeName>, RequestError> {
    const PART: &str = "subject alternative names";
    let malformed = RequestError::Malformed(PART);
    let mut outer = Elements::new(value, PART)?;
    let mut names = Elements::new(outer.content(Tag::Sequence)?, PART)?;
    outer.finish()?;
    let mut found = Vec::new();
    while let Some(name) = names.next()? {
        let Tag::ContextSpecific { constructed, number } = name.tag else { return Err(malformed) };
        let ascii = || {
            let text = std::str::from_utf8(name.content).ok().filter(|text| text.is_ascii());
            text.map(str::to_owned).ok_or(RequestError::Malformed(PART))
        };
        found.push(match (number.0, constructed) {
            (1, false) => AlternativeName::Email(ascii()?),
            (2, false) => AlternativeName::Dns(ascii()?),
            (6, false) => AlternativeName::Uri(uri::normalize(&ascii()?).ok_or(malformed.clone())?),
            (7, false) if matches!(name.content.len(), 4 | 16) => AlternativeName::Ip(name.content.to_vec()),
            // Another name, an X.400 address, a directory name, an EDI party and a registered identifier. Go reads none of
            // them in any form, and no certificate has one.
            (0 | 3 | 4 | 5 | 8, _) => continue,
            _ => return Err(malformed),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod differential;
#[cfg(test)]
pub(super) mod fixtures;
#[cfg(test)]
mod tests;
