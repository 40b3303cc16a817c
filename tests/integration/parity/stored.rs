//! How an outcome is stored: the first look in full, of every later one what is different from the one before, as a
//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Looks, each as the changes since the one before.
pub(super) fn encode(looks: &[Value]) -> Vec<Value> {
    let mut before = &Value::Null;
    let changes = looks.iter().map(|look| {
        let change = change(before, look);
        before = look;
        change
    });
    changes.collect()
}

/// The looks that [`encode`] was given.
pub(super) fn decode(changes: &[Value]) -> Vec<Value> {
    let mut look = Value::Null;
    let looks = changes.iter().map(|change| {
        apply(&mut look, change);
        look.clone()
    });
    looks.collect()
}

fn change(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
    let changed =
        changed.map(|(key, value)| (key.clone(), change(&old.get(key).cloned().unwrap_or_default(), value)));
    changed.chain(gone).collect()
}

fn apply(value: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *value = change.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let map = value.as_object_mut().expect("an object");
    for (key, change) in change {
        if change.is_null() {
            map.shift_remove(key);
        } else {
            apply(map.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_stored_is_what_was_seen() {
        let looks = [
            json!({ "after": "a", "Deployment": { "web": { "spec": { "replicas": 1 }, "owners": ["x"] } }, "Pod": [1, 2] }),
            json!({ "after": "b", "Deployment": { "web": { "spec": { "replicas": 1, "paused": true } } }, "Pod": [] }),
            json!({ "after": "c", "Deployment": {}, "Pod": [{ "name": "it" }] }),
            json!({ "after": "d", "Deployment": { "web": {} }, "Pod": [{ "name": "it" }] }),
        ];
        let stored = encode(&looks);
        assert_eq!(stored[1]["Deployment"], json!({ "web": { "spec": { "paused": true }, "owners": null } }));
        assert_eq!(stored[3], json!({ "after": "d", "Deployment": { "web": {} } }));
        assert_eq!(decode(&stored), looks);
    }
}
