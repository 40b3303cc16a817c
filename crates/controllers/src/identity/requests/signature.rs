//! The key of a request and the signature by it: every algorithm that Go's `crypto/x509` verifies.

use bytes::Bytes;
use p521::ecdsa::signature::hazmat::PrehashVerifier as _;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, UnparsedPublicKey, VerificationAlgorithm,
};
use rsa::pkcs1::DecodeRsaPublicKey as _;
use rsa::sha2::{Sha256, Sha384, Sha512};
use x509_cert::der::asn1::UintRef;
use x509_cert::der::{Decode as _, Tag};
use x509_cert::spki::ObjectIdentifier;

use super::RequestError;
use coxswain_machinery::tls::is_rsa_key_of_go;
use coxswain_machinery::x509::Elements;

const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

const RSA: ObjectIdentifier = oid("1.2.840.113549.1.1.1");
const ELLIPTIC_CURVE: ObjectIdentifier = oid("1.2.840.10045.2.1");
const P224: ObjectIdentifier = oid("1.3.132.0.33");
const P256: ObjectIdentifier = oid("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = oid("1.3.132.0.34");
const P521: ObjectIdentifier = oid("1.3.132.0.35");
const EDWARDS_25519: ObjectIdentifier = oid("1.3.101.112");
const RSA_PSS: ObjectIdentifier = oid("1.2.840.113549.1.1.10");
const RSA_WITH: [(ObjectIdentifier, Digest); 5] = [
    (oid("1.2.840.113549.1.1.5"), Digest::Sha1),
    (oid("1.3.14.3.2.29"), Digest::Sha1),
    (oid("1.2.840.113549.1.1.11"), Digest::Sha256),
    (oid("1.2.840.113549.1.1.12"), Digest::Sha384),
    (oid("1.2.840.113549.1.1.13"), Digest::Sha512),
];
const ECDSA_WITH: [(ObjectIdentifier, Digest); 4] = [
    (oid("1.2.840.10045.4.1"), Digest::Sha1),
    (oid("1.2.840.10045.4.3.2"), Digest::Sha256),
    (oid("1.2.840.10045.4.3.3"), Digest::Sha384),
    (oid("1.2.840.10045.4.3.4"), Digest::Sha512),
];

/// Parameters that are NULL.
const NULL: &[u8] = &[5, 0];

/// A public key in its only encoding: certificates contain the bytes of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublicKey {
    kind: Kind,
    /// The `SubjectPublicKeyInfo` in DER.
    pub(super) der: Bytes,
    bits: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rsa,
    P224,
    P256,
    P384,
    P521,
    Ed25519,
}

impl PublicKey {
    /// Reads a `SubjectPublicKeyInfo`, a part of `all`. That a point is on its curve is left to the verification.
    pub(super) fn read(all: &Bytes, der: &[u8], content: &[u8]) -> Result<Self, RequestError> {
        let mut parts = Elements::new(content, "public key")?;
        let algorithm = Algorithm::read(all, parts.content(Tag::Sequence)?)?;
        let bits = parts.bytes_of_bits()?;
        let kind = algorithm.kind(bits).ok_or_else(|| parts.malformed())?;
        parts.finish()?;
        Ok(Self { kind, der: all.slice_ref(der), bits: all.slice_ref(bits) })
    }
}

/// An `AlgorithmIdentifier`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Algorithm {
    identifier: Bytes,
    /// In DER.
    parameters: Option<Bytes>,
}

impl Algorithm {
    /// Reads the content of an `AlgorithmIdentifier`, a part of `all`.
    pub(super) fn read(all: &Bytes, content: &[u8]) -> Result<Self, RequestError> {
        let mut parts = Elements::new(content, "algorithm")?;
        let identifier = all.slice_ref(parts.identifier()?);
        let parameters = parts.next()?.map(|element| all.slice_ref(element.der));
        parts.finish()?;
        Ok(Self { identifier, parameters })
    }

    fn is(&self, identifier: ObjectIdentifier) -> bool {
        self.identifier == identifier.as_bytes()
    }

    /// Returns the kind of a public key of this algorithm, if the key is one and is encoded as certificates encode it.
    fn kind(&self, bits: &[u8]) -> Option<Kind> {
        let parameters = self.parameters.as_deref();
        if self.is(RSA) {
            return (parameters == Some(NULL) && is_rsa_key(bits)).then_some(Kind::Rsa);
        }
        if self.is(EDWARDS_25519) {
            return (parameters.is_none() && bits.len() == 32).then_some(Kind::Ed25519);
        }
        if !self.is(ELLIPTIC_CURVE) {
            return None;
        }
        let curve = ObjectIdentifier::from_der(parameters?).ok()?;
        let curves =
            [(P224, Kind::P224, 28), (P256, Kind::P256, 32), (P384, Kind::P384, 48), (P521, Kind::P521, 66)];
        let (_, kind, length) = curves.into_iter().find(|(each, ..)| *each == curve)?;
        // An uncompressed point.
        (bits.len() == 1 + 2 * length && bits[0] == 4).then_some(kind)
    }
}

/// Whether bits are a modulus and an exponent, both positive, the exponent of no more than 31 bits.
fn is_rsa_key(bits: &[u8]) -> bool {
    let read = || -> Result<bool, RequestError> {
        let mut outer = Elements::new(bits, "public key")?;
        let mut parts = Elements::new(outer.content(Tag::Sequence)?, "public key")?;
        let (modulus, exponent) = (parts.element(Tag::Integer)?, parts.element(Tag::Integer)?);
        parts.finish()?;
        outer.finish()?;
        let is_positive = |der: &[u8]| {
            UintRef::from_der(der).is_ok_and(|number| number.as_bytes().iter().any(|byte| *byte != 0))
        };
        Ok(is_positive(modulus.der) && is_positive(exponent.der) && exponent.content.len() <= 4)
    };
    read().unwrap_or(false)
}

/// A digest that signatures are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digest {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Digest {
    fn of(self, message: &[u8]) -> ring::digest::Digest {
        let algorithm = match self {
            Self::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &SHA256,
            Self::Sha384 => &SHA384,
            Self::Sha512 => &SHA512,
        };
        ring::digest::digest(algorithm, message)
    }
}

/// A way to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Pkcs1(Digest),
    Pss(Digest),
    Ecdsa(Digest),
    Ed25519,
}

impl Scheme {
    /// Returns how signatures of an algorithm are verified; `None` if they are not. The parameters are those that Go accepts.
    fn of(kind: Kind, algorithm: &Algorithm) -> Option<Self> {
        let parameters = algorithm.parameters.as_deref();
        if algorithm.is(RSA_PSS) {
            return pss(parameters?).filter(|_| kind == Kind::Rsa).map(Self::Pss);
        }
        // Some programs write NULL where nothing belongs, and the reverse.
        let is_plain = parameters.is_none() || parameters == Some(NULL) && kind != Kind::Ed25519;
        if !is_plain {
            return None;
        }
        let digest = |of: &[(ObjectIdentifier, Digest)]| {
            of.iter().find(|(identifier, _)| algorithm.is(*identifier)).map(|(_, digest)| *digest)
        };
        match kind {
            Kind::Rsa => digest(&RSA_WITH).map(Self::Pkcs1),
            Kind::P224 | Kind::P256 | Kind::P384 | Kind::P521 => digest(&ECDSA_WITH).map(Self::Ecdsa),
            Kind::Ed25519 => algorithm.is(EDWARDS_25519).then_some(Self::Ed25519),
        }
    }

    /// Returns ring's verification of this scheme for a key, if ring has one. It is faster than the others.
    fn by_ring(self, key: &PublicKey) -> Option<&'static dyn VerificationAlgorithm> {
        use Digest::{Sha1, Sha256, Sha384, Sha512};
        Some(match (key.kind, self) {
            (Kind::Rsa, Self::Pkcs1(Sha1)) => &RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
            (Kind::Rsa, Self::Pkcs1(Sha256)) => &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
            (Kind::Rsa, Self::Pkcs1(Sha512)) => &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
            (Kind::P256, Self::Ecdsa(Sha256)) => &ECDSA_P256_SHA256_ASN1,
            (Kind::P256, Self::Ecdsa(Sha384)) => &ECDSA_P256_SHA384_ASN1,
            (Kind::P384, Self::Ecdsa(Sha256)) => &ECDSA_P384_SHA256_ASN1,
            (Kind::P384, Self::Ecdsa(Sha384)) => &ECDSA_P384_SHA384_ASN1,
            (Kind::Ed25519, Self::Ed25519) => &ED25519,
            _ => return None,
        })
    }
}

/// Whether the key has signed a message.
pub(super) fn is_signed(key: &PublicKey, algorithm: &Algorithm, message: &[u8], signature: &[u8]) -> bool {
    let Some(scheme) = Scheme::of(key.kind, algorithm) else { return false };
    if key.kind == Kind::Rsa && !is_rsa_key_of_go(&key.bits) {
        return false;
    }
    if let Some(by) = scheme.by_ring(key) {
        return UnparsedPublicKey::new(by, &key.bits).verify(message, signature).is_ok();
    }
    match scheme {
        Scheme::Ecdsa(digest) => is_signed_on_curve(key, digest.of(message).as_ref(), signature),
        Scheme::Pkcs1(digest) => rsa_key(&key.bits).is_some_and(|key| {
            let hash = digest.of(message);
            let hash = hash.as_ref();
            match digest {
                // Those that ring has are verified by ring.
                Digest::Sha384 => key.pkcs1v15_verify_prehash::<Sha384>(hash, signature).is_ok(),
                Digest::Sha1 | Digest::Sha256 | Digest::Sha512 => false,
            }
        }),
        Scheme::Pss(digest) => rsa_key(&key.bits).is_some_and(|key| {
            let hash = digest.of(message);
            let hash = hash.as_ref();
            match digest {
                Digest::Sha1 => false,
                Digest::Sha256 => key.pss_verify_prehash::<Sha256>(hash, signature).is_ok(),
                Digest::Sha384 => key.pss_verify_prehash::<Sha384>(hash, signature).is_ok(),
                Digest::Sha512 => key.pss_verify_prehash::<Sha512>(hash, signature).is_ok(),
            }
        }),
        Scheme::Ed25519 => false,
    }
}

/// Whether a signature, a strict DER sequence of two numbers, is one of a digest by a key on its curve. FIPS 186-5 takes as many bits
/// from the left of the digest as the order of the curve has.
fn is_signed_on_curve(key: &PublicKey, digest: &[u8], signature: &[u8]) -> bool {
    macro_rules! verify {
        ($curve:ident) => {{
            let key = $curve::ecdsa::VerifyingKey::from_sec1_bytes(&key.bits).ok();
            let signature = $curve::ecdsa::Signature::from_der(signature).ok();
            key.zip(signature).is_some_and(|(key, signature)| key.verify_prehash(digest, &signature).is_ok())
        }};
    }
    match key.kind {
        Kind::P224 => verify!(p224),
        Kind::P256 => verify!(p256),
        Kind::P384 => verify!(p384),
        Kind::P521 => verify!(p521),
        Kind::Rsa | Kind::Ed25519 => false,
    }
}

/// Reads the bits of an RSA key of 1024 to 8192 bits. Go verifies no signature by a smaller one, and ring none by a larger one.
fn rsa_key(bits: &[u8]) -> Option<rsa::PublicKey> {
    rsa::PublicKey::from_pkcs1_der(bits).ok()
}

/// Returns the digest of RSASSA-PSS with these parameters. Digest, mask and salt have to belong together.
fn pss(parameters: &[u8]) -> Option<Digest> {
    let digests = [(1, 32, Digest::Sha256), (2, 48, Digest::Sha384), (3, 64, Digest::Sha512)];
    let is_it = |digest, salt| {
        [(true, true), (true, false), (false, true), (false, false)]
            .into_iter()
            .any(|has_null| parameters == pss_parameters(digest, salt, has_null))
    };
    let found = digests.into_iter().find(|(digest, salt, _)| is_it(*digest, *salt));
    found.map(|(.., digest)| digest)
}

/// `RSASSA-PSS-params` (RFC 4055) with the digest 2.16.840.1.101.3.4.2.`digest`, its mask and this length of the salt. Parameters of
/// the digest, and of that of the mask, are NULL or absent.
fn pss_parameters(digest: u8, salt: u8, has_null: (bool, bool)) -> Vec<u8> {
    let identifier = [6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, digest];
    let algorithm =
        |has_null: bool| wrapped(0x30, &[&identifier[..], if has_null { NULL } else { &[] }].concat());
    let mask = [&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8][..], &algorithm(has_null.1)].concat();
    let parts = [
        wrapped(0xa0, &algorithm(has_null.0)),
        wrapped(0xa1, &wrapped(0x30, &mask)),
        vec![0xa2, 3, 2, 1, salt],
    ];
    wrapped(0x30, &parts.concat())
}

/// A short element of DER.
fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
    [&[tag, content.len() as u8], content].concat()
}
