//! The certificate that the cluster's CA signs for the name of Coxswain.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fixtures::{Ca, Client, FakeReviews, Setup, request};
use crate::model::clock::{Clock as _, ManualClock, SystemClock};
use crate::serve::*;
use crate::x509::fixtures::{Draft, element, extension, name_part, to_pem};

const DAY: Duration = Duration::from_hours(24);

/// The manager's part: a CA that can be replaced.
struct Signer {
    ca: Mutex<Arc<Ca>>,
    /// The end of the CA.
    end: Mutex<Timestamp>,
    broken: Mutex<bool>,
    signed: Mutex<u32>,
}

impl Signer {
    fn new(end: Timestamp) -> Arc<Self> {
        Arc::new(Self {
            ca: Mutex::new(Arc::new(Ca::new("cluster-ca"))),
            end: Mutex::new(end),
            broken: Mutex::default(),
            signed: Mutex::default(),
        })
    }

    fn pem(&self) -> String {
        self.ca.lock().pem()
    }

    fn in_force(&self) -> Result<SigningCa, String> {
        if *self.broken.lock() {
            return Err("no CA".to_owned());
        }
        let der = rustls_pki_types::CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap();
        Ok(SigningCa { certificate: der.as_ref().into(), not_after: self.end.lock().as_second() })
    }
}

impl ServingSigner for Signer {
    fn ca(&self) -> BoxFuture<'_, Result<SigningCa, String>> {
        async { self.in_force() }.boxed()
    }

    fn sign(&self, public_key: Vec<u8>, now: Timestamp) -> BoxFuture<'_, Result<SignedCertificate, String>> {
        async move {
            let ca = self.in_force()?;
            *self.signed.lock() += 1;
            let name = element(0x82, COXSWAIN_NAME.as_bytes());
            let draft = Draft {
                extensions: extension(17, false, &element(0x30, &name)),
                ..Draft::new(public_key, name_part(3, 12, b"coxswain"))
            };
            let day = i64::try_from(DAY.as_secs()).unwrap();
            let not_after = (now.as_second() + day).min(ca.not_after);
            let chain = to_pem(&self.ca.lock().issue(&draft));
            Ok(SignedCertificate { chain, ca, not_after })
        }
        .boxed()
    }
}

/// A port with a signer, and its time.
struct Port {
    setup: Setup,
    signer: Arc<Signer>,
    clock: Arc<ManualClock>,
}

/// A port that serves.
struct Serving {
    address: std::net::SocketAddr,
    announced: String,
    reload: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
    _tasks: JoinSet<()>,
}

impl Port {
    fn new() -> Self {
        let mut setup = Setup::new(FakeReviews::default());
        setup.options.tls.cert_and_key = None;
        // Clients have the time of this machine.
        let start = SystemClock.now();
        Self { setup, signer: Signer::new(start + DAY * 3650), clock: Arc::new(ManualClock::new(start)) }
    }

    async fn start(&self) -> Serving {
        let deps = ServeDeps {
            clock: Arc::clone(&self.clock) as _,
            signer: Some(Arc::clone(&self.signer) as _),
            ..self.setup.deps()
        };
        let server = SecureServer::bind(self.setup.options.clone(), deps).await.unwrap();
        let (address, reload) = (server.local_addr(), Box::new(server.reload()));
        let announced = server.self_signed_authority().borrow().clone().unwrap_or_default();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(CancellationToken::new()));
        Serving { address, announced, reload, _tasks: tasks }
    }

    fn signatures(&self) -> u32 {
        *self.signer.signed.lock()
    }
}

impl Serving {
    /// Whether a client that trusts this CA, and asks for this name, accepts the server.
    async fn is_accepted(&self, trust: &str, name: &'static str) -> bool {
        let client = Client {
            address: self.address,
            trust: trust.to_owned(),
            cert: None,
            is_malformed: false,
            h1: false,
            name,
        };
        if client.tls().await.is_err() {
            return false;
        }
        let reply = client.send(request(http::Method::GET, "/healthz", &[])).await;
        reply.status == StatusCode::OK
    }
}

#[tokio::test]
async fn cluster_ca_verifies_the_name_of_coxswain_and_other_clients_see_no_difference() {
    let port = Port::new();
    let serving = port.start().await;
    let (cluster, announced) = (port.signer.pem(), serving.announced.clone());
    assert!(serving.is_accepted(&cluster, COXSWAIN_NAME).await);
    for name in ["localhost", "127.0.0.1"] {
        assert!(serving.is_accepted(&announced, name).await, "{name}: the announced CA is as it was");
        assert!(!serving.is_accepted(&cluster, name).await, "{name}: the cluster's CA signs no other name");
    }
    assert!(!serving.is_accepted(&announced, COXSWAIN_NAME).await);
    assert_eq!(port.signatures(), 1);
}

#[tokio::test]
async fn signed_certificate_is_renewed_at_80_percent_of_its_life() {
    let port = Port::new();
    let serving = port.start().await;
    for (advance, expected) in [(Duration::from_secs(69_119), 1), (Duration::from_secs(1), 2)] {
        port.clock.advance(advance);
        (serving.reload)().await;
        (serving.reload)().await;
        assert_eq!(port.signatures(), expected, "{}", port.clock.now());
    }
    assert!(serving.is_accepted(&port.signer.pem(), COXSWAIN_NAME).await);
}

#[tokio::test]
async fn certificate_of_a_ca_that_ends_first_is_not_signed_again() {
    let port = Port::new();
    *port.signer.end.lock() = port.clock.now() + Duration::from_hours(1);
    let serving = port.start().await;
    for _ in 0..70 {
        port.clock.advance(Duration::from_mins(1));
        (serving.reload)().await;
    }
    assert_eq!(port.signatures(), 1);
}

#[tokio::test]
async fn replaced_ca_signs_the_certificate_at_the_next_turn() {
    let port = Port::new();
    let serving = port.start().await;
    let old = port.signer.pem();
    *port.signer.ca.lock() = Arc::new(Ca::new("next-ca"));
    assert!(serving.is_accepted(&old, COXSWAIN_NAME).await);
    (serving.reload)().await;
    assert!(serving.is_accepted(&port.signer.pem(), COXSWAIN_NAME).await);
    assert!(!serving.is_accepted(&old, COXSWAIN_NAME).await);
    assert_eq!(port.signatures(), 2);
}

#[tokio::test]
async fn signer_that_fails_leaves_the_port_as_it_is() {
    let port = Port::new();
    *port.signer.broken.lock() = true;
    let serving = port.start().await;
    let cluster = port.signer.pem();
    assert!(serving.is_accepted(&serving.announced, "localhost").await);
    assert!(!serving.is_accepted(&cluster, COXSWAIN_NAME).await);
    *port.signer.broken.lock() = false;
    (serving.reload)().await;
    assert!(serving.is_accepted(&cluster, COXSWAIN_NAME).await, "as soon as the CA is there");
    *port.signer.broken.lock() = true;
    port.clock.advance(DAY);
    (serving.reload)().await;
    assert!(serving.is_accepted(&cluster, COXSWAIN_NAME).await, "the earlier certificate stays");
}

#[tokio::test]
async fn nothing_is_signed_where_a_certificate_is_given() {
    let mut port = Port::new();
    let given = port.setup.server_ca.server(&["localhost"]);
    port.setup.options.tls.cert_and_key = Some(port.setup.write_pair("given", &given));
    let serving = port.start().await;
    assert!(!serving.is_accepted(&port.signer.pem(), COXSWAIN_NAME).await);
    assert!(serving.is_accepted(&port.setup.server_ca.pem(), "localhost").await);

    let mut port = Port::new();
    port.setup.options.tls.cert_dir = Some(port.setup.dir.path().join("certs"));
    let serving = port.start().await;
    assert!(serving.is_accepted(&serving.announced, "localhost").await);
    assert!(!serving.is_accepted(&port.signer.pem(), COXSWAIN_NAME).await);
    assert_eq!(port.signatures(), 0);
}

#[tokio::test]
async fn certificate_of_a_flag_wins_for_the_name_of_coxswain() {
    for given in [COXSWAIN_NAME, "*.kube-system.svc"] {
        let mut port = Port::new();
        let pair = port.setup.server_ca.server(&[given]);
        let (cert_file, key_file) = port.setup.write_pair("sni", &pair);
        port.setup.options.tls.sni = vec![SniCertKey { cert_file, key_file, names: Vec::new() }];
        let serving = port.start().await;
        assert!(serving.is_accepted(&port.setup.server_ca.pem(), COXSWAIN_NAME).await, "{given}");
        assert!(!serving.is_accepted(&port.signer.pem(), COXSWAIN_NAME).await, "{given}");
    }
}
