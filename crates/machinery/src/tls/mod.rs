//! TLS as Go's `crypto/tls` and `crypto/x509` accept it: keys and signatures, and the verification of certificates.
//!
//! ring and webpki decide wherever they can. [`provider`] adds the keys and signatures that Go has and ring's provider for rustls lacks: the
//! curves P-224 and P-521, other combinations of curve and digest, and RSA keys from 1024 to 8192 bits. [`Roots`] adds three cases that
//! webpki refuses: a certificate that is itself in the CA bundle, one with `CA:TRUE` below a CA of the bundle, and a client certificate of
//! X.509 version 1. It refuses several that webpki accepts and Go does not; a test compares
//! the verdicts on mutated chains with Go's.

mod algorithms;
mod client_certs;
mod handshake;
mod keys;
mod refusal;
mod roots;
mod server;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use algorithms::is_rsa_key_of_go;
pub use client_certs::AnyClientCert;
pub use handshake::{verify_tls12_signature, verify_tls13_signature};
pub use keys::{KeyError, TLS_KEYS, certified_key, signing_key, signs_slowly};
pub use roots::{Purpose, RootError, Roots};
pub use server::ServerVerifier;

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    Arc::new(CryptoProvider {
        signature_verification_algorithms: algorithms::SUPPORTED,
        key_provider: &keys::Keys,
        ..rustls::crypto::ring::default_provider()
    })
});

/// Returns the cryptography of all connections: ring's, with the other keys that Go has.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::clone(&PROVIDER)
}

/// Sets the provider for libraries that make TLS configurations with the process' default.
pub fn install() {
    // It fails if there is a default already, which is this one, or that of a test.
    drop(CryptoProvider::clone(&PROVIDER).install_default());
}

#[cfg(any(test, feature = "testing"))]
pub mod cases;
#[cfg(any(test, feature = "testing"))]
pub mod key_cases;
#[cfg(test)]
pub mod slow_key;
#[cfg(test)]
mod tests;
