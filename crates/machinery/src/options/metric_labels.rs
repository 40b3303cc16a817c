//! Which values labels of metrics may take: `--allow-metric-labels`, or the file that `--allow-metric-labels-manifest` names.

use std::collections::BTreeMap;
use std::fs;

use super::error::OptionError;
use super::flags::Flags;

const FLAG: &str = "allow-metric-labels";
const FILE: &str = "allow-metric-labels-manifest";

/// Lists `VALUE,VALUE` by `METRIC,LABEL`; empty if all are allowed. The original takes one of the two flags.
/// Differs: no.
pub(super) fn complete(flags: &Flags, errors: &mut Vec<OptionError>) -> BTreeMap<String, String> {
    let path = &flags.allow_metric_labels_manifest;
    let (flag, labels) = if path.is_empty() {
        (FLAG, flags.allow_metric_labels.clone())
    } else {
        if !flags.allow_metric_labels.is_empty() {
            errors.push(OptionError::invalid(
                FILE,
                format!("--{FLAG} is also set"),
                "only one of the two flags",
            ));
        }
        // What the original reads, observed, is the map itself; an empty file is an empty map.
        let read = fs::read_to_string(path).map_err(|error| error.to_string()).and_then(|text| {
            serde_yaml_ng::from_str::<Option<BTreeMap<String, String>>>(&text)
                .map_err(|error| error.to_string())
        });
        let labels = read.unwrap_or_else(|problem| {
            let allowed = "a YAML file with lines such as \"METRIC,LABEL\": \"VALUE,VALUE\"";
            errors.push(OptionError::file(FILE, path, format!("read {path:?}: {problem}"), allowed));
            None
        });
        (FILE, labels.unwrap_or_default())
    };
    for key in labels.keys() {
        let is_named =
            key.split_once(',').is_some_and(|(metric, label)| is_name(metric, ":") && is_name(label, ""));
        if !is_named {
            let problem = format!("{key:?} is not a pair of a metric and a label");
            errors.push(OptionError::invalid(flag, problem, "METRIC,LABEL=VALUE,VALUE"));
        }
    }
    labels
}

/// Whether a text can name a metric or, without the colon, a label (Prometheus' data model).
fn is_name(text: &str, also: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || also.contains(c);
    text.chars().all(inner) && text.chars().next().is_some_and(|c| !c.is_ascii_digit())
}
