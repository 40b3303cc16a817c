//! The original's series (`tests/data/peer/metrics.tsv`), looked for in what a real Prometheus has scraped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::server::{Labels, Prometheus, TEXT, file};

/// What is not declared at all is listed, with reasons, beside the manager's own test of its metrics. Beginnings of names.
const NOT_HERE: [&str; 14] = [
    "apiextensions_apiserver_validation_ratcheting_seconds",
    "cronjob_controller_",
    "device_taint_eviction_controller_",
    "ephemeral_volume_controller_",
    "horizontal_pod_autoscaler_controller_",
    "job_controller_",
    "node_collector_",
    "node_ipam_controller_",
    "rest_client_exec_plugin_",
    "rest_client_transport_ca_reload_total",
    "rest_client_transport_cert_rotation_gc_calls_total",
    "retroactive_storageclass_",
    "taint_eviction_controller_",
    "ttl_after_finished_controller_",
];

struct Theirs {
    name: String,
    kind: String,
    labels: BTreeSet<String>,
    bounds: Vec<f64>,
}

fn theirs() -> Vec<Theirs> {
    let text = fs::read_to_string(file("tests/data/peer/metrics.tsv")).expect("what was observed");
    let rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
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
    for theirs in theirs() {
        let here = series.keys().any(|name| name.starts_with(&theirs.name));
        let excused = NOT_HERE.iter().any(|prefix| theirs.name.starts_with(prefix));
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
