//! The content of a certificate: subject, names and key of a request, and nothing else that was asked for. Built by x509-cert,
//! which keeps several values of one attribute. Signs nothing.

use std::collections::BTreeSet;

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::builder::profile::BuilderProfile;
use x509_cert::builder::{CertificateBuilder, Error};
use x509_cert::der::asn1::{Any, Ia5String, OctetString};
use x509_cert::der::{Decode as _, Encode as _, Tag};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName,
};
use x509_cert::ext::{Extension, ToExtension as _};
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{SubjectPublicKeyInfoOwned, SubjectPublicKeyInfoRef};
use x509_cert::time::{Time, Validity};
use x509_cert::{TbsCertificate, der};

use super::usages::Usages;
use super::validity;
use crate::identity::requests::{AlternativeName, Attribute, CertificateRequest};

/// What a certificate is made of.
pub(super) struct Content<'a> {
    pub(super) subject: Name,
    /// SubjectPublicKeyInfo in DER.
    pub(super) public_key: &'a [u8],
    pub(super) names: &'a [AlternativeName],
    pub(super) usages: &'a Usages,
    pub(super) validity: validity::Validity,
    /// Sixteen bytes by chance.
    pub(super) serial: [u8; 16],
    /// The name of its authority.
    pub(super) issuer: &'a Name,
    /// What the authority calls its key, if it does.
    pub(super) issuer_key: Option<&'a [u8]>,
}

/// The certificate, ready to be signed.
pub(super) fn builder(content: &Content<'_>) -> Result<CertificateBuilder<Leaf>, Error> {
    let extensions = extensions(content, &content.subject)?;
    let validity = Validity::new(time(content.validity.from)?, time(content.validity.until)?);
    let key = SubjectPublicKeyInfoOwned::from_der(content.public_key)?;
    let leaf = Leaf { issuer: content.issuer.clone(), subject: content.subject.clone(), extensions };
    CertificateBuilder::new(leaf, SerialNumber::new(&content.serial)?, validity, key)
}

/// A certificate with these extensions and no others.
pub(super) struct Leaf {
    issuer: Name,
    subject: Name,
    extensions: Vec<Extension>,
}

impl BuilderProfile for Leaf {
    fn get_issuer(&self, _: &Name) -> Name {
        self.issuer.clone()
    }

    fn get_subject(&self) -> Name {
        self.subject.clone()
    }

    fn build_extensions(
        &self,
        _: SubjectPublicKeyInfoRef<'_>,
        _: SubjectPublicKeyInfoRef<'_>,
        _: &TbsCertificate,
    ) -> Result<Vec<Extension>, Error> {
        Ok(self.extensions.clone())
    }
}

/// A moment in seconds since 1970.
fn time(at: i64) -> der::Result<Time> {
    let since_1970 = std::time::Duration::from_secs(u64::try_from(at).unwrap_or_default());
    Ok(Time::from(der::DateTime::from_unix_duration(since_1970)?))
}

/// The subject, made anew: all values of an attribute together, of names and serial numbers the last one.
pub(super) fn subject(request: &CertificateRequest) -> Result<Name, Error> {
    let mut parts = RdnSequence::default();
    for attribute in Attribute::ALL {
        let mut values: Vec<&str> = request.values(attribute).collect();
        if matches!(attribute, Attribute::CommonName | Attribute::SerialNumber) {
            values = values.pop().filter(|last| !last.is_empty()).into_iter().collect();
        }
        // A set contains a value once.
        let mut seen = BTreeSet::new();
        let mut part: Vec<AttributeTypeAndValue> = Vec::new();
        for value in values.into_iter().filter(|value| seen.insert(*value)) {
            part.push(AttributeTypeAndValue {
                oid: attribute.identifier(),
                value: Any::new(string_tag(value), value.as_bytes())?,
            });
        }
        if !part.is_empty() {
            parts.push(RelativeDistinguishedName::try_from(part)?);
        }
    }
    Ok(Name::from_der(&parts.to_der()?)?)
}

/// The subject that has a common name and nothing else.
pub(super) fn common_name(name: &str) -> Result<Name, Error> {
    let value = Any::new(string_tag(name), name.as_bytes())?;
    let part = AttributeTypeAndValue { oid: Attribute::CommonName.identifier(), value };
    let mut parts = RdnSequence::default();
    parts.push(RelativeDistinguishedName::try_from(vec![part])?);
    Ok(Name::from_der(&parts.to_der()?)?)
}

/// Whether a text is one of the simple sort.
fn string_tag(text: &str) -> Tag {
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte);
    if text.bytes().all(is_printable) { Tag::PrintableString } else { Tag::Utf8String }
}

fn extensions(content: &Content<'_>, subject: &Name) -> Result<Vec<Extension>, Error> {
    let Usages { key, purposes } = content.usages;
    let mut extensions = Vec::new();
    let mut add = |extension: der::Result<Extension>| -> Result<(), Error> {
        extensions.push(extension?);
        Ok(())
    };
    if !key.is_empty() {
        add((true, &KeyUsage(*key)).to_extension(subject, &[]))?;
    }
    if !purposes.is_empty() {
        add((false, &ExtendedKeyUsage(purposes.clone())).to_extension(subject, &[]))?;
    }
    let leaf = BasicConstraints { ca: false, path_len_constraint: None };
    add((true, &leaf).to_extension(subject, &[]))?;
    if let Some(id) = content.issuer_key.filter(|_| content.issuer != subject) {
        let id = AuthorityKeyIdentifier {
            key_identifier: Some(OctetString::new(id)?),
            ..AuthorityKeyIdentifier::default()
        };
        add((false, &id).to_extension(subject, &[]))?;
    }
    let names = alternative_names(content.names)?;
    if !names.is_empty() {
        add((subject.is_empty(), &SubjectAltName(names)).to_extension(subject, &[]))?;
    }
    Ok(extensions)
}

/// The names of each sort together.
fn alternative_names(asked: &[AlternativeName]) -> der::Result<Vec<GeneralName>> {
    let (mut dns, mut email, mut ip, mut uri) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for name in asked {
        match name {
            AlternativeName::Dns(name) => dns.push(GeneralName::DnsName(Ia5String::new(name)?)),
            AlternativeName::Email(name) => email.push(GeneralName::Rfc822Name(Ia5String::new(name)?)),
            AlternativeName::Uri(name) => {
                uri.push(GeneralName::UniformResourceIdentifier(Ia5String::new(name)?));
            }
            AlternativeName::Ip(bytes) => ip.push(GeneralName::IpAddress(OctetString::new(shortest(bytes))?)),
        }
    }
    Ok([dns, email, ip, uri].concat())
}

/// An IPv4 address is four bytes, however it was asked for.
fn shortest(ip: &[u8]) -> &[u8] {
    const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    ip.strip_prefix(&MAPPED).filter(|rest| rest.len() == 4).unwrap_or(ip)
}
