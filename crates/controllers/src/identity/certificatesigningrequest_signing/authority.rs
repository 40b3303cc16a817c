//! The authority of a signer: a certificate and its key, and what it signs.
//!
//! The key is never shown, not even by `Debug`, and no error quotes what is in a file. It reads no file: its callers pass the
//! contents of the files.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use p521::ecdsa::signature::Keypair as SignatureKeypair;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use x509_cert::Certificate;
use x509_cert::builder::Builder as _;
use x509_cert::der::asn1::{Any, BitString};
use x509_cert::der::{Decode as _, Document, Encode as _};
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::name::Name;
use x509_cert::spki::{
    self, AlgorithmIdentifierOwned, DynSignatureAlgorithmIdentifier, EncodePublicKey, ObjectIdentifier,
    SubjectPublicKeyInfoOwned,
};

use super::certificate::{self, Content};
use super::usages::{self, Usages};
use super::validity::Order;
use crate::identity::requests::{AlternativeName, CertificateRequest};
use coxswain_machinery::api::certificates::CertificateSigningRequest;
use coxswain_machinery::executor::FinishError;
use coxswain_machinery::private_key::{
    CERTIFICATE_KEYS, KeyAlgorithm, PrivateKey, PrivateKeyError, SignatureForm,
};
use coxswain_machinery::random;
use coxswain_machinery::serve::{COXSWAIN_NAME, SignedCertificate, SigningCa};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message as _, path};

/// How long a serving certificate of a replica is valid. A replica replaces it long before, and its key never leaves the process.
const SERVING: Duration = Duration::from_hours(24);

/// A certificate with its key, which signs.
pub struct Authority {
    /// The certificate in DER.
    certificate: Arc<[u8]>,
    name: Name,
    /// Whether the certificate is issued by its own subject, so that clients need no other one above it.
    is_root: bool,
    key_id: Option<Vec<u8>>,
    /// When it ends, in seconds since 1970.
    end: i64,
    public_key: SubjectPublicKeyInfoOwned,
    key: PrivateKey,
}

/// Files that make no authority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// There is no certificate in the one.
    #[error("the certificate file has no valid PEM certificate")]
    NoCertificate,
    /// There are several certificates in the one; the first is the key's.
    #[error("expected 1 certificate, found {0}")]
    NotOne(usize),
    /// There is no private key in the other.
    #[error("the key file has no PEM private key (PKCS#1, PKCS#8 or SEC1)")]
    NoKey,
    /// It is of no kind that signs.
    #[error("unsupported private key; supported: {CERTIFICATE_KEYS}")]
    Unsupported,
    /// They don't belong together.
    #[error("the private key does not match the certificate")]
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
        let key = PrivateKey::from_pem(key).map_err(|error| match error {
            PrivateKeyError::Absent => AuthorityError::NoKey,
            PrivateKeyError::Unsupported => AuthorityError::Unsupported,
        })?;
        if public_key.subject_public_key.raw_bytes() != key.public_key() {
            return Err(AuthorityError::Mismatch);
        }
        let key_id = parsed.get_extension::<SubjectKeyIdentifier>().ok().flatten();
        let end = parsed.validity().not_after.to_unix_duration().as_secs();
        let authority = Self {
            certificate: first.as_ref().into(),
            name: parsed.subject().clone(),
            is_root: parsed.subject() == parsed.issuer(),
            key_id: key_id.map(|(_, id)| id.0.as_bytes().to_vec()).filter(|id| !id.is_empty()),
            end: i64::try_from(end).unwrap_or(i64::MAX),
            public_key,
            key,
        };
        if all.len() == 1 { Ok(authority) } else { Err(AuthorityError::NotOne(all.len())) }
    }

    /// Returns when it expires, in seconds since 1970.
    pub const fn not_after(&self) -> i64 {
        self.end
    }

    /// The request (protobuf, without envelope) with the certificate that the order is for.
    pub fn finish(&self, object: &[u8], details: &Value) -> Result<Vec<u8>, FinishError> {
        let unfit = |what: &dyn fmt::Display| FinishError::Unfit(what.to_string());
        let request = CertificateSigningRequest::decode(&bytes::Bytes::copy_from_slice(object))
            .map_err(|error| unfit(&error))?;
        let order = Order::of_json(details)
            .ok_or_else(|| unfit(&"sign certificate: the signing parameters cannot be decoded"))?;
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
        let content = Content {
            subject: certificate::subject(&asked).map_err(|error| failed(&error))?,
            public_key: asked.public_key(),
            names: asked.names(),
            usages: &usages,
            validity,
            // Nobody can tell it before, and a simulation can draw it again.
            serial: random::uuid().into_bytes(),
            issuer: &self.name,
            issuer_key: self.key_id.as_deref(),
        };
        self.sign(&content).map_err(|error| failed(&error))
    }

    /// The CA, for clients and for whoever must know whether another one has taken its place.
    pub fn ca(&self) -> SigningCa {
        SigningCa { certificate: Arc::clone(&self.certificate), not_after: self.end }
    }

    /// Issues a certificate by which a replica serves as [`COXSWAIN_NAME`] with this public key (SubjectPublicKeyInfo in DER). It has
    /// no other name, authenticates no client, and is valid for 24 hours or as long as the CA.
    ///
    /// # Errors
    /// The CA has expired, or the key cannot be read.
    pub fn issue_serving(&self, public_key: &[u8], now: Timestamp) -> Result<SignedCertificate, String> {
        let validity =
            Order::new(now, SERVING, None).validity(self.end).map_err(|error| error.to_string())?;
        let content = Content {
            subject: certificate::common_name(COXSWAIN_NAME).map_err(|error| error.to_string())?,
            public_key,
            names: &[AlternativeName::Dns(COXSWAIN_NAME.to_owned())],
            usages: &Usages::of_a_server(),
            validity,
            serial: random::uuid().into_bytes(),
            issuer: &self.name,
            issuer_key: self.key_id.as_deref(),
        };
        let mut chain = self.sign(&content)?;
        if !self.is_root {
            chain.push_str(&pem(&self.certificate));
        }
        Ok(SignedCertificate { chain, ca: self.ca(), not_after: validity.until })
    }

    /// A certificate with this content, in PEM.
    fn sign(&self, content: &Content<'_>) -> Result<String, String> {
        let failed = |error: &dyn fmt::Display| error.to_string();
        let mut builder = certificate::builder(content).map_err(|error| failed(&error))?;
        let signed = builder.finalize(self).map_err(|error| failed(&error))?;
        let signature = self.key.sign(&signed, SignatureForm::Der).map_err(|error| failed(&error))?;
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

/// The identifier of a signature by a key of this algorithm.
fn identifier(algorithm: KeyAlgorithm) -> AlgorithmIdentifierOwned {
    let (oid, parameters) = match algorithm {
        KeyAlgorithm::Rsa => ("1.2.840.113549.1.1.11", Some(Any::null())),
        KeyAlgorithm::P256 => ("1.2.840.10045.4.3.2", None),
        KeyAlgorithm::P384 => ("1.2.840.10045.4.3.3", None),
        KeyAlgorithm::P521 => ("1.2.840.10045.4.3.4", None),
        KeyAlgorithm::Ed25519 => ("1.3.101.112", None),
    };
    AlgorithmIdentifierOwned { oid: ObjectIdentifier::new_unwrap(oid), parameters }
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
        Ok(identifier(self.key.algorithm()))
    }
}
