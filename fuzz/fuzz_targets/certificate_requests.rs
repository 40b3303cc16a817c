//! Whatever somebody asks a certificate for, reading it ends, and nobody gets one beyond the rules of its signer.
//!
//! The first byte chooses the signer, the second the usages, the third whether the rest is the text of the request, or a length, a
//! subject and attributes in DER: these are put into a request that is signed as it should be, so that it is read beyond its
//! signature. What an authority makes of it is read by another parser than the one that reads requests.

#![no_main]

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use coxswain_controllers::identity::certificatesigningrequest_signing::authority::Authority;
use coxswain_controllers::identity::signers::Signer;
use coxswain_controllers::identity::{
    certificatesigningrequest_approving, certificatesigningrequest_signing,
};
use coxswain_machinery::api::certificates::{CertificateSigningRequest, CertificateSigningRequestCondition};
use coxswain_machinery::api::kinds::CERTIFICATE_SIGNING_REQUESTS;
use coxswain_machinery::executor::{FinishError, Finisher, Finishers};
use coxswain_machinery::framework::Reads;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::options::Config;
use coxswain_machinery::wire::Message as _;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SigningKey as _};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints as Constraints, ExtendedKeyUsage, SubjectAltName};

const USAGES: [&str; 8] = [
    "digital signature",
    "key encipherment",
    "client auth",
    "server auth",
    "cert sign",
    "crl sign",
    "any",
    "code signing",
];
/// In 2030.
const NOW: i64 = 1_900_000_000;
const YEAR: i64 = 366 * 24 * 3600;
const ORGANIZATION: &str = "2.5.4.10";
const COMMON_NAME: &str = "2.5.4.3";
const SERVER_AUTH: &str = "1.3.6.1.5.5.7.3.1";
const CLIENT_AUTH: &str = "1.3.6.1.5.5.7.3.2";

/// The key of those who ask, and an authority.
struct Keys {
    asks: KeyPair,
    authority: Authority,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    let authority = Authority::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes());
    Keys { asks: KeyPair::generate().expect("a key"), authority: authority.expect("an authority") }
});

/// Whoever asks whether there is a signer finds one.
struct Present;

impl Finisher for Present {
    fn finish<'a>(&'a self, object: &'a [u8], _: &'a Value) -> BoxFuture<'a, Result<Vec<u8>, FinishError>> {
        Box::pin(ready(Ok(object.to_vec())))
    }
}

/// A value in DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let first = length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1);
    let mut out = vec![tag];
    if content.len() < 128 {
        out.push(content.len() as u8);
    } else {
        out.push(0x80 | (length.len() - first) as u8);
        out.extend(&length[first..]);
    }
    out.extend(content);
    out
}

/// A request with this subject and these attributes, signed as it should be.
fn signed(subject: &[u8], attributes: &[u8]) -> Vec<u8> {
    use rcgen::PublicKeyData as _;
    let mut info = der(0x02, &[0]);
    info.extend(der(0x30, subject));
    info.extend(KEYS.asks.subject_public_key_info());
    info.extend(der(0xa0, attributes));
    let info = der(0x30, &info);
    let mut signature = vec![0];
    signature.extend(KEYS.asks.sign(&info).expect("a signature"));
    // ecdsa-with-SHA256
    let algorithm = der(0x30, &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
    let request = der(0x30, &[info, algorithm, der(0x03, &signature)].concat());
    pem_of(&request)
}

fn pem_of(request: &[u8]) -> Vec<u8> {
    use base64::Engine as _;
    let body = base64::engine::general_purpose::STANDARD.encode(request);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
}

/// The values of an attribute of the subject.
fn values(certificate: &Certificate, identifier: &str) -> Vec<String> {
    let parts = certificate.tbs_certificate().subject().iter();
    let held = parts.filter(|each| each.oid.to_string() == identifier);
    held.map(|each| String::from_utf8_lossy(each.value.value()).into_owned()).collect()
}

/// What no request gets, however it asks.
fn judge(pem: &[u8], signer: Signer, usages: &[&str]) {
    let der = CertificateDer::from_pem_slice(pem).expect("PEM");
    let certificate = Certificate::from_der(&der).expect("a certificate");
    let content = certificate.tbs_certificate();
    let constraints = content.get_extension::<Constraints>().expect("readable").expect("there");
    assert!(constraints.0 && !constraints.1.ca, "an authority was made");
    let lasts = |time: x509_cert::time::Time| time.to_unix_duration().as_secs() as i64;
    assert!(lasts(content.validity().not_after) <= NOW + YEAR, "it lasts longer than it may");
    let purposes = content.get_extension::<ExtendedKeyUsage>().expect("readable");
    let purposes: Vec<String> =
        purposes.map(|(_, held)| held.0.iter().map(ToString::to_string).collect()).unwrap_or_default();
    for (purpose, usage) in [(SERVER_AUTH, "server auth"), (CLIENT_AUTH, "client auth")] {
        assert!(!purposes.iter().any(|held| held == purpose) || usages.contains(&usage), "{purposes:?}");
    }
    let names = content.get_extension::<SubjectAltName>().expect("readable");
    let names = names.map(|(_, held)| held.0).unwrap_or_default();
    let is_host = |name: &GeneralName| matches!(name, GeneralName::DnsName(_) | GeneralName::IpAddress(_));
    let of_node = || {
        assert_eq!(values(&certificate, ORGANIZATION), ["system:nodes"]);
        let names = values(&certificate, COMMON_NAME);
        assert!(names.len() == 1 && names[0].starts_with("system:node:"), "{names:?}");
    };
    match signer {
        Signer::KubeletServing => {
            of_node();
            assert!(!names.is_empty() && names.iter().all(is_host));
            assert!(!purposes.iter().any(|held| held != SERVER_AUTH), "{purposes:?}");
        }
        Signer::KubeletClient => {
            of_node();
            assert!(names.is_empty());
            assert!(!purposes.iter().any(|held| held != CLIENT_AUTH), "{purposes:?}");
        }
        Signer::ApiServerClient => {
            assert!(!purposes.iter().any(|held| held != CLIENT_AUTH), "{purposes:?}");
        }
        Signer::LegacyUnknown => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let [signer, bits, form, rest @ ..] = data else { return };
    let signer = Signer::ALL[usize::from(*signer) % Signer::ALL.len()];
    let usages: Vec<&str> =
        USAGES.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, usage)| *usage).collect();
    let text = match rest {
        [length, rest @ ..] if form % 2 == 1 => {
            let (subject, attributes) = rest.split_at(usize::from(*length).min(rest.len()));
            signed(subject, attributes)
        }
        rest => rest.to_vec(),
    };
    let mut request = CertificateSigningRequest::default();
    request.metadata.name = "r".into();
    request.metadata.resource_version = "1".into();
    request.spec.signer_name = signer.name().into();
    request.spec.request = Bytes::from(text).into();
    request.spec.usages = usages.iter().map(|usage| (*usage).into()).collect();
    let now = Timestamp::from_second(NOW).expect("a time");
    let key = Key::new("", "r");
    let finishers = Signer::ALL.into_iter().fold(Finishers::default(), |all, signer| {
        all.with(certificatesigningrequest_signing::finisher(signer), Arc::new(Present))
    });
    let rig = Rig::new(Config::default()).with_finishers(finishers);
    rig.add(&CERTIFICATE_SIGNING_REQUESTS, &request).expect("it is stored");
    // What is approved without a human is judged by live reviews, which are asked for or not: both are fine.
    for work in rig.build(certificatesigningrequest_approving::build).expect("it is built").loops {
        let _ = work.reconcile.plan(&key, &[], &Reads::default(), now);
    }
    request.status.conditions.push(CertificateSigningRequestCondition {
        r#type: "Approved".into(),
        status: "True".into(),
        ..CertificateSigningRequestCondition::default()
    });
    rig.add(&CERTIFICATE_SIGNING_REQUESTS, &request).expect("it is stored");
    for work in rig.build(certificatesigningrequest_signing::build).expect("it is built").loops {
        let Ok(Some(plan)) = rig.plan(work.reconcile.as_ref(), &key, now) else { continue };
        for write in plan.writes() {
            let Verb::UpdateFinished { object, order } = &write.verb else { continue };
            let Ok(finished) = KEYS.authority.finish(object, &order.details) else { continue };
            let issued = CertificateSigningRequest::decode(&Bytes::from(finished)).expect("a request");
            judge(&issued.status.certificate, signer, &usages);
        }
    }
});
