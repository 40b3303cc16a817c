//! Verdicts on chains, signatures made by OpenSSL, and private keys.

mod keys;

use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{AlgorithmIdentifier, CertificateDer, PrivateKeyDer, UnixTime, alg_id};

use super::cases::{NOW, cases};
use super::key_cases::CHAINS;
use super::{KeyError, Purpose, RootError, Roots, certified_key, provider};
use crate::x509::fixtures::{Draft, name_part, to_pem};

macro_rules! data {
    ($path:literal) => {
        include_str!(concat!("../../../../../tests/data/", $path))
    };
}

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

#[test]
fn chains_are_accepted_as_the_table_says_and_never_where_go_refuses() {
    for case in cases() {
        assert!(case.is_accepted_by_go || !case.is_accepted, "{}", case.name);
        let roots: String = case.roots.iter().map(|der| to_pem(der)).collect();
        let roots = Roots::from_pem(roots.as_bytes()).unwrap_or_default();
        let chain: Vec<CertificateDer<'_>> =
            case.intermediates.iter().map(|der| CertificateDer::from(&der[..])).collect();
        let verified = roots.verify(&CertificateDer::from(&case.leaf[..]), &chain, case.purpose, at(NOW));
        assert_eq!(verified.is_ok(), case.is_accepted, "{}: {verified:?}", case.name);
    }
}

/// OpenSSL signed the text "message" with each key. Go verifies signatures by keys of 1024 bits and more with an exponent below 2^31; the
/// oracle in `tests/oracle` verifies requests by the same keys.
#[test]
fn rsa_keys_that_are_too_small_or_have_a_large_exponent_verify_nothing() {
    macro_rules! key {
        ($name:literal) => {
            (
                include_bytes!(concat!("../../../../../tests/data/tls/bounds/", $name, ".pub")).as_slice(),
                include_bytes!(concat!("../../../../../tests/data/tls/bounds/", $name, ".sig")).as_slice(),
            )
        };
    }
    let by = |algorithm: AlgorithmIdentifier| {
        let all = provider().signature_verification_algorithms.all;
        all.iter().filter(move |each| each.signature_alg_id() == algorithm).copied().collect::<Vec<_>>()
    };
    let absent =
        AlgorithmIdentifier::from_slice(&[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b]);
    // webpki verifies signatures without parameters only by keys of 2048 bits and more.
    for (name, (key, signature), expected) in [
        ("1023 bits", key!("rsa1023"), [false, false]),
        ("1024 bits", key!("rsa1024"), [true, false]),
        ("an exponent of 2^31 - 1", key!("e31"), [true, true]),
        ("an exponent of 2^31 + 1", key!("e32"), [false, false]),
    ] {
        for (algorithm, expected) in [alg_id::RSA_PKCS1_SHA256, absent].into_iter().zip(expected) {
            let found = by(algorithm);
            assert_eq!(found.len(), 1);
            let verified = found[0].verify_signature(key, b"message", signature);
            assert_eq!(verified.is_ok(), expected, "{name}: {algorithm:?}");
        }
    }
}

#[test]
fn version_1_of_openssl_is_accepted_from_clients() {
    let ca = Roots::from_pem(data!("tls/ca-p521.crt").as_bytes()).unwrap();
    ca.verify(&der(data!("tls/version-1.crt")), &[], Purpose::Client, at(NOW)).unwrap();
}

#[test]
fn no_bit_of_a_version_1_certificate_can_be_changed() {
    let case = cases().into_iter().find(|case| case.name == "version 1").unwrap();
    let roots = Roots::from_pem(to_pem(&case.roots[0]).as_bytes()).unwrap();
    let verify = |leaf: Vec<u8>| roots.verify(&CertificateDer::from(leaf), &[], Purpose::Client, at(NOW));
    verify(case.leaf.clone()).unwrap();
    for bit in 0..case.leaf.len() * 8 {
        let mut changed = case.leaf.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(verify(changed).is_err(), "bit {bit}");
    }
}

#[test]
fn signatures_of_openssl_are_verified_with_each_curve_digest_and_size_of_key() {
    for (name, ca, leaf) in CHAINS {
        let roots = Roots::from_pem(ca.as_bytes()).unwrap();
        let leaf = der(leaf);
        for purpose in [Purpose::Server, Purpose::Client] {
            let verified = roots.verify(&leaf, &[], purpose, at(NOW));
            assert!(verified.is_ok(), "{name}: {verified:?}");
            let mut changed = leaf.to_vec();
            *changed.last_mut().unwrap() ^= 1;
            let verified = roots.verify(&CertificateDer::from(changed), &[], purpose, at(NOW));
            assert!(verified.is_err(), "{name}");
        }
    }
}

#[test]
fn unsupported_key_is_named_in_the_error() {
    let roots = Roots::from_pem(data!("tls/ca-p256k1.crt").as_bytes()).unwrap();
    let error =
        roots.verify(&der(data!("tls/leaf-p256k1-sha256.crt")), &[], Purpose::Server, at(NOW)).unwrap_err();
    assert!(error.to_string().contains("use ECDSA on P-224, P-256, P-384 or P-521"), "{error}");
}

#[test]
fn unreadable_certificate_of_a_bundle_is_an_error_or_skipped() {
    let (good, bad) = (data!("tls/ca-p521.crt"), to_pem(&[0x30, 0]));
    let bundle = format!("{good}{bad}");
    assert!(matches!(Roots::from_pem(bundle.as_bytes()), Err(RootError::Unreadable(1, _))));
    assert_eq!(Roots::from_pem(b"text").unwrap_err(), RootError::Empty);
    assert_eq!(Roots::from_readable([der(&bad), der(good)]).unwrap().subjects().len(), 1);
    assert!(matches!(Roots::from_readable([der(&bad)]), Err(RootError::Unreadable(0, _))));
    assert!(Roots::from_readable([]).unwrap().subjects().is_empty());
}

#[test]
fn key_goes_with_its_own_certificate_of_any_version() {
    for key in [
        data!("authorities/ed25519.key"),
        data!("authorities/p256.key"),
        data!("authorities/p384.key"),
        data!("authorities/p521.key"),
        data!("authorities/rsa.key"),
        data!("keys/p521.pem"),
        data!("keys/p521-pkcs8.pem"),
    ] {
        let read = || PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let public = provider().key_provider.load_private_key(read()).unwrap();
        let public = public.public_key().unwrap().as_ref().to_vec();
        for version in [None, Some(2)] {
            let draft = Draft { version, ..Draft::new(public.clone(), name_part(3, 0x0c, b"jane")) };
            let own = draft.sign(&name_part(3, 0x0c, b"ca"), |_| vec![1; 8]);
            certified_key(vec![CertificateDer::from(own)], read(), &provider()).unwrap();
        }
        let other = certified_key(vec![der(data!("tls/leaf-p521-sha256.crt"))], read(), &provider());
        assert!(matches!(other, Err(KeyError::Mismatch)), "{other:?}");
        assert!(matches!(certified_key(Vec::new(), read(), &provider()), Err(KeyError::Empty)));
    }
}
