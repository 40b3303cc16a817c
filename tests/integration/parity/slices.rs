//! What is seen of Services and EndpointSlices.

use jiff::{Timestamp, ToSpan as _};
use serde_json::{Map, Value};

/// Annotation: when what a write tells of has happened.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Label: who manages a slice; and the one that mirrors Endpoints.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";
/// Addresses that the API server gives.
const GIVEN: [&str; 2] = ["clusterIP", "clusterIPs"];

/// What a slice holds. Endpoints have no order: they are shown by their pods' names, or else by their addresses.
pub(super) fn content(slice: &Value, uids: &[&str]) -> Map<String, Value> {
    let mut content = Map::new();
    content.insert("addressType".to_owned(), slice["addressType"].clone());
    content.insert("ports".to_owned(), slice_ports(slice));
    content.insert("endpoints".to_owned(), by_name(&slice["endpoints"], uids));
    content
}

/// Endpoints, or addresses, by their pods' names, or else by their addresses.
pub(super) fn by_name(list: &Value, uids: &[&str]) -> Value {
    let mut named = Map::new();
    for item in list.as_array().into_iter().flatten() {
        let mut name = called(item);
        while named.contains_key(&name) {
            name.push_str(" again");
        }
        let mut item = item.clone();
        if let Some(target) = item.get_mut("targetRef").and_then(Value::as_object_mut) {
            let uid = target.shift_remove("uid").unwrap_or_default();
            if !uid.as_str().is_some_and(|uid| uids.contains(&uid)) {
                target.insert("uid".to_owned(), "of another".into());
            }
        }
        named.insert(name, item);
    }
    named.sort_keys();
    Value::Object(named)
}

fn called(item: &Value) -> String {
    let pod = item["targetRef"]["name"].as_str().or(item["ip"].as_str());
    pod.map_or_else(|| item["addresses"].to_string(), str::to_owned)
}

/// The ports of a slice. They are in the order of its Service's; those of a mirror, like those of what it mirrors, in none.
fn slice_ports(slice: &Value) -> Value {
    if slice["metadata"]["labels"][MANAGED_BY] == MIRROR { ports(slice) } else { slice["ports"].clone() }
}

/// The ports of a subset, which have no order.
pub(super) fn ports(holder: &Value) -> Value {
    let mut ports = holder["ports"].clone();
    if let Some(ports) = ports.as_array_mut() {
        ports.sort_by_cached_key(Value::to_string);
    }
    ports
}

/// What tells slices that come at the same time from each other.
pub(super) fn order(slice: &Value) -> String {
    let mut names: Vec<String> = slice["endpoints"].as_array().into_iter().flatten().map(called).collect();
    names.sort();
    format!("{} {} {names:?}", slice["addressType"], slice_ports(slice))
}

/// When what is written has happened: a time that the scenario gave lies long before it is played, and is kept.
pub(super) fn plain_trigger_time(slice: &Value, annotations: &mut Map<String, Value>) {
    let Some(time) = annotations.get_mut(TRIGGER_TIME) else { return };
    let parsed = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let made = parsed(&slice["metadata"]["creationTimestamp"]);
    let is_recent = |(time, made): (Timestamp, Timestamp)| time > made - 1.hour();
    if parsed(time).zip(made).is_none_or(is_recent) {
        *time = "of now".into();
    }
}

/// Writes IP for the addresses that the API server has given a Service.
pub(super) fn without_addresses(spec: &mut Value) {
    let Some(map) = spec.as_object_mut() else { return };
    for field in GIVEN {
        match map.get_mut(field) {
            Some(Value::String(address)) => plainly(address),
            Some(Value::Array(addresses)) => {
                for address in addresses {
                    if let Value::String(address) = address {
                        plainly(address);
                    }
                }
            }
            _ => {}
        }
    }
}

fn plainly(address: &mut String) {
    if address.contains(':') {
        "IPv6".clone_into(address);
    } else if address.contains('.') {
        "IPv4".clone_into(address);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_slice_shows_its_endpoints_by_their_pods() {
        let endpoint = |pod: &str, uid: &str| json!({ "addresses": ["10.0.0.1"], "targetRef": { "kind": "Pod", "name": pod, "uid": uid } });
        let slice = json!({
            "addressType": "IPv4",
            "ports": null,
            "endpoints": [endpoint("b", "1"), endpoint("a", "2"), endpoint("a", "1"), { "addresses": ["10.0.0.9"] }],
        });
        let seen = content(&slice, &["1"]);
        assert_eq!(
            Value::Object(seen),
            json!({ "addressType": "IPv4", "ports": null, "endpoints": {
                "[\"10.0.0.9\"]": { "addresses": ["10.0.0.9"] },
                "a": { "addresses": ["10.0.0.1"], "targetRef": { "kind": "Pod", "name": "a", "uid": "of another" } },
                "a again": { "addresses": ["10.0.0.1"], "targetRef": { "kind": "Pod", "name": "a" } },
                "b": { "addresses": ["10.0.0.1"], "targetRef": { "kind": "Pod", "name": "b" } },
            } })
        );
        assert!(order(&slice).ends_with(r#"["[\"10.0.0.9\"]", "a", "a", "b"]"#), "{}", order(&slice));
    }

    #[test]
    fn times_of_the_scenario_stay() {
        let slice = json!({ "metadata": { "creationTimestamp": "2026-03-01T12:00:00Z" } });
        for (time, plain) in [
            ("2026-03-01T11:59:58Z", "of now"),
            ("2026-03-01T12:00:58.123456Z", "of now"),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("no time", "of now"),
        ] {
            let mut annotations = json!({ TRIGGER_TIME: time }).as_object().cloned().unwrap_or_default();
            plain_trigger_time(&slice, &mut annotations);
            assert_eq!(annotations[TRIGGER_TIME], plain);
        }
    }

    #[test]
    fn addresses_are_of_a_family() {
        let mut spec = json!({ "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::7"] });
        without_addresses(&mut spec);
        assert_eq!(spec, json!({ "clusterIP": "IPv4", "clusterIPs": ["IPv4", "IPv6"] }));
        let mut headless = json!({ "clusterIP": "None", "clusterIPs": ["None"] });
        without_addresses(&mut headless);
        assert_eq!(headless, json!({ "clusterIP": "None", "clusterIPs": ["None"] }));
    }
}
