//! Coxswain's reading of certificate requests next to that of Go's standard library, which `tests/oracle` answers.
//!
//! Whatever Coxswain accepts, Go must accept and read alike: the PEM block, each value, the public key as a certificate contains it,
//! and that the signature is good. Coxswain may refuse more. Requests are mutated by `mutations` from fixed seeds, 20,000 of them,
//! and 1,000,000 with COXSWAIN_FULL. `recorded` compares without Go.

mod certificates;
mod mutations;
mod recorded;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fixtures::{SIGNATURES, named, to_der, to_pem};
use super::tests::ordinary;
use super::{AlternativeName, Attribute, CertificateRequest, LABEL, RequestError};
use crate::identity::pem;
use coxswain_machinery::oracle::{BATCH, Oracle, batches};
use mutations::{Mutator, variants};

/// Batches of `make unit`, and with COXSWAIN_FULL.
const BATCHES: (usize, usize) = (10, 500);

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A request as the oracle shows it, apart from its keys and whether it is verified.
fn shown(request: &CertificateRequest) -> Value {
    let all = |attribute| request.values(attribute).collect::<Vec<_>>();
    let last = |attribute| request.values(attribute).last().unwrap_or_default();
    let (mut dns, mut email, mut ip, mut uri) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for name in request.names() {
        match name {
            AlternativeName::Dns(name) => dns.push(name.clone()),
            AlternativeName::Email(name) => email.push(name.clone()),
            AlternativeName::Ip(bytes) => ip.push(hex(bytes)),
            AlternativeName::Uri(name) => uri.push(name.clone()),
        }
    }
    json!({
        "country": all(Attribute::Country),
        "province": all(Attribute::Province),
        "locality": all(Attribute::Locality),
        "streetAddress": all(Attribute::Street),
        "postalCode": all(Attribute::PostalCode),
        "organization": all(Attribute::Organization),
        "organizationalUnit": all(Attribute::Unit),
        "commonName": last(Attribute::CommonName),
        "serialNumber": last(Attribute::SerialNumber),
        "dns": dns,
        "email": email,
        "ip": ip,
        "uri": uri,
    })
}

/// The outcome of comparing two readings of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Both read the same, and both find the signature good.
    Verified,
    /// Both read the same, and Coxswain does not find the signature good.
    Read,
    /// Both read the same but a public key that is a point beside its curve: Go sees that when it reads, Coxswain when it verifies.
    BesideCurve,
    /// Coxswain refuses what Go reads.
    RefusedHere,
    /// Both refuse it.
    Refused,
}

/// Go's words for a point that is not on its curve, when it reads a request and when it makes a certificate.
const BESIDE_CURVE: [&str; 7] = [
    "failed to unmarshal elliptic curve point",
    "point not on curve",
    "invalid P224Element encoding",
    "invalid P256 element encoding",
    "invalid P384Element encoding",
    "invalid P256 point encoding",
    "invalid P521Element encoding",
];

fn is_beside_curve(theirs: &Value) -> bool {
    theirs["error"].as_str().is_some_and(|error| BESIDE_CURVE.iter().any(|words| error.ends_with(words)))
}

/// Compares two readings of a text. Fails if Coxswain accepts a part that Go reads differently.
fn compare(text: &[u8], theirs: &Value) -> Result<Outcome, String> {
    let block = pem::first_block(text, LABEL);
    let is_other_block = block.as_ref().is_ok_and(|der| {
        theirs["block"]["label"] != LABEL || theirs["block"]["der"].as_str() != Some(&hex(der))
    });
    if is_other_block {
        return Err("another PEM block".to_owned());
    }
    let ours = CertificateRequest::from_pem(text);
    let theirs = match (&ours, &theirs["request"]) {
        (Err(_), Value::Null) => return Ok(Outcome::Refused),
        (Err(_), _) => return Ok(Outcome::RefusedHere),
        (Ok(ours), Value::Null) if is_beside_curve(theirs) && ours.verify().is_err() => {
            return Ok(Outcome::BesideCurve);
        }
        (Ok(_), Value::Null) => return Err(format!("Go refuses it: {}", theirs["error"])),
        (Ok(_), theirs) => theirs,
    };
    let ours = ours.map_err(|error: RequestError| error.to_string())?;
    let seen = shown(&ours);
    for (name, value) in seen.as_object().into_iter().flatten() {
        if theirs[name] != *value {
            return Err(format!("{name}: {value} here, {} there", theirs[name]));
        }
    }
    let key = Value::from(hex(ours.public_key()));
    if theirs["key"] != key || theirs["issuedKey"] != key {
        return Err(format!("public key: {key} here, {} and {} there", theirs["key"], theirs["issuedKey"]));
    }
    match (ours.verify(), &theirs["verified"]) {
        (Ok(()), Value::Bool(true)) => Ok(Outcome::Verified),
        (Ok(()), _) => Err("Go finds its signature bad".to_owned()),
        (Err(_), _) => Ok(Outcome::Read),
    }
}

#[test]
fn ordinary_requests_are_read_alike() {
    let texts: Vec<Vec<u8>> = ordinary().into_iter().map(|(_, text)| text.as_bytes().to_vec()).collect();
    let answers = Oracle::start().read(&texts);
    for ((name, text), answer) in ordinary().into_iter().zip(answers) {
        assert_eq!(compare(text.as_bytes(), &answer), Ok(Outcome::Verified), "{name}");
    }
}

/// Every curve with every digest, RSA with every digest and padding, and what makes each of them bad.
#[test]
fn signatures_of_every_algorithm_are_verified_alike() {
    let (mut oracle, mut outcomes) = (Oracle::start(), BTreeMap::<Outcome, usize>::new());
    for (name, text) in named(SIGNATURES).into_iter().chain(ordinary()) {
        let der = to_der(text);
        let mut texts = vec![text.as_bytes().to_vec()];
        texts.extend(variants(&der).iter().map(|der| to_pem(der).into_bytes()));
        let answers = oracle.read(&texts);
        assert_eq!(compare(&texts[0], &answers[0]), Ok(Outcome::Verified), "{name}");
        for (text, answer) in texts.iter().zip(&answers).skip(1) {
            match compare(text, answer) {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(difference) => {
                    panic!("{name}: {difference}\n{answer}\n{}", String::from_utf8_lossy(text))
                }
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes[&Outcome::Read] > 1_000, "{outcomes:?}");
}

#[test]
fn mutated_requests_are_never_read_differently() {
    let batches = batches(BATCHES);
    let (mut oracle, mut outcomes) = (Oracle::start(), BTreeMap::<Outcome, usize>::new());
    let mut mutator = Mutator::new();
    let mut texts = mutator.texts(0, BATCH);
    for seed in 1..=batches as u64 {
        oracle.ask(&texts);
        // Made while the oracle reads the others.
        let next = mutator.texts(seed, BATCH);
        for (text, answer) in texts.iter().zip(oracle.answers(BATCH)) {
            match compare(text, &answer) {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(difference) => {
                    panic!("{difference}\n{answer}\n{}\n{}", hex(text), String::from_utf8_lossy(text))
                }
            }
        }
        texts = next;
    }
    println!("{} requests: {outcomes:?}", batches * BATCH);
    // Mutants that both refuse show nothing.
    let accepted = outcomes.get(&Outcome::Verified).copied().unwrap_or_default();
    assert!(accepted > batches * BATCH / 5, "too few are accepted by both: {outcomes:?}");
}
