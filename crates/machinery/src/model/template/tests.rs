//! Which templates are the same, and how they are named.

use proptest::prelude::*;

use super::*;
use crate::wire::splice::{get, put_varint_field};

/// Labels in the given order, then a spec with a node selector and one container.
fn template(labels: &[(&str, &str)], image: &str) -> Vec<u8> {
    let mut meta = Vec::new();
    put_bytes(&mut meta, 8, &[]);
    for (key, value) in labels {
        put_entry(&mut meta, 11, key, value);
    }
    let mut container = Vec::new();
    put_bytes(&mut container, 1, b"c");
    put_bytes(&mut container, 2, image.as_bytes());
    put_bytes(&mut container, 8, &[]);
    let mut spec = Vec::new();
    put_bytes(&mut spec, 2, &container);
    put_bytes(&mut spec, 3, b"Always");
    put_entry(&mut spec, 7, "disk", "fast");
    put_entry(&mut spec, 7, "arch", "arm");
    let mut template = Vec::new();
    put_bytes(&mut template, 1, &meta);
    put_bytes(&mut template, 2, &spec);
    template
}

fn put_entry(out: &mut Vec<u8>, number: u32, key: &str, value: &str) {
    let mut entry = Vec::new();
    put_bytes(&mut entry, 1, key.as_bytes());
    put_bytes(&mut entry, 2, value.as_bytes());
    put_bytes(out, number, &entry);
}

fn base() -> Vec<u8> {
    template(&[("app", "web"), ("tier", "front")], "nginx")
}

#[track_caller]
fn check(other: &[u8], same: bool) {
    let base = Template::new(&base()).unwrap();
    assert_eq!(base.is_same_as(other).unwrap(), same);
    let other = Template::new(other).unwrap();
    assert_eq!(other.is_same_as(&self::base()).unwrap(), same, "it is symmetrical");
    assert_eq!(base.hash(None) == other.hash(None), same, "equal templates have equal hashes");
}

#[test]
fn the_hash_label_does_not_count() {
    check(&Template::labeled(&base(), "abc").unwrap(), true);
    check(&Template::labeled(&template(&[], "nginx"), "abc").unwrap(), false);
}

#[test]
fn order_does_not_count_where_it_means_nothing() {
    check(&template(&[("tier", "front"), ("app", "web")], "nginx"), true);
    let mut swapped = Vec::new();
    put_bytes(&mut swapped, 2, get(&base(), &[2]).unwrap().unwrap().bytes().unwrap());
    put_bytes(&mut swapped, 1, get(&base(), &[1]).unwrap().unwrap().bytes().unwrap());
    check(&swapped, true);
}

#[test]
fn what_is_newer_than_this_program_does_not_count() {
    for path in [vec![3], vec![1, 18], vec![2, 44], vec![2, 2, 26], vec![2, 2, 8, 9]] {
        check(&edit(&base(), &[Edit::SetBytes(path.clone().leak(), Vec::new())]).unwrap(), true);
        check(&edit(&base(), &[Edit::SetVarint(path.leak(), 7)]).unwrap(), true);
    }
}

#[test]
fn an_unset_creation_time_is_no_difference() {
    check(&edit(&base(), &[Edit::Clear(&[1, 8])]).unwrap(), true);
    let bare = edit(&base(), &[Edit::Clear(&[1])]).unwrap();
    let empty = edit(&bare, &[Edit::SetBytes(&[1], b"\x42\x00".to_vec())]).unwrap();
    assert!(Template::new(&bare).unwrap().is_same_as(&empty).unwrap());
}

#[test]
fn every_other_difference_counts() {
    check(&template(&[("app", "web"), ("tier", "front")], "nginx:2"), false);
    check(&template(&[("app", "web")], "nginx"), false);
    for (path, why) in [
        (vec![2, 5], "terminationGracePeriodSeconds: 0 is not none"),
        (vec![2, 2, 15, 4], "runAsUser: 0 is not none"),
    ] {
        let changed = edit(&base(), &[Edit::SetVarint(path.leak(), 0)]).unwrap();
        assert!(!Template::new(&base()).unwrap().is_same_as(&changed).unwrap(), "{why}");
    }
    for (path, why) in [(vec![2, 14], "securityContext: {} is not none"), (vec![2, 18], "affinity: {}")] {
        let changed = edit(&base(), &[Edit::SetBytes(path.leak(), Vec::new())]).unwrap();
        assert!(!Template::new(&base()).unwrap().is_same_as(&changed).unwrap(), "{why}");
    }
}

#[test]
fn the_order_of_a_list_counts() {
    let mut args = Vec::new();
    put_bytes(&mut args, 4, b"a");
    put_bytes(&mut args, 4, b"b");
    let mut swapped = Vec::new();
    put_bytes(&mut swapped, 4, b"b");
    put_bytes(&mut swapped, 4, b"a");
    let of = |args: Vec<u8>| edit(&base(), &[Edit::SetBytes(&[2, 2], args)]).unwrap();
    assert!(!Template::new(&of(args)).unwrap().is_same_as(&of(swapped)).unwrap());
}

#[test]
fn a_collision_changes_the_hash_and_nothing_else_does() {
    let template = Template::new(&base()).unwrap();
    let hashes: Vec<_> = [None, Some(1), Some(2)].map(|count| template.hash(count)).into();
    assert_eq!(hashes, [None, Some(1), Some(2)].map(|count| template.hash(count)));
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2], "{hashes:?}");
    assert!(hashes.iter().all(|hash| hash.len() <= 10));
}

/// A message of `shape` that holds nothing but this quantity, in the field of this number.
fn with_quantity(number: u32, holds: shapes::Holds, text: &str) -> Vec<u8> {
    let (mut quantity, mut out) = (Vec::new(), Vec::new());
    put_bytes(&mut quantity, 1, text.as_bytes());
    if holds.is_map() {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, b"memory");
        put_bytes(&mut entry, 2, &quantity);
        put_bytes(&mut out, number, &entry);
    } else {
        put_bytes(&mut out, number, &quantity);
    }
    out
}

#[test]
fn quantities_of_one_value_are_the_same_in_every_field() {
    let mut fields = 0;
    for shape in shapes::ALL {
        for field in shape.fields {
            if !matches!(field.holds, shapes::Holds::Quantity | shapes::Holds::Amounts) {
                continue;
            }
            fields += 1;
            let by_value = |text: &str| {
                let mut out = Vec::new();
                let encoded = with_quantity(field.number, field.holds, text);
                put_canonical(&encoded, shape, Quantities::ByValue, &mut out).unwrap();
                out
            };
            for spellings in [
                &["1Gi", "1073741824", "1024Mi", "+1Gi", "1073741824.0"][..],
                &["500M", "5e8", "500000k", "0.5G"],
                &["2Ki", "2048", "2048000m"],
                &["0", "0Gi", "0m"],
            ] {
                for text in &spellings[1..] {
                    assert_eq!(
                        by_value(text),
                        by_value(spellings[0]),
                        "{} {} {text}",
                        shape.name,
                        field.name
                    );
                }
            }
            for (a, b) in [("1Gi", "1G"), ("1", "1m"), ("1", "-1"), ("odd", "1"), ("odd", "other")] {
                assert_ne!(by_value(a), by_value(b), "{} {} {a} {b}", shape.name, field.name);
            }
        }
    }
    assert!(fields > 3, "the table has quantities: {fields}");
}

#[test]
fn spelling_of_a_quantity_changes_the_name_and_not_the_template() {
    let asking = |memory: &str| {
        let resources = with_quantity(2, shapes::Holds::Amounts, memory);
        edit(&base(), &[Edit::SetBytes(&[2, 2, 8], resources)]).unwrap()
    };
    let (binary, plain) = (asking("1Gi"), asking("1073741824"));
    let template = Template::new(&binary).unwrap();
    assert!(template.is_same_as(&plain).unwrap());
    assert!(!template.is_same_as(&asking("1G")).unwrap());
    let likeness = |text: &str| template.likeness(&asking(text)).unwrap();
    let expected = [Likeness::Spelled, Likeness::Same, Likeness::Different, Likeness::Different];
    assert_eq!(["1Gi", "1073741824", "", "odd"].map(likeness), expected);
    assert_ne!(template.hash(None), Template::new(&plain).unwrap().hash(None), "as in earlier versions");
}

/// A name that was given once is the name for ever: this value must not change between versions.
#[test]
fn the_hash_is_stable() {
    assert_eq!(Template::new(&base()).unwrap().hash(None), "d77cc7bf8");
}

#[test]
fn unknown_fields_stay_in_the_copy() {
    let mut newer = base();
    put_varint_field(&mut newer, 900, 1);
    let copy = Template::labeled(&newer, "abc").unwrap();
    assert!(get(&copy, &[900]).unwrap().is_some());
}

#[test]
fn the_table_is_in_order() {
    for shape in shapes::ALL {
        assert!(shape.fields.is_sorted_by(|a, b| a.number < b.number), "{}", shape.name);
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(template) = Template::new(&bytes) {
            prop_assert!(template.is_same_as(&bytes).unwrap());
            template.hash(Some(i32::MAX));
        }
    }

    #[test]
    fn shuffled_labels_are_the_same(labels in prop::collection::btree_map("[a-z]{1,8}", "[a-z]{0,8}", 0..6).prop_flat_map(|map| {
        let pairs: Vec<_> = map.into_iter().collect();
        (Just(pairs.clone()), Just(pairs).prop_shuffle())
    })) {
        let of = |pairs: &[(String, String)]| {
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            template(&pairs, "nginx")
        };
        let (sorted, shuffled) = labels;
        prop_assert!(Template::new(&of(&sorted)).unwrap().is_same_as(&of(&shuffled)).unwrap());
    }
}
