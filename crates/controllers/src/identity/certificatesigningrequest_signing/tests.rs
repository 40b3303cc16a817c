//! What is signed, how requests fail, and what stands in certificates.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::Value;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::authority::{Authority, AuthorityError};
use super::view::{Signing, Standing, View};
use super::{build, finisher};
use crate::identity::requests::fixtures::to_pem;
use crate::identity::requests::{CertificateRequest, VERIFIER, fixtures};
use crate::identity::signers::Signer;
use coxswain_machinery::api::certificates::{CertificateSigningRequest, CertificateSigningRequestCondition};
use coxswain_machinery::api::kinds::CERTIFICATE_SIGNING_REQUESTS;
use coxswain_machinery::executor::{FinishError, Finisher, Finishers};
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::framework::{BuildError, Pass, Read, Reads, Room as _};
use coxswain_machinery::model::plan::{FinishOrder, Verb};
use coxswain_machinery::model::{Key, Plan, Step};
use coxswain_machinery::options::Config;
use coxswain_machinery::wire::{Message as _, Str, Time};
use futures::future::BoxFuture;

const NOW: i64 = 1_800_000_000;
const KUBELET: &str = "O=system:nodes/CN=system:node:n1";
const CLIENT: [&str; 2] = ["digital signature", "client auth"];
const ODD: &str = include_str!("../../../../../tests/data/requests/odd.csr");
const TWO_GROUPS: &str = include_str!("../../../../../tests/data/requests/two-groups.csr");
const TEXTS: &str = include_str!("../../../../../tests/data/requests/texts.csr");
const P521: &str = include_str!("../../../../../tests/data/requests/p521.csr");

macro_rules! authorities {
    ($($name:literal),*) => {[$((
        $name,
        include_str!(concat!("../../../../../tests/data/authorities/", $name, ".crt")),
        include_str!(concat!("../../../../../tests/data/authorities/", $name, ".key")),
    )),*]};
}

const AUTHORITIES: [(&str, &str, &str); 11] = authorities![
    "ed25519",
    "p256",
    "p384",
    "p521",
    "rsa",
    "rsa1024",
    "rsa4104",
    "rsa8192",
    "p256-no-public",
    "p384-no-public",
    "p521-no-public"
];

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn authority(name: &str) -> Authority {
    let (_, certificate, key) = AUTHORITIES.into_iter().find(|(each, ..)| *each == name).unwrap();
    Authority::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap()
}

fn condition(kind: &str, status: &str) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        r#type: kind.into(),
        status: status.into(),
        ..CertificateSigningRequestCondition::default()
    }
}

fn texts(all: &[&str]) -> Vec<Str> {
    all.iter().map(|each| (*each).into()).collect()
}

/// An approved request.
fn csr(signer: Signer, text: &str, usages: &[&str]) -> CertificateSigningRequest {
    let mut csr = CertificateSigningRequest::default();
    csr.metadata.name = "csr".into();
    csr.metadata.resource_version = "7".into();
    csr.spec.request = Bytes::from(text.to_owned().into_bytes()).into();
    csr.spec.signer_name = signer.name().into();
    csr.spec.usages = texts(usages);
    csr.status.conditions.push(condition("Approved", "True"));
    csr
}

fn kubelet() -> CertificateSigningRequest {
    csr(Signer::KubeletClient, &fixtures::request(KUBELET, &[]), &CLIENT)
}

/// Signs nothing: whoever asks whether there is a signer finds one.
struct NoSigner;

impl Finisher for NoSigner {
    fn finish<'a>(&'a self, object: &'a [u8], _: &'a Value) -> BoxFuture<'a, Result<Vec<u8>, FinishError>> {
        Box::pin(async { Ok(object.to_vec()) })
    }
}

fn rig(signers: &[Signer]) -> Rig {
    let all = signers
        .iter()
        .fold(Finishers::default(), |all, signer| all.with(finisher(*signer), std::sync::Arc::new(NoSigner)));
    Rig::new(Config::default()).with_finishers(all)
}

/// What is planned for a request where all signers have an authority.
fn planned(csr: &CertificateSigningRequest) -> Plan {
    let rig = rig(&Signer::ALL);
    rig.add(&CERTIFICATE_SIGNING_REQUESTS, csr).unwrap();
    let built = rig.build(build).unwrap();
    rig.plan(&*built.loops[0].reconcile, &Key::new("", "csr"), now()).unwrap().unwrap()
}

/// The one write's verb.
fn verb(plan: &Plan) -> Option<&Verb> {
    let [Step::Write(write)] = plan.steps.as_slice() else { return None };
    assert_eq!(write.to_string(), "update certificatesigningrequests.certificates.k8s.io/status csr");
    Some(&write.verb)
}

/// The message of the condition that it failed, if that is planned.
fn failure(plan: &Plan) -> Option<String> {
    let Verb::Update(object) = verb(plan)? else { return None };
    let object = CertificateSigningRequest::decode(object).unwrap();
    let failed = object.status.conditions.last().unwrap();
    assert_eq!((failed.r#type.as_str(), failed.status.as_str()), ("Failed", "True"));
    assert_eq!(failed.reason, "SignerValidationFailure");
    assert_eq!(failed.last_update_time.map(Time::seconds), Some(NOW));
    assert_eq!(failed.last_transition_time, None, "the server fills it in");
    assert_eq!(object.metadata.resource_version, "7");
    Some(failed.message.to_string())
}

/// The order that is planned, with the object.
fn ordered(plan: &Plan) -> Option<(&Bytes, &FinishOrder)> {
    let Verb::UpdateFinished { object, order } = verb(plan)? else { return None };
    Some((object, order))
}

/// The certificate that comes of a request, in DER.
fn issued(authority: &Authority, csr: &CertificateSigningRequest) -> Vec<u8> {
    let plan = planned(csr);
    let (object, order) = ordered(&plan).unwrap();
    let finished = authority.finish(object, &order.details).unwrap();
    let finished = CertificateSigningRequest::decode(&Bytes::from(finished)).unwrap();
    assert_eq!(finished.metadata, csr.metadata);
    assert_eq!(finished.spec, csr.spec);
    assert_eq!(finished.status.conditions, csr.status.conditions);
    let text = String::from_utf8(finished.status.certificate.to_vec()).unwrap();
    assert!(text.ends_with("-----END CERTIFICATE-----\n"), "{text}");
    let mut blocks = Pem::iter_from_buffer(text.as_bytes());
    let block = blocks.next().unwrap().unwrap();
    assert!(blocks.next().is_none(), "the issued one alone");
    block.contents
}

#[test]
fn what_is_signed_was_approved_and_neither_denied_nor_failed() {
    let with = |conditions: &[(&str, &str)]| {
        let mut csr = kubelet();
        csr.status.conditions = conditions.iter().map(|(kind, status)| condition(kind, status)).collect();
        csr
    };
    for (conditions, signed) in [
        (&[("Approved", "True")][..], true),
        (&[("Approved", "False")], true),
        (&[("Approved", "True"), ("Other", "True")], true),
        (&[("Approved", "True"), ("Failed", "False")], true),
        (&[], false),
        (&[("Other", "True")], false),
        (&[("Approved", "True"), ("Denied", "True")], false),
        (&[("Denied", "False"), ("Approved", "True")], false),
        (&[("Approved", "True"), ("Failed", "True")], false),
        (&[("Failed", ""), ("Approved", "True")], false),
    ] {
        let plan = planned(&with(conditions));
        assert_eq!(ordered(&plan).is_some(), signed, "{conditions:?}");
        assert_eq!(plan.retry, None, "{conditions:?}");
    }
    let mut issued = kubelet();
    issued.status.certificate = Bytes::from_static(b"PEM").into();
    assert!(planned(&issued).is_empty(), "once is enough");
    let mut other = kubelet();
    other.spec.signer_name = "example.com/other".into();
    assert!(planned(&other).is_empty(), "somebody else's");
}

#[test]
fn the_order_says_who_signs_and_for_how_long() {
    let mut csr = kubelet();
    csr.spec.expiration_seconds = Some(3600);
    let plan = planned(&csr);
    let (object, order) = ordered(&plan).unwrap();
    assert_eq!(order.finisher, finisher(Signer::KubeletClient));
    assert_eq!(order.details, serde_json::json!({ "at": NOW, "lasts": 3600 }));
    assert_eq!(CertificateSigningRequest::decode(object).unwrap().metadata, csr.metadata);
}

#[test]
fn a_broken_rule_is_the_end_of_a_request() {
    let good = fixtures::request("CN=someone", &[]);
    // The rules come before the signature.
    let mut der = fixtures::to_der(&good);
    *der.last_mut().unwrap() ^= 1;
    let forged = to_pem(&der);
    for (signer, usages, expected) in [
        (Signer::KubeletClient, &CLIENT[..], "subject organization is not system:nodes"),
        (Signer::KubeletServing, &CLIENT, "subject organization is not system:nodes"),
        (Signer::ApiServerClient, &["server auth"], "invalid usage for client certificate: server auth"),
        (Signer::ApiServerClient, &[], "missing required usage for client certificate: client auth"),
    ] {
        for text in [&good, &forged] {
            let plan = planned(&csr(signer, text, usages));
            assert_eq!((failure(&plan).as_deref(), plan.retry), (Some(expected), None));
        }
    }
}

#[test]
fn requests_with_every_pair_of_a_key_and_a_digest_are_issued() {
    for (name, text) in fixtures::named(fixtures::SIGNATURES) {
        let der = issued(&authority("p256"), &csr(Signer::KubeletClient, text, &CLIENT));
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let asked = CertificateRequest::from_pem(text.as_bytes()).unwrap();
        assert_eq!(certificate.public_key().raw, asked.public_key(), "{name}");
    }
}

#[test]
fn what_cannot_be_read_or_verified_is_tried_again() {
    let good = fixtures::request(KUBELET, &[]);
    let mut der = Pem::iter_from_buffer(good.as_bytes()).next().unwrap().unwrap().contents;
    *der.last_mut().unwrap() ^= 1;
    let forged = to_pem(&der);
    for (text, usages, expected) in [
        ("nonsense", &CLIENT[..], "unable to parse csr \"csr\": PEM block type must be CERTIFICATE REQUEST"),
        (
            &forged,
            &CLIENT,
            "error auto signing csr: the signature of the request does not match its public key",
        ),
    ] {
        let plan = planned(&csr(Signer::KubeletClient, text, usages));
        assert_eq!((plan.retry.as_deref(), plan.is_empty(), plan.quiet), (Some(expected), true, false));
    }
    let plan = planned(&csr(Signer::LegacyUnknown, &good, &["nonsense", "client auth"]));
    let expected = "error auto signing csr: unrecognized usage values: [\"nonsense\"]";
    assert_eq!((plan.retry.as_deref(), plan.is_empty()), (Some(expected), true));
}

#[test]
fn signer_leaves_parsing_and_verification_to_the_framework() {
    let rig = rig(&[Signer::KubeletClient]);
    rig.add(&CERTIFICATE_SIGNING_REQUESTS, &kubelet()).unwrap();
    let built = rig.build(build).unwrap();
    let first = built.loops[0].reconcile.plan(&Key::new("", "csr"), &[], &Reads::default(), now());
    let Ok(Pass::Needs(needs)) = first else { panic!("{first:?}") };
    assert!(
        matches!(&**needs.first().unwrap(), Read::Parsed(parser, _) if **parser == VERIFIER),
        "{needs:?}"
    );
}

#[test]
fn signers_without_an_authority_sign_nothing() {
    assert!(matches!(rig(&[]).build(build), Err(BuildError::Skipped(_))));
    let rig = rig(&[Signer::KubeletServing]);
    rig.add(&CERTIFICATE_SIGNING_REQUESTS, &kubelet()).unwrap();
    let built = rig.build(build).unwrap();
    let plan = rig.plan(&*built.loops[0].reconcile, &Key::new("", "csr"), now()).unwrap().unwrap();
    assert!(plan.is_empty() && plan.retry.is_none(), "{plan:?}");
}

fn verification(authority: &str) -> &'static dyn ring::signature::VerificationAlgorithm {
    match authority {
        "ed25519" => &ring::signature::ED25519,
        "p256" | "p256-no-public" => &ring::signature::ECDSA_P256_SHA256_ASN1,
        "p384" | "p384-no-public" => &ring::signature::ECDSA_P384_SHA384_ASN1,
        _ => &ring::signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    }
}

#[test]
fn each_sort_of_authority_signs_what_its_certificate_verifies() {
    let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let requests =
        [fixtures::request(KUBELET, &[]), fixtures::request_of(&ed25519, KUBELET, &[]), P521.to_owned()];
    for (name, pem, _) in AUTHORITIES {
        let pem = Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
        let theirs = X509Certificate::from_der(&pem.contents).unwrap().1;
        for request in &requests {
            let der = issued(&authority(name), &csr(Signer::LegacyUnknown, request, &CLIENT));
            let (rest, certificate) = X509Certificate::from_der(&der).unwrap();
            assert!(rest.is_empty());
            assert_eq!(certificate.issuer().as_raw(), theirs.subject().as_raw(), "{name}");
            assert_eq!(certificate.signature_algorithm, certificate.signature, "{name}");
            if name.starts_with("p521") {
                use p521::ecdsa::signature::Verifier as _;
                let key =
                    p521::ecdsa::VerifyingKey::from_sec1_bytes(&theirs.public_key().subject_public_key.data);
                let signature = p521::ecdsa::Signature::from_der(&certificate.signature_value.data).unwrap();
                key.unwrap().verify(certificate.tbs_certificate.as_ref(), &signature).unwrap();
            } else {
                let signed = certificate.tbs_certificate.as_ref();
                let signature = &certificate.signature_value.data;
                // x509-parser verifies none of fewer than 2048 bits.
                let key = ring::signature::UnparsedPublicKey::new(
                    verification(name),
                    &theirs.public_key().subject_public_key.data,
                );
                key.verify(signed, signature).expect(name);
            }
        }
    }
}

#[test]
fn a_certificate_has_names_and_key_of_its_request_and_the_usages() {
    let mut asked =
        csr(Signer::LegacyUnknown, TWO_GROUPS, &["client auth", "digital signature", "server auth"]);
    asked.spec.expiration_seconds = Some(3600);
    let der = issued(&authority("p256"), &asked);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(certificate.version.0, 2);
    assert_eq!(certificate.subject().to_string(), "O=more + O=system:nodes, CN=system:node:n2");
    let validity = certificate.validity();
    assert_eq!(validity.not_before.timestamp(), NOW - 300);
    assert_eq!(validity.not_after.timestamp(), NOW + 3600);
    let extensions: Vec<(String, bool)> = certificate
        .extensions()
        .iter()
        .map(|extension| (extension.oid.to_id_string(), extension.critical))
        .collect();
    let expected = [("2.5.29.15", true), ("2.5.29.37", false), ("2.5.29.19", true), ("2.5.29.35", false)];
    assert_eq!(extensions, expected.map(|(oid, critical)| (oid.to_owned(), critical)));
    let constraints = certificate.extensions()[2].value;
    assert_eq!(constraints, [0x30, 0], "an empty sequence");
    assert_eq!(certificate.extensions()[0].value, [3, 2, 7, 0x80], "one bit");
    let again = issued(&authority("p256"), &asked);
    let (_, again) = X509Certificate::from_der(&again).unwrap();
    assert_ne!(certificate.raw_serial(), again.raw_serial());
}

#[test]
fn texts_are_of_the_simple_sort_where_they_can_be() {
    let der = issued(&authority("p256"), &csr(Signer::LegacyUnknown, TEXTS, &[]));
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let found: Vec<(u32, &[u8])> = certificate
        .subject()
        .iter_attributes()
        .map(|each| (each.attr_value().tag().0, each.attr_value().data))
        .collect();
    let expected: [(u32, &[u8]); 4] =
        [(19, b"t61"), (12, "bmp ü".as_bytes()), (12, "utf-8 ü".as_bytes()), (19, b"printable")];
    assert_eq!(found, expected);
    let oids: Vec<String> = certificate.extensions().iter().map(|each| each.oid.to_id_string()).collect();
    assert_eq!(oids, ["2.5.29.19", "2.5.29.35"], "no usages");
}

#[test]
fn what_else_was_asked_for_is_dropped() {
    let der = issued(&authority("p256"), &csr(Signer::LegacyUnknown, ODD, &CLIENT));
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(certificate.subject().to_string(), "CN=odd");
    assert!(!certificate.is_ca());
    let oids: Vec<String> = certificate.extensions().iter().map(|each| each.oid.to_id_string()).collect();
    assert_eq!(oids, ["2.5.29.15", "2.5.29.37", "2.5.29.19", "2.5.29.35", "2.5.29.17"]);
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert_eq!(names.value.general_names, [GeneralName::DNSName("odd")]);
}

#[test]
fn names_go_by_sort_and_are_critical_without_a_subject() {
    let names =
        ["URI:a://b", "IP:::ffff:10.0.0.2", "DNS:z", "email:a@b", "IP:fd00::1", "DNS:a", "IP:10.0.0.1"];
    for (subject, is_critical) in [("", true), ("CN=a", false)] {
        let request = fixtures::request(subject, &names);
        let der = issued(&authority("p256"), &csr(Signer::LegacyUnknown, &request, &CLIENT));
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let extension = certificate.extensions().iter().find(|each| each.oid.to_id_string() == "2.5.29.17");
        let extension = extension.unwrap();
        assert_eq!(extension.critical, is_critical);
        let ParsedExtension::SubjectAlternativeName(found) = extension.parsed_extension() else { panic!() };
        let expected = [
            GeneralName::DNSName("z"),
            GeneralName::DNSName("a"),
            GeneralName::RFC822Name("a@b"),
            GeneralName::IPAddress(&[10, 0, 0, 2]),
            GeneralName::IPAddress(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            GeneralName::IPAddress(&[10, 0, 0, 1]),
            GeneralName::URI("a://b"),
        ];
        assert_eq!(found.general_names, expected);
    }
}

#[test]
fn a_group_that_is_said_twice_is_there_once() {
    let name = |values: &[&str]| {
        let text = fixtures::request_with_organizations(values, "");
        let request = CertificateRequest::from_pem(text.as_bytes()).unwrap();
        super::certificate::subject(&request).unwrap().to_string()
    };
    assert_eq!(name(&["a", "b", "a"]), name(&["b", "a"]));
    assert_eq!(name(&["bb", "a"]), "O=a+O=bb");
}

#[test]
fn an_authority_that_has_ended_signs_nothing() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.not_after = rcgen::date_time_ymd(2026, 1, 1);
    let certificate = params.self_signed(&key).unwrap().pem();
    let authority = Authority::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    let plan = planned(&kubelet());
    let (object, order) = ordered(&plan).unwrap();
    let expected = "error auto signing csr: the signer has expired: NotAfter=2026-01-01T00:00:00Z";
    assert_eq!(authority.finish(object, &order.details), Err(FinishError::Failed(expected.to_owned())));
}

#[test]
fn a_key_of_another_certificate_makes_no_authority() {
    for (name, certificate, key) in AUTHORITIES {
        assert!(Authority::from_pem(certificate.as_bytes(), key.as_bytes()).is_ok(), "{name}");
        for (other, _, key) in AUTHORITIES.into_iter().filter(|(other, ..)| *other != name) {
            let error = Authority::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert_eq!(error, AuthorityError::Mismatch, "{name} {other}");
        }
        let two = certificate.repeat(2);
        let error = Authority::from_pem(two.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!(error, AuthorityError::NotOne(2));
    }
    let (_, certificate, key) = AUTHORITIES[1];
    for (certificate, key, expected) in [
        (certificate, "", AuthorityError::NoKey),
        (certificate, certificate, AuthorityError::NoKey),
        (key, key, AuthorityError::NoCertificate),
    ] {
        let error = Authority::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!(error, expected);
    }
}

#[test]
fn nothing_shows_a_key() {
    let text = format!("{:?}", authority("rsa"));
    assert_eq!(text, "Authority { name: \"CN=rsa,O=authorities\", .. }");
    let plan = format!("{:?}", planned(&kubelet()));
    assert!(plan.contains("FinishOrder(certificate of kube-apiserver-client-kubelet)"), "{plan}");
}

#[test]
fn a_request_says_why_it_is_signed_or_not() {
    let reasons = |standing| {
        let view =
            View { request: std::sync::Arc::new(kubelet()), standing, longest: Duration::from_hours(24) };
        Signing::reasons(&view, now()).join(" ")
    };
    let asked = |subject: &str| {
        Box::new(CertificateRequest::from_pem(fixtures::request(subject, &[]).as_bytes()).unwrap())
    };
    for (standing, expected) in [
        (Standing::Idle("The request is not approved"), "The request is not approved; it is not signed."),
        (Standing::Unreadable("no PEM".to_owned()), "The request cannot be parsed: no PEM."),
        (
            Standing::Unsigned(Signer::KubeletClient, asked(KUBELET), "no signature".to_owned()),
            "The request is not signed: no signature.",
        ),
        (
            Standing::Unsigned(Signer::KubeletClient, asked("CN=a"), "no signature".to_owned()),
            "kubernetes.io/kube-apiserver-client-kubelet rejects the request, which is marked as failed: subject \
             organization is not system:nodes.",
        ),
        (
            Standing::Waits(Signer::KubeletClient, asked("CN=a")),
            "kubernetes.io/kube-apiserver-client-kubelet rejects the request, which is marked as failed: subject \
             organization is not system:nodes.",
        ),
        (
            Standing::Waits(Signer::KubeletClient, asked(KUBELET)),
            "kubernetes.io/kube-apiserver-client-kubelet signs a certificate that is valid for 1d, or until its CA \
             certificate expires.",
        ),
    ] {
        assert_eq!(reasons(standing), expected);
    }
}

proptest! {
    /// Whatever is asked for, what comes of it is a leaf with the usages of its signer, within its validity, or no certificate.
    #[test]
    fn no_certificate_is_beyond_its_signers_rules(
        which in 0..4_usize,
        at in 0..10_000_usize,
        byte in any::<u8>(),
        signer in 0..4_usize,
        usages in prop::sample::subsequence(
            vec!["digital signature", "key encipherment", "client auth", "server auth", "cert sign", "any"], 0..5),
        seconds in prop::option::of(any::<i32>()),
    ) {
        let text = [TWO_GROUPS, ODD, TEXTS, P521][which];
        let mut der = Pem::iter_from_buffer(text.as_bytes()).next().unwrap().unwrap().contents;
        let at = at % der.len();
        der[at] = byte;
        let signer = Signer::ALL[signer];
        let mut asked = csr(signer, &to_pem(&der), &usages);
        asked.spec.expiration_seconds = seconds;
        let authority = authority("p256");
        // Past the plan, as if a request's own signature were good: what its authority makes of it.
        let order = super::validity::Order::new(now(), Duration::from_hours(24), seconds);
        let finished = authority.finish(&asked.to_bytes(), &order.to_json());
        if let Ok(finished) = finished {
            let finished = CertificateSigningRequest::decode(&Bytes::from(finished)).unwrap();
            let block = Pem::iter_from_buffer(&finished.status.certificate).next().unwrap().unwrap();
            let (_, certificate) = X509Certificate::from_der(&block.contents).unwrap();
            prop_assert!(!certificate.is_ca());
            prop_assert!(certificate.validity().not_after.timestamp() <= NOW + 24 * 3600);
            let allowed = ["2.5.29.15", "2.5.29.37", "2.5.29.19", "2.5.29.35", "2.5.29.17"];
            for extension in certificate.extensions() {
                prop_assert!(allowed.contains(&extension.oid.to_id_string().as_str()));
            }
        }
        let plan = planned(&asked);
        if signer == Signer::KubeletClient && ordered(&plan).is_some() {
            let read = CertificateRequest::from_pem(&asked.spec.request).unwrap();
            prop_assert!(read.common_name().starts_with("system:node:") && read.names().is_empty());
            prop_assert!(!usages.contains(&"cert sign") && !usages.contains(&"server auth"));
        }
        if which != 3 && der != Pem::iter_from_buffer(text.as_bytes()).next().unwrap().unwrap().contents {
            prop_assert!(ordered(&plan).is_none(), "its signature is that of another request");
        }
    }
}
