//! Go's names for TLS versions, cipher suites and key exchange groups.
//!
//! Names that the original knows and that rustls does not implement - suites without forward secrecy, CBC, RC4, TLS
//! before 1.2 - are accepted, so that a command line written for the original works, and reported as not offered.

use rustls::crypto::ring::{cipher_suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use crate::serve::error::ServeError;

/// What `--tls-min-version` may be.
pub fn tls_versions() -> &'static [&'static str] {
    &["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]
}

/// What `--tls-cipher-suites` may name, and whether it is offered.
pub fn cipher_suites() -> impl Iterator<Item = (&'static str, bool)> {
    SUITES.iter().map(|(name, suite)| (*name, suite.is_some()))
}

/// TLS 1.3 suites are always offered: neither Go nor the flag can choose among them.
const SUITES: &[(&str, Option<SupportedCipherSuite>)] = &[
    ("TLS_AES_128_GCM_SHA256", Some(cipher_suite::TLS13_AES_128_GCM_SHA256)),
    ("TLS_AES_256_GCM_SHA384", Some(cipher_suite::TLS13_AES_256_GCM_SHA384)),
    ("TLS_CHACHA20_POLY1305_SHA256", Some(cipher_suite::TLS13_CHACHA20_POLY1305_SHA256)),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Some(cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Some(cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384)),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        Some(cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        Some(cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Some(cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Some(cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384)),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", Some(cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256)),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        Some(cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", None),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_ECDHE_ECDSA_WITH_RC4_128_SHA", None),
    ("TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", None),
    ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_RC4_128_SHA", None),
    ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_128_CBC_SHA256", None),
    ("TLS_RSA_WITH_AES_128_GCM_SHA256", None),
    ("TLS_RSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_256_GCM_SHA384", None),
    ("TLS_RSA_WITH_RC4_128_SHA", None),
];

/// Key exchange groups by their TLS numbers.
const GROUPS: &[(u16, &str, Option<&'static dyn SupportedKxGroup>)] = &[
    (23, "CurveP256", Some(kx_group::SECP256R1)),
    (24, "CurveP384", Some(kx_group::SECP384R1)),
    (25, "CurveP521", None),
    (29, "X25519", Some(kx_group::X25519)),
    (4587, "SecP256r1MLKEM768", None),
    (4588, "X25519MLKEM768", None),
    (4589, "SecP384r1MLKEM1024", None),
];

/// The versions from a minimum on. TLS 1.0 and 1.1 are not spoken: 1.2 is the least.
pub(super) fn versions(min: &str) -> Result<Vec<&'static SupportedProtocolVersion>, ServeError> {
    match min {
        "VersionTLS13" => Ok(vec![&rustls::version::TLS13]),
        "" | "VersionTLS12" => Ok(vec![&rustls::version::TLS13, &rustls::version::TLS12]),
        "VersionTLS10" | "VersionTLS11" => {
            tracing::warn!(
                min,
                "--tls-min-version: TLS before 1.2 is not spoken; the minimum is VersionTLS12"
            );
            Ok(vec![&rustls::version::TLS13, &rustls::version::TLS12])
        }
        other => Err(ServeError::Unknown {
            flag: "tls-min-version",
            value: other.to_owned(),
            allowed: tls_versions().join(", "),
        }),
    }
}

/// A provider that offers the suites and groups named, in the order of their names; no names are all of them.
pub(super) fn provider(suites: &[String], groups: &[u16]) -> Result<CryptoProvider, ServeError> {
    let mut provider = default_provider();
    if !suites.is_empty() {
        provider.cipher_suites = chosen_suites(suites, &provider)?;
    }
    if !groups.is_empty() {
        provider.kx_groups = chosen_groups(groups)?;
    }
    Ok(provider)
}

fn chosen_suites(
    names: &[String],
    provider: &CryptoProvider,
) -> Result<Vec<SupportedCipherSuite>, ServeError> {
    let mut chosen: Vec<SupportedCipherSuite> =
        provider.cipher_suites.iter().filter(|suite| suite.tls13().is_some()).copied().collect();
    for name in names {
        match SUITES.iter().find(|(known, _)| known == name) {
            None => {
                return Err(ServeError::Unknown {
                    flag: "tls-cipher-suites",
                    value: name.clone(),
                    allowed: SUITES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
                });
            }
            Some((_, None)) => {
                tracing::warn!(suite = name, "--tls-cipher-suites: this suite is weak and not offered");
            }
            Some((_, Some(suite))) => {
                if !chosen.contains(suite) {
                    chosen.push(*suite);
                }
            }
        }
    }
    Ok(chosen)
}

fn chosen_groups(numbers: &[u16]) -> Result<Vec<&'static dyn SupportedKxGroup>, ServeError> {
    let mut chosen = Vec::new();
    for number in numbers {
        match GROUPS.iter().find(|(known, ..)| known == number) {
            None => {
                let allowed: Vec<String> =
                    GROUPS.iter().map(|(number, name, _)| format!("{number} ({name})")).collect();
                return Err(ServeError::Unknown {
                    flag: "tls-curve-preferences",
                    value: number.to_string(),
                    allowed: allowed.join(", "),
                });
            }
            Some((_, name, None)) => {
                tracing::warn!(curve = name, "--tls-curve-preferences: this group is not offered");
            }
            Some((_, _, Some(group))) => chosen.push(*group),
        }
    }
    if chosen.is_empty() {
        return Err(ServeError::Nothing(
            "--tls-curve-preferences: none of the groups named is offered; name 23 (CurveP256), 24 (CurveP384) or \
             29 (X25519) among them"
                .to_owned(),
        ));
    }
    Ok(chosen)
}
