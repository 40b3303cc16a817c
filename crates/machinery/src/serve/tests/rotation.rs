//! Rotated certificates and authorities, without a restart.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::fixtures::{Ca, Client, FakeReviews, Pair, Setup};
use crate::model::clock::ManualClock;
use crate::serve::{SecureServer, ServeDeps, ServeObserver};

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
struct Expiry(Mutex<Vec<i64>>);

impl ServeObserver for Expiry {
    fn serving_certificate(&self, _: u16, not_after: i64) {
        self.0.lock().push(not_after);
    }
}

#[tokio::test]
async fn certificate_in_memory_is_made_again_before_it_expires() {
    const DAY: Duration = Duration::from_hours(24);
    let mut setup = Setup::new(FakeReviews::default());
    setup.options.tls.cert_and_key = None;
    let (clock, expiry) =
        (Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap())), Arc::new(Expiry::default()));
    let deps =
        ServeDeps { clock: Arc::clone(&clock) as _, observer: Arc::clone(&expiry) as _, ..setup.deps() };
    let server = SecureServer::bind(setup.options.clone(), deps).await.unwrap();
    let (mut authority, reload) = (server.self_signed_authority(), server.reload());
    let first = authority.borrow_and_update().clone();
    assert!(first.is_some());
    let year = expiry.0.lock()[0];

    clock.advance(DAY * 291);
    reload().await;
    assert!(!authority.has_changed(), "it is valid for 74 days more");
    clock.advance(DAY);
    reload().await;
    assert!(authority.has_changed());
    let second = authority.borrow_and_update().clone();
    assert!(second.is_some() && second != first);
    reload().await;
    assert!(!authority.has_changed(), "once");
    let seconds = i64::try_from(DAY.as_secs() * 292).unwrap();
    assert_eq!(*expiry.0.lock(), [year, year, year + seconds, year + seconds]);
}
