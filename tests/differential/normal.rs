//! The field managers of objects, and words for random parts of names that the parity snapshot leaves: hashes of ReplicaSets and ends of pods
//! that no longer exist.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::names::Names;

/// Letters of random names.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";
const END: usize = 5;
const HASH: std::ops::RangeInclusive<usize> = 6..=10;

/// Returns the field managers of each object (`KIND/NAME`), as `MANAGER OPERATION SUBRESOURCE`. Pods are left out, because their
/// names are random.
pub(crate) fn managers(names: &Names, objects: &[(&str, Vec<Value>)]) -> Value {
    let mut all = Map::new();
    for (kind, objects) in objects.iter().filter(|(kind, _)| *kind != "Pod") {
        for object in objects {
            let name = names.plain(object["metadata"]["name"].as_str().unwrap_or_default());
            let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
            let entries = entries.map(|entry| {
                let text = |field: &str| entry[field].as_str().unwrap_or_default();
                format!("{} {} {}", text("manager"), text("operation"), text("subresource"))
            });
            let entries: BTreeSet<String> = entries.collect();
            all.insert(format!("{kind}/{name}"), entries.into_iter().collect());
        }
    }
    Value::Object(all)
}

/// Replaces random parts in all texts and keys. Counts under keys that become the same are added.
pub(crate) fn without_random_parts(value: &Value) -> Value {
    match value {
        Value::String(text) => plain(text).into(),
        Value::Array(items) => items.iter().map(without_random_parts).collect(),
        Value::Object(map) => {
            let mut normal = Map::new();
            for (key, value) in map {
                let (key, value) = (plain(key), without_random_parts(value));
                let sum = normal.get(&key).and_then(Value::as_u64).zip(value.as_u64());
                let value = sum.map_or(value, |(first, second)| (first + second).into());
                normal.insert(key, value);
            }
            Value::Object(normal)
        }
        other => other.clone(),
    }
}

/// Replaces parts of names: `web-65c6958c9d-ccscz` is `web-HASH-POD`.
fn plain(text: &str) -> String {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(begin) = rest.find(is_of_name) {
        let (before, name) = rest.split_at(begin);
        let end = name.find(|letter| !is_of_name(letter)).unwrap_or(name.len());
        out.push_str(before);
        out.push_str(&plain_name(&name[..end]));
        rest = &name[end..];
    }
    out + rest
}

fn plain_name(name: &str) -> String {
    let mut parts = name.split('-');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    let count = name.matches('-').count();
    for (at, part) in parts.enumerate() {
        let is_random = part.chars().all(|letter| RANDOM.contains(letter));
        let has_digit = part.contains(|letter: char| letter.is_ascii_digit());
        let word = match part.len() {
            END if is_random && at + 1 == count => "POD",
            length if is_random && has_digit && HASH.contains(&length) => "HASH",
            _ => part,
        };
        plain.push('-');
        plain.push_str(word);
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn random_parts_have_words_and_other_parts_stay() {
        for (text, expected) in [
            ("Created pod: web-65c6958c9d-ccscz", "Created pod: web-HASH-POD"),
            ("set owner-7654fb6bf8 from 0", "set owner-HASH from 0"),
            ("web-HASH1-POD, db-0, by-hand-2", "web-HASH1-POD, db-0, by-hand-2"),
            ("a-name-of-40-characters", "a-name-of-40-characters"),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("pvc-protection", "pvc-protection"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn field_managers_are_a_set_for_each_object() {
        let names = Names::new("d1x1", String::new(), "");
        let entry = |manager: &str, operation: &str, subresource: Value| json!({ "manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": {} });
        let entries = [
            entry("user", "Apply", Value::Null),
            entry("kube-controller-manager", "Update", "status".into()),
            entry("kube-controller-manager", "Update", Value::Null),
        ];
        let object = json!({ "metadata": { "name": "d1x1-a", "managedFields": entries } });
        let objects = [("Job", vec![object.clone()]), ("Pod", vec![object])];
        let expected =
            ["kube-controller-manager Update ", "kube-controller-manager Update status", "user Apply "];
        assert_eq!(managers(&names, &objects), json!({ "Job/NAMESPACE-a": expected }));
    }

    #[test]
    fn counts_of_the_same_text_are_added() {
        let events = json!({ "made web-x2kqz": 1, "made web-bbbbb": 2, "failed": "once" });
        assert_eq!(without_random_parts(&events), json!({ "made web-POD": 3, "failed": "once" }));
    }
}
