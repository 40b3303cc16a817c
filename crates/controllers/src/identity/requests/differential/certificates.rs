//! The names and the validity of certificates, which Coxswain's port takes from client certificates.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coxswain_machinery::x509::Certificate;
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::Value;

use super::super::fixtures::{element, subject_part};
use super::Oracle;
use super::mutations::{CONTENTS, Random};

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
            certificate(&key, &plain, &[plain.clone(), subject_part(3, tag, content)].concat(), TIMES[2])
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
    let mut accepted = 0;
    for (der, theirs) in ders.iter().zip(Oracle::start().read(&texts)) {
        match compare(der, &theirs) {
            Ok(both) => accepted += usize::from(both),
            Err(difference) => panic!("{difference}\n{theirs}\n{}", super::hex(der)),
        }
    }
    assert!(accepted > 60, "too few are accepted by both: {accepted} of {}", ders.len());
}
