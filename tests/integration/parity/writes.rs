//! How often a manager writes in a scenario: Coxswain never sends more write requests than the Go manager did, and of no sort
//! are more carried out.
//!
//! A sort is a verb, a resource and a subresource. Counted are requests by the API server's audit log, also those of objects
//! that are in no namespace and named after the scenario's. Refused ones are counted together: how many there are is a
//! matter of time. A single scenario leaves room for chance (two pods that become ready together are one status or two), so
//! what counts is the sum over all scenarios of a controller. Events, leases and reviews are no objects of theirs. A controller
//! that writes by other verbs than the original does so for a reason, which is kept in `tests/parity/writes.tsv`; in all it
//! still writes no more, unless that is kept too. Differs: other-verbs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use parking_lot::Mutex;

use crate::harness::{AuditEvent, ControlPlane, Program};

/// Shards are recorded beside each other, into one file.
static STORED: Mutex<()> = Mutex::new(());

/// Where the counts are stored, below the scenarios: `SCENARIO SORT COUNT` a line.
const FILE: &str = "outcomes/writes.tsv";
/// Sorts of which more is written than by the original: `CONTROLLER SORT REASON` a line.
const KEPT: &str = "writes.tsv";

/// The sort of what was refused.
const REFUSED: &str = "refused";

/// Scenarios, and how often each sort of write was requested: `update deployments.apps/status`.
pub(super) type Writes = BTreeMap<String, BTreeMap<String, usize>>;

/// The namespace of a scenario begins with this.
pub(super) fn prefix(scenario: &str) -> String {
    scenario.replace('/', "-")
}

/// Write requests of a manager in each of these scenarios; of the time in which it wrote more, if it was played several times.
pub(super) fn count<'a>(
    plane: &ControlPlane,
    program: Program,
    scenarios: impl Iterator<Item = &'a str>,
) -> Writes {
    let scenarios: BTreeMap<String, &str> = scenarios.map(|name| (prefix(name), name)).collect();
    let mut counted: BTreeMap<(&str, u32, String), usize> = BTreeMap::new();
    let audit = plane.audit();
    let ours = audit.iter().filter(|event| event.is_from(program) && counts(event));
    for event in ours {
        let place = event.exact_place();
        let place = place.rsplit('/').next().unwrap_or_default();
        if let Some((scenario, time)) = played(&scenarios, place) {
            // Resources may be named after the scenario, too.
            let sort = sort(event).replace(&format!("{}-{time}", prefix(scenario)), "NAMESPACE");
            *counted.entry((scenario, time, sort)).or_default() += 1;
        }
    }
    let mut writes: Writes = scenarios.values().map(|name| ((*name).to_owned(), BTreeMap::new())).collect();
    for ((scenario, _, sort), count) in counted {
        let most = writes.entry(scenario.to_owned()).or_default().entry(sort).or_default();
        *most = count.max(*most);
    }
    writes
}

/// The scenario that a namespace, or an object that is named after one, belongs to, and the number of that namespace.
fn played<'a>(scenarios: &BTreeMap<String, &'a str>, place: &str) -> Option<(&'a str, u32)> {
    let parts: Vec<&str> = place.split('-').collect();
    // The longest first: one scenario's name may be the beginning of another's.
    (1..parts.len()).rev().find_map(|at| {
        let time = parts[at].parse().ok()?;
        scenarios.get(&parts[..at].join("-")).map(|name| (*name, time))
    })
}

fn counts(event: &AuditEvent) -> bool {
    let resource = event.object_ref.resource.as_str();
    event.is_write()
        && event.object_ref.subresource != "token"
        && !matches!(resource, "events" | "leases" | "tokenreviews" | "subjectaccessreviews")
}

/// `VERB RESOURCE.GROUP/SUBRESOURCE`, as far as there are, of what was carried out.
fn sort(event: &AuditEvent) -> String {
    if !event.succeeded() {
        return REFUSED.to_owned();
    }
    let after =
        |sign: &str, text: &str| if text.is_empty() { String::new() } else { format!("{sign}{text}") };
    let object = &event.object_ref;
    let (group, subresource) = (after(".", &object.api_group), after("/", &object.subresource));
    format!("{} {}{group}{subresource}", event.verb, object.resource)
}

fn rows(path: &Path) -> Vec<[String; 3]> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
        fields.try_into().unwrap_or_else(|row| panic!("{}: not three columns: {row:?}", path.display()))
    })
    .collect()
}

/// What was recorded from the Go manager.
pub(super) fn recorded(root: &Path) -> Writes {
    let mut writes = Writes::new();
    for [scenario, sort, count] in rows(&root.join(FILE)) {
        let sorts = writes.entry(scenario).or_default();
        // A scenario in which nothing was written has one row, without a sort.
        if !sort.is_empty() {
            sorts.insert(sort, count.parse().expect("a count"));
        }
    }
    writes
}

/// Stores what was counted, beside what was recorded of other scenarios.
pub(super) fn store(root: &Path, version: &str, counted: Writes) -> std::io::Result<()> {
    let _alone = STORED.lock();
    let mut all = recorded(root);
    all.extend(counted);
    let mut text = format!("# Write requests of the Go manager, {version}, by `make parity-record`.\n");
    for (name, sorts) in all.iter().filter(|(name, _)| root.join(format!("{name}.yaml")).is_file()) {
        // Writing to a string does not fail.
        if sorts.is_empty() {
            let _ = writeln!(text, "{name}\t\t0");
        }
        for (sort, count) in sorts {
            let _ = writeln!(text, "{name}\t{sort}\t{count}");
        }
    }
    fs::write(root.join(FILE), text)
}

/// What may be written more often than by the original: controllers and sorts.
pub(super) fn kept(root: &Path) -> Vec<(String, String)> {
    let rows = rows(&root.join(KEPT)).into_iter();
    rows.map(|[controller, sort, reason]| {
        assert!(!reason.trim().is_empty(), "{controller}: {sort} is kept without a reason");
        (controller, sort)
    })
    .collect()
}

/// The controllers for which more was written than recorded: what was written where.
pub(super) fn judge(recorded: &Writes, counted: &Writes, kept: &[(String, String)]) -> Result<(), String> {
    // By controller and sort, theirs and ours; the sort "in all" is their sum.
    let mut sums: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for (scenario, ours) in counted {
        let Some(theirs) = recorded.get(scenario) else {
            return Err(format!("{scenario}: its writes were not recorded: run make parity-record"));
        };
        for (sorts, is_ours) in [(theirs, false), (ours, true)] {
            for (sort, count) in sorts {
                for sort in [sort, "in all"] {
                    let sum = sums.entry((controller(scenario), sort)).or_default();
                    *(if is_ours { &mut sum.1 } else { &mut sum.0 }) += count;
                }
            }
        }
    }
    let is_kept =
        |of: &(&str, &str)| kept.iter().any(|(controller, sort)| (controller.as_str(), sort.as_str()) == *of);
    let mut complaints = Vec::new();
    let judged = sums.iter().filter(|(of, _)| of.1 != REFUSED && !is_kept(of));
    for (of, (theirs, ours)) in judged.filter(|(_, (theirs, ours))| ours > theirs) {
        let (controller, sort) = of;
        let mut complaint = format!("{controller}: {ours} writes ({sort}), the Go manager made {theirs}");
        for (scenario, own) in
            counted.iter().filter(|(scenario, _)| self::controller(scenario) == *controller)
        {
            let of = |sorts: &BTreeMap<String, usize>| match *sort {
                "in all" => sorts.values().sum(),
                sort => sorts.get(sort).copied().unwrap_or(0),
            };
            let (theirs, ours) = (of(&recorded[scenario]), of(own));
            if theirs != ours {
                let _ = write!(complaint, "\n  {scenario}: {theirs} -> {ours}");
            }
        }
        complaints.push(complaint);
    }
    for ((controller, _), (theirs, ours)) in sums.iter().filter(|((_, sort), _)| *sort == "in all") {
        eprintln!("{controller}: {ours} writes, the Go manager made {theirs}");
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

fn controller(scenario: &str) -> &str {
    scenario.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(rows: &[(&str, &str, usize)]) -> Writes {
        let mut writes = Writes::new();
        for (name, sort, count) in rows {
            writes.entry((*name).to_owned()).or_default().insert((*sort).to_owned(), *count);
        }
        writes
    }

    #[test]
    fn a_controller_writes_no_more_of_any_sort() {
        let theirs =
            writes(&[("a/one", "create pods", 5), ("a/two", "create pods", 5), ("b/one", "patch pods", 1)]);
        let fewer_in_one = writes(&[("a/one", "create pods", 7), ("a/two", "create pods", 3)]);
        assert_eq!(judge(&theirs, &fewer_in_one, &[]), Ok(()));
        let complaint =
            judge(&theirs, &writes(&[("a/one", "create pods", 5), ("b/one", "patch pods", 2)]), &[]);
        let expected = ["in all", "patch pods"]
            .map(|sort| format!("b: 2 writes ({sort}), the Go manager made 1\n  b/one: 1 -> 2"))
            .join("\n");
        assert_eq!(complaint, Err(expected));
        let other_verb = writes(&[("b/one", "update pods", 1)]);
        let complaint = "b: 1 writes (update pods), the Go manager made 0\n  b/one: 0 -> 1";
        assert_eq!(judge(&theirs, &other_verb, &[]), Err(complaint.to_owned()));
        let kept = [("b".to_owned(), "update pods".to_owned())];
        assert_eq!(judge(&theirs, &other_verb, &kept), Ok(()));
        assert!(judge(&theirs, &writes(&[("b/one", "update pods", 2)]), &kept).is_err(), "more in all");
        assert!(
            judge(&theirs, &writes(&[("c/one", "create pods", 0)]), &[]).is_err(),
            "what was not recorded"
        );
    }

    #[test]
    fn what_is_named_after_a_namespace_is_its_scenarios() {
        let scenarios = [("a-one".to_owned(), "a/one"), ("a-one-2".to_owned(), "a/one-2")].into();
        for (place, expected) in [
            ("a-one-7", Some(("a/one", 7))),
            ("a-one-7-range", Some(("a/one", 7))),
            ("a-one-2-7", Some(("a/one-2", 7))),
            ("a-one", None),
            ("a-one-more", None),
            ("kube-system", None),
        ] {
            assert_eq!(played(&scenarios, place), expected, "{place}");
        }
    }
}
