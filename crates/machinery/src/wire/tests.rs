//! The codec's tables and properties.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use bytes::Bytes;
use proptest::prelude::*;

use super::splice::{Edit, edit, get, put_bytes, put_varint_field, runs};
use super::*;
use crate::api::apps::RevisionDocument;

message! {
    struct Inner = "test.Inner" {
        1 => name: Str [interned],
        2 => labels: Labels,
    }

    struct Outer = "test.Outer" {
        1 => inner: Inner,
        2 => count: Option<i32>,
        3 => items: Vec<Inner>,
        4 => template: Raw,
        5 => at: Option<Time>,
        6 => flag: bool,
        7 => port: Option<IntOrString>,
    }
}

fn sample() -> Outer {
    Outer {
        inner: Inner { name: "web".into(), labels: [("b", "2"), ("a", "1")].into_iter().collect() },
        count: Some(0),
        items: vec![Inner::default(), Inner { name: "x".into(), ..Default::default() }],
        template: Raw(Bytes::from_static(b"\x0a\x01z")),
        at: Time::from_seconds(1_700_000_000),
        flag: true,
        port: Some(IntOrString::Str("25%".into())),
    }
}

#[test]
fn what_is_encoded_is_decoded() {
    let bytes = Bytes::from(sample().to_bytes());
    assert_eq!(Outer::decode(&bytes).unwrap(), sample());
}

#[test]
fn negative_numbers_take_ten_bytes_as_in_other_implementations() {
    let message = Outer { count: Some(-1), ..Default::default() };
    assert_eq!(message.to_bytes().len(), 11);
    assert_eq!(Outer::decode(&Bytes::from(message.to_bytes())).unwrap(), message);
}

#[test]
fn equal_label_sets_are_one_allocation() {
    let bytes = Bytes::from(sample().to_bytes());
    let (a, b) = (Outer::decode(&bytes).unwrap(), Outer::decode(&bytes).unwrap());
    assert!(std::ptr::eq(a.inner.labels.as_slice(), b.inner.labels.as_slice()));
}

#[test]
fn long_texts_that_are_interned_are_one_allocation_and_short_ones_none() {
    let long = "a text of more than two words";
    assert!(std::ptr::eq(Str::interned(long).as_str(), Str::interned(long).as_str()));
    assert!(!std::ptr::eq(Str::from(long).as_str(), Str::interned(long).as_str()));
    assert!(Str::from(long).heap_bytes() > long.len());
    assert_eq!(Str::interned("short").heap_bytes(), 0);
    assert_eq!((size_of::<Str>(), size_of::<Option<Str>>()), (16, 16));
}

#[test]
fn uids_are_what_they_were() {
    let texts = ["", "x", "3D6C411C-AE02-471C-941C-9CAA77456E00", "3d6c411c-ae02-471c-941c-9caa77456e00"];
    for text in texts
        .into_iter()
        .chain(["3d6c411cae02471c941c9caa77456e00", "{3d6c411c-ae02-471c-941c-9caa77456e00}"])
    {
        assert_eq!(Uid::from(text).to_str(), text);
        assert_eq!(Uid::from(text).to_string(), text);
    }
    assert_ne!(Uid::from(texts[2]), Uid::from(texts[3]));
    assert_eq!(size_of::<Uid>(), 24);
}

proptest! {
    #[test]
    fn a_text_is_what_it_was_made_of(one in "\\PC{0,20}", other in "\\PC{0,20}") {
        let (a, b) = (Str::from(one.as_str()), Str::interned(&other));
        prop_assert_eq!(a.as_str(), &one);
        prop_assert_eq!(b.as_str(), &other);
        prop_assert_eq!(a == b, one == other);
        prop_assert_eq!(a == *other, one == other);
        prop_assert_eq!(a.cmp(&b), one.cmp(&other));
        prop_assert_eq!(a.is_empty(), one.is_empty());
        let hash = |it: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            it(&mut hasher);
            hasher.finish()
        };
        prop_assert_eq!(hash(&|hasher| a.hash(hasher)), hash(&|hasher| one.hash(hasher)));
    }

    #[test]
    fn a_uid_is_the_text_that_it_was_made_of(bytes: [u8; 16], upper: bool, other in "\\PC{0,40}") {
        let uuid = uuid::Uuid::from_bytes(bytes).to_string();
        let uuid = if upper { uuid.to_uppercase() } else { uuid };
        for text in [uuid.as_str(), other.as_str()] {
            let uid = Uid::from(text);
            prop_assert_eq!(&*uid.to_str(), text);
            prop_assert_eq!(uid.to_string(), text);
            prop_assert!(uid == *text);
            prop_assert_eq!(uid == *uuid, text == uuid);
        }
        let (one, two) = (Uid::from(uuid.as_str()), Uid::from(other.as_str()));
        prop_assert_eq!(one == two, uuid == other);
    }
}

#[test]
fn a_map_keeps_the_last_of_two_equal_keys() {
    let labels: Labels = [("k", "old"), ("a", "1"), ("k", "new")].into_iter().collect();
    assert_eq!(labels.get("k").unwrap(), "new");
    assert_eq!(labels.len(), 2);
}

#[test]
fn an_error_names_the_path() {
    let mut inner = Vec::new();
    put_varint_field(&mut inner, 1, 1);
    let mut outer = Vec::new();
    put_bytes(&mut outer, 1, &inner);
    let error = Outer::decode(&Bytes::from(outer)).unwrap_err();
    assert_eq!(error.to_string(), "malformed protobuf in inner.name: expected a length-delimited value");
}

#[test]
fn a_template_shares_the_buffer() {
    let bytes = Bytes::from(sample().to_bytes());
    let outer = Outer::decode(&bytes).unwrap();
    let range = bytes.as_ptr_range();
    assert!(range.contains(&outer.template.0.as_ptr()));
}

#[test]
fn an_envelope_is_undone() {
    let wrapped = Bytes::from(wrap_envelope("apps/v1", "Deployment", b"\x0a\x00"));
    assert_eq!(unwrap_envelope(&wrapped).unwrap().as_ref(), b"\x0a\x00");
    assert!(unwrap_envelope(&Bytes::from_static(b"{}")).is_err());
}

#[test]
fn edits_leave_unknown_fields_alone() {
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, 900, b"from the future");
    bytes.extend(sample().to_bytes());
    put_varint_field(&mut bytes, 901, 7);
    let edited = edit(
        &bytes,
        &[
            Edit::SetVarint(&[2], 5),
            Edit::MapSet(&[1, 2], "a".into(), "changed".into()),
            Edit::MapRemove(&[1, 2], "b".into()),
            Edit::SetBytes(&[50, 3], b"new".to_vec()),
            Edit::Clear(&[6]),
        ],
    )
    .unwrap();
    assert_eq!(get(&edited, &[900]).unwrap(), Some(Value::Bytes(b"from the future")));
    assert_eq!(get(&edited, &[901]).unwrap(), Some(Value::Varint(7)));
    assert_eq!(get(&edited, &[50, 3]).unwrap(), Some(Value::Bytes(b"new")));
    let outer = Outer::decode(&Bytes::from(edited)).unwrap();
    let mut expected = sample();
    expected.count = Some(5);
    expected.inner.labels = [("a", "changed")].into_iter().collect();
    expected.flag = false;
    assert_eq!(outer, expected);
}

#[test]
fn edits_of_different_keys_of_one_map_take_one_pass() {
    let remove = |at: usize| Edit::MapRemove(&[1, 2], at.to_string());
    let many: Vec<Edit> = (0..20_000).map(remove).collect();
    assert_eq!(runs(&many).map(<[Edit]>::len).collect::<Vec<_>>(), [20_000]);
    let mixed = [
        Edit::SetVarint(&[2], 5),
        Edit::SetVarint(&[2], 6),
        remove(1),
        Edit::MapSet(&[1, 2], "2".into(), "x".into()),
        // A key again, and another map.
        remove(1),
        Edit::MapRemove(&[1, 3], "2".into()),
        Edit::Clear(&[6]),
    ];
    assert_eq!(runs(&mixed).map(<[Edit]>::len).collect::<Vec<_>>(), [1, 1, 2, 1, 1, 1]);
    assert_eq!(runs(&[]).count(), 0);
    let entries = (0..20_000).map(|at| Edit::MapSet(&[1, 2], at.to_string(), "x".to_owned()));
    let full = edit(&sample().to_bytes(), &entries.collect::<Vec<_>>()).unwrap();
    assert_eq!(edit(&full, &many).unwrap(), sample().to_bytes());
}

/// One of few edits of two maps and a field.
fn any_edit() -> impl Strategy<Value = Edit> {
    const PATHS: [&[u32]; 2] = [&[1, 2], &[50]];
    (0..4_u8, 0..2_usize, 0..4_u8, 0..3_u8).prop_map(|(kind, path, key, value)| {
        let (path, key) = (PATHS[path], key.to_string());
        match kind {
            0 => Edit::MapRemove(path, key),
            1 => Edit::MapSetBytes(path, key, vec![value]),
            2 => Edit::MapSet(path, key, value.to_string()),
            _ => Edit::SetVarint(&[2], u64::from(value)),
        }
    })
}

proptest! {
    #[test]
    fn edits_together_make_what_they_make_one_by_one(edits in prop::collection::vec(any_edit(), 0..24)) {
        let (mut before, message) = (sample().to_bytes(), sample().to_bytes());
        for each in &edits {
            before = edit(&before, std::slice::from_ref(each)).unwrap();
        }
        prop_assert_eq!(edit(&message, &edits).unwrap(), before);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let _ = Outer::decode(&bytes);
        let _ = decode_list(&bytes);
        let _ = WatchFrame::decode(&bytes);
        let _ = unwrap_envelope(&bytes);
        let _ = Outer::copy_read(&bytes, &mut Vec::new());
        let _ = edit(&bytes, &[Edit::MapSet(&[1, 2], "a".into(), "b".into())]);
    }

    /// What is copied for comparing tells all messages apart that decode differently, and is blind to what is not declared.
    #[test]
    fn what_may_be_read_is_copied_and_nothing_else(
        one in prop::collection::vec((0..6_u8, 0..3_u8), 0..5),
        other in prop::collection::vec((0..6_u8, 0..3_u8), 0..5),
    ) {
        let encode = |fields: &[(u8, u8)], with_undeclared: bool| {
            let mut bytes = Vec::new();
            for (field, content) in fields {
                let mut inner = Vec::new();
                match content {
                    0 => put_bytes(&mut inner, 1, b"a"),
                    1 => put_bytes(&mut inner, 1, &[]),
                    _ => {}
                }
                if with_undeclared {
                    put_bytes(&mut inner, 9, b"undeclared");
                }
                match field {
                    0 => put_bytes(&mut bytes, 1, &inner),
                    1 => put_bytes(&mut bytes, 3, &inner),
                    2 => put_varint_field(&mut bytes, 2, u64::from(*content)),
                    3 => put_varint_field(&mut bytes, 6, u64::from(*content)),
                    4 => put_bytes(&mut bytes, 4, &[*content]),
                    _ if with_undeclared => put_bytes(&mut bytes, 50, &inner),
                    _ => {}
                }
            }
            Bytes::from(bytes)
        };
        let copy = |bytes: &Bytes| {
            let mut out = Vec::new();
            Outer::copy_read(bytes, &mut out).map(|()| out)
        };
        let (bare, whole) = (encode(&one, false), encode(&one, true));
        prop_assert_eq!(copy(&bare).unwrap(), copy(&whole).unwrap());
        let other = encode(&other, true);
        if copy(&whole) == copy(&other) {
            prop_assert_eq!(Outer::decode(&whole).unwrap(), Outer::decode(&other).unwrap());
        }
    }

    /// Setting a field changes nothing else: all other top-level fields are there, in order, byte for byte.
    #[test]
    fn an_edit_touches_one_field(fields in prop::collection::vec((1_u32..20, prop::collection::vec(any::<u8>(), 0..20)), 0..12)) {
        let mut bytes = Vec::new();
        for (number, content) in &fields {
            put_bytes(&mut bytes, *number, content);
        }
        let edited = edit(&bytes, &[Edit::SetBytes(&[7], b"set".to_vec())]).unwrap();
        let others = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            let mut kept = Vec::new();
            while let Some((number, _, raw)) = reader.next_raw().unwrap() {
                if number != 7 {
                    kept.push(raw.to_vec());
                }
            }
            kept
        };
        prop_assert_eq!(others(&bytes), others(&edited));
        prop_assert_eq!(get(&edited, &[7]).unwrap(), Some(Value::Bytes(b"set".as_slice())));
    }
}

#[test]
fn contents_that_occur_twice_are_the_last_ones() {
    let field = |raw: &[u8]| {
        let (mut inner, mut out) = (Vec::new(), Vec::new());
        put_bytes(&mut inner, 1, raw);
        put_bytes(&mut out, 2, &inner);
        out
    };
    let twice = [field(b"{}"), field(b"[]")].concat();
    assert_eq!(RevisionDocument::decode(&twice.into()).unwrap().data.raw.to_vec(), b"[]");
    let emptied = [field(b"{}"), vec![0x12, 0]].concat();
    assert_eq!(RevisionDocument::decode(&emptied.into()).unwrap().data.raw.to_vec(), b"{}");
}

/// Go merges both halves, and refuses or cuts off such numbers; no API server writes them.
#[test]
fn fields_that_go_reads_differently_are_refused() {
    let port = |body: &[u8]| {
        let mut out = Vec::new();
        put_bytes(&mut out, 7, body);
        out
    };
    let (once, twice) = (port(&[16, 5]), [port(&[16, 5]), port(&[])].concat());
    assert_eq!(Outer::decode(&once.into()).unwrap().port, Some(IntOrString::Int(5)));
    assert!(Outer::decode(&twice.into()).is_err());
    for (number, is_read) in [(100_u64, true), ((1 << 31) - 1, true), (1 << 31, false), (1 << 32 | 2, false)]
    {
        let mut out = Vec::new();
        splice::put_varint(&mut out, number << 3);
        out.push(1);
        assert_eq!(Outer::decode(&out.into()).is_ok(), is_read, "{number}");
    }
}
