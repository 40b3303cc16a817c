//! Certificate authorities, and the chains that lead to them.
//!
//! webpki builds and verifies chains. Its trust anchors are a name and a key, so checks that Go makes are added here: that a root is
//! valid, may issue and has the purpose; that intermediates may sign certificates by their key usage; that no certificate has a
//! critical extension that Go does not handle; and that nothing is left to policies or to constraints that webpki does not compare.

use std::time::Duration;

use parking_lot::Mutex;
use rustls::{CertificateError, DistinguishedName, Error};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, Der, SubjectPublicKeyInfoDer, TrustAnchor, UnixTime,
};
use webpki::{
    EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, RawPublicKeyEntity,
    VerifiedPath,
};
use x509_cert::der::Tag;

use super::algorithms::SUPPORTED;
use super::refusal::{Refusal, convert};
use crate::x509::{Certificate, Elements, Extensions};

/// The purpose of an extended key usage: TLS servers, TLS clients and any.
const SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
const ANY: &[u8] = &[0x55, 0x1d, 0x25, 0];

/// id-ecPublicKey, with its tag and length.
const ELLIPTIC_CURVE: &[u8] = &[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];

/// The most intermediates that a peer may present. Each costs verifications; webpki builds no chain of more than six.
const MOST_INTERMEDIATES: usize = 8;

/// The side of a connection that a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// TLS server authentication.
    Server,
    /// TLS client authentication.
    Client,
}

impl Purpose {
    fn identifier(self) -> &'static [u8] {
        if self == Self::Server { SERVER } else { CLIENT }
    }

    /// Whether an extended key usage, if there is one, allows it.
    fn is_allowed(self, extensions: &Extensions<'_>) -> bool {
        let purposes = extensions.purposes.as_ref();
        purposes.is_none_or(|all| all.iter().any(|each| *each == self.identifier() || *each == ANY))
    }
}

/// webpki asks for the leaf and for each intermediate. Without the extension there are none.
impl ExtendedKeyUsageValidator for Purpose {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let mut is_limited = false;
        for purpose in purposes {
            let purpose = purpose?;
            if [self.identifier(), ANY].into_iter().any(|allowed| purpose == KeyPurposeId::new(allowed)) {
                return Ok(());
            }
            is_limited = true;
        }
        if is_limited { Err(webpki::Error::EmptyEkuExtension) } else { Ok(()) }
    }
}

/// A CA bundle that is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// There is none.
    #[error("the file has no PEM certificate")]
    Empty,
    /// One is unreadable, by its index.
    #[error("certificate {0}: {1}")]
    Unreadable(usize, String),
}

/// The certificates of a CA bundle.
#[derive(Clone, Debug, Default)]
pub struct Roots(Vec<Root>);

#[derive(Clone, Debug)]
struct Root {
    der: CertificateDer<'static>,
    anchor: TrustAnchor<'static>,
}

impl Root {
    fn new(der: CertificateDer<'static>) -> Result<Self, String> {
        Certificate::read(&der).map_err(|error| error.to_string())?;
        let anchor = webpki::anchor_from_trusted_cert(&der).map_err(|error| error.to_string())?.to_owned();
        Ok(Self { der, anchor })
    }

    fn anchor(&self) -> TrustAnchor<'_> {
        let constraints = self.anchor.name_constraints.as_ref();
        TrustAnchor {
            subject: Der::from_slice(&self.anchor.subject),
            subject_public_key_info: Der::from_slice(&self.anchor.subject_public_key_info),
            name_constraints: constraints.map(|der| Der::from_slice(der)),
        }
    }

    /// Returns it if it may issue certificates for a purpose now.
    fn issuer(&self, purpose: Purpose, now: UnixTime) -> Result<Certificate<'_>, Refusal> {
        let certificate = Certificate::read(&self.der).map_err(Refusal::Malformed)?;
        verify_time(&certificate, now).map_err(|error| Refusal::Authority(error.to_string()))?;
        if certificate.extensions.has_unknown {
            return Err(Refusal::CriticalExtension);
        }
        if !may_issue(&certificate) {
            return Err(Refusal::Issuer);
        }
        if !purpose.is_allowed(&certificate.extensions) {
            return Err(Refusal::Authority("not valid for this key usage".to_owned()));
        }
        Ok(certificate)
    }
}

/// Whether a certificate may issue others, as Go judges it. Version 1 has nothing that forbids it.
fn may_issue(certificate: &Certificate<'_>) -> bool {
    let extensions = &certificate.extensions;
    let is_ca = match extensions.basic_constraints {
        Some(constraints) => constraints.is_ca,
        None => certificate.is_version_1,
    };
    is_ca && extensions.may_sign != Some(false)
}

impl Roots {
    /// Reads a bundle in PEM, of which each certificate must be readable.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RootError> {
        let mut roots = Vec::new();
        for (index, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
            let root = certificate.map_err(|error| error.to_string()).and_then(Root::new);
            roots.push(root.map_err(|error| RootError::Unreadable(index, error))?);
        }
        if roots.is_empty() { Err(RootError::Empty) } else { Ok(Self(roots)) }
    }

    /// Takes certificates in DER, and skips unreadable ones as client-go does, unless all are.
    pub fn from_readable(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Self, RootError> {
        let (mut roots, mut unreadable) = (Vec::new(), None);
        for (index, certificate) in certificates.into_iter().enumerate() {
            match Root::new(certificate) {
                Ok(root) => roots.push(root),
                Err(error) => unreadable = unreadable.or(Some(RootError::Unreadable(index, error))),
            }
        }
        match unreadable {
            Some(error) if roots.is_empty() => Err(error),
            _ => Ok(Self(roots)),
        }
    }

    /// Returns the names of the authorities.
    pub fn subjects(&self) -> Vec<DistinguishedName> {
        self.0.iter().map(|root| DistinguishedName::in_sequence(&root.anchor.subject)).collect()
    }

    /// Returns when the next certificate of the bundle expires, in seconds since 1970. Expired certificates count only if all have
    /// expired: a bundle keeps an old CA for some time after it was replaced.
    pub fn not_after(&self, now: i64) -> Option<i64> {
        let ends =
            || self.0.iter().filter_map(|root| Certificate::read(&root.der).ok().map(|read| read.not_after));
        ends().filter(|end| *end >= now).min().or_else(|| ends().max())
    }

    /// Fails unless a certificate is good for a purpose now. The name of a server is not verified.
    pub fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<(), Error> {
        if intermediates.len() > MOST_INTERMEDIATES {
            return Err(Refusal::TooMany(intermediates.len()).into());
        }
        let certificate = Certificate::read(leaf).map_err(Refusal::Malformed)?;
        refuse_unhandled(&certificate)?;
        if !is_supported(certificate.public_key) {
            return Err(Refusal::Algorithm.into());
        }
        if self.0.iter().any(|root| root.der == *leaf) {
            return verify_pinned(&certificate, purpose, now);
        }
        let (mut issuers, mut refused) = (Vec::new(), None);
        for root in &self.0 {
            match root.issuer(purpose, now) {
                Ok(certificate) => issuers.push((root, certificate)),
                Err(refusal) => refused = refused.or(Some((root, refusal))),
            }
        }
        let is_ca = certificate.extensions.basic_constraints.is_some_and(|constraints| constraints.is_ca);
        let verified = if certificate.is_version_1 || is_ca {
            verify_below_root(&certificate, purpose, now, &issuers)
        } else {
            verify_chain(leaf, &certificate, intermediates, purpose, now, &issuers)
        };
        // The certificates of the chain seem to have no CA if theirs may not be one.
        let chain =
            || std::iter::once(leaf).chain(intermediates).filter_map(|der| Certificate::read(der).ok());
        match (verified, refused) {
            (Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)), Some((root, refusal)))
                if chain().any(|each| each.issuer == root.anchor.subject.as_ref()) =>
            {
                Err(refusal.into())
            }
            (verified, _) => verified,
        }
    }
}

/// A root that may issue certificates.
type Issuer<'a> = (&'a Root, Certificate<'a>);

/// Verifies a chain by webpki and by what Go demands besides.
fn verify_chain(
    leaf: &CertificateDer<'_>,
    certificate: &Certificate<'_>,
    intermediates: &[CertificateDer<'_>],
    purpose: Purpose,
    now: UnixTime,
    issuers: &[Issuer<'_>],
) -> Result<(), Error> {
    let anchors: Vec<TrustAnchor<'_>> = issuers.iter().map(|(root, _)| root.anchor()).collect();
    let leaf = EndEntityCert::try_from(leaf).map_err(convert)?;
    let refused = Mutex::new(None);
    let conforms = |path: &VerifiedPath<'_>| {
        conforms(path, certificate, issuers).map_err(|refusal| {
            *refused.lock() = Some(refusal);
            webpki::Error::UnknownIssuer
        })
    };
    let verified =
        leaf.verify_for_usage(SUPPORTED.all, &anchors, intermediates, now, purpose, None, Some(&conforms));
    match (verified, refused.into_inner()) {
        (Ok(_), _) => Ok(()),
        (Err(_), Some(refusal)) => Err(refusal.into()),
        (Err(webpki::Error::EmptyEkuExtension), None) => Err(CertificateError::InvalidPurpose.into()),
        (Err(error), None) => Err(convert(error)),
    }
}

/// Verifies a certificate that webpki refuses as a leaf: one of version 1, or one with `CA:TRUE`, as `openssl req -x509 -CA` makes them.
/// Only a root may have signed it: webpki verifies no chain that ends in an intermediate. Go judges such a leaf by its time, its purpose
/// and its signature; the path length of its root counts intermediates alone.
fn verify_below_root(
    leaf: &Certificate<'_>,
    purpose: Purpose,
    now: UnixTime,
    issuers: &[Issuer<'_>],
) -> Result<(), Error> {
    verify_time(leaf, now)?;
    if !purpose.is_allowed(&leaf.extensions) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    let mut named = issuers.iter().filter(|(_, root)| root.raw_subject == leaf.issuer).peekable();
    if named.peek().is_none() {
        return Err(CertificateError::UnknownIssuer.into());
    }
    // Constraints on names are webpki's to judge.
    let is_good = |(_, root): &Issuer<'_>| {
        !root.extensions.has_name_constraints && !is_same(leaf, root) && is_signed(leaf, root.public_key)
    };
    if named.any(is_good) {
        return Ok(());
    }
    Err(if leaf.is_version_1 { Refusal::VersionOne } else { Refusal::Ca }.into())
}

/// Whether Go takes two certificates for one, which is in a chain only once: they have the same name, key and alternative names.
fn is_same(one: &Certificate<'_>, other: &Certificate<'_>) -> bool {
    one.raw_subject == other.raw_subject
        && one.public_key == other.public_key
        && one.extensions.alternative_names == other.extensions.alternative_names
}

/// Fails if a certificate that is no root has an extension that nobody here judges.
fn refuse_unhandled(certificate: &Certificate<'_>) -> Result<(), Refusal> {
    let extensions = &certificate.extensions;
    if extensions.has_unknown {
        Err(Refusal::CriticalExtension)
    } else if extensions.has_policy_rules {
        Err(Refusal::Policies)
    } else {
        Ok(())
    }
}

/// Whether signatures by a key can be verified.
fn is_supported(public_key: &[u8]) -> bool {
    let read = || {
        let mut outer = Elements::new(public_key, "public key").ok()?;
        let mut parts = Elements::new(outer.content(Tag::Sequence).ok()?, "public key").ok()?;
        let algorithm = parts.content(Tag::Sequence).ok()?;
        let bits = parts.bytes_of_bits().ok()?;
        parts.finish().ok()?;
        Some((algorithm, bits))
    };
    // Go reads uncompressed points alone.
    let is_uncompressed = |algorithm: AlgorithmIdentifier, bits: &[u8]| {
        !algorithm.as_ref().starts_with(ELLIPTIC_CURVE) || bits.first() == Some(&4)
    };
    read().is_some_and(|(found, bits)| {
        let mut known = SUPPORTED.all.iter().map(|algorithm| algorithm.public_key_alg_id());
        known.any(|algorithm| algorithm.as_ref() == found && is_uncompressed(algorithm, bits))
    })
}

/// Verifies a certificate that is itself in the bundle. Go does not look whether it is a CA's or by whom it was signed.
fn verify_pinned(certificate: &Certificate<'_>, purpose: Purpose, now: UnixTime) -> Result<(), Error> {
    verify_time(certificate, now)?;
    if purpose.is_allowed(&certificate.extensions) {
        Ok(())
    } else {
        Err(CertificateError::InvalidPurpose.into())
    }
}

fn verify_time(certificate: &Certificate<'_>, time: UnixTime) -> Result<(), Error> {
    let now = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    // A time before 1970 is shown as 1970.
    let shown =
        |seconds| UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    if now < certificate.not_before {
        let not_before = shown(certificate.not_before);
        Err(CertificateError::NotValidYetContext { time, not_before }.into())
    } else if now > certificate.not_after {
        let not_after = shown(certificate.not_after);
        Err(CertificateError::ExpiredContext { time, not_after }.into())
    } else {
        Ok(())
    }
}

/// Whether a certificate is signed by a key.
fn is_signed(certificate: &Certificate<'_>, public_key: &[u8]) -> bool {
    let public_key = SubjectPublicKeyInfoDer::from(public_key);
    let Ok(key) = RawPublicKeyEntity::try_from(&public_key) else { return false };
    SUPPORTED
        .all
        .iter()
        .filter(|algorithm| algorithm.signature_alg_id().as_ref() == certificate.algorithm)
        .any(|algorithm| key.verify_signature(*algorithm, certificate.signed, certificate.signature).is_ok())
}

/// Fails if Go refuses a path that webpki has verified.
fn conforms(path: &VerifiedPath<'_>, leaf: &Certificate<'_>, issuers: &[Issuer<'_>]) -> Result<(), Refusal> {
    let (mut count, mut is_constrained) = (0, false);
    let mut has_unconstrained_names = leaf.extensions.has_unconstrained_names;
    for intermediate in path.intermediate_certificates() {
        count += 1;
        let der = intermediate.der();
        let certificate = Certificate::read(&der).map_err(Refusal::Malformed)?;
        refuse_unhandled(&certificate)?;
        if certificate.is_version_1 || !may_issue(&certificate) {
            return Err(Refusal::Issuer);
        }
        is_constrained |= certificate.extensions.has_name_constraints;
        has_unconstrained_names |= certificate.extensions.has_unconstrained_names;
    }
    let is_short = |root: &Certificate<'_>| {
        let length = root.extensions.basic_constraints.and_then(|constraints| constraints.path_length);
        length.is_none_or(|length| count <= length)
    };
    let mut same = issuers.iter().filter(|(root, _)| root.anchor == *path.anchor());
    let (_, root) = same.find(|(_, root)| is_short(root)).ok_or(Refusal::PathLength)?;
    // Go compares these with constraints on names of any kind, and refuses some.
    if has_unconstrained_names && (is_constrained || root.extensions.has_name_constraints) {
        return Err(Refusal::Names);
    }
    Ok(())
}
