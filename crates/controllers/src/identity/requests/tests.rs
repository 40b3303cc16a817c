//! Readings of requests, refusals, and the verification of signatures.

use proptest::prelude::*;
use rcgen::KeyPair;

use super::fixtures::{
    SIGNATURES, element, extension_request, named, names_extension, request, request_of,
    request_with_organizations, signed, subject_part, to_der, to_pem,
};
use super::*;

pub(super) const TWO_GROUPS: &str = include_str!("../../../../../tests/data/requests/two-groups.csr");
const P521: &str = include_str!("../../../../../tests/data/requests/p521.csr");
const SMALL_RSA: &str = include_str!("../../../../../tests/data/requests/rsa1024.csr");
pub(super) const ODD: &str = include_str!("../../../../../tests/data/requests/odd.csr");
const TEXTS: &str = include_str!("../../../../../tests/data/requests/texts.csr");
/// Requests as openssl, Go, cfssl and kubelets make them, each after a line with its name.
pub(super) const ORDINARY: &str = include_str!("../../../../../tests/data/requests/ordinary.csr");

/// The ordinary requests with their names.
pub(super) fn ordinary() -> Vec<(&'static str, &'static str)> {
    named(ORDINARY)
}

fn read(text: impl AsRef<[u8]>) -> Result<CertificateRequest, RequestError> {
    CertificateRequest::from_pem(text.as_ref())
}

fn of(text: &str) -> CertificateRequest {
    read(text).unwrap()
}

/// The error of a request with this content of its subject and its attributes, if it is refused.
fn refusal(subject: &[u8], attributes: &[u8]) -> Option<RequestError> {
    let der = signed(&KeyPair::generate().unwrap(), subject, attributes);
    read(to_pem(&der)).err()
}

/// The attributes of a request for these names, which are elements of DER.
fn asking_for(names: &[u8]) -> Vec<u8> {
    extension_request(&names_extension(names), 0x30, 0x31)
}

#[test]
fn a_request_says_what_it_asks_for() {
    let asked = of(&request("CN=someone", &["DNS:a.b", "email:c@d", "IP:10.0.0.1", "URI:e://f"]));
    assert_eq!(asked.subject, [(Attribute::CommonName, "someone".to_owned())]);
    let names = [
        AlternativeName::Dns("a.b".to_owned()),
        AlternativeName::Email("c@d".to_owned()),
        AlternativeName::Ip(vec![10, 0, 0, 1]),
        AlternativeName::Uri("e://f".to_owned()),
    ];
    assert_eq!(asked.names, names);
    let asked = of(TWO_GROUPS);
    assert_eq!(asked.values(Attribute::Organization).collect::<Vec<_>>(), ["system:nodes", "more"]);
    assert_eq!(asked.common_name(), "system:node:n2", "the last one");
    assert_eq!(asked.names, []);
    assert_eq!(of(&request("", &[])).common_name(), "");
}

#[test]
fn ordinary_requests_are_read_and_verified() {
    assert!(ordinary().len() >= 20, "{}", ordinary().len());
    for (name, text) in ordinary() {
        assert_eq!(read(text).and_then(|request| request.verify()), Ok(()), "{name}");
    }
}

#[test]
fn texts_are_read_in_each_of_their_forms() {
    let asked = of(TEXTS);
    let values: Vec<&str> = asked.values(Attribute::Unit).collect();
    assert_eq!(values, ["printable", "utf-8 ü", "t61", "bmp ü"]);
    for (tag, value, expected) in [
        (0x1e, &b"\0a\0\0"[..], Some("a")),
        (0x1e, b"\0a\0\0\0\0", Some("a\0")),
        (0x1e, b"\0a\0", None),
        (0x1e, b"\xd8\x3d\xde\0", None),
        (0x14, b"\xe9", Some("é")),
        (0x13, b"a*&", Some("a*&")),
        (0x13, b"a@", None),
        (0x12, b"1 2", Some("1 2")),
        (0x12, b"a", None),
        (0x16, b"a@\0", Some("a@\0")),
        (0x16, b"\xe9", None),
        (0x0c, b"\xe9", None),
        (0x02, &[5], None),
        (0x04, b"a", None),
        (0x1a, b"a", None),
    ] {
        let der = signed(&KeyPair::generate().unwrap(), &subject_part(3, tag, value), &[]);
        let found = read(to_pem(&der)).ok();
        assert_eq!(found.as_ref().map(CertificateRequest::common_name), expected, "{tag:#x} {value:?}");
    }
}

#[test]
fn what_nobody_keeps_is_not_read() {
    let asked = of(ODD);
    assert_eq!(asked.names, [AlternativeName::Dns("odd".to_owned())]);
    assert_eq!(asked.subject, [(Attribute::CommonName, "odd".to_owned())]);
}

#[test]
fn what_is_no_request_is_an_error() {
    let good = request("CN=a", &[]);
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let der = to_der(&good);
    let cut = to_pem(&der[..der.len() / 2]);
    for (text, expected) in [
        ("", "PEM block type"),
        ("text", "PEM block type"),
        (&format!("{certificate}{good}"), "PEM block type"),
        (&cut, "malformed request"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(of(&format!("a comment\n{good}")), of(&good));
    assert_eq!(of(&format!("{good}{certificate}")), of(&good));
}

/// The API server, admission plugins and approvers see the second request. The first one was signed before.
#[test]
fn first_block_that_go_skips_is_refused() {
    let masters = request_with_organizations(&["system:masters"], "eve");
    let alice = request("CN=alice", &[]);
    for (from, to) in [
        ("-----END CERTIFICATE REQUEST-----", "-----END X-----"),
        ("-----END CERTIFICATE REQUEST-----", "-----END CERTIFICATE REQUEST----- anything"),
        ("-----BEGIN CERTIFICATE REQUEST-----", "-----BEGIN CERTIFICATE REQUEST----- anything"),
        ("-----BEGIN CERTIFICATE REQUEST-----", "-----BEGIN CERTIFICATE REQUEST-X-----"),
    ] {
        let text = format!("{}{alice}", masters.replace(from, to));
        assert!(
            matches!(read(&text), Err(RequestError::Pem(_) | RequestError::Label)),
            "{to}: {:?}",
            read(&text)
        );
    }
    assert_eq!(of(&format!("{alice}{masters}")).common_name(), "alice");
}

/// The API server and approvers see `CN=alice` and nothing else. The organization was signed before.
#[test]
fn subject_value_that_go_skips_is_refused() {
    let subject = |tag| [subject_part(3, 0x0c, b"alice"), subject_part(10, tag, b"system:masters")].concat();
    assert_eq!(refusal(&subject(0x0c), &[]), None);
    for tag in [0x2c, 0x8c, 0xac, 0x4c, 0xcc, 0x33, 0x93, 0x3e] {
        assert!(refusal(&subject(tag), &[]).is_some(), "{tag:#x}");
    }
}

/// The API server and approvers see `DNS:n1` and nothing else. The other name was signed before.
#[test]
fn alternative_name_that_go_skips_is_refused() {
    let names = |tag, name: &[u8]| asking_for(&[element(0x82, b"n1"), element(tag, name)].concat());
    assert_eq!(refusal(&[], &names(0x82, b"kubernetes.default.svc")), None);
    for (tag, name) in [
        (0xa2, &b"kubernetes.default.svc"[..]),
        (0xa7, &[10, 0, 0, 1]),
        (0xa1, b"a@b"),
        (0xa6, b"a://b"),
        (0x42, b"kubernetes.default.svc"),
        (0x02, b"kubernetes.default.svc"),
    ] {
        assert!(refusal(&[], &names(tag, name)).is_some(), "{tag:#x}");
    }
}

#[test]
fn attribute_that_go_skips_is_refused() {
    let extensions = names_extension(&element(0x82, b"n1"));
    assert_eq!(refusal(&[], &extension_request(&extensions, 0x30, 0x31)), None);
    for (tag, set) in [(0x30, 0xb1), (0x30, 0x11), (0x10, 0x31), (0xb0, 0x31)] {
        assert!(refusal(&[], &extension_request(&extensions, tag, set)).is_some(), "{tag:#x} {set:#x}");
    }
    let two = [element(0x30, &extensions), element(0x30, &[])].concat();
    for values in [two, [element(0x30, &extensions), vec![0]].concat(), Vec::new()] {
        let attribute = [&fixtures::EXTENSION_REQUEST[..], &element(0x31, &values)].concat();
        assert!(refusal(&[], &element(0x30, &attribute)).is_some(), "{values:x?}");
    }
}

#[test]
fn extension_that_is_requested_twice_is_refused() {
    let one = names_extension(&element(0x82, b"a"));
    let other = names_extension(&element(0x82, b"b"));
    let within = extension_request(&[one.clone(), other.clone()].concat(), 0x30, 0x31);
    let across = [extension_request(&one, 0x30, 0x31), extension_request(&other, 0x30, 0x31)].concat();
    for attributes in [within, across] {
        assert_eq!(refusal(&[], &attributes), Some(RequestError::Twice));
    }
    let second = [extension_request(&[], 0x30, 0x31), extension_request(&one, 0x30, 0x31)].concat();
    let der = signed(&KeyPair::generate().unwrap(), &[], &second);
    assert_eq!(of(&to_pem(&der)).names, [AlternativeName::Dns("a".to_owned())]);
}

#[test]
fn uris_are_in_the_form_that_approvers_see() {
    for (uri, expected) in [
        ("spiffe://td/ns/a/sa/b", Some("spiffe://td/ns/a/sa/b")),
        ("SPIFFE://TD/x", Some("spiffe://TD/x")),
        ("https://a.b:8080/x?y=z#f", Some("https://a.b:8080/x?y=z#f")),
        ("https://[::1]:80/", Some("https://[::1]:80/")),
        ("urn:uuid:1-2", Some("urn:uuid:1-2")),
        ("spiffe://td/a%2fb", Some("spiffe://td/a%2fb")),
        ("spiffe://td/a b", None),
        ("spiffe://td/%zz", None),
        ("spiffe://td#", None),
        ("spiffe://td./x", None),
        ("spiffe://user@td/x", None),
        ("spiffe://", None),
        ("//td/x", Some("//td/x")),
        ("/subscriptions/a?b=c#d", Some("/subscriptions/a?b=c#d")),
        ("a/b:c", Some("a/b:c")),
        ("1a://x", None),
        ("x", Some("x")),
        ("", None),
    ] {
        assert_eq!(uri::normalize(uri).as_deref(), expected, "{uri}");
    }
}

#[test]
fn signatures_by_other_keys_are_noticed() {
    let good = request("CN=a", &[]);
    let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    for (text, what) in [
        (good.as_str(), "P-256"),
        (&request_of(&ed25519, "CN=a", &[]), "Ed25519"),
        (&request_of(&p384, "CN=a", &[]), "P-384"),
        (P521, "P-521"),
        (SMALL_RSA, "RSA"),
    ] {
        assert_eq!(of(text).verify(), Ok(()), "{what}");
        let mut der = to_der(text);
        // The last byte is the signature's, the one in the middle is the key's or the subject's.
        for at in [der.len() - 1, der.len() / 4] {
            der[at] ^= 1;
            assert!(read(to_pem(&der)).and_then(|request| request.verify()).is_err(), "{what} at {at}");
            der[at] ^= 1;
        }
    }
}

/// Go does not verify the request, as `tests/oracle` shows.
#[test]
fn request_by_an_rsa_key_of_1023_bits_is_not_verified() {
    let small = include_str!("../../../../../tests/data/requests/rsa1023.csr");
    assert_eq!(of(small).verify(), Err(RequestError::Signature));
}

#[test]
fn requests_are_verified_with_every_pair_of_a_key_and_a_digest() {
    let all = named(SIGNATURES);
    assert_eq!(all.len(), 4 * 4 + 6 + 7);
    for (name, text) in all {
        assert_eq!(of(text).verify(), Ok(()), "{name}");
        let mut der = to_der(text);
        let last = der.len() - 1;
        der[last] ^= 1;
        assert_eq!(of(&to_pem(&der)).verify(), Err(RequestError::Signature), "{name}");
    }
}

#[test]
fn no_bit_of_a_request_can_be_changed() {
    // A signature that ends in a bit of either kind: whether bits count as unused depends on it.
    let mut ends = [false; 2];
    while ends.contains(&false) {
        let mut der = to_der(&request("CN=a", &["DNS:b"]));
        ends[usize::from(der.last().unwrap() & 1)] = true;
        for at in 0..der.len() {
            for bit in 0..8 {
                der[at] ^= 1 << bit;
                let verified = read(to_pem(&der)).and_then(|request| request.verify());
                assert!(verified.is_err(), "bit {bit} of byte {at}");
                der[at] ^= 1 << bit;
            }
        }
        assert_eq!(of(&to_pem(&der)).verify(), Ok(()));
    }
}

/// Extensions, each with an identifier of its own: 1.2.N with N of three bytes.
fn many_extensions(count: u32) -> Vec<u8> {
    let extension = |at: u32| {
        let arc = [0x81 + (at >> 14) as u8, 0x80 | (at >> 7 & 0x7f) as u8, (at & 0x7f) as u8];
        element(0x30, &[&[6, 4, 0x2a][..], &arc, &[4, 0]].concat())
    };
    extension_request(&(0..count).flat_map(extension).collect::<Vec<u8>>(), 0x30, 0x31)
}

fn many_units(count: u32) -> Vec<u8> {
    (0..count).flat_map(|at| subject_part(11, 0x14, &at.to_be_bytes()[1..])).collect()
}

fn many_names(count: u32) -> Vec<u8> {
    asking_for(&(0..count).flat_map(|_| element(0x82, b"name")).collect::<Vec<u8>>())
}

/// Nanoseconds that this thread has spent on a processor: other processes do not count.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().and_then(|time| time.parse().ok()).unwrap()
}

/// The API server stores requests of up to 1.5 MB, which anybody may create: the time to read one must not grow faster than its
/// size.
#[test]
fn request_of_twice_the_size_takes_about_twice_as_long() {
    const COUNT: u32 = 10_000;
    let key = KeyPair::generate().unwrap();
    let fastest = |text: &str| {
        let pass = |_| {
            let begin = processor_time();
            assert_eq!(read(text).map(|_| ()), Ok(()));
            processor_time() - begin
        };
        (0..5).map(pass).min().unwrap()
    };
    let parts = |count| {
        [
            (Vec::new(), many_extensions(count)),
            (many_units(count), Vec::new()),
            (Vec::new(), many_names(count)),
        ]
    };
    for (once, twice) in parts(COUNT).into_iter().zip(parts(2 * COUNT)) {
        let [one, two] =
            [once, twice].map(|(subject, attributes)| fastest(&to_pem(&signed(&key, &subject, &attributes))));
        assert!(two < one * 3, "{one} ns, and {two} ns for twice the size");
    }
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
            let mut der = to_der(good);
            let at = at % der.len();
            der[at] = byte;
            let _ = read(to_pem(&der)).and_then(|request| request.verify());
            der.truncate(cut % der.len());
            der.extend(&noise);
            let _ = read(to_pem(&der)).and_then(|request| request.verify());
        }
        let _ = read(&noise);
    }
}

#[test]
fn request_that_is_too_long_is_refused_before_it_is_parsed() {
    let text = request("CN=a", &[]);
    let padded = |length: usize| {
        let mut padded = "\n".repeat(length - text.len());
        padded.push_str(&text);
        CertificateRequest::from_pem(padded.as_bytes())
    };
    assert!(padded(LONGEST).is_ok());
    let error = padded(LONGEST + 1).unwrap_err();
    assert_eq!(error.to_string(), "the request has 1572865 bytes; the limit is 1572864");
}
