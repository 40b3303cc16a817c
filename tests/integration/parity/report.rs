//! What the test says about a scenario in the end.

use serde_json::{Value, json};

use super::diff::{Difference, EITHER, alternatives, differences};
use super::scenario::Kept;

/// Fails with every difference that is not kept, and with every one that is kept and not there. Judges the looks that
/// `ours` holds.
pub(super) fn judge(recorded: &[Value], ours: &[Value], kept: &[Kept]) -> Result<(), String> {
    let mut found: Vec<Difference> = Vec::new();
    for (recorded, ours) in recorded.iter().zip(ours) {
        found.extend(differences(recorded["after"].as_str().unwrap_or_default(), recorded, ours));
    }
    let mut vanished = Vec::new();
    let seen = |kept: &&Kept| ours.iter().any(|look| look["after"] == kept.after.as_str());
    for kept in kept.iter().filter(seen) {
        match found.iter().position(|difference| difference.is(kept)) {
            Some(at) => drop(found.remove(at)),
            None => vanished.push(kept),
        }
    }
    let mut complaints = String::new();
    if !found.is_empty() {
        let all: String = found.iter().map(ToString::to_string).collect();
        complaints = format!("differences (fix them, or keep them for a reason):\n{all}");
    }
    for Kept { after, path, reason, .. } in vanished {
        complaints =
            format!("{complaints}\nno longer different after {after:?} at {path}, kept because: {reason}");
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints) }
}

/// Where chance decides under the original which of two is written last, or over the other: a condition, and its reasons.
const BY_CHANCE: (&str, [&str; 3]) =
    ("Progressing", ["FoundNewReplicaSet", "NewReplicaSetCreated", "ReplicaSetUpdated"]);

/// What was seen in `first` or in `second`. Conditions that chance decides may be either; all else must be the same.
pub(super) fn merge(first: &[Value], second: &[Value]) -> Result<Vec<Value>, String> {
    let merged: Vec<Value> = first.iter().zip(second).map(|(first, second)| either(first, second)).collect();
    judge(&merged, second, &[])
        .map_err(|error| format!("the original itself does not do the same twice\n{error}"))?;
    Ok(merged)
}

fn either(first: &Value, second: &Value) -> Value {
    let (Value::Object(left), Value::Object(right)) = (first, second) else { return first.clone() };
    let merged = left.iter().map(|(key, first)| {
        let second = right.get(key).cloned().unwrap_or_default();
        let known = alternatives(first).cloned().unwrap_or_else(|| vec![first.clone()]);
        let may_be_either = known
            .iter()
            .chain([&second])
            .all(|each| BY_CHANCE.1.iter().any(|reason| each["reason"] == **reason));
        let value = if key != BY_CHANCE.0 || !may_be_either {
            either(first, &second)
        } else if known.contains(&second) {
            first.clone()
        } else {
            let all = [known, vec![second]].concat();
            json!({ EITHER: all })
        };
        (key.clone(), value)
    });
    merged.collect()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn kept_differences_must_be_there_and_others_must_not() {
        let recorded = [json!({ "after": "it", "replicas": 3 })];
        let ours = [json!({ "after": "it", "replicas": 2 })];
        let kept = Kept {
            after: "it".to_owned(),
            path: "replicas".to_owned(),
            recorded: json!(3),
            ours: json!(2),
            reason: "we like it".to_owned(),
        };
        assert!(judge(&recorded, &ours, &[]).is_err_and(|text| text.contains("recorded: 3")));
        assert_eq!(judge(&recorded, &ours, std::slice::from_ref(&kept)), Ok(()));
        assert!(
            judge(&recorded, &recorded, std::slice::from_ref(&kept))
                .is_err_and(|text| text.contains("we like it"))
        );
        assert_eq!(judge(&recorded, &recorded, &[]), Ok(()));
        assert_eq!(judge(&recorded, &[], std::slice::from_ref(&kept)), Ok(()));
    }

    #[test]
    fn only_what_chance_decides_may_be_either() {
        let look = |reason: &str, replicas: u32| {
            vec![
                json!({ "after": "it", "conditions": { "Progressing": { "reason": reason } }, "replicas": replicas }),
            ]
        };
        let (created, updated) = (look("NewReplicaSetCreated", 1), look("ReplicaSetUpdated", 1));
        let merged = merge(&created, &updated).expect("chance");
        let both = json!([{ "reason": "NewReplicaSetCreated" }, { "reason": "ReplicaSetUpdated" }]);
        assert_eq!(merged[0]["conditions"]["Progressing"], json!({ "either": both }));
        assert_eq!(merge(&merged, &created), Ok(merged.clone()), "it was seen before");
        assert_eq!(merge(&created, &created), Ok(created.clone()), "it was the same both times");
        assert!(merge(&created, &look("NewReplicaSetCreated", 2)).is_err(), "no chance");
        assert!(merge(&created, &look("ProgressDeadlineExceeded", 1)).is_err(), "no chance");
        for ours in [&created, &updated] {
            assert_eq!(judge(&merged, ours, &[]), Ok(()));
        }
        assert!(judge(&created, &updated, &[]).is_err(), "the original always did the one");
    }
}
