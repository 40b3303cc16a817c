//! The original's series (`tests/data/peer/metrics.tsv`), looked for in what a real Prometheus has scraped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::server::{Labels, Prometheus, TEXT, file};

struct Theirs {
    name: String,
    kind: String,
    labels: BTreeSet<String>,
    bounds: Vec<f64>,
}

/// The lines of a table, comments aside.
fn rows(table: &str) -> Vec<String> {
    let text = fs::read_to_string(file(table)).expect(table);
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn theirs() -> Vec<Theirs> {
    let rows = rows("tests/data/peer/metrics.tsv").into_iter().map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        let split = |at: usize| field(at).split(',').filter(|each| !each.is_empty());
        Theirs {
            name: field(0).to_owned(),
            kind: field(1).to_owned(),
            labels: split(2).map(str::to_owned).collect(),
            bounds: split(3).map(|bound| bound.parse().expect("a bound")).collect(),
        }
    });
    rows.collect()
}

/// All labels but that of buckets.
fn names(labels: &Labels) -> BTreeSet<String> {
    labels.keys().filter(|name| *name != "le").cloned().collect()
}

/// What is amiss with the series of one metric.
fn fault(theirs: &Theirs, series: &BTreeMap<String, Vec<Labels>>) -> Option<String> {
    let suffixes: &[&str] = if theirs.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
    for suffix in suffixes {
        let name = format!("{}{suffix}", theirs.name);
        let Some(found) = series.get(&name) else { return Some(format!("{name}: no series")) };
        // Prometheus keeps no label whose value is empty, so some of them may be missing here.
        if let Some(other) = found.iter().map(names).find(|labels| !labels.is_subset(&theirs.labels)) {
            return Some(format!("{name}: labels {other:?}, not {:?}", theirs.labels));
        }
        if *suffix == "_bucket" {
            let bounds = found.iter().map(|labels| labels["le"].parse::<f64>().expect("a bound"));
            let mut bounds: Vec<f64> = bounds.collect();
            bounds.sort_by(f64::total_cmp);
            bounds.dedup();
            if bounds != theirs.bounds {
                return Some(format!("{name}: bounds {bounds:?}, not {:?}", theirs.bounds));
            }
        }
    }
    None
}

/// What is amiss with a job's series, by the original's.
pub(super) async fn faults(prometheus: &Prometheus, job: &str) -> Vec<String> {
    let (series, types) = (prometheus.series(job).await, prometheus.types(job).await);
    let mut wrong = Vec::new();
    // With reasons, of which the manager's own test of its metrics makes sure.
    let left_out = rows("tests/data/metrics-left-out.tsv");
    let left_out: Vec<&str> = left_out.iter().filter_map(|line| line.split('\t').next()).collect();
    for theirs in theirs() {
        let here = series.keys().any(|name| name.starts_with(&theirs.name));
        let excused = left_out.iter().any(|prefix| theirs.name.starts_with(prefix));
        if excused && here {
            wrong.push(format!("{} is here after all", theirs.name));
        } else if !excused {
            wrong.extend(fault(&theirs, &series));
            // OpenMetrics has no counter whose name does not end in _total, so types are looked at in the other format.
            let kind = types.get(&theirs.name).map_or("", String::as_str);
            if job == TEXT && kind != theirs.kind {
                wrong.push(format!("{} is a {kind}, not a {}", theirs.name, theirs.kind));
            }
        }
    }
    wrong
}
