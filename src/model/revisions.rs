//! Revisions of a Deployment's ReplicaSets, as annotations tell of them.
//!
//! Numbers and texts only: which ReplicaSet gets which revision is the Deployment room's decision.

use crate::wire::Labels;

/// The revision of a ReplicaSet, and of the Deployment that is at it.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier revisions of a ReplicaSet, separated by commas.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's size when the ReplicaSet was scaled last.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The most pods that the Deployment could have when the ReplicaSet was scaled last.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of a Deployment that say nothing about its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

/// Characters that a history may have.
const HISTORY_LIMIT: usize = 2000;

/// The annotations of a Deployment that its new ReplicaSet gets too.
pub fn copied(deployment: &Labels) -> impl Iterator<Item = (&str, &str)> {
    let pairs = deployment.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    pairs.filter(|(key, _)| !NOT_COPIED.contains(key))
}

/// The revision in `annotations`: 0 when there is none, `None` when it is no number.
pub fn revision(annotations: &Labels) -> Option<i64> {
    match annotations.get(REVISION) {
        None => Some(0),
        Some(text) => text.parse().ok(),
    }
}

/// The number under `key`, if there is one.
pub fn count(annotations: &Labels, key: &str) -> Option<i64> {
    annotations.get(key)?.parse::<i32>().ok().map(i64::from)
}

/// `history` with `revision` at its end; its oldest entries go when it gets too long.
pub fn append(history: &str, revision: &str) -> String {
    let mut history = history;
    while !history.is_empty() && history.len() + revision.len() + 1 > HISTORY_LIMIT {
        history = history.split_once(',').map_or("", |(_, later)| later);
    }
    if history.is_empty() { revision.to_owned() } else { format!("{history},{revision}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_grows_at_its_end_and_forgets_its_oldest() {
        assert_eq!(append("", "1"), "1");
        assert_eq!(append("1", "3"), "1,3");
        let long: Vec<String> = (1000..1400).map(|revision| revision.to_string()).collect();
        let long = long.join(",");
        assert_eq!(long.len(), 1999);
        let longer = append(&long, "1400");
        assert!(
            longer.len() <= HISTORY_LIMIT && longer.starts_with("1001,") && longer.ends_with(",1399,1400")
        );
    }

    #[test]
    fn revisions_and_counts_are_numbers() {
        let of = |text: &str| [(REVISION, text), (MAX_REPLICAS, text)].into_iter().collect::<Labels>();
        assert_eq!(revision(&Labels::default()), Some(0));
        assert_eq!((revision(&of("7")), count(&of("7"), MAX_REPLICAS)), (Some(7), Some(7)));
        assert_eq!((revision(&of("x")), count(&of("x"), MAX_REPLICAS)), (None, None));
        assert_eq!(count(&of("7"), DESIRED_REPLICAS), None);
    }

    #[test]
    fn what_says_nothing_about_a_replica_set_is_not_copied() {
        let annotations = [(REVISION, "3"), ("note", "kept"), (DESIRED_REPLICAS, "9")];
        let annotations: Labels = annotations.into_iter().collect();
        assert_eq!(copied(&annotations).collect::<Vec<_>>(), [("note", "kept")]);
    }
}
