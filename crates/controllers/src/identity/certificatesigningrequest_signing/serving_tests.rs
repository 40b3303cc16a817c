//! The certificates by which replicas serve.

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PublicKeyData as _,
};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::authority::Authority;
use coxswain_machinery::serve::COXSWAIN_NAME;

/// [`now`], in seconds since 1970.
const NOW: i64 = 1_800_000_000;
/// 16 hours later.
const TOMORROW: (i32, u8, u8, i64) = (2027, 1, 16, 1_800_057_600);
const P256: [&str; 2] = [
    include_str!("../../../../../tests/data/authorities/p256.crt"),
    include_str!("../../../../../tests/data/authorities/p256.key"),
];
const RSA: [&str; 2] = [
    include_str!("../../../../../tests/data/authorities/rsa.crt"),
    include_str!("../../../../../tests/data/authorities/rsa.key"),
];

fn now() -> Timestamp {
    "2027-01-15T08:00:00Z".parse().unwrap()
}

fn authority([certificate, key]: [&str; 2]) -> Authority {
    Authority::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap()
}

/// The certificates of a chain, in DER.
fn chain(pem: &str) -> Vec<Vec<u8>> {
    Pem::iter_from_buffer(pem.as_bytes()).map(|block| block.unwrap().contents).collect()
}

fn ca(name: &str, end: Option<(i32, u8, u8)>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some((year, month, day)) = end {
        params.not_after = rcgen::date_time_ymd(year, month, day);
    }
    params
}

#[test]
fn serving_certificate_has_one_name_and_authenticates_servers_only() {
    for files in [P256, RSA] {
        let (authority, key) = (authority(files), KeyPair::generate().unwrap());
        let signed = authority.issue_serving(&key.subject_public_key_info(), now()).unwrap();
        let chain = chain(&signed.chain);
        let [leaf] = chain.as_slice() else { panic!("{} certificates", chain.len()) };
        let (_, leaf) = X509Certificate::from_der(leaf).unwrap();
        // No organization: kube-apiserver would take one for a group.
        assert_eq!(leaf.subject().to_string(), format!("CN={COXSWAIN_NAME}"));
        let names = leaf.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names, [GeneralName::DNSName(COXSWAIN_NAME)]);
        let usage = leaf.key_usage().unwrap().unwrap();
        assert_eq!((usage.critical, usage.value.flags), (true, 1), "digital signature alone");
        let purposes = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.server_auth && !purposes.client_auth && !purposes.any && purposes.other.is_empty());
        assert!(!leaf.is_ca());
        assert_eq!(leaf.public_key().raw, key.subject_public_key_info());
        let ca = Pem::iter_from_buffer(files[0].as_bytes()).next().unwrap().unwrap().contents;
        let (_, issuer) = X509Certificate::from_der(&ca).unwrap();
        leaf.verify_signature(Some(issuer.public_key())).unwrap();
        assert_eq!(leaf.issuer().as_raw(), issuer.subject().as_raw());

        let validity = leaf.validity();
        let (from, until) = (validity.not_before.timestamp() - NOW, validity.not_after.timestamp() - NOW);
        assert_eq!((from, until), (-300, 24 * 3600 - 300));
        assert_eq!(signed.not_after, validity.not_after.timestamp());
        assert_eq!(*signed.ca.certificate, *ca);
        assert_eq!(signed.ca.not_after, issuer.validity().not_after.timestamp());
    }
}

#[test]
fn serving_certificate_ends_with_its_ca() {
    let (year, month, day, end) = TOMORROW;
    let issued = |end: (i32, u8, u8)| {
        let key = KeyPair::generate().unwrap();
        let ca = ca("ca", Some(end)).self_signed(&key).unwrap().pem();
        let subject = KeyPair::generate().unwrap().subject_public_key_info();
        authority([&ca, &key.serialize_pem()]).issue_serving(&subject, now())
    };
    let signed = issued((year, month, day)).unwrap();
    assert_eq!((signed.not_after, signed.ca.not_after), (end, end));
    let error = issued((2026, 1, 1)).unwrap_err();
    assert_eq!(error, "the signer has expired: NotAfter=2026-01-01T00:00:00Z");
}

#[test]
fn serving_certificate_of_an_intermediate_ca_comes_with_it() {
    let root = CertifiedIssuer::self_signed(ca("root", None), KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let intermediate = ca("intermediate", None).signed_by(&key, &root).unwrap();
    let authority = authority([&intermediate.pem(), &key.serialize_pem()]);
    let subject = KeyPair::generate().unwrap().subject_public_key_info();
    let chain = chain(&authority.issue_serving(&subject, now()).unwrap().chain);
    assert_eq!(chain.len(), 2);
    assert_eq!(chain[1], intermediate.der().as_ref());
}

#[test]
fn serving_certificate_for_no_key_is_refused() {
    assert!(authority(P256).issue_serving(b"no key", now()).is_err());
}
