//! The certificates, keys and authorities that flags name: read once to see that they can be used, then forgotten.
//! No error here quotes what is in a file.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Check;
use crate::private_key::{CERTIFICATE_KEYS, KeyAlgorithm, PrivateKey, PrivateKeyError, TOKEN_KEYS};
use crate::tls::{self, KeyError, TLS_KEYS};

/// A certificate and its key, by the flags that name their files.
pub(super) struct Pair<'a> {
    pub(super) cert_flag: &'a str,
    pub(super) cert_file: &'a str,
    pub(super) key_flag: &'a str,
    pub(super) key_file: &'a str,
}

impl Check<'_> {
    /// Requires both files of a pair or neither. Says whether there are both.
    pub(super) fn whole(&mut self, pair: &Pair<'_>) -> bool {
        let (absent, present) = match (pair.cert_file.is_empty(), pair.key_file.is_empty()) {
            (true, true) => return false,
            (false, false) => return true,
            (false, true) => (pair.key_flag, pair.cert_flag),
            (true, false) => (pair.cert_flag, pair.key_flag),
        };
        self.fail(absent, format!("missing, but --{present} is set"), "both or neither");
        false
    }

    /// Requires both files of a pair or neither; if both, that they can be used.
    pub(super) fn pair(&mut self, pair: &Pair<'_>) {
        if self.whole(pair) {
            self.usable(pair);
        }
    }

    /// Requires both files to be readable, and the key to be that of the certificate.
    pub(super) fn usable(&mut self, pair: &Pair<'_>) {
        let chain = self.certificates(pair.cert_flag, pair.cert_file);
        let key = self.private_key(pair.key_flag, pair.key_file);
        if let (Some(chain), Some(key)) = (chain, key) {
            self.belong_together(pair, chain, key);
        }
    }

    /// Requires the key to be that of the first certificate.
    fn belong_together(
        &mut self,
        pair: &Pair<'_>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) {
        if let Err(error) = tls::certified_key(chain, key, &tls::provider()) {
            let problem = match error {
                KeyError::Mismatch => return self.foreign(pair),
                _ => format!("load {:?} and {:?}: {error}", pair.key_file, pair.cert_file),
            };
            self.fail(pair.key_flag, problem, format!("the private key of --{}", pair.cert_flag));
        }
    }

    /// The key is not that of the certificate.
    fn foreign(&mut self, pair: &Pair<'_>) {
        let problem =
            format!("the key in {:?} does not match the certificate in {:?}", pair.key_file, pair.cert_file);
        self.fail(pair.key_flag, problem, format!("the private key of --{}", pair.cert_flag));
    }

    /// Requires an authority's files to be readable, and to hold one certificate and its key.
    pub(super) fn authority(&mut self, pair: &Pair<'_>) {
        let all = self.certificates(pair.cert_flag, pair.cert_file);
        if let Some(all) = all.as_ref().filter(|all| all.len() != 1) {
            let problem = format!("{:?} has {} certificates", pair.cert_file, all.len());
            self.fail(pair.cert_flag, problem, "a PEM file with one certificate");
        }
        let key = self.signing_key(pair.key_flag, pair.key_file, CERTIFICATE_KEYS);
        let Some((first, key)) = all.as_ref().and_then(|all| all.first()).zip(key) else { return };
        let is_its_own = x509_parser::parse_x509_certificate(first).is_ok_and(|(_, certificate)| {
            *certificate.public_key().subject_public_key.data == *key.public_key()
        });
        if !is_its_own {
            self.foreign(pair);
        }
    }

    /// Requires a file, if one is named, to hold at least one certificate.
    pub(super) fn authorities(&mut self, flag: &str, path: &str) {
        if !path.is_empty() {
            self.certificates(flag, path);
        }
    }

    /// The certificates in a file, each of which can be parsed.
    fn certificates(&mut self, flag: &str, path: &str) -> Option<Vec<CertificateDer<'static>>> {
        let bytes = self.read(flag, path)?;
        let allowed = "a PEM file with one certificate or more";
        let chain = match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
            Ok(chain) if !chain.is_empty() => chain,
            Ok(_) => {
                self.fail(flag, format!("{path:?} has no certificate"), allowed);
                return None;
            }
            Err(_) => {
                self.fail(flag, format!("{path:?} is not a PEM file"), allowed);
                return None;
            }
        };
        for (i, certificate) in chain.iter().enumerate() {
            if x509_parser::parse_x509_certificate(certificate).is_err() {
                self.fail(flag, format!("certificate {} in {path:?} is invalid", i + 1), allowed);
                return None;
            }
        }
        Some(chain)
    }

    /// Requires a private key that can sign tokens.
    pub(super) fn token_key(&mut self, flag: &str, path: &str) {
        if let Some(key) = self.signing_key(flag, path, TOKEN_KEYS)
            && key.algorithm() == KeyAlgorithm::Ed25519
        {
            self.unusable(flag, path, TOKEN_KEYS);
        }
    }

    /// The private key in a file, of a kind that can sign tokens or certificates.
    fn signing_key(&mut self, flag: &str, path: &str, kinds: &str) -> Option<PrivateKey> {
        let bytes = self.read(flag, path)?;
        match PrivateKey::from_pem(&bytes) {
            Ok(key) => return Some(key),
            Err(PrivateKeyError::Absent) => {
                let allowed = format!("a PEM file with an {kinds} private key");
                self.fail(flag, format!("{path:?} has no private key"), allowed);
            }
            Err(PrivateKeyError::Unsupported) => self.unusable(flag, path, kinds),
        }
        None
    }

    /// The private key in a file, which TLS can use.
    fn private_key(&mut self, flag: &str, path: &str) -> Option<PrivateKeyDer<'static>> {
        let bytes = self.read(flag, path)?;
        let Ok(key) = PrivateKeyDer::from_pem_slice(&bytes) else {
            let allowed = format!("a PEM file with an {TLS_KEYS} private key");
            self.fail(flag, format!("{path:?} has no private key"), allowed);
            return None;
        };
        match tls::signing_key(key.clone_key(), &tls::provider()) {
            Ok(_) => return Some(key),
            Err(KeyError::RsaSize(bits)) => {
                let allowed = format!("a PEM file with an {TLS_KEYS} private key");
                self.fail(flag, format!("the RSA key in {path:?} has {bits} bits"), allowed);
            }
            Err(_) => self.unusable(flag, path, TLS_KEYS),
        }
        None
    }

    fn unusable(&mut self, flag: &str, path: &str, kinds: &str) {
        let allowed = format!("a PEM file with an {kinds} private key");
        self.fail(flag, format!("the private key in {path:?} is unsupported"), allowed);
    }

    fn read(&mut self, flag: &str, path: &str) -> Option<Vec<u8>> {
        match std::fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.unreadable(flag, path, error);
                None
            }
        }
    }
}
