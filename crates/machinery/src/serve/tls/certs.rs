//! The serving certificates: one by default, more by server name, each replaceable while connections live.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::random::HashMap;
use crate::serve::signed::COXSWAIN_NAME;

/// A certificate and its key, in files.
#[derive(Clone, Debug)]
pub(in crate::serve) struct CertFiles {
    pub(in crate::serve) cert: PathBuf,
    pub(in crate::serve) key: PathBuf,
}

/// A certificate and the names it serves; `names` of the default certificate are of no account.
#[derive(Clone)]
struct Served {
    /// Names that a flag gives it; empty means those of the certificate.
    given: Vec<String>,
    key: Arc<CertifiedKey>,
}

struct Lookup {
    default: Arc<CertifiedKey>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
    signs_slowly: bool,
}

/// What handshakes choose from.
pub(in crate::serve) struct CertStore {
    all: Mutex<Certificates>,
    lookup: ArcSwap<Lookup>,
}

/// All certificates of the port.
struct Certificates {
    /// The default one, then those of flags.
    served: Vec<Served>,
    /// The certificate for [`COXSWAIN_NAME`] that the cluster's CA has signed for this process.
    signed: Option<Arc<CertifiedKey>>,
}

impl CertStore {
    /// The first is the default; the others answer to the names given with them, or to their own. Of two that answer
    /// to the same name the earlier wins.
    pub(in crate::serve) fn new(default: CertifiedKey, others: Vec<(Vec<String>, CertifiedKey)>) -> Self {
        let mut served = vec![Served { given: Vec::new(), key: Arc::new(default) }];
        served.extend(others.into_iter().map(|(given, key)| Served { given, key: Arc::new(key) }));
        let all = Certificates { served, signed: None };
        let lookup = ArcSwap::from_pointee(lookup(&all));
        Self { all: Mutex::new(all), lookup }
    }

    /// Replaces a certificate: 0 is the default one, then those by name in their order.
    pub(in crate::serve) fn replace(&self, index: usize, key: CertifiedKey) {
        let mut all = self.all.lock();
        if let Some(served) = all.served.get_mut(index) {
            served.key = Arc::new(key);
        }
        self.lookup.store(Arc::new(lookup(&all)));
    }

    /// Replaces the certificate for [`COXSWAIN_NAME`]. A certificate that a flag gives for this name wins.
    pub(in crate::serve) fn replace_signed(&self, key: CertifiedKey) {
        let mut all = self.all.lock();
        all.signed = Some(Arc::new(key));
        self.lookup.store(Arc::new(lookup(&all)));
    }

    /// The default certificate.
    pub(in crate::serve) fn default_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.lookup.load().default)
    }

    /// When the first of the certificates expires, in seconds since 1970. The one that the cluster's CA signed for this process does not
    /// count: it lasts a day by design.
    pub(in crate::serve) fn not_after(&self) -> Option<i64> {
        let all = self.all.lock();
        let ends = all.served.iter().filter_map(|held| {
            let (_, leaf) = X509Certificate::from_der(held.key.cert.first()?).ok()?;
            Some(leaf.validity().not_after.timestamp())
        });
        ends.min()
    }

    /// Whether a key of the port signs so slowly that handshakes need a thread of their own.
    pub(in crate::serve) fn signs_slowly(&self) -> bool {
        self.lookup.load().signs_slowly
    }

    fn find(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let lookup = self.lookup.load();
        let Some(name) = name else { return Arc::clone(&lookup.default) };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        Arc::clone(find(&lookup.by_name, &name).unwrap_or(&lookup.default))
    }
}

/// The certificate of a name, or of the wildcard that covers it.
fn find<'a>(by_name: &'a HashMap<String, Arc<CertifiedKey>>, name: &str) -> Option<&'a Arc<CertifiedKey>> {
    let wildcard = || name.split_once('.').and_then(|(_, rest)| by_name.get(&format!("*.{rest}")));
    by_name.get(name).or_else(wildcard)
}

fn lookup(all: &Certificates) -> Lookup {
    let mut by_name = HashMap::default();
    for served in all.served.iter().skip(1) {
        let own;
        let names = if served.given.is_empty() {
            own = names_of(&served.key);
            &own
        } else {
            &served.given
        };
        for name in names {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            by_name.entry(name).or_insert_with(|| Arc::clone(&served.key));
        }
    }
    if let Some(signed) = &all.signed
        && find(&by_name, COXSWAIN_NAME).is_none()
    {
        by_name.insert(COXSWAIN_NAME.to_owned(), Arc::clone(signed));
    }
    // The signed certificate is left out: its key is on P-256 and signs fast.
    let signs_slowly = all.served.iter().any(|served| crate::tls::signs_slowly(&*served.key.key));
    // There is always a first: `new` put it there.
    Lookup { default: Arc::clone(&all.served[0].key), by_name, signs_slowly }
}

/// The DNS names of a certificate; its common name where it has none.
fn names_of(key: &CertifiedKey) -> Vec<String> {
    let Some((_, cert)) = key.cert.first().and_then(|leaf| X509Certificate::from_der(leaf).ok()) else {
        return Vec::new();
    };
    let mut names = Vec::new();
    if let Ok(Some(extension)) = cert.subject_alternative_name() {
        for name in &extension.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.push((*name).to_owned());
            }
        }
    }
    if names.is_empty() {
        names.extend(
            cert.subject().iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_owned),
        );
    }
    names
}

impl fmt::Debug for CertStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertStore")
            .field("certificates", &self.all.lock().served.len())
            .finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CertStore {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find(hello.server_name()))
    }
}

/// A chain and its key from PEM; refused when they do not belong together.
pub(in crate::serve) fn certified_key(
    cert_pem: &[u8],
    key_pem: &[u8],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(cert_pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("certificate: {error}"))?;
    if chain.is_empty() {
        return Err("the file has no PEM certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| format!("private key: {error}"))?;
    crate::tls::certified_key(chain, key, provider).map_err(|error| error.to_string())
}
