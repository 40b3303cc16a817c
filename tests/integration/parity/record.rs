//! Recording what the Go manager makes of scenarios: each is played several times, controller by controller, and what came
//! out is stored if it was the same each time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::metrics::{self, Rules, Series};
use super::play::Plane;
use super::scenario::Scenario;
use super::shards::{ROOT, Shard, folder, outcome_file};
use super::{perform, report, stored};
use crate::harness::{Caller, Manager, binaries};

/// Records the scenarios of a shard that are asked for; complaints.
pub(super) async fn record(
    plane: &Plane,
    manager: &Manager<'_>,
    shard: &Shard,
    scenarios: &[(String, Scenario)],
    times: usize,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut increments: BTreeMap<String, Series> = BTreeMap::new();
    for controller in shard.folders {
        let own: Vec<_> = scenarios.iter().filter(|(name, _)| folder(name) == *controller).collect();
        let all = shard.scenarios(&format!("{controller}/"));
        let before = complaints.len();
        if let Some(grown) = record_folder(plane, manager, &own, times, &mut complaints).await
            && own.len() == all.len()
            && complaints.len() == before
        {
            increments.insert((*controller).to_owned(), grown);
        }
    }
    metrics::store(Path::new(ROOT), &version(), increments).expect("the increments are stored");
    complaints
}

/// Records the scenarios of one controller, and by how much the metrics grow each time.
async fn record_folder(
    plane: &Plane,
    manager: &Manager<'_>,
    scenarios: &[&(String, Scenario)],
    times: usize,
    complaints: &mut Vec<String>,
) -> Option<Series> {
    if scenarios.is_empty() {
        return None;
    }
    let rules = Rules::read(Path::new(ROOT));
    let page = async || rules.of_page(&manager.page(Caller::Admin, "/metrics").await.text);
    let mut looks: BTreeMap<&str, Result<Vec<Value>, String>> = BTreeMap::new();
    let mut grown: Option<Series> = None;
    for _ in 0..times {
        let begin = page().await;
        for (name, stage) in perform(plane, scenarios, &BTreeMap::new()).await {
            let seen = match (looks.remove(name), stage) {
                (Some(Err(error)), _) | (_, Err(error)) => Err(error),
                (None, Ok(stage)) => Ok(stage.seen),
                (Some(Ok(earlier)), Ok(stage)) => report::merge(&earlier, &stage.seen),
            };
            looks.insert(name, seen);
        }
        let by = metrics::growth(&begin, &page().await);
        if let Some(Err(error)) = grown.as_ref().map(|earlier| rules.judge_again(earlier, &by)) {
            let controller = folder(&scenarios[0].0);
            complaints.push(format!("{controller}: the original itself does not do the same twice: {error}"));
        }
        let most = grown.get_or_insert_default();
        for (series, by) in by {
            let known = most.entry(series).or_default();
            *known = by.max(*known);
        }
    }
    for (name, looks) in looks {
        if let Err(error) = looks.and_then(|looks| store(name, &looks)) {
            complaints.push(format!("{name}: {error}"));
        }
    }
    grown
}

fn store(name: &str, looks: &[Value]) -> Result<(), String> {
    let path = outcome_file(name);
    fs::create_dir_all(path.parent().expect("a folder")).map_err(|error| error.to_string())?;
    let body = serde_yaml_ng::to_string(&stored::encode(looks)).map_err(|error| error.to_string())?;
    let text = format!(
        "# Recorded from the Go manager, {}, by `make parity-record`: what is there, then what changed.\n{body}",
        version()
    );
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The Go manager's version.
pub(super) fn version() -> String {
    let output = Command::new(binaries().join("kube-controller-manager")).arg("--version").output();
    String::from_utf8(output.expect("it runs").stdout).expect("text").trim().to_owned()
}
