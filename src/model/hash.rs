//! The name of a template: a short hash for objects that are made from it.
//!
//! ReplicaSets are told apart by `pod-template-hash`, and named after it. Ours need not be the hash that the original
//! computes, which is one over an in-memory structure and changes between its own releases too: an existing ReplicaSet
//! is always found by comparing templates, never by computing its name. So taking over from the original, or handing
//! back to it, makes no new ReplicaSet.
//!
//! What is compared and hashed is [`normal`]: the template's bytes without the label, put into one order. This module
//! never interprets a pod's spec.

use super::pods::template_metadata;
use crate::wire::splice::{Edit, edit, put_bytes};
use crate::wire::{Raw, Reader, Value, WireError};

/// The label that keeps the pods of a Deployment's ReplicaSets apart.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Characters of which neither a word nor a number can be made by accident.
const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Fields: `metadata` in a template; labels and annotations in the metadata.
const METADATA: u32 = 1;
const LABELS: u32 = 11;
const ANNOTATIONS: u32 = 12;

/// The template in the form in which two that mean the same are the same bytes: without the label
/// [`POD_TEMPLATE_HASH`], its metadata in order and without empty fields. The spec stays as the server sent it; it
/// encodes all objects alike.
pub fn normal(template: &Raw) -> Result<Vec<u8>, WireError> {
    let (mut metadata, mut rest) = (Vec::new(), Vec::with_capacity(template.len()));
    let mut fields = Reader::new(template);
    while let Some((number, value, raw)) = fields.next_raw()? {
        if number == METADATA {
            metadata.extend_from_slice(value.bytes()?);
        } else {
            rest.extend_from_slice(raw);
        }
    }
    let mut out = Vec::with_capacity(template.len() + 8);
    put_bytes(&mut out, METADATA, &normal_metadata(&metadata)?);
    out.extend_from_slice(&rest);
    Ok(out)
}

fn normal_metadata(metadata: &[u8]) -> Result<Vec<u8>, WireError> {
    let metadata = edit(metadata, &[Edit::MapRemove(vec![LABELS], POD_TEMPLATE_HASH.to_owned())])?;
    let mut kept: Vec<(u32, &str, &[u8])> = Vec::new();
    let mut fields = Reader::new(&metadata);
    while let Some((number, value, raw)) = fields.next_raw()? {
        let key = match value {
            Value::Varint(0) | Value::Bytes([]) => continue,
            Value::Bytes(entry) if matches!(number, LABELS | ANNOTATIONS) => entry_key(entry)?,
            _ => "",
        };
        kept.push((number, key, raw));
    }
    // Stable: what is no map keeps its order within a field.
    kept.sort_by_key(|(number, key, _)| (*number, *key));
    Ok(kept.into_iter().flat_map(|(.., raw)| raw.iter().copied()).collect())
}

fn entry_key(entry: &[u8]) -> Result<&str, WireError> {
    let mut fields = Reader::new(entry);
    let mut key = "";
    while let Some((number, value)) = fields.next_field()? {
        if number == 1 {
            key = value.text()?;
        }
    }
    Ok(key)
}

/// The template with the label set to `hash`.
pub fn labelled(template: &Raw, hash: &str) -> Result<Vec<u8>, WireError> {
    let label = Edit::MapSet(vec![METADATA, LABELS], POD_TEMPLATE_HASH.to_owned(), hash.to_owned());
    edit(template, &[label])
}

/// The labels that the template gives to a pod.
pub fn template_labels(template: &Raw) -> Result<crate::wire::Labels, WireError> {
    template_metadata(template).map(|metadata| metadata.labels)
}

/// The hash of a template in its [`normal`] form, in characters that are safe in names and labels. `collisions`
/// counts the hashes whose name was found taken: another count gives another hash.
pub fn of(normal: &[u8], collisions: Option<i32>) -> String {
    let mut hash = fnv_1a(FNV_BASIS, normal);
    if let Some(collisions) = collisions {
        hash = fnv_1a(hash, &collisions.to_le_bytes());
    }
    hash.to_string().bytes().map(|digit| char::from(SAFE[usize::from(digit) % SAFE.len()])).collect()
}

const FNV_BASIS: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

/// 32 bits of Fowler, Noll and Vo's hash, variant 1a.
fn fnv_1a(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::meta::ObjectMeta;
    use crate::wire::Message;

    fn template(labels: &[(&str, &str)], spec: &[u8]) -> Raw {
        let metadata = ObjectMeta { labels: labels.iter().copied().collect(), ..ObjectMeta::default() };
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, 1, &metadata.to_bytes());
        put_bytes(&mut bytes, 2, spec);
        Raw(bytes.into())
    }

    #[test]
    fn the_hash_is_that_of_its_inventors() {
        assert_eq!(fnv_1a(FNV_BASIS, b""), 0x811c_9dc5);
        assert_eq!(fnv_1a(FNV_BASIS, b"a"), 0xe40c_292c);
        assert_eq!(fnv_1a(FNV_BASIS, b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn the_label_and_the_order_of_metadata_make_no_difference() {
        let plain = template(&[("app", "web")], b"spec");
        let labelled_one = Raw(labelled(&plain, "abc").unwrap().into());
        assert_eq!(template_labels(&labelled_one).unwrap().get(POD_TEMPLATE_HASH).unwrap(), "abc");
        assert_ne!(plain, labelled_one);
        assert_eq!(normal(&plain).unwrap(), normal(&labelled_one).unwrap());

        let reordered = edit(
            &template(&[("b", "2")], b"spec"),
            &[
                Edit::MapSet(vec![1, 11], "a".into(), "1".into()),
                // As the server encodes them: empty strings and an empty creation time.
                Edit::SetBytes(vec![1, 1], Vec::new()),
                Edit::SetBytes(vec![1, 8], Vec::new()),
                Edit::SetVarint(vec![1, 7], 0),
            ],
        );
        assert_eq!(
            normal(&Raw(reordered.unwrap().into())).unwrap(),
            normal(&template(&[("a", "1"), ("b", "2")], b"spec")).unwrap()
        );
    }

    #[test]
    fn all_else_makes_a_difference() {
        let plain = template(&[("app", "web")], b"spec");
        let others = [
            template(&[("app", "web")], b"other"),
            template(&[("app", "web2")], b"spec"),
            template(&[], b"spec"),
            Raw(edit(&plain, &[Edit::SetBytes(vec![1, 900], b"new".to_vec())]).unwrap().into()),
            Raw(edit(&plain, &[Edit::SetBytes(vec![900], b"new".to_vec())]).unwrap().into()),
        ];
        for other in others {
            assert_ne!(normal(&other).unwrap(), normal(&plain).unwrap());
        }
    }

    proptest! {
        #[test]
        fn a_hash_is_a_label_value_and_moves_with_collisions(bytes: Vec<u8>, collisions in 0..i32::MAX) {
            let hash = of(&bytes, Some(collisions));
            prop_assert!(!hash.is_empty() && hash.len() <= 10);
            prop_assert!(hash.bytes().all(|byte| SAFE.contains(&byte)));
            prop_assert_ne!(&hash, &of(&bytes, Some(collisions + 1)));
        }
    }
}
