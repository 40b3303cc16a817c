//! The field managers of objects, and words for random parts of names that the parity snapshot does not replace: hashes of ReplicaSets and
//! ends of pods that no longer exist.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::names::Names;
use crate::pods::HASHES;

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

/// Returns the number of endpoints of each Service by zone and hints: `{"web": {"zone-1 for zone-3": 2}}`. The endpoints that share a slice
/// and those that get a hint differ from play to play, but their numbers do not.
pub(crate) fn hints(objects: &[(&str, Vec<Value>)]) -> Value {
    let mut services: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    let slices = objects.iter().filter(|(kind, _)| *kind == "EndpointSlice").flat_map(|(_, slices)| slices);
    for slice in slices {
        let service = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str().unwrap_or_default();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let hints = endpoint["hints"]["forZones"].as_array().into_iter().flatten();
            let hints: Vec<&str> = hints.filter_map(|zone| zone["name"].as_str()).collect();
            if !hints.is_empty() {
                let zone = endpoint["zone"].as_str().unwrap_or("no zone");
                let of_service = services.entry(service).or_default();
                *of_service.entry(format!("{zone} for {}", hints.join(", "))).or_default() += 1;
            }
        }
    }
    json!(services)
}

/// Returns the hashes in the names of revisions of StatefulSets. They are the same under both managers, so they are kept. A revision may be
/// gone while the status of its set or the label of a pod names it.
pub(crate) fn revision_hashes(objects: &[(&str, Vec<Value>)]) -> BTreeSet<String> {
    let is_of_set = |object: &Value| object["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet";
    let named = |kind: &str, object: &Value| -> Vec<Value> {
        match kind {
            "ControllerRevision" if is_of_set(object) => vec![object["metadata"]["name"].clone()],
            "Pod" if is_of_set(object) => {
                vec![object["metadata"]["labels"]["controller-revision-hash"].clone()]
            }
            "StatefulSet" => {
                ["currentRevision", "updateRevision"].map(|field| object["status"][field].clone()).into()
            }
            _ => Vec::new(),
        }
    };
    let all = objects.iter().flat_map(|(kind, all)| all.iter().flat_map(|object| named(kind, object)));
    all.filter_map(|name| Some(name.as_str()?.rsplit_once('-')?.1.to_owned())).collect()
}

/// Moves the name of each endpoint's pod to another field, because the parity snapshot shows endpoints by these names, and the pods of a
/// ReplicaSet have the same name without its random part. Endpoints are shown by their addresses instead.
pub(crate) fn show_by_address(object: &mut Value) {
    let move_name = |endpoint: &mut Value| {
        if let Some(target) = endpoint.get_mut("targetRef").and_then(Value::as_object_mut)
            && let Some(name) = target.shift_remove("name")
        {
            target.insert("pod".to_owned(), name);
        }
    };
    let of = |object: &mut Value, field: &str| {
        object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().for_each(move_name);
    };
    of(object, "endpoints");
    for subset in object.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten() {
        of(subset, "addresses");
        of(subset, "notReadyAddresses");
    }
}

/// Replaces random parts in all texts and keys, except the hashes to keep. Counts under keys that become the same are added. Other values
/// under such keys are numbered in the order of their texts.
pub(crate) fn without_random_parts(value: &Value, kept: &BTreeSet<String>) -> Value {
    match value {
        Value::String(text) => plain(text, kept).into(),
        Value::Array(items) => items.iter().map(|item| without_random_parts(item, kept)).collect(),
        Value::Object(map) => {
            let mut normal: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for (key, value) in map {
                let value = match value {
                    // The parity snapshot leaves the hash of a ReplicaSet that no longer exists.
                    Value::String(hash) if HASHES.contains(&key.as_str()) && is_random(hash) => "HASH".into(),
                    other => without_random_parts(other, kept),
                };
                normal.entry(plain(key, kept)).or_default().push(value);
            }
            Value::Object(normal.into_iter().flat_map(|(key, values)| distinct(&key, values)).collect())
        }
        other => other.clone(),
    }
}

/// Returns values of one key, each with a key of its own.
fn distinct(key: &str, mut values: Vec<Value>) -> Vec<(String, Value)> {
    let counts: Option<Vec<u64>> = values.iter().map(Value::as_u64).collect();
    if let Some(counts) = counts {
        return vec![(key.to_owned(), counts.iter().sum::<u64>().into())];
    }
    values.sort_by_cached_key(ToString::to_string);
    let key = |at: usize| if at == 0 { key.to_owned() } else { format!("{key} {}", at + 1) };
    values.into_iter().enumerate().map(|(at, value)| (key(at), value)).collect()
}

/// Replaces parts of names: `web-65c6958c9d-ccscz` is `web-HASH-POD`.
fn plain(text: &str, kept: &BTreeSet<String>) -> String {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(begin) = rest.find(is_of_name) {
        let (before, name) = rest.split_at(begin);
        let end = name.find(|letter| !is_of_name(letter)).unwrap_or(name.len());
        out.push_str(before);
        out.push_str(&plain_name(&name[..end], kept));
        rest = &name[end..];
    }
    out + rest
}

fn is_random(text: &str) -> bool {
    text.chars().all(|letter| RANDOM.contains(letter))
}

fn plain_name(name: &str, kept: &BTreeSet<String>) -> String {
    let mut parts = name.split('-');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    let count = name.matches('-').count();
    for (at, part) in parts.enumerate() {
        let has_digit = part.contains(|letter: char| letter.is_ascii_digit());
        let word = match part.len() {
            _ if kept.contains(part) || !is_random(part) => part,
            END if at + 1 == count => "POD",
            length if has_digit && HASH.contains(&length) => "HASH",
            _ => part,
        };
        plain.push('-');
        plain.push_str(word);
    }
    plain
}

#[cfg(test)]
mod tests {
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
            assert_eq!(plain(text, &BTreeSet::new()), expected);
        }
    }

    #[test]
    fn hash_in_a_label_has_a_word_and_other_labels_stay() {
        let labels = |hash: &str, app: &str| json!({ "labels": { "pod-template-hash": hash, "app": app } });
        let kept = BTreeSet::new();
        assert_eq!(
            without_random_parts(&labels("67f8fd9bc7", "67f8fd9bc7"), &kept),
            labels("HASH", "67f8fd9bc7")
        );
        assert_eq!(without_random_parts(&labels("HASH1", "web"), &kept), labels("HASH1", "web"));
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
        assert_eq!(
            without_random_parts(&events, &BTreeSet::new()),
            json!({ "made web-POD": 3, "failed": "once" })
        );
    }

    #[test]
    fn objects_of_the_same_name_are_numbered() {
        let sets = json!({ "web-65c6958c9d": { "a": 2 }, "web-7654fb6bf8": { "a": 1 } });
        assert_eq!(
            without_random_parts(&sets, &BTreeSet::new()),
            json!({ "web-HASH": { "a": 1 }, "web-HASH 2": { "a": 2 } })
        );
    }

    #[test]
    fn hashes_of_stateful_sets_are_kept() {
        let revision = |kind: &str, name: &str| json!({ "metadata": { "name": name, "ownerReferences": [{ "kind": kind }] } });
        let revisions =
            vec![revision("StatefulSet", "web-65c6958c9d"), revision("DaemonSet", "db-7654fb6bf8")];
        let kept = revision_hashes(&[("ControllerRevision", revisions)]);
        let names = json!(["web-65c6958c9d", "db-7654fb6bf8"]);
        assert_eq!(without_random_parts(&names, &kept), json!(["web-65c6958c9d", "db-HASH"]));
        let pod = json!({ "metadata": {
            "labels": { "controller-revision-hash": "web-65c6958c9d" }, "ownerReferences": [{ "kind": "StatefulSet" }],
        } });
        let set = json!({ "status": { "updateRevision": "db-7654fb6bf8" } });
        let kept = revision_hashes(&[("Pod", vec![pod]), ("StatefulSet", vec![set])]);
        assert_eq!(without_random_parts(&names, &kept), names, "the revisions are gone");
    }

    #[test]
    fn hints_are_counted_for_each_service() {
        let endpoint = |zone: &str, hint: Option<&str>| {
            let hints = hint.map(|name| json!({ "forZones": [{ "name": name }] }));
            json!({ "addresses": ["10.99.0.1"], "zone": zone, "hints": hints })
        };
        let slice = |endpoints: &[Value]| {
            let labels = json!({ "kubernetes.io/service-name": "web" });
            json!({ "metadata": { "labels": labels }, "endpoints": endpoints })
        };
        let slices = vec![
            slice(&[endpoint("zone-1", Some("zone-1")), endpoint("zone-1", Some("zone-3"))]),
            slice(&[endpoint("zone-1", Some("zone-1")), endpoint("zone-2", None)]),
        ];
        let expected = json!({ "web": { "zone-1 for zone-1": 2, "zone-1 for zone-3": 1 } });
        assert_eq!(hints(&[("EndpointSlice", slices)]), expected);
    }

    #[test]
    fn endpoint_has_the_name_of_its_pod_in_another_field() {
        let of = |field: &str| {
            let endpoint = json!({ "ip": "10.99.0.1", "targetRef": { field: "web-x2kqz", "uid": "1" } });
            json!({ "endpoints": [endpoint], "subsets": [{ "addresses": [endpoint] }] })
        };
        let mut object = of("name");
        show_by_address(&mut object);
        assert_eq!(object["endpoints"], of("pod")["endpoints"]);
        assert_eq!(object["subsets"][0]["addresses"], of("pod")["subsets"][0]["addresses"]);
    }
}
