//! Certificates of any bytes with a good signature.
#![expect(clippy::expect_used, reason = "for tests")]

use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};

use super::Certificate;

/// The `AlgorithmIdentifier` of ecdsa-with-SHA256.
pub const ECDSA_SHA256: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

/// Returns an element of DER.
pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
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
pub fn name_part(number: u8, tag: u8, value: &[u8]) -> Vec<u8> {
    let pair = [vec![6, 3, 0x55, 4, number], element(tag, value)].concat();
    element(0x31, &element(0x30, &pair))
}

/// A certificate before it is signed.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The number that encodes its version. Version 1 has none.
    pub version: Option<u8>,
    /// The content of the subject's name.
    pub subject: Vec<u8>,
    /// A `SubjectPublicKeyInfo`.
    pub public_key: Vec<u8>,
    /// The beginning of its validity, as a GeneralizedTime.
    pub not_before: &'static str,
    /// The end of its validity, as a GeneralizedTime.
    pub not_after: &'static str,
    /// Extensions, each a SEQUENCE.
    pub extensions: Vec<u8>,
    /// The `AlgorithmIdentifier` of its signature.
    pub algorithm: Vec<u8>,
}

impl Draft {
    /// Returns a draft of version 3 without extensions, valid from 2000 to 2099.
    pub fn new(public_key: Vec<u8>, subject: Vec<u8>) -> Self {
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
    pub fn sign(&self, issuer: &[u8], sign: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
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
    ///
    /// # Panics
    /// If `ca` is no certificate.
    pub fn issued_by(&self, ca: &[u8], key: &KeyPair) -> Vec<u8> {
        let issuer = Certificate::read(ca).expect("a certificate").raw_subject;
        self.sign(issuer, |message| key.sign(message).expect("a signature"))
    }
}

/// Returns the `SubjectPublicKeyInfo` of a key.
pub fn public_key(key: &KeyPair) -> Vec<u8> {
    key.subject_public_key_info()
}

/// Returns an extension, 2.5.29.`number`.
pub fn extension(number: u8, is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    element(0x30, &[&[6, 3, 0x55, 0x1d, number], critical, &element(4, value)].concat())
}

/// Returns a certificate in PEM.
pub fn to_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}
