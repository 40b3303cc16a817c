//! Go's reading of requests with each tag in each place, and of PEM texts with each odd line in each place, in
//! `tests/data/requests/recorded.tsv`: a table, a reading and the cases that are read so. COXSWAIN_REGENERATE=1 writes it again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::KeyPair;
use serde_json::{Map, Value};

use super::mutations::{FRAMES, frame};
use super::shown;
use crate::identity::requests::CertificateRequest;
use crate::identity::requests::fixtures::{
    element, extension_request, names_extension, signed, subject_part, to_der, to_pem,
};
use crate::identity::requests::tests::{ODD, TWO_GROUPS};
use coxswain_machinery::oracle::Oracle;

const RECORDED: &str = include_str!("../../../../../../tests/data/requests/recorded.tsv");
const FILE: &str = "../../tests/data/requests/recorded.tsv";
/// The reading of a text that is refused.
const REFUSED: &str = "refused";

const SUBJECT: &str = "tag of a value of the subject";
const NAME: &str = "tag of an alternative name";
const ATTRIBUTE: &str = "tag of an attribute";
const SET: &str = "tag of the set of an attribute";

/// The table and the name of a case.
type Case = (&'static str, String);

/// All cases, with their texts.
fn cases() -> Vec<(Case, Vec<u8>)> {
    let key = KeyPair::generate().unwrap();
    let mut cases = Vec::new();
    let names = |tag, content| names_extension(&[element(0x82, b"n1"), element(tag, content)].concat());
    for tag in 0..=u8::MAX {
        let subject = [subject_part(3, 0x0c, b"alice"), subject_part(10, tag, b"system:masters")].concat();
        let extensions = names(0x82, b"n2");
        for (table, subject, attributes) in [
            (SUBJECT, &subject[..], Vec::new()),
            // A URI, and an address of four bytes, too.
            (NAME, &[], extension_request(&names(tag, b"a:b1"), 0x30, 0x31)),
            (ATTRIBUTE, &[], extension_request(&extensions, tag, 0x31)),
            (SET, &[], extension_request(&extensions, 0x30, tag)),
        ] {
            let der = signed(&key, subject, &attributes);
            cases.push(((table, format!("{tag:02x}")), to_pem(&der).into_bytes()));
        }
    }
    cases.extend(texts());
    cases
}

/// Two requests in one text, with an odd line. They are fixed, because readings depend on where base64 ends.
fn texts() -> Vec<(Case, Vec<u8>)> {
    let block = |text: &str| {
        let body = BASE64_STANDARD.encode(to_der(text));
        let lines = body.as_bytes().chunks(64).map(<[u8]>::to_vec);
        let (first, last) = (frame("-----BEGIN L-----"), frame("-----END L-----"));
        std::iter::once(first).chain(lines).chain([last]).collect::<Vec<_>>()
    };
    let (one, two) = (block(TWO_GROUPS), block(ODD));
    let end = one.len();
    let mut cases = Vec::new();
    for line in FRAMES {
        for (table, range) in [
            ("line in place of BEGIN", 0..1),
            ("line in place of END", end - 1..end),
            ("line before BEGIN", 0..0),
            ("line behind BEGIN", 1..1),
            ("line within base64", 2..2),
            ("line before END", end - 1..end - 1),
            ("line behind END", end..end),
        ] {
            let mut lines = one.clone();
            lines.splice(range, [frame(line)]);
            lines.extend(two.clone());
            cases.push(((table, (*line).to_owned()), lines.join(&b"\n"[..])));
        }
    }
    cases
}

/// Go's reading of a request, or Coxswain's, without empty fields.
fn reading(request: &Value) -> String {
    let Value::Object(fields) = request else { return REFUSED.to_owned() };
    let is_empty = |value: &Value| value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty);
    let is_kept =
        |name: &str, value: &Value| !["key", "issuedKey", "verified"].contains(&name) && !is_empty(value);
    let kept = fields.iter().filter(|(name, value)| is_kept(name, value));
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>()).to_string()
}

/// The recorded reading of each case.
fn recorded() -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        let [table, reading, cases] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        for case in serde_json::from_str::<Vec<String>>(cases).expect("a list of cases") {
            all.insert((table.to_owned(), case), reading.to_owned());
        }
    }
    all
}

#[test]
fn each_case_is_read_as_recorded_or_refused() {
    let recorded = recorded();
    let mut accepted = BTreeMap::<&str, Vec<String>>::new();
    for ((table, case), text) in cases() {
        let theirs = &recorded[&(table.to_owned(), case.clone())];
        if let Ok(request) = CertificateRequest::from_pem(&text) {
            assert_eq!(reading(&shown(&request)), *theirs, "{table}: {case}");
            accepted.entry(table).or_default().push(case);
        }
    }
    // UTF8String, PrintableString is not for colons, T61String, IA5String, BMPString.
    assert_eq!(accepted[SUBJECT], ["0c", "13", "14", "16", "1e"]);
    // The four kinds that certificates keep, and the five that Go ignores, primitive or not.
    let names = ["80", "81", "82", "83", "84", "85", "86", "87", "88", "a0", "a3", "a4", "a5", "a8"];
    assert_eq!(accepted[NAME], names);
    assert_eq!((&accepted[ATTRIBUTE], &accepted[SET]), (&vec!["30".to_owned()], &vec!["31".to_owned()]));
    let whole = ["-----BEGIN L-----", "-----BEGIN L----- ", "-----BEGIN L-----\t", "-----BEGIN L-----\r"];
    assert_eq!(accepted["line in place of BEGIN"], whole);
    let whole = ["-----END L-----", "-----END L----- ", "-----END L-----\r"];
    assert_eq!(accepted["line in place of END"], whole);
    assert_eq!(accepted["line within base64"], ["", " ", "\t", "\r"]);
    assert_eq!(accepted["line behind END"].len(), FRAMES.len(), "what follows a good block is not read");
}

#[test]
fn go_reads_each_case_as_recorded() {
    let (names, texts): (Vec<Case>, Vec<Vec<u8>>) = cases().into_iter().unzip();
    let mut grouped = BTreeMap::<(&str, String), Vec<String>>::new();
    for ((table, case), answer) in names.into_iter().zip(Oracle::start().read(&texts)) {
        grouped.entry((table, reading(&answer["request"]))).or_default().push(case);
    }
    let mut found = String::from("# Table, Go's reading of a request, and the cases that are read so.\n");
    for ((table, reading), cases) in grouped {
        writeln!(found, "{table}\t{reading}\t{}", Value::from(cases)).unwrap();
    }
    if std::env::var_os("COXSWAIN_REGENERATE").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE), &found).expect("it is written");
    } else {
        assert!(
            found == RECORDED,
            "Go reads otherwise than {FILE}: write it again with COXSWAIN_REGENERATE=1"
        );
    }
}
