//! Decides whether a candidate is reported: a difference in one trial of a list, compared with further trials of the same list.
//!
//! A race inside a round can have one outcome in both plays under kube-controller-manager by chance, and another outcome later. So a
//! candidate is noise if two plays under kube-controller-manager of all trials differ in its object. A race that Coxswain alone has is a
//! difference, too: kube-controller-manager agrees in all plays, and Coxswain differs in some.

use crate::compare::{Difference, Verdict, between};
use crate::play::Played;

/// Number of repeats. Each plays the list twice under kube-controller-manager.
pub(crate) const REPEATS: usize = 2;
/// Number of further repeats of a candidate that some repeats do not show.
pub(crate) const MORE: usize = 4;

/// The plays of a list, and their comparison.
pub(crate) struct Trial {
    /// Two plays under kube-controller-manager, and one under Coxswain.
    pub(crate) played: Vec<Played>,
    pub(crate) verdict: Verdict,
}

/// The result of repeats.
#[derive(Debug, PartialEq)]
pub(crate) enum Finding {
    /// Every repeat shows the candidate.
    Repeated,
    /// Two plays under kube-controller-manager differ in the object of the candidate. The difference is between these plays.
    Unsteady(Difference),
    /// Some repeats do not show the candidate, and all plays under kube-controller-manager agree on its object.
    Rare,
}

impl Trial {
    pub(crate) fn shows(&self, signature: &str) -> bool {
        self.verdict.differences.iter().any(|difference| difference.signature() == signature)
    }

    fn theirs(&self) -> &[Played] {
        &self.played[..2]
    }
}

/// Judges a candidate of the first trial by the repeats.
pub(crate) fn judge(candidate: &Difference, first: &Trial, repeats: &[Trial]) -> Finding {
    let theirs: Vec<&Played> = [first].into_iter().chain(repeats).flat_map(Trial::theirs).collect();
    if let Some(difference) = disagreement(candidate, &theirs) {
        return Finding::Unsteady(difference);
    }
    let signature = candidate.signature();
    if repeats.len() >= REPEATS && repeats.iter().all(|repeat| repeat.shows(&signature)) {
        Finding::Repeated
    } else {
        Finding::Rare
    }
}

/// Returns a difference between plays in the object and the round of the candidate. Counts of writes are in no round.
fn disagreement(candidate: &Difference, plays: &[&Played]) -> Option<Difference> {
    let round = candidate.round;
    let mut looks = plays.iter().filter_map(|play| play.looks.get(round));
    let first = looks.next()?;
    looks.flat_map(|look| between(round, first, look)).find(|each| each.object() == candidate.object())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::compare::compare;
    use crate::known::Table;

    fn played(failed: u32, writes: usize) -> Played {
        let look: Value = json!({ "Job": { "web": { "status": { "failed": failed } }, "db": {} } });
        let writes = [("job-controller jobs/status".to_owned(), writes)].into();
        Played { looks: vec![look], writes, ..Played::default() }
    }

    /// Returns a trial with these numbers of failed pods, twice under kube-controller-manager and once under Coxswain.
    fn trial(failed: [u32; 3]) -> Trial {
        let played = failed.map(|failed| played(failed, 1));
        let verdict = compare(&played[0], &played[1], &played[2], &Table::noise(), &Table::wanted());
        Trial { played: played.into(), verdict }
    }

    fn finding(first: [u32; 3], repeats: &[[u32; 3]]) -> Finding {
        let first = trial(first);
        let repeats: Vec<Trial> = repeats.iter().map(|failed| trial(*failed)).collect();
        judge(&first.verdict.differences[0], &first, &repeats)
    }

    #[test]
    fn candidate_in_all_repeats_is_repeated_and_in_some_is_rare() {
        assert_eq!(finding([1, 1, 2], &[[1, 1, 2], [1, 1, 3]]), Finding::Repeated);
        assert_eq!(finding([1, 1, 2], &[[1, 1, 2], [1, 1, 1]]), Finding::Rare);
        assert_eq!(finding([1, 1, 2], &[[1, 1, 2]]), Finding::Rare, "a repeat could not be played");
    }

    #[test]
    fn candidate_is_noise_when_plays_under_kcm_differ() {
        let noise = |kcm: u32, ours: u32| {
            let path = "Job.web.status.failed".to_owned();
            Finding::Unsteady(Difference { round: 0, path, kcm: json!(kcm), ours: json!(ours) })
        };
        assert_eq!(finding([1, 1, 2], &[[1, 2, 2], [1, 1, 2]]), noise(1, 2));
        assert_eq!(finding([1, 1, 2], &[[1, 1, 2], [2, 2, 2]]), noise(1, 2), "each trial agrees with itself");
        assert_eq!(finding([1, 1, 2], &[[3, 3, 2], [1, 1, 2]]), noise(1, 3));
    }

    #[test]
    fn number_of_writes_needs_no_agreement() {
        let with = |writes: [usize; 3]| {
            let played = writes.map(|writes| played(1, writes));
            let verdict = compare(&played[0], &played[1], &played[2], &Table::noise(), &Table::wanted());
            Trial { played: played.into(), verdict }
        };
        let first = with([1, 2, 90]);
        let repeats = [with([2, 1, 90]), with([3, 1, 80])];
        assert_eq!(judge(&first.verdict.differences[0], &first, &repeats), Finding::Repeated);
    }
}
