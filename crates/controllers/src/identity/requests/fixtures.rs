//! Requests for tests: ordinary ones by rcgen, and ones of any bytes with a good signature.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, PublicKeyData as _, SanType,
    SigningKey as _,
};

use super::LABEL;
use crate::identity::pem;

/// Returns a request of the key with a subject, written `O=system:nodes/CN=system:node:n1`, and alternative names, written
/// `DNS:name`.
pub(in crate::identity) fn request_of(key: &KeyPair, subject: &str, names: &[&str]) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for part in subject.split('/').filter(|part| !part.is_empty()) {
        let (attribute, value) = part.split_once('=').unwrap();
        let attribute = match attribute {
            "C" => DnType::CountryName,
            "O" => DnType::OrganizationName,
            "OU" => DnType::OrganizationalUnitName,
            "CN" => DnType::CommonName,
            number => DnType::from_oid(&[2, 5, 4, number.parse().unwrap()]),
        };
        params.distinguished_name.push(attribute, DnValue::Utf8String(value.to_owned()));
    }
    for name in names {
        let (kind, value) = name.split_once(':').unwrap();
        params.subject_alt_names.push(match kind {
            "DNS" => SanType::DnsName(value.try_into().unwrap()),
            "email" => SanType::Rfc822Name(value.try_into().unwrap()),
            "IP" => SanType::IpAddress(value.parse().unwrap()),
            _ => SanType::URI(value.try_into().unwrap()),
        });
    }
    params.serialize_request(key).unwrap().pem().unwrap()
}

/// Returns such a request of a new key on P-256.
pub(in crate::identity) fn request(subject: &str, names: &[&str]) -> String {
    request_of(&KeyPair::generate().unwrap(), subject, names)
}

/// Returns a request of a new key with these organizations and this common name.
pub(in crate::identity) fn request_with_organizations(organizations: &[&str], name: &str) -> String {
    let mut subject: Vec<u8> =
        organizations.iter().flat_map(|each| subject_part(10, 0x0c, each.as_bytes())).collect();
    subject.extend(subject_part(3, 0x0c, name.as_bytes()));
    to_pem(&signed(&KeyPair::generate().unwrap(), &subject, &[]))
}

/// Requests as openssl makes them for each pair of a curve and a digest, and with RSA of 1024 and 2048 bits, each after a line with its name.
pub(in crate::identity) const SIGNATURES: &str =
    include_str!("../../../../../tests/data/requests/signatures.csr");

/// The requests of a file with their names.
pub(in crate::identity) fn named(all: &'static str) -> Vec<(&'static str, &'static str)> {
    all.split("# ").skip(1).map(|each| (each.lines().next().unwrap(), each)).collect()
}

pub(in crate::identity) fn to_pem(der: &[u8]) -> String {
    format!("-----BEGIN {LABEL}-----\n{}\n-----END {LABEL}-----\n", BASE64_STANDARD.encode(der))
}

pub(in crate::identity) fn to_der(text: &str) -> Vec<u8> {
    pem::first_block(text.as_bytes(), LABEL).unwrap()
}

pub(in crate::identity) use coxswain_machinery::x509::fixtures::{element, name_part as subject_part};

/// The object identifiers of extension requests and of alternative names.
pub(super) const EXTENSION_REQUEST: [u8; 11] = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
pub(super) const ALTERNATIVE_NAMES: [u8; 5] = [6, 3, 0x55, 0x1d, 0x11];

/// Returns an extension of alternative names, which are elements of DER.
pub(super) fn names_extension(names: &[u8]) -> Vec<u8> {
    let value = element(4, &element(0x30, names));
    element(0x30, &[&ALTERNATIVE_NAMES[..], &value].concat())
}

/// Returns an attribute that requests extensions, which are elements of DER. The tags are those of the attribute and of its set.
pub(super) fn extension_request(extensions: &[u8], tag: u8, set: u8) -> Vec<u8> {
    let values = element(set, &element(0x30, extensions));
    element(tag, &[&EXTENSION_REQUEST[..], &values].concat())
}

/// Returns a request with this content of the subject and of the attributes.
pub(in crate::identity) fn signed(key: &KeyPair, subject: &[u8], attributes: &[u8]) -> Vec<u8> {
    let key_info = key.subject_public_key_info();
    let parts = [vec![2, 1, 0], element(0x30, subject), key_info, element(0xa0, attributes)];
    sign(key, &element(0x30, &parts.concat()))
}

/// Returns a request whose signed part is this.
pub(super) fn sign(key: &KeyPair, info: &[u8]) -> Vec<u8> {
    let algorithm: &[u8] = if key.algorithm() == &rcgen::PKCS_ED25519 {
        &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70]
    } else {
        // ecdsa-with-SHA256
        &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]
    };
    let signature = element(3, &[&[0][..], &key.sign(info).unwrap()].concat());
    element(0x30, &[info, algorithm, &signature].concat())
}
