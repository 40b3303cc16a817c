//! Handshakes in which both sides present the same key.

use std::sync::Arc;

use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, Error, ServerConfig, ServerConnection, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::super::key_cases::{KEY_CASES, KeyCase};
use super::super::{
    AnyClientCert, KeyError, Roots, ServerVerifier, certified_key, provider, signing_key, signs_slowly,
};
use crate::x509::fixtures::{Draft, element, extension, name_part, to_pem};

/// Returns a key with a certificate for localhost.
fn load(case: &KeyCase) -> Result<CertifiedKey, KeyError> {
    let read = || PrivateKeyDer::from_pem_slice(case.pem.as_bytes()).unwrap();
    let public_key = signing_key(read(), &provider())?.public_key().unwrap().as_ref().to_vec();
    let name = extension(17, false, &element(0x30, &element(0x82, b"localhost")));
    let draft = Draft { extensions: name, ..Draft::new(public_key, name_part(3, 0x0c, b"jane")) };
    let certificate = draft.sign(&name_part(3, 0x0c, b"ca"), |_| vec![1; 8]);
    certified_key(vec![CertificateDer::from(certificate)], read(), &provider())
}

/// Whether both sides complete a handshake. Each trusts the certificate itself.
fn handshake(key: &CertifiedKey, version: &'static SupportedProtocolVersion) -> Result<(), Error> {
    let resolver = Arc::new(SingleCertAndKey::from(key.clone()));
    let roots = Roots::from_pem(to_pem(&key.cert[0]).as_bytes()).unwrap();
    let server = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[version])?;
    let server = server.with_client_cert_verifier(Arc::new(AnyClientCert::new(&provider(), Vec::new())));
    let server = server.with_cert_resolver(Arc::<SingleCertAndKey>::clone(&resolver));
    let client = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[version])?;
    let client = client.dangerous().with_custom_certificate_verifier(Arc::new(ServerVerifier::new(roots)));
    let client = client.with_client_cert_resolver(resolver);
    let mut server = ServerConnection::new(Arc::new(server))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name)?;
    while server.is_handshaking() || client.is_handshaking() {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        let mut sent = &sent[..];
        while !sent.is_empty() {
            server.read_tls(&mut sent).unwrap();
            server.process_new_packets()?;
        }
        let mut answered = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut answered).unwrap();
        }
        let mut answered = &answered[..];
        while !answered.is_empty() {
            client.read_tls(&mut answered).unwrap();
            client.process_new_packets()?;
        }
    }
    // A client without a usable key may send no certificate.
    server.peer_certificates().map(drop).ok_or(Error::NoCertificatesPresented)
}

#[test]
fn each_key_that_go_accepts_signs_and_is_verified_in_the_same_versions_of_tls() {
    for case in &KEY_CASES {
        let key = load(case);
        for (at, version) in [&rustls::version::TLS12, &rustls::version::TLS13].into_iter().enumerate() {
            // A signature takes seconds without optimization.
            if version.version == rustls::ProtocolVersion::TLSv1_2 && case.pem.len() > 3_000 {
                continue;
            }
            let done = key.as_ref().ok().map(|key| handshake(key, version));
            let is_done = matches!(done, Some(Ok(())));
            assert_eq!(is_done, case.coxswain[at], "{}, {version:?}: {key:?}, {done:?}", case.name);
            assert!(case.go[at] || !case.coxswain[at], "{}: Go refuses", case.name);
        }
    }
}

#[test]
fn rsa_keys_of_more_than_2048_bits_count_as_slow() {
    let mut slow = 0;
    for case in KEY_CASES.iter().filter(|case| case.coxswain[1]) {
        let bits = case.name.strip_prefix("RSA of ").and_then(|rest| rest.strip_suffix(" bits"));
        let expected = bits.is_some_and(|bits| bits.parse::<u32>().unwrap() > 2048);
        slow += usize::from(expected);
        assert_eq!(signs_slowly(&*load(case).unwrap().key), expected, "{}", case.name);
    }
    assert_eq!(slow, 2);
}

#[test]
fn refused_key_is_described_by_its_size_and_the_sizes_that_are_allowed() {
    let describe = |name: &str| {
        let case = KEY_CASES.iter().find(|case| case.name == name).unwrap();
        load(case).unwrap_err().to_string()
    };
    let allowed = "supported: RSA (1024 to 8192 bits), ECDSA (P-256, P-384, P-521) or Ed25519";
    assert_eq!(describe("RSA of 1023 bits"), format!("the private key has 1023 bits; {allowed}"));
    assert_eq!(describe("RSA of 8200 bits"), format!("the private key has 8200 bits; {allowed}"));
    let kind = format!("the private key is invalid or unsupported; {allowed}");
    assert_eq!(describe("secp256k1"), kind);
    assert_eq!(describe("P-224"), kind);
}
