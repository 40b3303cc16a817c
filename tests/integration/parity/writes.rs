//! How often a manager writes in a scenario: Coxswain never sends more write requests than the Go manager did.
//!
//! Counted are requests, refused ones too, by the API server's audit log. A single scenario leaves room for chance (two pods that
//! become ready together are one status or two), so what counts is the sum over all scenarios of a controller. Events, leases and
//! reviews are no objects of theirs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::harness::{AuditEvent, ControlPlane};

/// Where the counts are stored, below the scenarios: one `SCENARIO COUNT` a line.
const FILE: &str = "outcomes/writes.tsv";

/// Scenarios and their write requests.
pub(super) type Writes = BTreeMap<String, usize>;

/// The namespace of a scenario begins with this.
pub(super) fn prefix(scenario: &str) -> String {
    scenario.replace('/', "-")
}

/// Write requests of a manager in each of these scenarios; of the time in which it wrote more, if it was played twice.
pub(super) fn count<'a>(
    plane: &ControlPlane,
    user_agent: &str,
    scenarios: impl Iterator<Item = &'a str>,
) -> Writes {
    let mut by_namespace: BTreeMap<String, usize> = BTreeMap::new();
    for event in
        plane.audit().iter().filter(|event| event.user_agent.starts_with(user_agent) && counts(event))
    {
        *by_namespace.entry(event.object_ref.namespace.clone()).or_default() += 1;
    }
    let most = |scenario: &str| {
        let prefix = format!("{}-", prefix(scenario));
        // What follows is a number: it is no namespace of a scenario with a longer name.
        let is_its = |name: &str| name.strip_prefix(&prefix).is_some_and(|rest| rest.parse::<u32>().is_ok());
        let its = by_namespace.iter().filter(|(name, _)| is_its(name));
        its.map(|(_, count)| *count).max().unwrap_or(0)
    };
    scenarios.map(|scenario| (scenario.to_owned(), most(scenario))).collect()
}

fn counts(event: &AuditEvent) -> bool {
    let resource = event.object_ref.resource.as_str();
    event.is_write()
        && !event.object_ref.namespace.is_empty()
        && event.object_ref.subresource != "token"
        && !matches!(resource, "events" | "leases" | "tokenreviews" | "subjectaccessreviews")
}

/// What was recorded from the Go manager.
pub(super) fn recorded(root: &Path) -> Writes {
    let text = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('\t'));
    rows.map(|(name, count)| (name.to_owned(), count.parse().expect("a count"))).collect()
}

/// Stores what was counted, beside what was recorded of other scenarios.
pub(super) fn store(root: &Path, version: &str, counted: Writes) -> std::io::Result<()> {
    let mut all = recorded(root);
    all.extend(counted);
    let mut text = format!("# Write requests of the Go manager, {version}, by `make parity-record`.\n");
    for (name, count) in all.iter().filter(|(name, _)| root.join(format!("{name}.yaml")).is_file()) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}\t{count}");
    }
    fs::write(root.join(FILE), text)
}

/// The controllers for which more was written than recorded: what was written where.
pub(super) fn judge(recorded: &Writes, counted: &Writes) -> Result<(), String> {
    let mut sums: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (scenario, ours) in counted {
        let Some(theirs) = recorded.get(scenario) else {
            return Err(format!("{scenario}: its writes were not recorded: run make parity-record"));
        };
        let controller = scenario.split('/').next().unwrap_or_default();
        let sum = sums.entry(controller).or_default();
        *sum = (sum.0 + theirs, sum.1 + ours);
    }
    let complaints: Vec<String> = sums
        .iter()
        .filter(|(_, (theirs, ours))| ours > theirs)
        .map(|(controller, (theirs, ours))| {
            let own = counted.iter().filter(|(scenario, _)| scenario.split('/').next() == Some(controller));
            let rows = own.map(|(scenario, ours)| format!("  {scenario}: {} -> {ours}", recorded[scenario]));
            let rows: Vec<String> = rows.collect();
            format!("{controller}: {ours} writes, the Go manager made {theirs}\n{}", rows.join("\n"))
        })
        .collect();
    for (controller, (theirs, ours)) in &sums {
        eprintln!("{controller}: {ours} writes, the Go manager made {theirs}");
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(rows: &[(&str, usize)]) -> Writes {
        rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn a_controller_writes_no_more_in_all() {
        let theirs = writes(&[("a/one", 5), ("a/two", 5), ("b/one", 1)]);
        assert_eq!(judge(&theirs, &writes(&[("a/one", 7), ("a/two", 3)])), Ok(()));
        let complaint = judge(&theirs, &writes(&[("a/one", 5), ("b/one", 2)])).unwrap_err();
        assert_eq!(complaint, "b: 2 writes, the Go manager made 1\n  b/one: 1 -> 2");
        assert!(judge(&theirs, &writes(&[("c/one", 0)])).is_err(), "what was not recorded");
    }
}
