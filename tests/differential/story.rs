//! The story of a difference: the operations, the fields that differ, and the writes of each manager.

use std::fmt::Write as _;

use kube::api::ApiResource;

use crate::compare::Difference;
use crate::operation::Operation;
use crate::play::Played;
use crate::scenario::resource;

/// Differences and writes that are printed.
const DIFFERENCES: usize = 12;
const WRITES: usize = 40;

/// Returns the operations of a list with a difference in some repeats.
pub(crate) fn of_rare(seed: u64, list: &[Operation]) -> String {
    begin(&format!("SEED={seed} make differ, different in some repeats only"), list)
}

fn begin(title: &str, list: &[Operation]) -> String {
    let mut text = format!("\n=== {title}\n{} operations:\n", list.len());
    for operation in list {
        let _ = writeln!(text, "  {operation}");
    }
    text
}

/// Returns the story.
pub(crate) fn write(seed: u64, list: &[Operation], differences: &[Difference], played: &[Played]) -> String {
    let mut text = begin(&format!("SEED={seed} make differ"), list);
    for difference in differences.iter().take(DIFFERENCES) {
        let _ = writeln!(text, "  {difference}");
    }
    if differences.len() > DIFFERENCES {
        let _ = writeln!(text, "  and {} more", differences.len() - DIFFERENCES);
    }
    let named = objects(differences);
    for (manager, played) in [("kube-controller-manager", &played[0]), ("coxswain", &played[2])] {
        let lines: Vec<&String> = played.lines.iter().filter(|line| concerns(line, &named)).collect();
        let _ = writeln!(text, "  {} writes of {manager} to {}:", lines.len(), named.join(", "));
        for line in lines.iter().take(WRITES) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// Returns the objects that differences name, as `KIND/NAME`.
fn objects(differences: &[Difference]) -> Vec<String> {
    let mut named: Vec<String> = differences.iter().filter_map(Difference::named).collect();
    named.sort();
    named.dedup();
    named
}

/// Returns whether a line of the audit log (`VERB RESOURCE NAME …`) is about one of these objects (`KIND/NAME`). All pods are one.
fn concerns(line: &str, named: &[String]) -> bool {
    let mut words = line.split(' ').skip(1);
    let (resource_of_line, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let resource_of_line = resource_of_line.split('/').next().unwrap_or_default();
    named.iter().any(|object| {
        let (kind, object) = object.split_once('/').unwrap_or((object, ""));
        let plural = resource(kind).map(|ApiResource { plural, .. }| plural).unwrap_or_default();
        plural == resource_of_line && (object == name || name.is_empty() || kind == "Pod")
    })
}

#[test]
fn lines_of_named_objects_are_printed() {
    let named = ["Job/web".to_owned(), "Pod/".to_owned()];
    for (line, expected) in [
        ("update jobs/status web -> 200 by job-controller", true),
        ("update jobs/status db -> 200 by job-controller", false),
        ("create pods  -> 201 by job-controller", true),
        ("delete pods web-POD -> 200 by job-controller", true),
        ("create events  -> 201 by job-controller", false),
    ] {
        assert_eq!(concerns(line, &named), expected, "{line}");
    }
}
