//! A key for tests that counts as slow and records the threads on which it signs.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};

use crate::x509::Certificate;

/// The threads that signed, with their names.
pub type SigningThreads = Arc<Mutex<Vec<(ThreadId, Option<String>)>>>;

/// Signs with a key and has the public part of an RSA key of 4104 bits.
#[derive(Clone, Debug)]
pub struct SlowKey {
    key: Arc<dyn SigningKey>,
    public_key: SubjectPublicKeyInfoDer<'static>,
    /// The threads of its signatures.
    pub threads: SigningThreads,
}

impl SlowKey {
    /// Returns a key that signs with `key` and counts as slow.
    ///
    /// # Panics
    /// The certificate with the RSA key is malformed.
    pub fn new(key: Arc<dyn SigningKey>) -> Self {
        let rsa = include_str!("../../../../tests/data/authorities/rsa4104.crt");
        let rsa = CertificateDer::from_pem_slice(rsa.as_bytes()).unwrap();
        let public_key = Certificate::read(&rsa).unwrap().public_key.to_vec().into();
        Self { key, public_key, threads: SigningThreads::default() }
    }
}

impl SigningKey for SlowKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let signer = self.key.choose_scheme(offered)?;
        Some(Box::new(Recorder { signer, threads: Arc::clone(&self.threads) }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.public_key.clone())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

#[derive(Debug)]
struct Recorder {
    signer: Box<dyn Signer>,
    threads: SigningThreads,
}

impl Signer for Recorder {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let thread = thread::current();
        self.threads.lock().push((thread.id(), thread.name().map(str::to_owned)));
        self.signer.sign(message)
    }

    fn scheme(&self) -> SignatureScheme {
        self.signer.scheme()
    }
}
