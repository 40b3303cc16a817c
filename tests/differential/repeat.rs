//! Decides whether a candidate is reported: a difference in one trial of a list, compared with further trials of the same list.
//!
//! A race inside a round can have one outcome in both plays under kube-controller-manager by chance, and another outcome later. So a
//! candidate is noise if two plays under kube-controller-manager of all trials differ in its field, and Coxswain's value is the value of one of
//! these plays. A race that Coxswain alone has is a difference, too: kube-controller-manager agrees in all plays, and Coxswain differs in some.

use serde_json::Value;

use crate::compare::{Difference, Verdict, are_many, between, is_between};
use crate::play::Played;

/// Number of repeats. Each plays the list twice under kube-controller-manager.
pub(crate) const REPEATS: usize = 2;
/// Number of further repeats of a candidate that some repeats do not show.
pub(crate) const MORE: usize = 4;

/// Values that a race has under kube-controller-manager at most if Coxswain's must be one of them. A field with more values, such as the
/// endpoints that share a slice, has so many that a few plays do not show all.
const FEW: usize = 2;

/// The plays of a list, and their comparison.
pub(crate) struct Trial {
    /// Two plays under kube-controller-manager, and one under Coxswain.
    pub(crate) played: Vec<Played>,
    pub(crate) verdict: Verdict,
}

/// The result of repeats.
#[derive(Debug, PartialEq)]
pub(crate) enum Finding {
    /// Every trial shows the candidate.
    Repeated,
    /// Plays under kube-controller-manager have two values in the field, and in every trial Coxswain has a third one.
    Outside,
    /// Plays under kube-controller-manager differ in the field, and Coxswain's value is among theirs or these have many values. The difference is
    /// between these plays.
    Unsteady(Difference),
    /// Some trials do not show the candidate, and all plays under kube-controller-manager agree on its field.
    Rare,
}

impl Trial {
    pub(crate) fn shows(&self, signature: &str) -> bool {
        self.verdict.differences.iter().any(|difference| difference.signature() == signature)
    }

    /// Returns whether a control plane was not calm.
    pub(crate) fn is_busy(&self) -> bool {
        self.played.iter().any(|played| !played.is_calm())
    }

    fn theirs(&self) -> &[Played] {
        &self.played[..2]
    }

    fn ours(&self) -> &Played {
        &self.played[2]
    }
}

/// Judges a candidate of the first trial by the repeats.
pub(crate) fn judge(candidate: &Difference, first: &Trial, repeats: &[Trial]) -> Finding {
    let trials: Vec<&Trial> = [first].into_iter().chain(repeats).collect();
    let theirs: Vec<&Played> = trials.iter().flat_map(|trial| trial.theirs()).collect();
    let shows = |trial: &&Trial| is_of_none(candidate, trial.ours(), &theirs);
    let in_all = repeats.len() >= REPEATS && trials.iter().all(shows);
    match disagreement(candidate, &theirs) {
        Some(_) if in_all && values(candidate, &theirs) <= FEW => Finding::Outside,
        Some(difference) => Finding::Unsteady(difference),
        None if in_all => Finding::Repeated,
        None => Finding::Rare,
    }
}

/// Returns the number of values that plays have in the candidate's field.
fn values(candidate: &Difference, plays: &[&Played]) -> usize {
    let mut different: Vec<&Value> = Vec::new();
    for look in plays.iter().filter_map(|play| play.looks.get(candidate.round)) {
        // Linear: a candidate has a few plays.
        let is_known = different
            .iter()
            .any(|known| between(candidate.round, known, look).iter().all(|each| !explains(each, candidate)));
        if !is_known {
            different.push(look);
        }
    }
    different.len()
}

/// Returns whether Coxswain's value in the candidate's field is the value of no play under kube-controller-manager, and no number between
/// their numbers.
fn is_of_none(candidate: &Difference, ours: &Played, theirs: &[&Played]) -> bool {
    if candidate.is_of_writes() {
        let sort = candidate.path.split_once('.').map_or("", |(_, sort)| sort);
        let most = theirs.iter().map(|play| play.writes_of(sort)).max();
        return are_many(ours.writes_of(sort), most.unwrap_or_default());
    }
    let round = candidate.round;
    let Some(ours) = ours.looks.get(round) else { return false };
    let looks = theirs.iter().filter_map(|play| play.looks.get(round));
    let found: Vec<Vec<Difference>> = looks
        .map(|look| between(round, look, ours).into_iter().filter(|each| each.overlaps(candidate)).collect())
        .collect();
    let numbers: Vec<&Difference> =
        found.iter().flatten().filter(|each| each.path == candidate.path).collect();
    let is_within = || numbers.iter().any(|one| numbers.iter().any(|other| is_between(one, &other.kcm)));
    found.iter().all(|differences| !differences.is_empty()) && !is_within()
}

/// Returns a difference between plays in the field and the round of the candidate. Counts of writes are in no round.
fn disagreement(candidate: &Difference, plays: &[&Played]) -> Option<Difference> {
    let round = candidate.round;
    let mut looks = plays.iter().filter_map(|play| play.looks.get(round));
    let first = looks.next()?;
    looks.flat_map(|look| between(round, first, look)).find(|each| explains(each, candidate))
}

/// Returns whether a difference between two plays under kube-controller-manager explains the candidate. It does not if the candidate is the
/// presence of an object or a field, and the plays differ in a part of it only.
fn explains(between_theirs: &Difference, candidate: &Difference) -> bool {
    let is_presence = candidate.kcm.is_null() || candidate.ours.is_null();
    let is_part = between_theirs.path.len() > candidate.path.len();
    between_theirs.overlaps(candidate) && !(is_presence && is_part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let verdict = compare(played.each_ref(), &Table::noise(), &Table::wanted(), "");
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
        assert_eq!(finding([1, 1, 5], &[[1, 3, 5], [1, 1, 6]]), Finding::Outside, "KCM has 1 and 3");
        let many = finding([1, 1, 9], &[[1, 3, 9], [1, 5, 9]]);
        assert!(matches!(many, Finding::Unsteady(_)), "KCM has 1, 3 and 5");
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
        assert_eq!(finding([1, 1, 2], &[[3, 3, 2], [1, 1, 2]]), noise(1, 3), "2 is between 1 and 3");
        assert_eq!(finding([1, 1, 5], &[[1, 3, 5], [1, 1, 3]]), noise(1, 3), "one trial has a value of KCM");
    }

    #[test]
    fn missing_object_is_no_noise_although_its_fields_differ() {
        let trial = |failed: [u32; 2], ours: Value| {
            let theirs = failed.map(|failed| played(failed, 1));
            let ours = Played { looks: vec![ours], ..Played::default() };
            let verdict = compare([&theirs[0], &theirs[1], &ours], &Table::noise(), &Table::wanted(), "");
            let [one, two] = theirs;
            Trial { played: vec![one, two, ours], verdict }
        };
        let without = json!({ "Job": { "db": {} } });
        let first = trial([1, 2], without.clone());
        assert_eq!(first.verdict.differences[0].path, "Job.web");
        let repeats = [trial([3, 4], without.clone()), trial([5, 6], without)];
        assert_eq!(judge(&first.verdict.differences[0], &first, &repeats), Finding::Repeated);
        let sometimes =
            [trial([3, 4], played(3, 1).looks[0].clone()), trial([5, 6], json!({ "Job": { "db": {} } }))];
        assert_eq!(judge(&first.verdict.differences[0], &first, &sometimes), Finding::Rare);
    }

    #[test]
    fn number_of_writes_needs_no_agreement() {
        let with = |writes: [usize; 3]| {
            let played = writes.map(|writes| played(1, writes));
            let verdict = compare(played.each_ref(), &Table::noise(), &Table::wanted(), "");
            Trial { played: played.into(), verdict }
        };
        let first = with([1, 2, 90]);
        let repeats = [with([2, 1, 90]), with([3, 1, 80])];
        assert_eq!(judge(&first.verdict.differences[0], &first, &repeats), Finding::Repeated);
    }
}
