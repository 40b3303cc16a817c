//! Comparison of three plays of a list: two under kube-controller-manager, one under Coxswain.
//!
//! A field counts as different when Coxswain's value is the value of neither play under kube-controller-manager, nor a number between both
//! values. All rounds are compared, because the differences of an earlier round may turn out to be noise (`repeat`).

use std::collections::{BTreeMap, BTreeSet};
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
            kind => {
                let field = rest.get(name_end(rest)..).unwrap_or_default().trim_start_matches('.');
                let is_fewer = self.ours.as_u64().unwrap_or_default() < self.kcm.as_u64().unwrap_or_default();
                let sign = if field == NUMBER { if is_fewer { " fewer" } else { " more" } } else { "" };
                let letters = field.chars().filter(|letter| !letter.is_ascii_digit());
                format!("{kind} {}{sign}", letters.collect::<String>())
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
            kind => Some(format!("{kind}/{}", &rest[..name_end(rest)])),
        }
    }

    /// Returns whether this is a number of write requests, which belongs to no round.
    pub(crate) fn is_of_writes(&self) -> bool {
        self.path.starts_with("writes.")
    }

    /// Returns whether both are about the same field, or one about a part of the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let is_in = |part: &str, whole: &str| {
            part.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        is_in(&self.path, &other.path) || is_in(&other.path, &self.path)
    }
}

/// The last part of the path of a number of pods.
const NUMBER: &str = "number";
/// The last part of the path of pods that have the same values in other combinations.
const COMBINATION: &str = "combination";

/// Returns the end of the object's name in a path without its kind. A name may have dots.
fn name_end(rest: &str) -> usize {
    const FIELDS: [&str; 18] = [
        ".addressType",
        ".annotations",
        ".data",
        ".deleting",
        ".endpoints",
        ".finalizers",
        ".generation",
        ".labels",
        ".metadata",
        ".owners",
        ".ports",
        ".rules",
        ".secrets",
        ".spec",
        ".status",
        ".subsets",
        ".number",
        ".combination",
    ];
    let is_whole =
        |at: &usize, field: &str| matches!(rest.as_bytes().get(at + field.len()), None | Some(b'.'));
    let ends = FIELDS.iter().filter_map(|field| rest.find(field).filter(|at| is_whole(at, field)));
    ends.min().unwrap_or(rest.len())
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
    let found = differences("", first, second).into_iter().filter(|each| each.path != "Pod");
    let found = found.map(|each| Difference { round, path: each.path, kcm: each.recorded, ours: each.ours });
    found.chain(between_pods(round, &first["Pod"], &second["Pod"])).collect()
}

/// Returns the differences between pods. Pods of one name are compared by the values that all of them have in a field, because the random
/// parts of their names are replaced.
fn between_pods(round: usize, first: &Value, second: &Value) -> Vec<Difference> {
    let (first, second) = (by_name(first), by_name(second));
    let names: BTreeSet<&str> = first.keys().chain(second.keys()).copied().collect();
    let mut found = Vec::new();
    for name in names {
        let (kcm, ours) = (pods_of(&first, name), pods_of(&second, name));
        if kcm == ours {
            continue;
        }
        let mut add = |end: &str, kcm: Value, ours: Value| {
            found.push(Difference { round, path: format!("Pod.{name}.{end}"), kcm, ours });
        };
        let number = |pods: &[&Value]| pods.iter().map(|pod| number(pod)).sum::<u64>();
        if number(kcm) != number(ours) {
            add(NUMBER, number(kcm).into(), number(ours).into());
            continue;
        }
        let (of_kcm, of_ours) = (values(kcm), values(ours));
        let fields: BTreeSet<&String> = of_kcm.keys().chain(of_ours.keys()).collect();
        let side = |values: &BTreeMap<String, Vec<Value>>, field: &String| match values
            .get(field)
            .map(Vec::as_slice)
        {
            None => Value::Null,
            Some([only]) => only.clone(),
            Some(more) => Value::from(more),
        };
        let mut is_combination = true;
        for field in fields.into_iter().filter(|field| of_kcm.get(*field) != of_ours.get(*field)) {
            is_combination = false;
            add(field, side(&of_kcm, field), side(&of_ours, field));
        }
        if is_combination {
            let all = |pods: &[&Value]| -> Value { pods.iter().copied().cloned().collect() };
            add(COMBINATION, all(kcm), all(ours));
        }
    }
    found
}

/// Returns pods by their names.
fn by_name(pods: &Value) -> BTreeMap<&str, Vec<&Value>> {
    let mut named: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for pod in pods.as_array().into_iter().flatten() {
        named.entry(pod["name"].as_str().unwrap_or_default()).or_default().push(pod);
    }
    named
}

fn pods_of<'a, 'b>(pods: &'a BTreeMap<&str, Vec<&'b Value>>, name: &str) -> &'a [&'b Value] {
    pods.get(name).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the number of equal pods that an entry stands for.
fn number(pod: &Value) -> u64 {
    pod["count"].as_u64().unwrap_or(1)
}

/// Returns the values of each field of pods, in the order of their texts.
fn values(pods: &[&Value]) -> BTreeMap<String, Vec<Value>> {
    let mut all = BTreeMap::new();
    for pod in pods {
        for (key, value) in pod.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "name" | "count") {
                for _ in 0..number(pod) {
                    add_values(key, value, &mut all);
                }
            }
        }
    }
    for values in all.values_mut() {
        values.sort_by_cached_key(Value::to_string);
    }
    all
}

fn add_values(path: &str, value: &Value, all: &mut BTreeMap<String, Vec<Value>>) {
    match value.as_object().filter(|fields| !fields.is_empty()) {
        Some(fields) => {
            for (key, value) in fields {
                add_values(&format!("{path}.{key}"), value, all);
            }
        }
        None => all.entry(path.to_owned()).or_default().push(value.clone()),
    }
}

/// Returns the differences of Coxswain's play to two plays under kube-controller-manager: those to the first that overlap with one to the
/// second. Of two that overlap, the difference in the smaller part is returned.
fn common(first: Vec<Difference>, second: &[Difference]) -> Vec<Difference> {
    let mut found: Vec<Difference> = Vec::new();
    for one in first {
        // Linear: two plays differ in a few fields.
        let overlapping: Vec<&Difference> = second.iter().filter(|other| one.overlaps(other)).collect();
        if overlapping.iter().any(|other| is_between(&one, &other.kcm)) {
            continue;
        }
        if overlapping.iter().any(|other| other.path.len() <= one.path.len()) {
            found.push(one);
        } else {
            found.extend(overlapping.into_iter().cloned());
        }
    }
    found
}

/// Returns whether Coxswain's number lies between two numbers of kube-controller-manager.
pub(crate) fn is_between(difference: &Difference, other: &Value) -> bool {
    let numbers = (difference.kcm.as_f64(), other.as_f64(), difference.ours.as_f64());
    let (Some(kcm), Some(other), Some(ours)) = numbers else { return false };
    (kcm.min(other)..=kcm.max(other)).contains(&ours)
}

/// Returns whether Coxswain made many more writes than kube-controller-manager.
pub(crate) fn are_many(count: usize, most: usize) -> bool {
    count > WRITES * most + SPARE
}

/// Compares the plays of a list. `lines` are its operations.
pub(crate) fn compare(
    [first, second, ours]: [&Played; 3],
    noise: &Table,
    wanted: &Table,
    lines: &str,
) -> Verdict {
    let mut verdict = Verdict::default();
    let rounds = first.looks.iter().zip(&second.looks).zip(&ours.looks).enumerate();
    for (round, ((first, second), ours)) in rounds {
        let kinds = ours.as_object().into_iter().flatten().map(|(_, all)| all);
        verdict.objects += kinds
            .map(|all| all.as_object().map_or(0, serde_json::Map::len) + all.as_array().map_or(0, Vec::len))
            .sum::<usize>();
        verdict.noise.extend(between(round, first, second));
        for difference in common(between(round, first, ours), &between(round, second, ours)) {
            if noise.find(&difference, lines).is_some() {
                continue;
            }
            if wanted.find(&difference, lines).is_some() {
                verdict.wanted += 1;
            } else {
                verdict.differences.push(difference);
            }
        }
    }
    let round = ours.looks.len();
    if first.looks.len() != round || second.looks.len() != round {
        // A play that ended early has other writes.
        return verdict;
    }
    for (sort, count) in &ours.writes {
        let most = first.writes_of(sort).max(second.writes_of(sort));
        let difference =
            Difference { round, path: format!("writes.{sort}"), kcm: most.into(), ours: (*count).into() };
        let is_known =
            || noise.find(&difference, lines).is_some() || wanted.find(&difference, lines).is_some();
        if are_many(*count, most) && !is_known() {
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
        compare([first, second, ours], &Table::noise(), &Table::wanted(), "")
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
    fn value_of_neither_play_of_kcm_differs_although_these_disagree() {
        let of = |failed: u32| played(&[job("a", failed)], 1);
        assert_eq!(verdict(&of(1), &of(3), &of(4)).differences.len(), 1);
        assert!(verdict(&of(1), &of(3), &of(2)).differences.is_empty(), "a number between both");
        let job = |status: Value| played(&[json!({ "Job": { "a": { "status": status } } })], 1);
        let (one, two) = (job(json!({ "failed": 1, "ready": 0 })), job(json!({ "failed": 1, "ready": 1 })));
        let found = verdict(&one, &two, &job(json!({ "failed": 2, "ready": 1 }))).differences;
        assert_eq!(found.iter().map(|each| each.path.as_str()).collect::<Vec<_>>(), ["Job.a.status.failed"]);
    }

    #[test]
    fn object_that_one_play_of_kcm_lacks_is_compared_with_the_other() {
        let (absent, one, two) =
            (played(&[json!({})], 1), played(&[job("a", 1)], 1), played(&[job("a", 2)], 1));
        assert!(verdict(&absent, &one, &one).differences.is_empty());
        for (first, second) in [(&absent, &one), (&one, &absent)] {
            let found = verdict(first, second, &two).differences;
            assert_eq!(
                found.iter().map(|each| each.path.as_str()).collect::<Vec<_>>(),
                ["Job.a.status.failed"]
            );
        }
    }

    #[test]
    fn pods_of_the_same_name_differ_in_fields() {
        let of = |phases: &[&str]| {
            let pods = phases.iter().map(|phase| json!({ "name": "web-POD", "status": { "phase": phase } }));
            played(&[json!({ "Pod": pods.collect::<Vec<_>>() })], 1)
        };
        let two = of(&["a", "b"]);
        let found = verdict(&two, &two, &of(&["a", "c"])).differences;
        assert_eq!(found[0].path, "Pod.web-POD.status.phase");
        assert_eq!((&found[0].kcm, &found[0].ours), (&json!(["a", "b"]), &json!(["a", "c"])));
        assert_eq!(found[0].signature(), "Pod status.phase");
        let found = verdict(&two, &two, &of(&["c", "a", "d"])).differences;
        assert_eq!(found[0].path, "Pod.web-POD.number");
        assert_eq!(found[0].signature(), "Pod number more");
        assert_eq!(found[0].named(), Some("Pod/".to_owned()));
    }

    #[test]
    fn pods_with_the_same_values_in_other_combinations_differ() {
        let of = |ready: [u32; 2]| {
            let pods = ["a", "b"].iter().zip(ready);
            let pods =
                pods.map(|(image, ready)| json!({ "name": "web-POD", "image": image, "ready": ready }));
            played(&[json!({ "Pod": pods.collect::<Vec<_>>() })], 1)
        };
        let found = verdict(&of([0, 1]), &of([0, 1]), &of([1, 0])).differences;
        assert_eq!(found[0].signature(), "Pod combination");
        assert!(verdict(&of([0, 1]), &of([0, 1]), &of([0, 1])).differences.is_empty());
    }

    #[test]
    fn every_round_is_compared() {
        let theirs = played(&[job("a", 1), job("a", 1)], 1);
        let ours = played(&[job("a", 2), job("a", 3)], 1);
        let found = verdict(&theirs, &theirs, &ours);
        assert_eq!(found.differences.iter().map(|each| each.round).collect::<Vec<_>>(), [0, 1]);
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
        for name in ["db", "a.b"] {
            assert_eq!(of(&format!("StatefulSet.{name}.spec.ordinals")), "StatefulSet spec.ordinals");
        }
        assert_eq!(of("ConfigMap.a.b"), "ConfigMap ");
    }
}
