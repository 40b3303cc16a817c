//! The authority of a signer: a certificate and its key, and what it signs.
//!
//! Keys are RSA of 2048 to 4096 bits, on P-256, P-384 or P-521, or Ed25519. All but P-521 are ring's, as for tokens. The key is
//! never shown, not even by `Debug`, and no error quotes what is in a file. It reads no file: whoever has the files hands them in.

use std::fmt;

use p521::ecdsa::SigningKey as P521Key;
use p521::ecdsa::signature::{Keypair as SignatureKeypair, Signer as _};
use p521::pkcs8::{DecodePrivateKey as _, PrivateKeyInfoRef};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use x509_cert::Certificate;
use x509_cert::builder::Builder as _;
use x509_cert::der::asn1::{Any, AnyRef, BitString, OctetStringRef};
use x509_cert::der::{Decode as _, Document, Encode as _};
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::name::Name;
use x509_cert::spki::{
    self, AlgorithmIdentifierOwned, AlgorithmIdentifierRef, DynSignatureAlgorithmIdentifier, EncodePublicKey,
    ObjectIdentifier, SubjectPublicKeyInfoOwned,
};

use super::certificate::{self, Content};
use super::usages;
use super::validity::Order;
use crate::identity::requests::CertificateRequest;
use coxswain_machinery::api::certificates::CertificateSigningRequest;
use coxswain_machinery::executor::FinishError;
use coxswain_machinery::random;
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message as _, path};

/// A certificate with its key, which signs.
pub struct Authority {
    name: Name,
    key_id: Option<Vec<u8>>,
    /// When it ends, in seconds since 1970.
    end: i64,
    public_key: SubjectPublicKeyInfoOwned,
    key: Key,
    random: SystemRandom,
}

enum Key {
    Rsa(Box<RsaKeyPair>),
    P256(Box<EcdsaKeyPair>),
    P384(Box<EcdsaKeyPair>),
    P521(Box<P521Key>),
    Ed25519(Box<Ed25519KeyPair>),
}

/// Files that make no authority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// There is no certificate in the one.
    #[error("the certificate's file holds no certificate that can be read")]
    NoCertificate,
    /// There are several certificates in the one; the first is the key's.
    #[error("expected 1 certificate, found {0}")]
    NotOne(usize),
    /// There is no private key in the other.
    #[error("the key's file holds no private key in PEM (PKCS#1, PKCS#8 or SEC1)")]
    NoKey,
    /// It is of no kind that signs.
    #[error("the key is neither RSA (2048 to 4096 bits), nor ECDSA on P-256, P-384 or P-521, nor Ed25519")]
    Unsupported,
    /// They don't belong together.
    #[error("the key is not that of the certificate")]
    Mismatch,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("name", &self.name.to_string()).finish_non_exhaustive()
    }
}

impl Authority {
    /// Of the contents of two PEM files.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, AuthorityError> {
        let all: Result<Vec<CertificateDer<'_>>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let all = all.map_err(|_| AuthorityError::NoCertificate)?;
        let first = all.first().ok_or(AuthorityError::NoCertificate)?;
        let parsed = Certificate::from_der(first).map_err(|_| AuthorityError::NoCertificate)?;
        let parsed = parsed.tbs_certificate();
        let public_key = parsed.subject_public_key_info().clone();
        let key = Key::of_pem(key)?;
        if public_key.subject_public_key.raw_bytes() != key.public_key() {
            return Err(AuthorityError::Mismatch);
        }
        let key_id = parsed.get_extension::<SubjectKeyIdentifier>().ok().flatten();
        let end = parsed.validity().not_after.to_unix_duration().as_secs();
        let authority = Self {
            name: parsed.subject().clone(),
            key_id: key_id.map(|(_, id)| id.0.as_bytes().to_vec()).filter(|id| !id.is_empty()),
            end: i64::try_from(end).unwrap_or(i64::MAX),
            public_key,
            key,
            random: SystemRandom::new(),
        };
        if all.len() == 1 { Ok(authority) } else { Err(AuthorityError::NotOne(all.len())) }
    }

    /// The request (protobuf, without envelope) with the certificate that the order is for.
    pub fn finish(&self, object: &[u8], details: &Value) -> Result<Vec<u8>, FinishError> {
        let unfit = |what: &dyn fmt::Display| FinishError::Unfit(what.to_string());
        let request = CertificateSigningRequest::decode(&bytes::Bytes::copy_from_slice(object))
            .map_err(|error| unfit(&error))?;
        let order = Order::of_json(details).ok_or_else(|| unfit(&"no order"))?;
        let pem = self.issue(&request, order)?;
        let certificate =
            Edit::SetBytes(path!(CertificateSigningRequest, status.certificate), pem.into_bytes());
        edit(object, &[certificate]).map_err(|error| unfit(&error))
    }

    fn issue(&self, request: &CertificateSigningRequest, order: Order) -> Result<String, FinishError> {
        let failed = |what: &dyn fmt::Display| FinishError::Failed(format!("error auto signing csr: {what}"));
        let asked = CertificateRequest::from_pem(&request.spec.request).map_err(|error| failed(&error))?;
        let usages = usages::read(&request.spec.usages).map_err(|error| failed(&error))?;
        let validity = order.validity(self.end).map_err(|error| failed(&error))?;
        // Nobody can tell it before, and a simulation can draw it again.
        let serial = random::uuid().into_bytes();
        let content = Content {
            request: &asked,
            usages: &usages,
            validity,
            serial,
            issuer: &self.name,
            issuer_key: self.key_id.as_deref(),
        };
        let mut builder = certificate::builder(&content).map_err(|error| failed(&error))?;
        let signed = builder.finalize(self).map_err(|error| failed(&error))?;
        let signature =
            self.key.sign(&signed, &self.random).ok_or_else(|| failed(&"the key refused to sign"))?;
        let signature = BitString::from_bytes(&signature).map_err(|error| failed(&error))?;
        let certificate = builder.assemble(signature, self).map_err(|error| failed(&error))?;
        let der = certificate.to_der().map_err(|error| failed(&error))?;
        Ok(pem(&der))
    }
}

/// A certificate in PEM.
fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in body.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const CURVES: [ObjectIdentifier; 3] = [
    ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7"),
    ObjectIdentifier::new_unwrap("1.3.132.0.34"),
    ObjectIdentifier::new_unwrap("1.3.132.0.35"),
];

impl Key {
    fn of_pem(pem: &[u8]) -> Result<Self, AuthorityError> {
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|_| AuthorityError::NoKey)?;
        let key = match &der {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok().map(Self::rsa),
            PrivateKeyDer::Pkcs8(der) => Self::of_pkcs8(der.secret_pkcs8_der()),
            PrivateKeyDer::Sec1(der) => {
                let der = der.secret_sec1_der();
                CURVES.iter().find_map(|curve| Self::of_pkcs8(&pkcs8_of_sec1(curve, der)?))
            }
            _ => None,
        };
        key.ok_or(AuthorityError::Unsupported)
    }

    fn of_pkcs8(der: &[u8]) -> Option<Self> {
        let random = SystemRandom::new();
        let elliptic = |algorithm: &'static EcdsaSigningAlgorithm| {
            EcdsaKeyPair::from_pkcs8(algorithm, der, &random).ok().map(Box::new)
        };
        let rsa = RsaKeyPair::from_pkcs8(der).ok().map(Self::rsa);
        rsa.or_else(|| elliptic(&ECDSA_P256_SHA256_ASN1_SIGNING).map(Self::P256))
            .or_else(|| elliptic(&ECDSA_P384_SHA384_ASN1_SIGNING).map(Self::P384))
            .or_else(|| P521Key::from_pkcs8_der(der).ok().map(|key| Self::P521(Box::new(key))))
            .or_else(|| {
                Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(|key| Self::Ed25519(Box::new(key)))
            })
    }

    fn rsa(pair: RsaKeyPair) -> Self {
        Self::Rsa(Box::new(pair))
    }

    /// The bits of the public key, as certificates have them.
    fn public_key(&self) -> Vec<u8> {
        match self {
            Self::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Self::P256(pair) | Self::P384(pair) => pair.public_key().as_ref().to_vec(),
            Self::P521(key) => key.verifying_key().to_sec1_point(false).as_bytes().to_vec(),
            Self::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    fn sign(&self, signed: &[u8], random: &SystemRandom) -> Option<Vec<u8>> {
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, random, signed, &mut signature).ok()?;
                Some(signature)
            }
            Self::P256(pair) | Self::P384(pair) => {
                pair.sign(random, signed).ok().map(|signature| signature.as_ref().to_vec())
            }
            Self::P521(key) => {
                let signature: p521::ecdsa::DerSignature = key.try_sign(signed).ok()?;
                Some(signature.as_bytes().to_vec())
            }
            Self::Ed25519(pair) => Some(pair.sign(signed).as_ref().to_vec()),
        }
    }

    /// By which algorithm it signs.
    fn algorithm(&self) -> AlgorithmIdentifierOwned {
        let (oid, parameters) = match self {
            Self::Rsa(_) => ("1.2.840.113549.1.1.11", Some(Any::null())),
            Self::P256(_) => ("1.2.840.10045.4.3.2", None),
            Self::P384(_) => ("1.2.840.10045.4.3.3", None),
            Self::P521(_) => ("1.2.840.10045.4.3.4", None),
            Self::Ed25519(_) => ("1.3.101.112", None),
        };
        AlgorithmIdentifierOwned { oid: ObjectIdentifier::new_unwrap(oid), parameters }
    }
}

/// A SEC1 key (`EC PRIVATE KEY`, as openssl writes it) in PKCS#8, on a curve that it may be on.
fn pkcs8_of_sec1(curve: &ObjectIdentifier, sec1: &[u8]) -> Option<Vec<u8>> {
    let algorithm = AlgorithmIdentifierRef { oid: EC_PUBLIC_KEY, parameters: Some(AnyRef::from(curve)) };
    PrivateKeyInfoRef::new(algorithm, OctetStringRef::new(sec1).ok()?).to_der().ok()
}

/// The authority's public key, for the builder.
#[derive(Clone)]
pub struct PublicKey(SubjectPublicKeyInfoOwned);

impl EncodePublicKey for PublicKey {
    fn to_public_key_der(&self) -> spki::Result<Document> {
        Ok(Document::try_from(self.0.to_der()?)?)
    }
}

impl SignatureKeypair for Authority {
    type VerifyingKey = PublicKey;

    fn verifying_key(&self) -> PublicKey {
        PublicKey(self.public_key.clone())
    }
}

impl DynSignatureAlgorithmIdentifier for Authority {
    fn signature_algorithm_identifier(&self) -> spki::Result<AlgorithmIdentifierOwned> {
        Ok(self.key.algorithm())
    }
}
