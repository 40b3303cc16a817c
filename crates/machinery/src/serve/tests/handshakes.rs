//! Handshakes between the port and the TLS configuration of our own client, with certificates of all kinds.

use std::sync::Arc;

use http::StatusCode;
use rustls::SignatureScheme;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{AlgorithmIdentifier, CertificateDer, PrivateKeyDer, alg_id};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::authn::whoami;
use super::fixtures::{Client, FakeReviews, Pair, Running, Setup};
use crate::tls::provider;
use crate::tls::slow_key::SlowKey;
use crate::x509::fixtures::{Draft, element, extension, name_part, to_pem};

/// A kind of key, one of its kind, and how it signs certificates.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    key: &'static str,
    scheme: SignatureScheme,
    algorithm: AlgorithmIdentifier,
}

macro_rules! kind {
    ($name:literal, $scheme:ident, $algorithm:ident) => {
        Kind {
            name: $name,
            key: include_str!(concat!("../../../../../tests/data/authorities/", $name, ".key")),
            scheme: SignatureScheme::$scheme,
            algorithm: alg_id::$algorithm,
        }
    };
}

const KINDS: [Kind; 5] = [
    kind!("ed25519", ED25519, ED25519),
    kind!("p256", ECDSA_NISTP256_SHA256, ECDSA_SHA256),
    kind!("p384", ECDSA_NISTP384_SHA384, ECDSA_SHA384),
    kind!("p521", ECDSA_NISTP521_SHA512, ECDSA_SHA512),
    kind!("rsa", RSA_PKCS1_SHA256, RSA_PKCS1_SHA256),
];

impl Kind {
    fn key(&self) -> Arc<dyn SigningKey> {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        provider().key_provider.load_private_key(key).unwrap()
    }

    fn draft(&self, name: &str, extensions: &[Vec<u8>]) -> Draft {
        let public_key = self.key().public_key().unwrap().as_ref().to_vec();
        let draft = Draft::new(public_key, name_part(3, 0x0c, name.as_bytes()));
        Draft { extensions: extensions.concat(), ..draft }
    }

    /// Signs a certificate in the name of `ca`.
    fn sign(&self, draft: &Draft) -> Pair {
        let draft = Draft { algorithm: element(0x30, self.algorithm.as_ref()), ..draft.clone() };
        let signer = self.key().choose_scheme(&[self.scheme]).unwrap();
        let der = draft.sign(&name_part(3, 0x0c, b"ca"), |message| signer.sign(message).unwrap());
        Pair { cert: to_pem(&der), key: self.key.to_owned() }
    }

    fn ca(&self) -> Pair {
        self.sign(&self.draft("ca", &[authority()]))
    }
}

fn authority() -> Vec<u8> {
    extension(19, true, &element(0x30, &[1, 1, 0xff]))
}

fn alternative_name(name: &str) -> Vec<u8> {
    extension(17, false, &element(0x30, &element(0x82, name.as_bytes())))
}

fn version_1(draft: Draft) -> Draft {
    Draft { version: None, extensions: Vec::new(), ..draft }
}

/// A port with a serving certificate, whose client CA is another.
fn port(serving: &Pair, client_ca: &str) -> Setup {
    let mut setup = whoami(FakeReviews::default().allows("jane", "/whoami"));
    setup.options.tls.cert_and_key = Some(setup.write_pair("own", serving));
    setup.write("client-ca.crt", client_ca);
    setup
}

#[tokio::test]
async fn each_kind_of_key_serves_in_a_ca_a_server_and_a_client() {
    for kind in KINDS {
        let ca = kind.ca().cert;
        let server = kind.sign(&kind.draft("server", &[alternative_name("localhost")]));
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            for draft in [kind.draft("jane", &[]), version_1(kind.draft("jane", &[]))] {
                let mut setup = port(&server, &ca);
                setup.options.tls.spoken.versions = vec![version];
                let running = setup.start().await;
                let mut client = running.client().with_cert(&kind.sign(&draft));
                client.trust.clone_from(&ca);
                let reply = client.get("/whoami").await;
                assert!(reply.body.starts_with("jane||"), "{} {version:?}: {}", kind.name, reply.body);
            }
        }
    }
}

/// Starts a port with a slow key; returns the port, a client of it, and the key.
async fn slow_port() -> (Running, Client, SlowKey) {
    let kind = KINDS[1];
    let serving = kind.sign(&kind.draft("server", &[alternative_name("localhost")]));
    let ca = kind.ca().cert;
    let setup = port(&serving, &ca);
    let key = SlowKey::new(kind.key());
    let chain = vec![CertificateDer::from_pem_slice(serving.cert.as_bytes()).unwrap()];
    let server = setup.bind().await.unwrap();
    server.replace_certificate(CertifiedKey::new(chain, Arc::new(key.clone())));
    let running = setup.run(server);
    let mut client = running.client();
    client.trust = ca;
    (running, client, key)
}

#[tokio::test]
async fn slow_signature_of_a_handshake_is_made_off_the_thread_of_the_port() {
    let (_running, client, key) = slow_port().await;
    for _ in 0..2 {
        assert_eq!(client.get("/healthz").await.status, StatusCode::OK);
    }
    let threads = key.threads.lock().clone();
    assert_eq!(threads.len(), 2);
    for (id, name) in &threads {
        assert_ne!(*id, std::thread::current().id());
        assert_eq!(name.as_deref(), Some("coxswain-tls"));
    }
    assert_eq!(threads[0].0, threads[1].0, "all handshakes share one thread");
}

#[tokio::test]
async fn plain_http_to_a_port_with_a_slow_key_is_answered_with_400() {
    let (running, client, key) = slow_port().await;
    let mut plain = TcpStream::connect(running.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 400"), "{answer}");
    assert_eq!(key.threads.lock().len(), 0);
    assert_eq!(client.get("/healthz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_client_certificate_that_webpki_does_not_read_and_nobody_vouches_for_is_401() {
    let [other, kind, ..] = KINDS;
    let server = kind.sign(&kind.draft("server", &[alternative_name("localhost")]));
    let setup = port(&server, &kind.ca().cert);
    let running = setup.start().await;
    let old = version_1(kind.draft("jane", &[]));
    let expired = Draft { not_after: "20200101000000Z", ..old.clone() };
    // Signed by another key of the same name.
    let forged = Pair { key: kind.key.to_owned(), ..other.sign(&old) };
    // webpki reads no certificate with such an extension.
    let odd = kind.sign(&kind.draft("jane", &[extension(99, true, &[5, 0])]));
    for pair in [forged, kind.sign(&expired), odd] {
        let mut client = running.client().with_cert(&pair);
        client.trust = kind.ca().cert;
        assert_eq!(client.get("/whoami").await.status, StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn a_client_certificate_in_the_bundle_needs_no_ca() {
    let [other, kind, ..] = KINDS;
    let server = kind.sign(&kind.draft("server", &[alternative_name("localhost")]));
    for (draft, is_known) in [
        (kind.draft("jane", &[]), true),
        (kind.draft("jane", &[authority()]), true),
        (version_1(kind.draft("jane", &[])), true),
        (Draft { not_after: "20200101000000Z", ..kind.draft("jane", &[]) }, false),
    ] {
        let pinned = Pair { key: kind.key.to_owned(), ..other.sign(&draft) };
        let setup = port(&server, &pinned.cert);
        let running = setup.start().await;
        let mut client = running.client().with_cert(&pinned);
        client.trust = kind.ca().cert;
        let expected = if is_known { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        assert_eq!(client.get("/whoami").await.status, expected);
        // Another one of the same name and key is not in the bundle.
        let similar = other.sign(&Draft { not_before: "20010101000000Z", ..draft });
        client.cert = Some(Pair { key: kind.key.to_owned(), ..similar });
        assert_eq!(client.get("/whoami").await.status, StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn a_server_certificate_in_the_bundle_needs_no_ca() {
    let [other, kind, ..] = KINDS;
    let name = alternative_name("localhost");
    let for_clients = extension(37, false, &element(0x30, &[6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2]));
    for (why, draft, is_trusted) in [
        ("of an unknown CA", kind.draft("server", std::slice::from_ref(&name)), true),
        ("a CA's own", kind.draft("server", &[name.clone(), authority()]), true),
        ("of another name", kind.draft("server", &[alternative_name("example.com")]), false),
        ("without a name", kind.draft("localhost", &[]), false),
        ("for clients", kind.draft("server", &[name.clone(), for_clients]), false),
        (
            "expired",
            Draft { not_after: "20200101000000Z", ..kind.draft("server", std::slice::from_ref(&name)) },
            false,
        ),
        ("of version 1", version_1(kind.draft("localhost", &[])), false),
    ] {
        let serving = Pair { key: kind.key.to_owned(), ..other.sign(&draft) };
        let setup = port(&serving, &kind.ca().cert);
        let running = setup.start().await;
        let mut client = running.client();
        client.trust.clone_from(&serving.cert);
        assert_eq!(client.tls().await.is_ok(), is_trusted, "{why}");
        client.trust = kind.ca().cert;
        assert!(client.tls().await.is_err(), "{why}: another certificate is in the bundle");
    }
}
