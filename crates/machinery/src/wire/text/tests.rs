//! The text form of byte strings: tables, and that nothing is lost or mixed up for any bytes.

use std::hash::BuildHasher;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::api::kinds;
use crate::api::meta::{ObjectMeta, OwnerReference, PartialObjectMetadata};
use crate::random::HashSeed;
use crate::wire::json::schema::{Cardinality, FieldType, MessageId, SCHEMA};
use crate::wire::splice::{Edit, edit, get, put_bytes, put_varint_field};
use crate::wire::{Labels, Message, Quantities, Uid, path};

/// Go's JSON of byte strings: `HEX<tab>JSON`.
const GO_JSON: &str = include_str!("go_json.tsv");

/// Any bytes; often such as begin a reserved character, or are one.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        "[a-z/é😀]".prop_map(String::into_bytes),
        Just(vec![0xf4, 0x8f]),
        (0xbd_u8..=0xbf, 0x80_u8..=0xbf).prop_map(|(third, fourth)| vec![0xf4, 0x8f, third, fourth]),
        (0xf_0000_u32..=0x10_ffff).prop_map(|code| char::from_u32(code).unwrap().to_string().into_bytes()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

#[test]
fn only_bytes_that_need_it_are_escaped() {
    let same = ["", "web", "café", "😀", "\u{10ff7f}", "\u{100000}", "\u{f0000}"];
    for text in same {
        assert!(matches!(held_text(text.as_bytes()), Cow::Borrowed(held) if held == text), "{text:?}");
        assert!(matches!(raw_bytes(text), Cow::Borrowed(_)));
        assert!(matches!(lossy_text(text), Cow::Borrowed(_)));
    }
    let escaped: [(&[u8], &str); 5] = [
        (b"\xff", "\u{10ffff}"),
        (b"a\x80/b", "a\u{10ff80}/b"),
        ("é\u{10ffff}".as_bytes(), "é\u{10fff4}\u{10ff8f}\u{10ffbf}\u{10ffbf}"),
        ("\u{10ff80}".as_bytes(), "\u{10fff4}\u{10ff8f}\u{10ffbe}\u{10ff80}"),
        (b"\xe2\x82x", "\u{10ffe2}\u{10ff82}x"),
    ];
    for (bytes, text) in escaped {
        assert_eq!(held_text(bytes), text);
        assert_eq!(*raw_bytes(text), *bytes);
    }
}

#[test]
fn json_has_what_go_writes() {
    for row in GO_JSON.lines().filter(|line| !line.starts_with('#')) {
        let (hex, json) = row.split_once('\t').unwrap();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let expected: String = serde_json::from_str(json).unwrap();
        let held = held_text(&bytes);
        assert_eq!(lossy_utf8(&bytes), expected, "{hex}");
        assert_eq!(lossy_text(&held), expected, "{hex}");
        // The same of a whole document: its structure is ASCII. It is converted once, whatever its texts were made of.
        let (text, uid) = (Str::of_bytes(&bytes), Uid::from(&*held));
        let document = serde_json::json!({ "a": [&*held, text, uid], (held.clone()): [1] }).to_string();
        let document: serde_json::Value = serde_json::from_str(&lossy_text(&document)).unwrap();
        assert_eq!(document["a"], serde_json::json!([expected, expected, expected]), "{hex}");
    }
}

#[test]
fn nobody_forges_a_byte_with_the_character_that_stands_for_it() {
    let byte = Str::of_bytes(b"\xff");
    for json in [r#""\udbff\udfff""#, "\"\u{10ffff}\""] {
        let text: Str = serde_json::from_str(json).unwrap();
        assert_ne!(text, byte, "{json}");
        assert_eq!(*raw_bytes(&text), *"\u{10ffff}".as_bytes(), "{json}");
    }
}

/// Metadata with these bytes in every string that it has.
fn encoded_metadata(bytes: &[u8]) -> Vec<u8> {
    let mut owner = Vec::new();
    for number in [1, 3, 4, 5] {
        put_bytes(&mut owner, number, bytes);
    }
    let mut metadata = Vec::new();
    for number in [1, 2, 3, 5, 6] {
        put_bytes(&mut metadata, number, bytes);
    }
    for number in [11, 12] {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, bytes);
        put_bytes(&mut entry, 2, bytes);
        put_bytes(&mut metadata, number, &entry);
    }
    put_bytes(&mut metadata, 13, &owner);
    put_bytes(&mut metadata, 14, bytes);
    let mut object = Vec::new();
    put_bytes(&mut object, 1, &metadata);
    object
}

/// A message with each of its fields once, and these bytes in every string, down to a depth.
fn filled(message: MessageId, bytes: &[u8], depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for field in SCHEMA.fields(message) {
        let mut value = Vec::new();
        let number = if field.cardinality == Cardinality::Map { 2 } else { field.number };
        match field.holds {
            FieldType::Text | FieldType::Bytes => put_bytes(&mut value, number, bytes),
            FieldType::Int | FieldType::Long | FieldType::Bool => put_varint_field(&mut value, number, 1),
            FieldType::Quantity | FieldType::Texts | FieldType::Json => {
                let mut inner = Vec::new();
                put_bytes(&mut inner, 1, bytes);
                put_bytes(&mut value, number, &inner);
            }
            FieldType::Time | FieldType::MicroTime => put_bytes(&mut value, number, &[8, 1]),
            FieldType::IntOrString => {
                let mut inner = vec![8, 1];
                put_bytes(&mut inner, 3, bytes);
                put_bytes(&mut value, number, &inner);
            }
            FieldType::Message(inner) if depth > 0 => {
                put_bytes(&mut value, number, &filled(inner, bytes, depth - 1));
            }
            FieldType::Message(_) => {}
        }
        if field.cardinality == Cardinality::Map {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, bytes);
            entry.extend(value);
            put_bytes(&mut out, field.number, &entry);
        } else {
            out.extend(value);
        }
    }
    out
}

#[test]
fn objects_of_all_kinds_decode_with_any_bytes_in_their_strings() {
    for kind in kinds::ALL.iter() {
        let Some(message) = SCHEMA.of_kind(&kind.api_version(), kind.kind) else { continue };
        for bytes in [b"\xff".as_slice(), b"\xc3(", "\u{10ffff}".as_bytes()] {
            let object = Bytes::from(filled(message, bytes, 7));
            let decoded = (kind.decode)(&object).unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert_eq!(*raw_bytes(&decoded.meta().name), *bytes, "{kind}");
        }
    }
}

proptest! {
    #[test]
    fn bytes_come_back_and_texts_are_equal_exactly_if_bytes_are(one in any_bytes(), other in any_bytes()) {
        let (held, another) = (held_text(&one), held_text(&other));
        prop_assert_eq!(&*raw_bytes(&held), &*one);
        prop_assert_eq!(held == another, one == other);
        // Keys and splits, too.
        let joined = format!("{held}/{another}");
        let bytes = [&one[..], b"/", &other].concat();
        prop_assert_eq!(&*raw_bytes(&joined), &*bytes);
        prop_assert_eq!(&*held_text(&bytes), joined);
        if let Ok(text) = std::str::from_utf8(&one) {
            prop_assert_eq!(&*lossy_text(&held), text);
        }
        prop_assert!(lossy_text(&held).chars().count() <= one.len());
    }

    #[test]
    fn strings_of_all_sorts_compare_and_hash_as_their_bytes(one in any_bytes(), other in any_bytes()) {
        let hasher = HashSeed::of_process();
        for make in [Str::of_bytes, |bytes: &[u8]| Str::interned(&held_text(bytes))] {
            let (held, another) = (Str::of_bytes(&one), make(&other));
            prop_assert_eq!(held == another, one == other);
            prop_assert_eq!(held.cmp(&another).is_eq(), one == other);
            if one == other {
                prop_assert_eq!(hasher.hash_one(&held), hasher.hash_one(&another));
            }
            let (held, another) = (Uid::from(&held), Uid::from(&another));
            prop_assert_eq!(held == another, one == other);
        }
    }

    #[test]
    fn decoding_and_encoding_loses_no_byte(bytes in any_bytes().prop_filter("not empty", |bytes| !bytes.is_empty())) {
        let object = Bytes::from(encoded_metadata(&bytes));
        let decoded = PartialObjectMetadata::decode(&object).unwrap();
        prop_assert_eq!(decoded.to_bytes(), &object[..]);
        prop_assert_eq!(decoded.metadata.labels.get(&held_text(&bytes)), Some(&Str::of_bytes(&bytes)));
        // The same made by hand, as plans make it.
        let text = Str::of_bytes(&bytes);
        let owner = OwnerReference { name: text.clone(), ..decoded.metadata.owner_references[0].clone() };
        let map: Labels = [(text.clone(), text.clone())].into_iter().collect();
        let metadata = ObjectMeta {
            name: text.clone(),
            labels: map.clone(),
            annotations: map,
            owner_references: vec![owner].into_iter().collect(),
            ..decoded.metadata.clone()
        };
        prop_assert_eq!(PartialObjectMetadata { metadata }.to_bytes(), &object[..]);
        // And by edits.
        let edits = [
            Edit::set_text(path!(PartialObjectMetadata, metadata.name), &text),
            Edit::MapRemove(path!(PartialObjectMetadata, metadata.labels), text.to_string()),
            Edit::MapSet(path!(PartialObjectMetadata, metadata.labels), text.to_string(), text.to_string()),
            Edit::Clear(path!(PartialObjectMetadata, metadata.finalizers)),
            Edit::push_text(path!(PartialObjectMetadata, metadata.finalizers), &text),
        ];
        let edited = edit(&object, &edits).unwrap();
        let decoded_again = PartialObjectMetadata::decode(&edited.into()).unwrap();
        prop_assert_eq!(&decoded_again, &decoded);
        let quantities: Quantities = [(text.as_str(), text.as_str())].into_iter().collect();
        let mut out = Vec::new();
        quantities.encode(1, &mut out);
        let entry = get(&out, &[1]).unwrap().unwrap().bytes().unwrap();
        prop_assert_eq!(get(entry, &[1]).unwrap().unwrap().bytes().unwrap(), &*bytes);
    }

    #[test]
    fn what_json_says_is_never_taken_for_bytes(text in any::<String>()) {
        let json = serde_json::to_string(&text).unwrap();
        let held: Str = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&*raw_bytes(&held), text.as_bytes());
        prop_assert_eq!(serde_json::to_string(&held).unwrap(), json);
    }
}

#[test]
fn a_string_is_still_two_words() {
    assert_eq!(size_of::<Str>(), 2 * size_of::<usize>());
}

/// How long strings take to decode: run with `--ignored --nocapture`, optimized.
#[test]
#[ignore = "prints times"]
#[expect(clippy::disallowed_methods, reason = "it takes the time that passes")]
fn the_cost_of_text_form() {
    let texts =
        ["Running", "10.128.3.17", "4711889", "registry.example/team/web:1.2.3", "kubernetes.io/hostname"];
    let uuid = "8f3c2a1e-5b7d-4e9f-a1b2-c3d4e5f60718";
    let time = |name: &str, decode: &dyn Fn(&[u8]) -> usize| {
        let begun = std::time::Instant::now();
        let mut sum = 0;
        for _ in 0..2_000_000 {
            for text in texts.iter().chain([&uuid]) {
                sum += decode(std::hint::black_box(text.as_bytes()));
            }
        }
        println!("{name}: {:?} per string ({sum})", begun.elapsed() / 12_000_000);
    };
    time("from_utf8", &|bytes| std::str::from_utf8(bytes).unwrap().len());
    time("held_text", &|bytes| held_text(bytes).len());
    time("raw_bytes", &|bytes| raw_bytes(std::str::from_utf8(bytes).unwrap()).len());
    time("Str", &|bytes| Str::of_bytes(bytes).len());
}
