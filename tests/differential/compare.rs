//! Comparison of three plays of a list: two under kube-controller-manager, one under Coxswain.
//!
//! A field counts as different when both plays under kube-controller-manager agree on it and Coxswain does not. An object on which the two
//! plays disagree in a round is noise in that round. The first round with a difference is the last that counts: later differences may follow
//! from it.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::diff::differences;
use crate::known::Table;
use crate::play::Played;

/// A field that differs. `null` stands for an absent value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    pub(crate) round: usize,
    /// `KIND.NAME.FIELD`, `events.TEXT`, `managers.KIND/NAME`, `operations.OPERATION` or `writes.CONTROLLER RESOURCE`.
    pub(crate) path: String,
    pub(crate) kcm: Value,
    pub(crate) ours: Value,
}

/// The comparison of a list's plays.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Differences that no table explains.
    pub(crate) differences: Vec<Difference>,
    /// Number of differences in `wanted.tsv`.
    pub(crate) wanted: usize,
    /// Fields in which the two plays under kube-controller-manager differ.
    pub(crate) noise: Vec<Difference>,
    /// Number of objects, events, sets of field managers and results of operations that were compared, over all rounds.
    pub(crate) objects: usize,
}

/// Coxswain's writes are a difference if they exceed this multiple of kube-controller-manager's larger number plus `SPARE`. The number of
/// changes in one write depends on timing.
const WRITES: usize = 2;
const SPARE: usize = 3;

impl Difference {
    pub(crate) fn change(&self) -> String {
        format!("{} -> {}", self.kcm, self.ours)
    }

    /// Returns the sort of difference: the path without names of objects, numbers and texts.
    pub(crate) fn signature(&self) -> String {
        let (kind, rest) = self.path.split_once('.').unwrap_or((&self.path, ""));
        match kind {
            // `Normal REASON by COMPONENT about …`
            "events" => format!("events {}", rest.split(' ').take(4).collect::<Vec<_>>().join(" ")),
            "operations" => {
                let title = rest.split_once(' ').map_or(rest, |(_, title)| title);
                format!("operations {}", title.split('/').next().unwrap_or_default())
            }
            "writes" => self.path.clone(),
            // `KIND/NAME`
            "managers" => {
                format!("managers {} {}", rest.split('/').next().unwrap_or_default(), self.change())
            }
            "Pod" if rest.is_empty() => {
                let side = if self.kcm.is_null() { &self.ours } else { &self.kcm };
                format!("Pod {} {}", side["status"], side["owners"].as_array().map_or(0, Vec::len))
            }
            kind => {
                let field = rest.split_once('.').map_or("", |(_, field)| field);
                let letters = field.chars().filter(|letter| !letter.is_ascii_digit());
                format!("{kind} {}", letters.collect::<String>())
            }
        }
    }

    /// Returns the object that the path names, as `KIND/NAME`.
    pub(crate) fn named(&self) -> Option<String> {
        let (kind, rest) = self.path.split_once('.').unwrap_or((&self.path, ""));
        match kind {
            "calm" | "operations" | "writes" => None,
            "managers" => Some(rest.to_owned()),
            // `Normal REASON by COMPONENT about VERSION KIND/NAME: MESSAGE`
            "events" => rest.split(' ').nth(6).map(|named| named.trim_end_matches(':').to_owned()),
            "Pod" => Some("Pod/".to_owned()),
            kind => {
                let fields =
                    [".spec", ".status", ".metadata", ".labels", ".annotations", ".finalizers", ".owners"];
                let end = fields.iter().filter_map(|field| rest.find(field)).min().unwrap_or(rest.len());
                Some(format!("{kind}/{}", &rest[..end]))
            }
        }
    }

    /// Returns the sorts of difference, each once, in order. The first difference of each sort stands for it.
    pub(crate) fn sorts(all: &[Self]) -> Vec<Self> {
        let mut sorts: Vec<Self> = Vec::new();
        for difference in all {
            // Linear: a verdict has the differences of one round, of a few sorts.
            if sorts.iter().all(|sort| sort.signature() != difference.signature()) {
                sorts.push(difference.clone());
            }
        }
        sorts
    }

    /// Returns the part of the path that names an object. All pods are one, because their names are random.
    pub(crate) fn object(&self) -> String {
        if self.path.starts_with("Pod.") {
            return "Pod".to_owned();
        }
        self.path.split('.').take(2).collect::<Vec<_>>().join(".")
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "round {}: {}\n    kube-controller-manager: {}\n    coxswain: {}",
            self.round, self.path, self.kcm, self.ours
        )
    }
}

/// Returns the differences between two plays in a round.
pub(crate) fn between(round: usize, first: &Value, second: &Value) -> Vec<Difference> {
    let found = differences("", first, second).into_iter();
    let found = found.map(|each| Difference { round, path: each.path, kcm: each.recorded, ours: each.ours });
    let (pods, others): (Vec<_>, Vec<_>) = found.partition(|difference| difference.path == "Pod");
    [others, in_pairs(pods)].concat()
}

/// Returns the fields that differ between pods of the same name, instead of the pods: the comparison before has pods as a list without order.
fn in_pairs(pods: Vec<Difference>) -> Vec<Difference> {
    let (mut theirs, ours): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod.ours.is_null());
    let mut found = Vec::new();
    for our in ours {
        let name = &our.ours["name"];
        let Some(at) = theirs.iter().position(|their| their.kcm["name"] == *name) else {
            found.push(our);
            continue;
        };
        let their = theirs.remove(at);
        for field in differences("", &their.kcm, &our.ours) {
            let path = format!("Pod.{}.{}", name.as_str().unwrap_or_default(), field.path);
            found.push(Difference { round: our.round, path, kcm: field.recorded, ours: field.ours });
        }
    }
    found.extend(theirs);
    found
}

/// Compares the plays of a list.
pub(crate) fn compare(
    first: &Played,
    second: &Played,
    ours: &Played,
    noise: &Table,
    wanted: &Table,
) -> Verdict {
    let mut verdict = Verdict::default();
    let rounds = first.looks.iter().zip(&second.looks).zip(&ours.looks).enumerate();
    for (round, ((first, second), ours)) in rounds {
        let kinds = ours.as_object().into_iter().flatten().map(|(_, all)| all);
        verdict.objects += kinds
            .map(|all| all.as_object().map_or(0, serde_json::Map::len) + all.as_array().map_or(0, Vec::len))
            .sum::<usize>();
        let unsteady = between(round, first, second);
        let noisy: BTreeSet<String> = unsteady.iter().map(Difference::object).collect();
        verdict.noise.extend(unsteady);
        for difference in between(round, first, ours) {
            if noisy.contains(&difference.object()) || noise.find(&difference).is_some() {
                continue;
            }
            if wanted.find(&difference).is_some() {
                verdict.wanted += 1;
            } else {
                verdict.differences.push(difference);
            }
        }
        if !verdict.differences.is_empty() {
            return verdict;
        }
    }
    let round = ours.looks.len();
    for (sort, count) in &ours.writes {
        let of = |played: &Played| played.writes.get(sort).copied().unwrap_or(0);
        let most = of(first).max(of(second));
        let difference =
            Difference { round, path: format!("writes.{sort}"), kcm: most.into(), ours: (*count).into() };
        let is_more = *count > WRITES * most + SPARE;
        if is_more && noise.find(&difference).is_none() && wanted.find(&difference).is_none() {
            verdict.differences.push(difference);
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn played(looks: &[Value], writes: usize) -> Played {
        let writes = [("job-controller jobs/status".to_owned(), writes)].into();
        Played { looks: looks.to_vec(), writes, ..Played::default() }
    }

    fn verdict(first: &Played, second: &Played, ours: &Played) -> Verdict {
        compare(first, second, ours, &Table::noise(), &Table::wanted())
    }

    fn job(name: &str, failed: u32) -> Value {
        json!({ "Job": { name: { "status": { "failed": failed } } } })
    }

    #[test]
    fn field_differs_when_both_plays_of_kcm_agree_on_it() {
        let (one, two) = (played(&[job("a", 1)], 1), played(&[job("a", 2)], 1));
        let found = verdict(&one, &one, &two);
        assert_eq!(
            found.differences,
            [Difference { round: 0, path: "Job.a.status.failed".to_owned(), kcm: json!(1), ours: json!(2) }]
        );
        assert_eq!(found.differences[0].signature(), "Job status.failed");
        assert_eq!(found.objects, 1);
        assert!(verdict(&one, &two, &two).differences.is_empty(), "kcm differs from itself");
        assert_eq!(verdict(&one, &two, &two).noise.len(), 1);
        assert!(verdict(&one, &one, &one).differences.is_empty());
    }

    #[test]
    fn pods_of_the_same_name_differ_in_fields() {
        let of = |phases: &[&str]| {
            let pods = phases.iter().map(|phase| json!({ "name": "web-POD", "status": { "phase": phase } }));
            played(&[json!({ "Pod": pods.collect::<Vec<_>>() })], 1)
        };
        let found = verdict(&of(&["a", "b"]), &of(&["a", "b"]), &of(&["c", "a", "d"])).differences;
        let paths: Vec<&str> = found.iter().map(|each| each.path.as_str()).collect();
        assert_eq!(paths, ["Pod.web-POD.status.phase", "Pod"]);
        assert_eq!(found[0].signature(), "Pod status.phase");
    }

    #[test]
    fn first_round_with_a_difference_is_the_last() {
        let theirs = played(&[job("a", 1), job("a", 1)], 1);
        let ours = played(&[job("a", 2), job("a", 3)], 90);
        let found = verdict(&theirs, &theirs, &ours);
        assert_eq!(found.differences.iter().map(|each| each.round).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn many_more_writes_are_a_difference() {
        let of = |writes| played(&[job("a", 1)], writes);
        assert!(verdict(&of(2), &of(4), &of(11)).differences.is_empty());
        let found = verdict(&of(2), &of(4), &of(12)).differences;
        assert_eq!(found[0].path, "writes.job-controller jobs/status");
    }

    #[test]
    fn signature_has_no_names() {
        let of = |path: &str| {
            let difference = Difference { round: 0, path: path.to_owned(), kcm: json!(1), ours: json!(2) };
            difference.signature()
        };
        assert_eq!(
            of("events.Normal Killing by job-controller about batch/v1 Job/a: x"),
            "events Normal Killing by job-controller"
        );
        assert_eq!(of("managers.Job/a.b"), "managers Job 1 -> 2");
        assert_eq!(of("operations.12 user apply Job/web"), "operations user apply Job");
        assert_eq!(of("StatefulSet.web.spec.ordinals"), of("StatefulSet.db.spec.ordinals"));
        let all = ["Job.web.status.a", "Job.db.status.a", "Job.db.status.b"].map(|path| Difference {
            round: 0,
            path: path.to_owned(),
            kcm: json!(1),
            ours: json!(2),
        });
        assert_eq!(Difference::sorts(&all), [all[0].clone(), all[2].clone()]);
    }
}
