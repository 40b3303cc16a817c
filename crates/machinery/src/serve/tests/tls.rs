//! Certificates, versions and suites.

use std::os::unix::fs::PermissionsExt as _;

use rustls::crypto::SupportedKxGroup;
use rustls::{CipherSuite, NamedGroup, ProtocolVersion};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::fixtures::{Ca, Client, FakeReviews, Setup};
use crate::serve::*;

async fn negotiated(client: &Client) -> (ProtocolVersion, CertificateDer<'static>) {
    let stream = client.tls().await.unwrap();
    let session = stream.get_ref().1;
    (session.protocol_version().unwrap(), session.peer_certificates().unwrap()[0].clone().into_owned())
}

fn names(cert: &CertificateDer<'_>) -> Vec<String> {
    let (_, cert) = X509Certificate::from_der(cert).unwrap();
    let extension = cert.subject_alternative_name().unwrap().unwrap();
    extension
        .value
        .general_names
        .iter()
        .map(|name| match name {
            GeneralName::DNSName(name) => (*name).to_owned(),
            GeneralName::IPAddress(ip) => match <[u8; 4]>::try_from(*ip) {
                Ok(ip) => std::net::Ipv4Addr::from(ip).to_string(),
                Err(_) => std::net::Ipv6Addr::from(<[u8; 16]>::try_from(*ip).unwrap()).to_string(),
            },
            other => format!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn a_self_signed_certificate_is_kept_in_its_directory_and_found_again() {
    let mut setup = Setup::new(FakeReviews::default());
    let dir = setup.dir.path().join("certs");
    setup.options.tls.cert_and_key = None;
    setup.options.tls.cert_dir = Some(dir.clone());
    setup.options.tls.self_signed_names =
        vec!["node-1".to_owned(), "10.0.0.7".to_owned(), "localhost".to_owned()];
    let running = setup.start().await;
    let pem = std::fs::read_to_string(dir.join("kube-controller-manager.crt")).unwrap();
    let mode = std::fs::metadata(dir.join("kube-controller-manager.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The file's own authority is enough to trust it.
    let client = Client { trust: pem.clone(), ..running.client() };
    assert_eq!(client.get("/healthz").await.body, "ok");
    let (_, cert) = negotiated(&client).await;
    assert_eq!(names(&cert), ["localhost", "node-1", "127.0.0.1", "::1", "10.0.0.7"]);

    let running = setup.start().await;
    assert_eq!(std::fs::read_to_string(dir.join("kube-controller-manager.crt")).unwrap(), pem);
    let (_, again) = negotiated(&Client { trust: pem, ..running.client() }).await;
    assert_eq!(again, cert);

    std::fs::remove_file(dir.join("kube-controller-manager.key")).unwrap();
    let error = setup.bind().await.unwrap_err().to_string();
    assert!(error.contains("kube-controller-manager.crt without"), "{error}");
}

#[tokio::test]
async fn without_a_directory_it_is_kept_in_memory() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.tls.cert_and_key = None;
    let running = setup.start().await;
    assert!(running.client().tls().await.is_err(), "nobody vouches for it");
    let kept = setup.dir.path().join("kube-controller-manager.crt");
    assert!(!kept.exists());
}

#[tokio::test]
async fn certificates_are_chosen_by_server_name() {
    let mut setup = Setup::new(FakeReviews::default());
    let given = setup.server_ca.server(&["given.example.org", "localhost"]);
    let own = setup.server_ca.server(&["own.example.org", "*.apps.example.org"]);
    let sni = |name: &str, pair, names: &[&str]| {
        let (cert_file, key_file) = setup.write_pair(name, pair);
        SniCertKey { cert_file, key_file, names: names.iter().map(|&name| name.to_owned()).collect() }
    };
    setup.options.tls.sni = vec![sni("given", &given, &["given.example.org"]), sni("own", &own, &[])];
    let running = setup.start().await;
    let chosen = async |name: &'static str| {
        let (_, cert) = negotiated(&Client { name, ..running.client() }).await;
        names(&cert)
    };
    assert_eq!(chosen("given.example.org").await, ["given.example.org", "localhost"]);
    assert_eq!(chosen("own.example.org").await, ["own.example.org", "*.apps.example.org"]);
    assert_eq!(chosen("web.apps.example.org").await, ["own.example.org", "*.apps.example.org"]);
    assert_eq!(chosen("localhost").await, ["localhost"], "not among the names given");
}

/// What flags come to is tried where they are read.
#[tokio::test]
async fn nothing_is_spoken_but_what_was_chosen() {
    let mut setup = Setup::new(FakeReviews::default());
    let spoken = &mut setup.options.tls.spoken;
    spoken.versions.retain(|version| version.version == ProtocolVersion::TLSv1_2);
    spoken
        .cipher_suites
        .retain(|suite| suite.suite() == CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384);
    spoken.groups.retain(|group| group.name() == NamedGroup::secp384r1);
    let running = setup.start().await;
    let stream = running.client().tls().await.unwrap();
    let session = stream.get_ref().1;
    assert_eq!(
        (
            session.protocol_version(),
            session.negotiated_cipher_suite().map(|suite| suite.suite()),
            session.negotiated_key_exchange_group().map(SupportedKxGroup::name),
        ),
        (
            Some(ProtocolVersion::TLSv1_2),
            Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
            Some(NamedGroup::secp384r1),
        )
    );
}

#[tokio::test]
async fn files_at_fault_are_named_and_never_shown() {
    let setup = Setup::new(FakeReviews::default());
    let other = Ca::new("other").server(&["localhost"]);
    let key = setup.write("other.key", &other.key);
    let junk = setup.write("junk.pem", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n");
    let (cert, _) = setup.options.tls.cert_and_key.clone().unwrap();
    let bind = async |cert_and_key, client_ca: Option<&std::path::Path>| {
        let mut options = setup.options.clone();
        options.tls.cert_and_key = Some(cert_and_key);
        if let Some(path) = client_ca {
            options.authentication.client_ca_file = Some(path.to_owned());
        }
        SecureServer::bind(options, setup.deps()).await.unwrap_err().to_string()
    };
    let error = bind((cert.clone(), key), None).await;
    assert!(error.ends_with("serving.crt: the private key does not match the certificate"), "{error}");
    let error = bind((cert.clone(), junk.clone()), None).await;
    assert!(error.starts_with("--tls-cert-file ") && !error.contains("c2VjcmV0"), "{error}");
    let error = bind((setup.dir.path().join("gone.crt"), junk.clone()), None).await;
    assert!(error.contains("gone.crt") && error.contains("No such file"), "{error}");
    let pair = setup.options.tls.cert_and_key.clone().unwrap();
    let error = bind(pair, Some(&junk)).await;
    assert!(error.starts_with("--client-ca-file ") && error.contains("no PEM certificate"), "{error}");
}

#[tokio::test]
async fn an_unspecified_address_listens_on_both_families() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.address = "0.0.0.0:0".parse().unwrap();
    let running = setup.start().await;
    let port = running.address.port();
    for ip in ["127.0.0.1", "::1"] {
        let Ok(probe) = tokio::net::TcpListener::bind((ip, 0)).await else { continue };
        drop(probe);
        let client =
            Client { address: (ip.parse::<std::net::IpAddr>().unwrap(), port).into(), ..running.client() };
        assert_eq!(client.get("/healthz").await.body, "ok", "{ip}");
    }
}
