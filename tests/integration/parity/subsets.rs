//! What is seen of Endpoints.

use serde_json::{Map, Value};

use super::slices::{by_name, ports};

/// What Endpoints hold: subsets by their ports (`http:8080+metrics:9090/UDP`, `none`), of which each has its addresses by
/// their pods' names or else by themselves. Neither has an order.
pub(super) fn content(endpoints: &Value, uids: &[&str]) -> Map<String, Value> {
    let mut subsets = Map::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let ports = ports(subset);
        let mut shown = Map::new();
        for (field, name) in [("addresses", "ready"), ("notReadyAddresses", "notReady")] {
            if subset[field].is_array() {
                shown.insert(name.to_owned(), by_name(&subset[field], uids));
            }
        }
        let mut name = called(&ports);
        while subsets.contains_key(&name) {
            name.push_str(" again");
        }
        shown.insert("ports".to_owned(), ports);
        subsets.insert(name, Value::Object(shown));
    }
    subsets.sort_keys();
    let held = (!subsets.is_empty()).then(|| ("subsets".to_owned(), Value::Object(subsets)));
    held.into_iter().collect()
}

fn called(ports: &Value) -> String {
    let port = |port: &Value| {
        let name = port["name"].as_str().map(|name| format!("{name}:")).unwrap_or_default();
        let protocol = port["protocol"].as_str().filter(|protocol| *protocol != "TCP");
        let protocol = protocol.map(|protocol| format!("/{protocol}")).unwrap_or_default();
        format!("{name}{}{protocol}", port["port"])
    };
    let mut names: Vec<String> = ports.as_array().into_iter().flatten().map(port).collect();
    names.sort();
    if names.is_empty() { "none".to_owned() } else { names.join("+") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subsets_are_shown_by_their_ports() {
        let subset = |addresses: Value, ports: Value| json!({ "addresses": addresses, "ports": ports });
        let target = json!({ "kind": "Pod", "name": "a", "uid": "1" });
        let (http, dns) = (
            json!({ "name": "http", "port": 80, "protocol": "TCP" }),
            json!({ "port": 53, "protocol": "UDP" }),
        );
        let endpoints = json!({ "subsets": [
            subset(json!([{ "ip": "10.0.0.2" }, { "ip": "10.0.0.1", "targetRef": target }]), json!([http, dns])),
            { "notReadyAddresses": [{ "ip": "10.0.0.3" }] },
        ] });
        assert_eq!(
            Value::Object(content(&endpoints, &["1"])),
            json!({ "subsets": {
                "53/UDP+http:80": {
                    "ready": {
                        "10.0.0.2": { "ip": "10.0.0.2" },
                        "a": { "ip": "10.0.0.1", "targetRef": { "kind": "Pod", "name": "a" } },
                    },
                    "ports": [http, dns],
                },
                "none": { "notReady": { "10.0.0.3": { "ip": "10.0.0.3" } }, "ports": null },
            } })
        );
        assert_eq!(content(&json!({ "subsets": [] }), &[]), Map::new());
    }
}
