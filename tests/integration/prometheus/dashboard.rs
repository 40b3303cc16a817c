//! The dashboard's panels, and what they would show.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::server::{JOB, Labels, Prometheus, Series, file};

/// What `rate` looks back over here; in a dashboard it follows the interval of scrapes.
const RATE: &str = "15s";

/// Panels that show nothing as long as all is well.
const EMPTY_WHEN_WELL: [&str; 1] = ["Reconciles that failed"];

/// A graph of the dashboard.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    /// The heading that it stands under.
    pub(super) row: String,
    pub(super) title: String,
    /// The unit by its name in Grafana.
    pub(super) unit: String,
    /// Expressions and the names of their lines.
    pub(super) targets: Vec<(String, String)>,
}

fn dashboard() -> Value {
    let text = fs::read_to_string(file("deploy/grafana/coxswain.json")).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

/// An expression as Grafana sends it.
fn complete(expression: &str) -> String {
    let expression = expression.replace("$__rate_interval", RATE).replace("$__interval", RATE);
    let expression = expression.replace("$instance", ".+").replace("$job", JOB);
    assert!(!expression.contains('$'), "an unknown variable: {expression}");
    expression
}

/// All graphs.
pub(super) fn panels() -> Vec<Panel> {
    let (dashboard, mut row) = (dashboard(), String::new());
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let mut panels = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        if panel["type"] == "row" {
            row = text(&panel["title"]);
            continue;
        }
        let targets = panel["targets"].as_array().expect("targets").iter();
        panels.push(Panel {
            row: row.clone(),
            title: text(&panel["title"]),
            unit: text(&panel["fieldConfig"]["defaults"]["unit"]),
            targets: targets
                .map(|each| (complete(&text(&each["expr"])), text(&each["legendFormat"])))
                .collect(),
        });
    }
    panels
}

/// The name of a line: `legend` with labels in place of `{{label}}`.
fn named(legend: &str, labels: &Labels) -> String {
    let named = labels
        .iter()
        .fold(legend.to_owned(), |name, (label, value)| name.replace(&format!("{{{{{label}}}}}"), value));
    assert!(!named.contains("{{"), "{legend} names a label that is not there: {labels:?}");
    named
}

/// What a panel shows: its lines by name.
pub(super) async fn shown(
    prometheus: &Prometheus,
    panel: &Panel,
    start: f64,
    end: f64,
) -> Vec<(String, Series)> {
    let mut lines = Vec::new();
    for (expression, legend) in &panel.targets {
        let mut found = prometheus.over(expression, start, end).await;
        for series in &mut found {
            series.points.retain(|(_, value)| value.is_finite());
        }
        found.retain(|series| !series.points.is_empty());
        lines.extend(found.into_iter().map(|series| (named(legend, &series.labels), series)));
    }
    lines
}

/// What is amiss with the panels: those that should show something and don't.
pub(super) async fn blank(prometheus: &Prometheus, start: f64, end: f64) -> Vec<String> {
    let mut blank = Vec::new();
    for panel in panels() {
        for target in &panel.targets {
            let one = Panel { targets: vec![target.clone()], ..panel.clone() };
            let shows = !shown(prometheus, &one, start, end).await.is_empty();
            if !shows && !EMPTY_WHEN_WELL.contains(&panel.title.as_str()) {
                blank.push(format!("{}: {}", panel.title, target.0));
            }
        }
    }
    blank
}

/// The metrics that the dashboard names, in panels and elsewhere.
pub(super) async fn names(prometheus: &Prometheus) -> BTreeSet<String> {
    let dashboard = dashboard();
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations").iter();
    let annotations = annotations.filter_map(|each| each["expr"].as_str()).map(complete);
    let mut names = BTreeSet::new();
    let in_panels = panels().into_iter().flat_map(|panel| panel.targets).map(|(expression, _)| expression);
    for expression in in_panels.chain(annotations) {
        names.extend(prometheus.names(&expression).await);
    }
    let variables = dashboard["templating"]["list"].as_array().expect("variables").iter();
    for query in variables.filter_map(|each| each["query"]["query"].as_str()) {
        let inner =
            query.strip_prefix("label_values(").and_then(|rest| rest.rsplit_once(',')).expect("label_values");
        names.extend(prometheus.names(&complete(inner.0)).await);
    }
    names
}
