//! What the test says about a scenario in the end.

use serde_json::Value;

use super::diff::{Difference, differences};
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
}
