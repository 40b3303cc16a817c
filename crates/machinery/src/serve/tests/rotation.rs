//! Rotated certificates and authorities, without a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::fixtures::{Ca, Client, FakeReviews, Pair, Setup};
use crate::model::clock::ManualClock;
use crate::serve::{SecureServer, ServeDeps, ServeObserver, SniCertKey, tls};

fn der(pair: &Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()
}

async fn served(client: &Client) -> CertificateDer<'static> {
    let stream = client.tls().await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn a_rotated_certificate_is_served_to_new_connections_and_the_old_ones_live_on() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let client = running.client();
    let mut old = client.clone().with_cert(&setup.client_ca.client("jane", &[])).connect().await;
    assert_eq!(old.get("/healthz").await.unwrap().status, StatusCode::OK);

    let next = setup.server_ca.server(&["localhost"]);
    setup.write_pair("serving", &next);
    (running.reload)().await;
    assert_eq!(served(&client).await, der(&next));
    assert_eq!(old.get("/healthz").await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn bad_content_and_missing_files_leave_the_old_certificate_in_force() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let client = running.client();
    let first = served(&client).await;
    let next = setup.server_ca.server(&["localhost"]);

    // Half of a rotation: the new certificate with the old key.
    setup.write("serving.crt", &next.cert);
    (running.reload)().await;
    assert_eq!(served(&client).await, first);
    // The other half mends it.
    setup.write("serving.key", &next.key);
    (running.reload)().await;
    assert_eq!(served(&client).await, der(&next));

    setup.write("serving.crt", "nonsense");
    (running.reload)().await;
    assert_eq!(served(&client).await, der(&next));
    std::fs::remove_file(setup.dir.path().join("serving.crt")).unwrap();
    (running.reload)().await;
    assert_eq!(served(&client).await, der(&next));
}

#[tokio::test]
async fn a_rotated_client_ca_counts_for_the_next_request_of_a_live_connection() {
    let setup = Setup::new(FakeReviews::default());
    let running = setup.start().await;
    let mut old =
        running.client().with_cert(&setup.client_ca.client("admin", &["system:masters"])).connect().await;
    assert_eq!(old.get("/configz").await.unwrap().status, StatusCode::OK);
    let next = Ca::new("client-ca-2");
    let both = format!("{}{}", setup.client_ca.pem(), next.pem());
    let new = running.client().with_cert(&next.client("admin", &["system:masters"]));
    assert_eq!(new.get("/configz").await.status, StatusCode::UNAUTHORIZED);

    for broken in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        setup.write("client-ca.crt", broken);
        (running.reload)().await;
        assert_eq!(old.get("/configz").await.unwrap().status, StatusCode::OK);
    }
    setup.write("client-ca.crt", &both);
    (running.reload)().await;
    assert_eq!(old.get("/configz").await.unwrap().status, StatusCode::OK);
    assert_eq!(new.get("/configz").await.status, StatusCode::OK);

    setup.write("client-ca.crt", &next.pem());
    (running.reload)().await;
    assert_eq!(old.get("/configz").await.unwrap().status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn files_are_looked_at_without_being_told() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.reload_interval = std::time::Duration::from_millis(5);
    let running = setup.start().await;
    let next = setup.server_ca.server(&["localhost"]);
    setup.write_pair("serving", &next);
    let rotated = async { while served(&running.client()).await != der(&next) {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), rotated).await.expect("never rotated");
}

/// Keeps when certificates expire.
#[derive(Default)]
struct Expiry {
    serving: Mutex<Vec<i64>>,
    client_cas: Mutex<BTreeMap<&'static str, i64>>,
}

impl ServeObserver for Expiry {
    fn serving_certificate(&self, _: u16, not_after: i64) {
        self.serving.lock().push(not_after);
    }

    fn client_ca(&self, source: &'static str, not_after: i64) {
        self.client_cas.lock().insert(source, not_after);
    }
}

const DAY: Duration = Duration::from_hours(24);
const BEGIN: &str = "2026-01-01T00:00:00Z";

/// A port whose time is set by hand.
struct Timed {
    clock: Arc<ManualClock>,
    expiry: Arc<Expiry>,
    server: SecureServer,
}

impl Timed {
    async fn bind(setup: &Setup, now: Timestamp) -> Self {
        let (clock, expiry) = (Arc::new(ManualClock::new(now)), Arc::new(Expiry::default()));
        let deps =
            ServeDeps { clock: Arc::clone(&clock) as _, observer: Arc::clone(&expiry) as _, ..setup.deps() };
        let server = SecureServer::bind(setup.options.clone(), deps).await.unwrap();
        Self { clock, expiry, server }
    }

    /// The end of the certificate in force, in seconds since 1970.
    fn end(&self) -> i64 {
        *self.expiry.serving.lock().last().unwrap()
    }
}

/// The end of a chain in PEM, in seconds since 1970.
fn end_of(chain: &str) -> i64 {
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    X509Certificate::from_der(&leaf).unwrap().1.validity().not_after.timestamp()
}

#[tokio::test]
async fn certificate_in_memory_is_made_again_before_it_expires() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.tls.cert_and_key = None;
    let port = Timed::bind(&setup, BEGIN.parse().unwrap()).await;
    let (mut authority, reload) = (port.server.self_signed_authority(), port.server.reload());
    let first = authority.borrow_and_update().clone();
    assert!(first.is_some());
    let year = port.end();

    port.clock.advance(DAY * 291);
    reload().await;
    assert!(!authority.has_changed(), "it is valid for 74 days more");
    port.clock.advance(DAY);
    reload().await;
    assert!(authority.has_changed());
    let second = authority.borrow_and_update().clone();
    assert!(second.is_some() && second != first);
    reload().await;
    assert!(!authority.has_changed(), "once");
    let seconds = i64::try_from(DAY.as_secs() * 292).unwrap();
    assert_eq!(*port.expiry.serving.lock(), [year, year, year + seconds, year + seconds]);
}

/// This process and kube-controller-manager make such certificates; the keys of the latter are RSA keys in PKCS#1.
#[tokio::test]
async fn self_made_certificate_in_its_directory_is_renewed_with_its_key() {
    let begin: Timestamp = BEGIN.parse().unwrap();
    let peer =
        CertificateDer::from_pem_slice(include_bytes!("../../../../../tests/data/authorities/rsa.crt"));
    for is_peers in [false, true] {
        let mut setup = Setup::new(FakeReviews::default());
        setup.options.tls.cert_and_key = None;
        setup.options.tls.cert_dir = Some(setup.dir.path().to_owned());
        if is_peers {
            let cert = tls::renew(&setup.options, begin, peer.as_ref().unwrap()).unwrap();
            let key = include_str!("../../../../../tests/data/authorities/rsa.key").to_owned();
            setup.write_pair("kube-controller-manager", &Pair { cert, key });
        }
        let files = ["kube-controller-manager.crt", "kube-controller-manager.key"];
        let read = || files.map(|file| std::fs::read_to_string(setup.dir.path().join(file)).unwrap());
        let port = Timed::bind(&setup, begin).await;
        let (mut authority, reload) = (port.server.self_signed_authority(), port.server.reload());
        let [chain, key] = read();
        assert!(chain.ends_with(authority.borrow_and_update().as_ref().unwrap()));

        port.clock.advance(DAY * 291);
        reload().await;
        assert_eq!(read(), [chain.clone(), key.clone()]);
        port.clock.advance(DAY);
        reload().await;
        let [renewed, same_key] = read();
        assert!(renewed != chain && same_key == key);
        assert!(authority.has_changed());
        assert!(renewed.ends_with(authority.borrow_and_update().as_ref().unwrap()));
        assert_eq!(port.end(), end_of(&renewed));
        assert!(port.end() > end_of(&chain));
        reload().await;
        assert_eq!(read(), [renewed.clone(), key.clone()], "once");
        assert!(!authority.has_changed(), "its own file is no change");
        let mut entries = std::fs::read_dir(setup.dir.path()).unwrap();
        assert!(entries.all(|entry| !entry.unwrap().file_name().to_string_lossy().contains(".crt.")));

        // A process that starts years later finds an expired pair.
        let later = Timed::bind(&setup, begin + DAY * 3000).await;
        let [replaced, same_key] = read();
        assert!(replaced != renewed && same_key == key);
        assert_eq!(later.end(), end_of(&replaced));
        assert!(later.end() > (begin + DAY * 3300).as_second());
        assert!(replaced.ends_with(later.server.self_signed_authority().borrow().as_ref().unwrap()));
        // The earlier port loads the changed file, once its clock is right.
        port.clock.advance(DAY * 2708);
        reload().await;
        assert_eq!(port.end(), later.end());
        assert_eq!(*authority.borrow_and_update(), *later.server.self_signed_authority().borrow());
    }
}

/// The clock was ahead when the file was created, or is behind now.
#[tokio::test]
async fn self_made_certificate_that_is_not_valid_yet_is_served_and_stays() {
    let begin: Timestamp = BEGIN.parse().unwrap();
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.tls.cert_and_key = None;
    setup.options.tls.cert_dir = Some(setup.dir.path().to_owned());
    let files = ["kube-controller-manager.crt", "kube-controller-manager.key"];
    let read = || files.map(|file| std::fs::read_to_string(setup.dir.path().join(file)).unwrap());
    let ahead = Timed::bind(&setup, begin + DAY * 100).await;
    let made = read();
    let end = end_of(&made[0]);
    assert_eq!(ahead.end(), end);

    let port = Timed::bind(&setup, begin).await;
    port.server.reload()().await;
    assert_eq!(port.end(), end);
    assert_eq!(read(), made);
}

/// An operator who puts another pair into the directory replaces one file after the other.
#[tokio::test]
async fn half_replaced_pair_in_the_directory_is_never_overwritten() {
    let files = ["kube-controller-manager.crt", "kube-controller-manager.key"];
    for half in 0..2 {
        for is_removed in [false, true] {
            let mut setup = Setup::new(FakeReviews::default());
            setup.options.tls.cert_and_key = None;
            setup.options.tls.cert_dir = Some(setup.dir.path().to_owned());
            let theirs = setup.server_ca.server(&["localhost"]);
            let theirs = [&theirs.cert, &theirs.key];
            let port = Timed::bind(&setup, BEGIN.parse().unwrap()).await;
            let (first, reload) = (port.end(), port.server.reload());
            if is_removed {
                std::fs::remove_file(setup.dir.path().join(files[1 - half])).unwrap();
            } else {
                setup.write(files[half], theirs[half]);
            }
            let read = || files.map(|file| std::fs::read_to_string(setup.dir.path().join(file)).ok());
            let before = read();
            port.clock.advance(DAY * 300);
            reload().await;
            assert_eq!((read(), port.end()), (before.clone(), first), "the old certificate is valid");
            port.clock.advance(DAY * 100);
            reload().await;
            assert_eq!(read(), before);
            assert!(port.end() > first, "the old certificate has expired: a new one is served from memory");
            for (file, content) in files.iter().zip(theirs) {
                setup.write(file, content);
            }
            reload().await;
            assert_eq!(port.end(), end_of(theirs[0]));
            assert_eq!(read(), theirs.map(|content| Some(content.clone())));
        }
    }
}

#[tokio::test]
async fn renewed_certificate_that_cannot_be_written_is_served_when_the_old_one_has_expired() {
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.tls.cert_and_key = None;
    let dir = setup.dir.path().join("certs");
    setup.options.tls.cert_dir = Some(dir.clone());
    let port = Timed::bind(&setup, BEGIN.parse().unwrap()).await;
    let (first, reload) = (port.end(), port.server.reload());
    std::fs::remove_dir_all(&dir).unwrap();
    port.clock.advance(DAY * 300);
    for _ in 0..2 {
        reload().await;
        assert_eq!(port.end(), first, "clients trust the CA in the file");
    }
    port.clock.advance(DAY * 100);
    for _ in 0..2 {
        reload().await;
        assert_eq!(port.end(), first + i64::try_from(DAY.as_secs() * 400).unwrap());
    }
}

#[tokio::test]
async fn expired_certificate_of_somebody_else_in_the_directory_is_served_and_left_alone() {
    let mut setup = Setup::new(FakeReviews::default());
    let pair = setup.server_ca.server(&["localhost"]);
    setup.write_pair("kube-controller-manager", &pair);
    setup.options.tls.cert_and_key = None;
    setup.options.tls.cert_dir = Some(setup.dir.path().to_owned());
    let end = end_of(&pair.cert);
    let port = Timed::bind(&setup, Timestamp::from_second(end).unwrap() + DAY).await;
    port.server.reload()().await;
    assert_eq!(port.end(), end);
    let kept = std::fs::read_to_string(setup.dir.path().join("kube-controller-manager.crt")).unwrap();
    assert_eq!(kept, pair.cert);
}

#[tokio::test]
async fn first_end_of_all_serving_certificates_and_next_end_of_each_client_ca_are_reported() {
    let ends = |name: &str, until: i32| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        Pair { cert: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    };
    let year = |year: &str| format!("{year}-01-01T00:00:00Z").parse::<Timestamp>().unwrap().as_second();
    let mut setup = Setup::new(FakeReviews::default());
    let (cert_file, key_file) = setup.write_pair("sni", &ends("sni", 2029));
    setup.options.tls.sni = vec![SniCertKey { cert_file, key_file, names: vec!["sni.example".to_owned()] }];
    setup.write("client-ca.crt", &format!("{}{}", ends("old", 2027).cert, ends("new", 2036).cert));
    let front = setup.write("front.crt", &ends("front", 2031).cert);
    setup.options.authentication.request_header.ca_file = Some(front);
    setup.options.authentication.request_header.username_headers = vec!["x-remote-user".to_owned()];
    let port = Timed::bind(&setup, BEGIN.parse().unwrap()).await;
    let reported = || port.expiry.client_cas.lock().clone();
    assert_eq!(port.end(), year("2029"));
    let front = ("requestheader-client-ca-file", year("2031"));
    assert_eq!(reported(), [("client-ca-file", year("2027")), front].into());
    // An old CA that is still in the bundle when it has expired is nobody's concern.
    port.clock.advance(DAY * 366);
    port.server.reload()().await;
    assert_eq!(reported(), [("client-ca-file", year("2036")), front].into());
    port.clock.advance(DAY * 3660);
    port.server.reload()().await;
    assert_eq!(reported(), [("client-ca-file", year("2036")), front].into(), "all have expired");
}
