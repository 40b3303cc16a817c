//! Requests for certificates (PKCS#10), as far as rooms judge by them and certificates are made of them.
//!
//! They come from anybody who may make a CertificateSigningRequest: whatever they hold, reading ends in a value or an error. What
//! nobody asks for here (a CA flag, policies, other kinds of names) is not read. Decides nothing.

use x509_cert::der::asn1::{AnyRef, BitStringRef};
use x509_cert::der::{Decode as _, Reader as _, SliceReader};
use x509_cert::spki::AlgorithmIdentifierRef;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::der_parser::asn1_rs::{Any, Tag};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

/// A request that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct RequestError(String);

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// The attributes of its subject of the sorts that [`Attribute`] has, in its order.
    pub(super) subject: Vec<(Attribute, String)>,
    /// The alternative names of the sorts that [`AlternativeName`] has, in its order.
    pub(super) names: Vec<AlternativeName>,
    /// Its public key, a `SubjectPublicKeyInfo` in DER.
    pub(super) public_key: Vec<u8>,
}

/// A sort of attribute of a subject that certificates keep, in the order in which they have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Attribute {
    Country,
    Province,
    Locality,
    Street,
    PostalCode,
    Organization,
    Unit,
    CommonName,
    SerialNumber,
}

impl Attribute {
    pub(super) const ALL: [Self; 9] = [
        Self::Country,
        Self::Province,
        Self::Locality,
        Self::Street,
        Self::PostalCode,
        Self::Organization,
        Self::Unit,
        Self::CommonName,
        Self::SerialNumber,
    ];

    /// Its identifier, written with dots.
    pub(super) fn identifier(self) -> &'static str {
        match self {
            Self::Country => "2.5.4.6",
            Self::Province => "2.5.4.8",
            Self::Locality => "2.5.4.7",
            Self::Street => "2.5.4.9",
            Self::PostalCode => "2.5.4.17",
            Self::Organization => "2.5.4.10",
            Self::Unit => "2.5.4.11",
            Self::CommonName => "2.5.4.3",
            Self::SerialNumber => "2.5.4.5",
        }
    }
}

/// An alternative name of a sort that certificates keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AlternativeName {
    Dns(String),
    Email(String),
    /// Four bytes or sixteen.
    Ip(Vec<u8>),
    Uri(String),
}

impl Request {
    /// All values of an attribute of the subject, in their order.
    pub(super) fn values(&self, of: Attribute) -> impl Iterator<Item = &str> {
        self.subject.iter().filter(move |(attribute, _)| *attribute == of).map(|(_, value)| value.as_str())
    }

    /// The last common name of the subject; empty if it has none.
    pub(super) fn common_name(&self) -> &str {
        self.values(Attribute::CommonName).last().unwrap_or_default()
    }
}

/// Reads the request in the first PEM block of a text.
pub(super) fn read(text: &[u8]) -> Result<Request, RequestError> {
    let block = first_block(text)?;
    let request = parse(&block.contents)?;
    let info = &request.certification_request_info;
    let mut subject = Vec::new();
    for held in info.subject.iter_attributes() {
        let identifier = held.attr_type().to_id_string();
        let attribute = Attribute::ALL.into_iter().find(|each| each.identifier() == identifier);
        if let Some(attribute) = attribute
            && let Some(value) = string(held.attr_value())?
        {
            subject.push((attribute, value));
        }
    }
    Ok(Request { subject, names: alternative_names(&request)?, public_key: info.subject_pki.raw.to_vec() })
}

/// Whether the request in the first PEM block of a text bears a signature by its own key.
pub(super) fn verify(text: &[u8]) -> Result<(), RequestError> {
    let block = first_block(text)?;
    let request = parse(&block.contents)?;
    let verified = request.verify_signature().is_ok() || verified_otherwise(&request);
    let problem = || RequestError("its signature can't be verified with its key".to_owned());
    if verified { Ok(()) } else { Err(problem()) }
}

/// Signatures that the parser's own verification does not know: by keys on P-521, and by RSA keys of less than 2048 bits.
fn verified_otherwise(request: &X509CertificationRequest<'_>) -> bool {
    use p521::ecdsa::signature::Verifier as _;
    use ring::signature::{
        RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY as SHA256,
        RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY as SHA512, UnparsedPublicKey,
    };
    let info = &request.certification_request_info;
    let (key, signed, signature) =
        (&*info.subject_pki.subject_public_key.data, info.raw, &*request.signature_value.data);
    match request.signature_algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.11" => UnparsedPublicKey::new(&SHA256, key).verify(signed, signature).is_ok(),
        "1.2.840.113549.1.1.13" => UnparsedPublicKey::new(&SHA512, key).verify(signed, signature).is_ok(),
        // ECDSA with SHA-512.
        "1.2.840.10045.4.3.4" => {
            let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(key);
            let signature = p521::ecdsa::Signature::from_der(signature);
            key.ok()
                .zip(signature.ok())
                .is_some_and(|(key, signature)| key.verify(signed, &signature).is_ok())
        }
        _ => false,
    }
}

fn first_block(text: &[u8]) -> Result<Pem, RequestError> {
    let block = Pem::iter_from_buffer(text).next().and_then(Result::ok);
    let block = block.filter(|block| block.label == "CERTIFICATE REQUEST");
    block.ok_or_else(|| RequestError("PEM block type must be CERTIFICATE REQUEST".to_owned()))
}

fn parse(der: &[u8]) -> Result<X509CertificationRequest<'_>, RequestError> {
    match X509CertificationRequest::from_der(der) {
        Ok(([], request)) if is_enclosed(der) => Ok(request),
        Ok(([], _)) => Err(malformed(&"what surrounds its signed part")),
        Ok(_) => Err(RequestError("malformed request: trailing data".to_owned())),
        Err(error) => Err(malformed(&error)),
    }
}

/// Whether what surrounds the signed part is DER: the sequence, the algorithm, the signature in whole bytes. The parser takes some
/// other tags for theirs and unused bits at the signature's end, and no signature covers them: a request that was changed there would
/// count as signed.
fn is_enclosed(der: &[u8]) -> bool {
    let Ok(mut reader) = SliceReader::new(der) else { return false };
    let enclosed = reader.sequence(|within| {
        AnyRef::decode(within)?;
        AlgorithmIdentifierRef::decode(within)?;
        BitStringRef::decode(within)
    });
    enclosed.is_ok_and(|signature| !signature.has_unused_bits())
}

fn malformed(what: &dyn std::fmt::Display) -> RequestError {
    RequestError(format!("malformed request: {what}"))
}

/// The text of a value; `None` if it is none.
fn string(value: &Any<'_>) -> Result<Option<String>, RequestError> {
    let wrong = || malformed(&"a text of its subject");
    let text = match value.tag() {
        Tag::Utf8String => String::from_utf8(value.data.to_vec()).map_err(|_| wrong())?,
        Tag::PrintableString | Tag::NumericString | Tag::Ia5String if value.data.is_ascii() => {
            String::from_utf8(value.data.to_vec()).map_err(|_| wrong())?
        }
        Tag::T61String => value.data.iter().map(|byte| char::from(*byte)).collect(),
        Tag::BmpString if value.data.len().is_multiple_of(2) => {
            let units: Vec<u16> =
                value.data.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).map_err(|_| wrong())?
        }
        Tag::PrintableString | Tag::NumericString | Tag::Ia5String | Tag::BmpString => return Err(wrong()),
        _ => return Ok(None),
    };
    Ok(Some(text))
}

fn alternative_names(request: &X509CertificationRequest<'_>) -> Result<Vec<AlternativeName>, RequestError> {
    let mut found = Vec::new();
    let attributes = request.certification_request_info.iter_attributes();
    let extensions = attributes.filter_map(|attribute| match attribute.parsed_attribute() {
        ParsedCriAttribute::ExtensionRequest(requested) => Some(&requested.extensions),
        _ => None,
    });
    let mut seen = Vec::new();
    for extension in extensions.flatten() {
        if seen.contains(&&extension.oid) {
            return Err(malformed(&"an extension is requested twice"));
        }
        seen.push(&extension.oid);
        if extension.oid.to_id_string() != ALTERNATIVE_NAMES {
            continue;
        }
        let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
            return Err(malformed(&"its alternative names"));
        };
        for name in &names.general_names {
            found.extend(alternative_name(name)?);
        }
    }
    Ok(found)
}

/// The identifier of the extension.
pub(super) const ALTERNATIVE_NAMES: &str = "2.5.29.17";

fn alternative_name(name: &GeneralName<'_>) -> Result<Option<AlternativeName>, RequestError> {
    let ascii = |text: &str| {
        let problem = || malformed(&"an alternative name that is not ASCII");
        if text.is_ascii() { Ok(text.to_owned()) } else { Err(problem()) }
    };
    Ok(Some(match name {
        GeneralName::DNSName(name) => AlternativeName::Dns(ascii(name)?),
        GeneralName::RFC822Name(name) => AlternativeName::Email(ascii(name)?),
        GeneralName::URI(name) => AlternativeName::Uri(ascii(name)?),
        GeneralName::IPAddress(bytes) if matches!(bytes.len(), 4 | 16) => AlternativeName::Ip(bytes.to_vec()),
        GeneralName::IPAddress(_) | GeneralName::Invalid(..) => {
            return Err(malformed(&"an alternative name"));
        }
        _ => return Ok(None),
    }))
}

/// Requests for tests of rooms.
#[cfg(test)]
pub(super) mod fixtures {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};

    /// A request of the key with a subject, written `O=system:nodes/CN=system:node:n1`, and alternative names, written
    /// `DNS:name`.
    pub(in crate::identity) fn request_of(key: &KeyPair, subject: &str, names: &[&str]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for part in subject.split('/').filter(|part| !part.is_empty()) {
            let (attribute, value) = part.split_once('=').unwrap();
            let attribute = match attribute {
                "C" => DnType::CountryName,
                "O" => DnType::OrganizationName,
                "OU" => DnType::OrganizationalUnitName,
                "CN" => DnType::CommonName,
                number => DnType::from_oid(&[2, 5, 4, number.parse().unwrap()]),
            };
            params.distinguished_name.push(attribute, DnValue::Utf8String(value.to_owned()));
        }
        for name in names {
            let (sort, value) = name.split_once(':').unwrap();
            params.subject_alt_names.push(match sort {
                "DNS" => SanType::DnsName(value.try_into().unwrap()),
                "email" => SanType::Rfc822Name(value.try_into().unwrap()),
                "IP" => SanType::IpAddress(value.parse().unwrap()),
                _ => SanType::URI(value.try_into().unwrap()),
            });
        }
        params.serialize_request(key).unwrap().pem().unwrap()
    }

    /// The same of a key on P-256.
    pub(in crate::identity) fn request(subject: &str, names: &[&str]) -> String {
        request_of(&KeyPair::generate().unwrap(), subject, names)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TWO_GROUPS: &str = include_str!("../../../../tests/data/requests/two-groups.csr");
    const P521: &str = include_str!("../../../../tests/data/requests/p521.csr");
    const SMALL_RSA: &str = include_str!("../../../../tests/data/requests/rsa1024.csr");
    const ODD: &str = include_str!("../../../../tests/data/requests/odd.csr");
    const TEXTS: &str = include_str!("../../../../tests/data/requests/texts.csr");

    fn of(text: &str) -> Request {
        read(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_request_says_what_it_asks_for() {
        let request =
            of(&fixtures::request("CN=someone", &["DNS:a.b", "email:c@d", "IP:10.0.0.1", "URI:e://f"]));
        assert_eq!(request.subject, [(Attribute::CommonName, "someone".to_owned())]);
        let names = [
            AlternativeName::Dns("a.b".to_owned()),
            AlternativeName::Email("c@d".to_owned()),
            AlternativeName::Ip(vec![10, 0, 0, 1]),
            AlternativeName::Uri("e://f".to_owned()),
        ];
        assert_eq!(request.names, names);
        let request = of(TWO_GROUPS);
        assert_eq!(request.values(Attribute::Organization).collect::<Vec<_>>(), ["system:nodes", "more"]);
        assert_eq!(request.common_name(), "system:node:n2", "the last one");
        assert_eq!(request.names, []);
        assert_eq!(of(&fixtures::request("", &[])).common_name(), "");
    }

    #[test]
    fn texts_are_read_in_each_of_their_forms() {
        let request = of(TEXTS);
        let values: Vec<&str> = request.values(Attribute::Unit).collect();
        assert_eq!(values, ["printable", "utf-8 ü", "t61", "bmp ü"]);
    }

    #[test]
    fn what_nobody_keeps_is_not_read() {
        let request = of(ODD);
        assert_eq!(request.names, [AlternativeName::Dns("odd".to_owned())]);
        assert_eq!(request.subject, [(Attribute::CommonName, "odd".to_owned())]);
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        let good = fixtures::request("CN=a", &[]);
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let der = Pem::iter_from_buffer(good.as_bytes()).next().unwrap().unwrap().contents;
        let cut = encoded(&der[..der.len() / 2]);
        for (text, expected) in [
            ("", "PEM block type"),
            ("text", "PEM block type"),
            (&format!("{certificate}{good}"), "PEM block type"),
            (&cut, "malformed request"),
        ] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert_eq!(of(&format!("a comment\n{good}")), of(&good));
        assert_eq!(of(&format!("{good}{certificate}")), of(&good));
    }

    #[test]
    fn signatures_by_other_keys_are_noticed() {
        let good = fixtures::request("CN=a", &[]);
        let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        for (text, what) in [
            (good.as_str(), "P-256"),
            (&fixtures::request_of(&ed25519, "CN=a", &[]), "Ed25519"),
            (&fixtures::request_of(&p384, "CN=a", &[]), "P-384"),
            (P521, "P-521"),
            (SMALL_RSA, "RSA"),
        ] {
            assert_eq!(verify(text.as_bytes()), Ok(()), "{what}");
            let mut der = Pem::iter_from_buffer(text.as_bytes()).next().unwrap().unwrap().contents;
            // The last byte is the signature's, the one in the middle is the key's or the subject's.
            for at in [der.len() - 1, der.len() / 4] {
                der[at] ^= 1;
                let text = encoded(&der);
                assert!(verify(text.as_bytes()).is_err(), "{what} at {at}");
                der[at] ^= 1;
            }
        }
    }

    #[test]
    fn no_bit_of_a_request_can_be_changed() {
        // A signature that ends in a bit of either kind: whether bits count as unused depends on it.
        let mut ends = [false; 2];
        while ends.contains(&false) {
            let text = fixtures::request("CN=a", &["DNS:b"]);
            let mut der = Pem::iter_from_buffer(text.as_bytes()).next().unwrap().unwrap().contents;
            ends[usize::from(der.last().unwrap() & 1)] = true;
            for at in 0..der.len() {
                for bit in 0..8 {
                    der[at] ^= 1 << bit;
                    assert!(verify(encoded(&der).as_bytes()).is_err(), "bit {bit} of byte {at}");
                    der[at] ^= 1 << bit;
                }
            }
            assert_eq!(verify(encoded(&der).as_bytes()), Ok(()));
        }
    }

    fn encoded(der: &[u8]) -> String {
        use base64::Engine as _;
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
    }

    proptest! {
        /// Reading ends, whatever is read.
        #[test]
        fn no_request_is_too_odd_to_be_refused(
            at in 0..10_000_usize,
            byte in any::<u8>(),
            cut in 0..10_000_usize,
            noise in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            for good in [TWO_GROUPS, ODD, TEXTS] {
                let mut der = Pem::iter_from_buffer(good.as_bytes()).next().unwrap().unwrap().contents;
                let at = at % der.len();
                der[at] = byte;
                let changed = encoded(&der);
                let _ = (read(changed.as_bytes()), verify(changed.as_bytes()));
                der.truncate(cut % der.len());
                der.extend(&noise);
                let changed = encoded(&der);
                let _ = (read(changed.as_bytes()), verify(changed.as_bytes()));
            }
            let _ = (read(&noise), verify(&noise));
        }
    }
}
