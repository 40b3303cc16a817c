//! A serving certificate of our own when none is given: kept in `--cert-dir` under the original's file names and
//! found there again at the next start, or in memory when there is no such directory.
//!
//! A renewed certificate in `--cert-dir` has the key of the old one. So a renewal replaces one file, which is atomic: no other process
//! that shares the directory ever reads a certificate with the key of another.

use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
    PublicKeyData, SanType, SignatureAlgorithm,
};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Name};

use super::certs::CertFiles;
use crate::serve::error::ServeError;
use crate::serve::options::ServeOptions;

/// The base name of the files in `--cert-dir`: the original's, so that either finds the other's.
const PAIR_NAME: &str = "kube-controller-manager";
const YEAR: Duration = Duration::from_hours(365 * 24);
const HOUR: Duration = Duration::from_hours(1);

/// Algorithms of keys whose certificates can be renewed. kube-controller-manager makes RSA keys.
/// Differs: self-made-certificates.
const KEY_ALGORITHMS: [&SignatureAlgorithm; 4] =
    [&PKCS_ECDSA_P256_SHA256, &PKCS_RSA_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519];

/// Where the serving certificate comes from.
pub(in crate::serve) enum SelfSigned {
    /// Files: given, found, or made.
    Files(CertFiles),
    /// Made, and kept nowhere.
    Memory {
        /// The chain.
        cert: String,
        /// The key.
        key: String,
    },
}

/// The serving certificate by the options: the one given, else the one in the directory, else a new one.
pub(in crate::serve) fn prepare(options: &ServeOptions, now: Timestamp) -> Result<SelfSigned, ServeError> {
    if let Some((cert, key)) = &options.tls.cert_and_key {
        return Ok(SelfSigned::Files(CertFiles { cert: cert.clone(), key: key.clone() }));
    }
    let Some(dir) = options.tls.cert_dir.as_deref().filter(|dir| !dir.as_os_str().is_empty()) else {
        let (cert, key) = generate(options, now)?;
        tracing::info!("Created a self-signed serving certificate in memory");
        return Ok(SelfSigned::Memory { cert, key });
    };
    let files =
        CertFiles { cert: dir.join(format!("{PAIR_NAME}.crt")), key: dir.join(format!("{PAIR_NAME}.key")) };
    match (exists(&files.cert)?, exists(&files.key)?) {
        (true, true) => {}
        (false, false) => {
            let (cert, key) = generate(options, now)?;
            write_pair(dir, &files, &cert, &key)?;
            tracing::info!(dir = %dir.display(), "Created a self-signed serving certificate");
        }
        (has_cert, _) => {
            let (here, gone) = if has_cert { (&files.cert, &files.key) } else { (&files.key, &files.cert) };
            return Err(ServeError::SelfSigned(format!(
                "--cert-dir has {} without {}: delete the first file or restore the second",
                here.display(),
                gone.display()
            )));
        }
    }
    Ok(SelfSigned::Files(files))
}

/// The authority at the end of a chain, in PEM, for clients to trust; `None` if it ends in something else.
pub(in crate::serve) fn authority_of(chain: &str) -> Option<String> {
    let (_, last) =
        chain.match_indices("-----BEGIN CERTIFICATE-----").map(|(at, _)| chain.split_at(at)).last()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(last.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    (certificate.subject() == certificate.issuer()).then(|| last.to_owned())
}

fn exists(path: &Path) -> Result<bool, ServeError> {
    path.try_exists().map_err(|error| ServeError::SelfSigned(format!("{}: {error}", path.display())))
}

/// The key goes first and is readable to its owner alone; a half-written pair is reported at the next start.
fn write_pair(dir: &Path, files: &CertFiles, cert: &str, key: &str) -> Result<(), ServeError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let write = |path: &PathBuf, mode: u32, text: &str| -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    fs::create_dir_all(dir)
        .and_then(|()| write(&files.key, 0o600, key))
        .and_then(|()| write(&files.cert, 0o644, cert))
        .map_err(|error| ServeError::SelfSigned(format!("--cert-dir {}: {error}", dir.display())))
}

/// Replaces a certificate in `--cert-dir` by a renewed one with the same key.
pub(in crate::serve) async fn replace_cert(files: &CertFiles, cert: &str) -> io::Result<()> {
    let mut unfinished = files.cert.clone().into_os_string();
    unfinished.push(format!(".{}", crate::random::uuid()));
    let unfinished = PathBuf::from(unfinished);
    let replaced = async {
        tokio::fs::write(&unfinished, cert).await?;
        tokio::fs::File::open(&unfinished).await?.sync_all().await?;
        tokio::fs::rename(&unfinished, &files.cert).await
    };
    let replaced = replaced.await;
    if replaced.is_err() {
        // It may not exist: the write may be the part that failed.
        drop(tokio::fs::remove_file(&unfinished).await);
    }
    replaced
}

/// A certificate for a year with a one-off authority, whose key is thrown away; the chain has both, so that a client
/// can be given the authority to trust.
pub(in crate::serve) fn generate(
    options: &ServeOptions,
    now: Timestamp,
) -> Result<(String, String), ServeError> {
    let made = KeyPair::generate().and_then(|key| Ok((sign(options, now, &key)?, key.serialize_pem())));
    made.map_err(|error| ServeError::SelfSigned(error.to_string()))
}

/// Returns a chain like [`generate`] for the key of a certificate that was made before.
pub(in crate::serve) fn renew(
    options: &ServeOptions,
    now: Timestamp,
    old: &CertificateDer<'_>,
) -> Result<String, ServeError> {
    let key = ExistingKey::of(old).ok_or_else(|| {
        ServeError::SelfSigned(
            "the certificate in --cert-dir has a key of an unsupported algorithm".to_owned(),
        )
    })?;
    sign(options, now, &key).map_err(|error| ServeError::SelfSigned(error.to_string()))
}

/// The public key of a certificate.
struct ExistingKey {
    bits: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl ExistingKey {
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let public_key = certificate.public_key();
        let bits = public_key.subject_public_key.data.to_vec();
        let with = |algorithm| Self { bits: bits.clone(), algorithm };
        KEY_ALGORITHMS.into_iter().map(with).find(|key| key.subject_public_key_info() == public_key.raw)
    }
}

impl PublicKeyData for ExistingKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

/// Whether this process or kube-controller-manager made a chain itself: a certificate `HOST@SECONDS` by the CA `HOST-ca@SECONDS`,
/// whose key nobody has. Certificates that somebody put into `--cert-dir` are not replaced.
pub(in crate::serve) fn is_self_made(chain: &[CertificateDer<'_>]) -> bool {
    let [leaf, authority] = chain else { return false };
    let (Ok((_, leaf)), Ok((_, authority))) =
        (X509Certificate::from_der(leaf), X509Certificate::from_der(authority))
    else {
        return false;
    };
    let host = |name: &X509Name<'_>| {
        let (host, seconds) = name.iter_common_name().next()?.as_str().ok()?.rsplit_once('@')?;
        let is_number = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| host.to_owned())
    };
    leaf.issuer() == authority.subject()
        && authority.subject() == authority.issuer()
        && host(leaf.subject()).is_some_and(|leaf| host(authority.subject()) == Some(format!("{leaf}-ca")))
}

/// Signs a chain for a key.
fn sign(options: &ServeOptions, now: Timestamp, key: &impl PublicKeyData) -> Result<String, rcgen::Error> {
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    let (not_before, not_after) = (time - HOUR.min(Duration::from_secs(seconds)), time + YEAR);

    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(DnType::CommonName, format!("localhost-ca@{seconds}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.not_before = not_before.into();
    authority.not_after = not_after.into();
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let mut leaf = CertificateParams::new(Vec::new())?;
    leaf.distinguished_name.push(DnType::CommonName, format!("localhost@{seconds}"));
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    leaf.not_before = not_before.into();
    leaf.not_after = not_after.into();
    leaf.subject_alt_names = names(options)?;
    let cert = leaf.signed_by(key, &authority)?;
    Ok(format!("{}{}", cert.pem(), authority.pem()))
}

fn names(options: &ServeOptions) -> Result<Vec<SanType>, rcgen::Error> {
    let mut ips: Vec<IpAddr> =
        vec![std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()];
    let bound = options.address.ip();
    if !bound.is_unspecified() && !ips.contains(&bound) {
        ips.push(bound);
    }
    let mut dns = vec!["localhost".to_owned()];
    for name in &options.tls.self_signed_names {
        if let Ok(ip) = name.parse::<IpAddr>() {
            if !ips.contains(&ip) {
                ips.push(ip);
            }
        } else if !name.is_empty() && !dns.contains(name) {
            dns.push(name.clone());
        }
    }
    let mut names = Vec::with_capacity(dns.len() + ips.len());
    for name in dns {
        names.push(SanType::DnsName(name.try_into()?));
    }
    names.extend(ips.into_iter().map(SanType::IpAddress));
    Ok(names)
}
