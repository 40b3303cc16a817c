//! What certificates are to be used for: Kubernetes' words, and what X.509 makes of them. Decides nothing.

use x509_cert::der::flagset::FlagSet;
use x509_cert::ext::pkix::KeyUsages;
use x509_cert::spki::ObjectIdentifier;

use coxswain_machinery::wire::Str;

/// Usages that X.509 does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized usage values: {0:?}")]
pub(super) struct Unrecognized(Vec<String>);

/// What a certificate is to be used for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usages {
    /// What its key may do.
    pub(super) key: FlagSet<KeyUsages>,
    /// For what, each once, in the order that certificates have them.
    pub(super) purposes: Vec<ObjectIdentifier>,
}

/// What Kubernetes calls each use of a key.
const KEY: [(&str, KeyUsages); 10] = [
    ("signing", KeyUsages::DigitalSignature),
    ("digital signature", KeyUsages::DigitalSignature),
    ("content commitment", KeyUsages::NonRepudiation),
    ("key encipherment", KeyUsages::KeyEncipherment),
    ("key agreement", KeyUsages::KeyAgreement),
    ("data encipherment", KeyUsages::DataEncipherment),
    ("cert sign", KeyUsages::KeyCertSign),
    ("crl sign", KeyUsages::CRLSign),
    ("encipher only", KeyUsages::EncipherOnly),
    ("decipher only", KeyUsages::DecipherOnly),
];

/// What it calls each purpose, in the order of certificates.
const PURPOSES: [(&str, ObjectIdentifier); 13] = [
    ("any", ObjectIdentifier::new_unwrap("2.5.29.37.0")),
    ("server auth", SERVER_AUTH),
    ("client auth", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2")),
    ("code signing", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.3")),
    ("email protection", EMAIL_PROTECTION),
    ("s/mime", EMAIL_PROTECTION),
    ("ipsec end system", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.5")),
    ("ipsec tunnel", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.6")),
    ("ipsec user", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.7")),
    ("timestamping", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.8")),
    ("ocsp signing", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9")),
    ("microsoft sgc", ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.10.3.3")),
    ("netscape sgc", ObjectIdentifier::new_unwrap("2.16.840.1.113730.4.1")),
];
const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const EMAIL_PROTECTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.4");

impl Usages {
    /// The usages of a certificate that a server presents, and no others: nobody is authenticated by it as a client.
    pub(super) fn of_a_server() -> Self {
        Self { key: KeyUsages::DigitalSignature.into(), purposes: vec![SERVER_AUTH] }
    }
}

/// What a request's usages are.
pub(super) fn read(usages: &[Str]) -> Result<Usages, Unrecognized> {
    let mut read = Usages::default();
    let mut unknown = Vec::new();
    for usage in usages {
        if let Some((_, bit)) = KEY.iter().find(|(name, _)| *usage == *name) {
            read.key |= *bit;
        } else if !PURPOSES.iter().any(|(name, _)| *usage == *name) {
            unknown.push(usage.to_string());
        }
    }
    for (name, purpose) in PURPOSES {
        // Linear: there are some 15 purposes.
        if usages.iter().any(|usage| *usage == name) && !read.purposes.contains(&purpose) {
            read.purposes.push(purpose);
        }
    }
    if unknown.is_empty() { Ok(read) } else { Err(Unrecognized(unknown)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(usages: &[&str]) -> Result<Usages, Unrecognized> {
        read(&usages.iter().map(|usage| Str::from(*usage)).collect::<Vec<_>>())
    }

    #[test]
    fn usages_are_bits_and_purposes_in_order() {
        let read = of(&[
            "netscape sgc",
            "client auth",
            "s/mime",
            "signing",
            "any",
            "email protection",
            "client auth",
        ]);
        let read = read.unwrap();
        assert_eq!(read.key, FlagSet::from(KeyUsages::DigitalSignature));
        let purposes: Vec<String> = read.purposes.iter().map(ToString::to_string).collect();
        let expected = ["2.5.29.37.0", "1.3.6.1.5.5.7.3.2", "1.3.6.1.5.5.7.3.4", "2.16.840.1.113730.4.1"];
        assert_eq!(purposes, expected);
        assert_eq!(of(&[]).unwrap(), Usages::default());
        let all: Vec<&str> = KEY.iter().map(|(name, _)| *name).collect();
        assert_eq!(of(&all).unwrap().key, FlagSet::full());
    }

    #[test]
    fn what_x509_does_not_know_is_named() {
        let error = of(&["client auth", "nonsense", "more"]).unwrap_err();
        assert_eq!(error.to_string(), "unrecognized usage values: [\"nonsense\", \"more\"]");
    }
}
