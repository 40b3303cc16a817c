//! Certificates of any bytes with a good signature.

use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};

use super::Certificate;

/// The `AlgorithmIdentifier` of ecdsa-with-SHA256.
pub(crate) const ECDSA_SHA256: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

/// Returns an element of DER.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let first = length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1);
    let mut der = vec![tag];
    if content.len() >= 0x80 {
        der.push(0x80 | (length.len() - first) as u8);
    }
    der.extend(&length[first..]);
    der.extend(content);
    der
}

/// Returns a part of a name: the attribute 2.5.4.`number` with a value of any tag.
pub(crate) fn name_part(number: u8, tag: u8, value: &[u8]) -> Vec<u8> {
    let pair = [vec![6, 3, 0x55, 4, number], element(tag, value)].concat();
    element(0x31, &element(0x30, &pair))
}

/// A certificate before it is signed.
#[derive(Clone)]
pub(crate) struct Draft {
    /// The number that encodes its version. Version 1 has none.
    pub(crate) version: Option<u8>,
    /// The content of the subject's name.
    pub(crate) subject: Vec<u8>,
    pub(crate) public_key: Vec<u8>,
    pub(crate) not_before: &'static str,
    pub(crate) not_after: &'static str,
    /// Extensions, each a SEQUENCE.
    pub(crate) extensions: Vec<u8>,
    pub(crate) algorithm: Vec<u8>,
}

impl Draft {
    /// Returns a draft of version 3 without extensions, valid from 2000 to 2099.
    pub(crate) fn new(public_key: Vec<u8>, subject: Vec<u8>) -> Self {
        Self {
            version: Some(2),
            subject,
            public_key,
            not_before: "20000101000000Z",
            not_after: "20991231235959Z",
            extensions: Vec::new(),
            algorithm: ECDSA_SHA256.to_vec(),
        }
    }

    /// Returns the certificate, issued by a name and signed.
    pub(crate) fn sign(&self, issuer: &[u8], sign: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let version = self.version.map(|number| element(0xa0, &[2, 1, number])).unwrap_or_default();
        let times = [element(0x18, self.not_before.as_bytes()), element(0x18, self.not_after.as_bytes())];
        let mut parts = vec![
            version,
            vec![2, 1, 7],
            self.algorithm.clone(),
            element(0x30, issuer),
            element(0x30, &times.concat()),
            element(0x30, &self.subject),
            self.public_key.clone(),
        ];
        if !self.extensions.is_empty() {
            parts.push(element(0xa3, &element(0x30, &self.extensions)));
        }
        let signed = element(0x30, &parts.concat());
        let signature = element(3, &[&[0][..], &sign(&signed)].concat());
        element(0x30, &[signed, self.algorithm.clone(), signature].concat())
    }

    /// Returns the certificate, issued by a CA whose key is on P-256.
    pub(crate) fn issued_by(&self, ca: &[u8], key: &KeyPair) -> Vec<u8> {
        let issuer = Certificate::read(ca).unwrap().raw_subject;
        self.sign(issuer, |message| key.sign(message).unwrap())
    }
}

/// Returns the `SubjectPublicKeyInfo` of a key.
pub(crate) fn public_key(key: &KeyPair) -> Vec<u8> {
    key.subject_public_key_info()
}

/// Returns an extension, 2.5.29.`number`.
pub(crate) fn extension(number: u8, is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    element(0x30, &[&[6, 3, 0x55, 0x1d, number], critical, &element(4, value)].concat())
}

pub(crate) fn to_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}
