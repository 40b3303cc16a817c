//! The names and the validity of certificates, which Coxswain's port takes from client certificates, the verdicts on chains, and private keys.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coxswain_machinery::oracle::{BATCH, Oracle, Random};
use coxswain_machinery::tls::cases::{Case, NOW, cases, mutants};
use coxswain_machinery::tls::key_cases::{CHAINS, KEY_CASES};
use coxswain_machinery::tls::{Purpose, Roots};
use coxswain_machinery::x509::Certificate;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::Value;

use super::super::fixtures::{element, subject_part};
use super::mutations::CONTENTS;

/// Returns a certificate. Its signature is not valid, which reading does not tell.
fn certificate(key: &[u8], issuer: &[u8], subject: &[u8], times: &[u8]) -> Vec<u8> {
    let algorithm = [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2].to_vec();
    let parts = [
        element(0xa0, &[2, 1, 2]),
        vec![2, 1, 7],
        algorithm.clone(),
        element(0x30, issuer),
        element(0x30, times),
        element(0x30, subject),
        key.to_vec(),
    ];
    element(0x30, &[element(0x30, &parts.concat()), algorithm, vec![3, 3, 0, 1, 1]].concat())
}

/// Compares two readings. Returns whether both accept it. Fails if Coxswain accepts what Go refuses or reads differently.
fn compare(der: &[u8], theirs: &Value) -> Result<bool, String> {
    let Ok(ours) = Certificate::read(der) else { return Ok(false) };
    let theirs = &theirs["certificate"];
    let groups: Vec<&str> = ours.subject.organizations().collect();
    let is_equal = theirs["commonName"] == ours.subject.common_name()
        && theirs["organization"] == serde_json::json!(groups)
        && theirs["notBefore"] == ours.not_before
        && theirs["notAfter"] == ours.not_after;
    if is_equal { Ok(true) } else { Err(format!("here {ours:?}, there {theirs}")) }
}

#[test]
fn names_of_certificates_are_never_read_differently() {
    const TIMES: &[&[u8]] = &[
        b"\x17\x0d491231235959Z\x17\x0d500101000000Z",
        b"\x18\x0f20260101000000Z\x18\x0f20990101000000Z",
        b"\x17\x0d260101000000Z\x18\x0f99991231235959Z",
        b"\x17\x0b2601010000Z\x17\x0d270101000000Z",
        b"\x17\x11260101000000+0100\x17\x0d270101000000Z",
        b"\x17\x0d260229000000Z\x17\x0d270101000000Z",
        b"\x17\x0d260101000060Z\x17\x0d270101000000Z",
        b"\x18\x0f19300101000000Z\x17\x0d270101000000Z",
    ];
    let key = KeyPair::generate().unwrap().subject_public_key_info();
    let (mut ders, mut random) = (Vec::new(), Random::new(1));
    let plain = subject_part(3, 0x0c, b"jane");
    for tag in 0..=u8::MAX {
        for attribute in [3, 10, 45] {
            for _ in 0..4 {
                let part = subject_part(attribute, tag, random.one_of(CONTENTS));
                let subject = [plain.clone(), part.clone(), subject_part(10, 0x13, b"dev")].concat();
                ders.push(certificate(&key, &plain, &subject, TIMES[0]));
                ders.push(certificate(&key, &part, &plain, TIMES[1]));
            }
        }
    }
    // The types that have texts, with all contents.
    for tag in [0x0c, 0x12, 0x13, 0x14, 0x16, 0x1e] {
        ders.extend(CONTENTS.iter().map(|content| {
            certificate(&key, &plain, &[plain.clone(), subject_part(3, tag, content)].concat(), TIMES[0])
        }));
    }
    ders.extend(TIMES.iter().map(|times| certificate(&key, &plain, &plain, times)));
    let texts: Vec<Vec<u8>> = ders
        .iter()
        .map(|der| {
            let text = BASE64_STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n").into_bytes()
        })
        .collect();
    let (mut accepted, mut of_times) = (0, Vec::new());
    let times = ders.len() - TIMES.len();
    for (index, (der, theirs)) in ders.iter().zip(Oracle::start().read(&texts)).enumerate() {
        match compare(der, &theirs) {
            Ok(both) => {
                accepted += usize::from(both);
                if index >= times {
                    of_times.push(both);
                }
            }
            Err(difference) => panic!("{difference}\n{theirs}\n{}", super::hex(der)),
        }
    }
    assert_eq!(of_times, [true, true, true, false, false, false, false, true], "times");
    assert!(accepted > 100, "too few are accepted by both: {accepted} of {}", ders.len());
}

/// Returns a chain as the oracle reads it.
fn chain(case: &Case) -> Vec<u8> {
    let block = |label: &str, content: &[u8]| {
        let text = BASE64_STANDARD.encode(content);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    };
    let side = if case.purpose == Purpose::Client { "CLIENT" } else { "SERVER" };
    let mut text = block(side, &NOW.to_be_bytes()) + &block("CERTIFICATE", &case.leaf);
    text.extend(case.intermediates.iter().map(|der| block("INTERMEDIATE", der)));
    text.extend(case.roots.iter().map(|der| block("ROOT", der)));
    text.into_bytes()
}

/// Whether Coxswain accepts a chain.
fn is_accepted(case: &Case) -> bool {
    let own = |ders: &[Vec<u8>]| -> Vec<_> { ders.iter().cloned().map(CertificateDer::from).collect() };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
    let leaf = CertificateDer::from(&case.leaf[..]);
    Roots::from_readable(own(&case.roots))
        .is_ok_and(|roots| roots.verify(&leaf, &own(&case.intermediates), case.purpose, now).is_ok())
}

#[test]
fn go_trusts_the_chains_that_the_table_says() {
    let cases = cases();
    let texts: Vec<Vec<u8>> = cases.iter().map(chain).collect();
    for (case, theirs) in cases.iter().zip(Oracle::start().read(&texts)) {
        assert_eq!(theirs["trusted"] == true, case.is_accepted_by_go, "{}: {theirs}", case.name);
    }
}

#[test]
fn go_completes_handshakes_with_the_keys_that_the_table_says() {
    let texts: Vec<Vec<u8>> = KEY_CASES.iter().map(|case| case.pem.as_bytes().to_vec()).collect();
    for (case, theirs) in KEY_CASES.iter().zip(Oracle::start().read(&texts)) {
        let done = ["tls12", "tls13"].map(|version| theirs["handshakes"][version] == "");
        assert_eq!(done, case.go, "{}: {theirs}", case.name);
    }
}

#[test]
fn go_trusts_the_certificates_of_openssl_that_coxswain_trusts() {
    let time = BASE64_STANDARD.encode(NOW.to_be_bytes());
    let text = |(_, ca, leaf): &(&str, &str, &str)| {
        let root = ca.replace("CERTIFICATE", "ROOT");
        format!("-----BEGIN CLIENT-----\n{time}\n-----END CLIENT-----\n{leaf}{root}").into_bytes()
    };
    let texts: Vec<Vec<u8>> = CHAINS.iter().map(text).collect();
    for ((name, ..), theirs) in CHAINS.iter().zip(Oracle::start().read(&texts)) {
        assert_eq!(theirs["trusted"], true, "{name}: {theirs}");
    }
}

#[test]
fn mutated_chains_are_never_accepted_where_go_refuses() {
    let (mut oracle, mut accepted, mut all) = (Oracle::start(), 0, 0);
    let mutants: Vec<Case> = mutants().collect();
    for batch in mutants.chunks(BATCH) {
        let texts: Vec<Vec<u8>> = batch.iter().map(chain).collect();
        oracle.ask(&texts);
        let ours: Vec<bool> = batch.iter().map(is_accepted).collect();
        for ((ours, theirs), case) in ours.iter().zip(oracle.answers(batch.len())).zip(batch) {
            // Nobody can sign a handshake with a key that is no point of its curve. Go sees that when it reads.
            let is_refused = theirs["trusted"] != true && !super::is_beside_curve(&theirs);
            assert!(!ours || !is_refused, "{theirs}\n{}", String::from_utf8(chain(case)).unwrap());
            accepted += usize::from(*ours);
            all += 1;
        }
    }
    println!("{accepted} of {all} are accepted by both");
    assert!(accepted > all / 20, "too few are accepted by both: {accepted} of {all}");
}
