//! Comparing two looks.

use std::fmt;

use serde_json::Value;

use super::scenario::Kept;

/// A difference: `null` stands for nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) after: String,
    pub(super) path: String,
    pub(super) recorded: Value,
    pub(super) ours: Value,
}

impl Difference {
    /// Whether it is the one that is kept.
    pub(super) fn is(&self, kept: &Kept) -> bool {
        (&self.after, &self.path, &self.recorded, &self.ours)
            == (&kept.after, &kept.path, &kept.recorded, &kept.ours)
    }
}

impl fmt::Display for Difference {
    /// As a scenario lists it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  - after: {:?}\n    path: {:?}", self.after, self.path)?;
        if !self.recorded.is_null() {
            writeln!(f, "    recorded: {}", self.recorded)?;
        }
        if !self.ours.is_null() {
            writeln!(f, "    ours: {}", self.ours)?;
        }
        Ok(())
    }
}

/// In place of a value: any of these.
pub(super) const EITHER: &str = "either";

/// Where two looks differ: objects field by field, lists by what only one of them holds. Where the original was seen to do
/// this or that, either is no difference. Differs: no.
pub(super) fn differences(after: &str, recorded: &Value, ours: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(after, "", recorded, ours, &mut found);
    found
}

fn compare(after: &str, path: &str, recorded: &Value, ours: &Value, found: &mut Vec<Difference>) {
    let mut differ = |recorded: Value, ours: Value| {
        found.push(Difference { after: after.to_owned(), path: path.to_owned(), recorded, ours });
    };
    match (recorded, ours) {
        (recorded, ours) if alternatives(recorded).is_some_and(|all| all.contains(ours)) => {}
        (recorded, ours) if alternatives(recorded).is_some() => differ(recorded.clone(), ours.clone()),
        (Value::Object(left), Value::Object(right)) => {
            let only_right = right.keys().filter(|key| !left.contains_key(*key));
            for key in left.keys().chain(only_right) {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let side = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                compare(after, &below, &side(left), &side(right), found);
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            let mut extra = right.clone();
            for item in left {
                match extra.iter().position(|each| each == item) {
                    Some(at) => drop(extra.remove(at)),
                    None => differ(item.clone(), Value::Null),
                }
            }
            for item in extra {
                differ(Value::Null, item);
            }
        }
        (left, right) if left == right => {}
        (left, right) => differ(left.clone(), right.clone()),
    }
}

/// What a recorded value may be, if it may be several.
pub(super) fn alternatives(recorded: &Value) -> Option<&Vec<Value>> {
    recorded.as_object().filter(|map| map.len() == 1)?.get(EITHER)?.as_array()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_named_where_they_are() {
        let recorded =
            json!({ "ReplicaSet": { "web": { "status": { "replicas": 3 } } }, "events": [1, 1, 2] });
        let ours = json!({ "ReplicaSet": { "web": { "status": { "replicas": 2, "new": [] } } }, "events": [2, 3, 1] });
        let found = differences("it", &recorded, &ours);
        let seen: Vec<(&str, &Value, &Value)> =
            found.iter().map(|each| (each.path.as_str(), &each.recorded, &each.ours)).collect();
        let null = Value::Null;
        assert_eq!(
            seen,
            [
                ("ReplicaSet.web.status.replicas", &json!(3), &json!(2)),
                ("ReplicaSet.web.status.new", &null, &json!([])),
                ("events", &json!(1), &null),
                ("events", &null, &json!(3)),
            ]
        );
        assert_eq!(differences("it", &ours, &ours), []);
    }

    #[test]
    fn either_of_two_is_no_difference() {
        let recorded = json!({ "condition": { "either": [{ "reason": "a" }, { "reason": "b" }] } });
        for (reason, count) in [("a", 0), ("b", 0), ("c", 1)] {
            let found = differences("it", &recorded, &json!({ "condition": { "reason": reason } }));
            assert_eq!(found.len(), count, "{reason}: {found:?}");
        }
    }
}
