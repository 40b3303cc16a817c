//! Logs and metrics.

use std::collections::BTreeMap;

use super::Check;
use crate::options::versions::CURRENT;

/// The gate of logging options that may still change.
const ALPHA_LOGGING: &str = "LoggingAlphaOptions";
/// The gate of the JSON format.
const BETA_LOGGING: &str = "LoggingBetaOptions";

impl Check<'_> {
    pub(super) fn logs(&mut self) {
        let flags = self.flags;
        match flags.logging_format.as_str() {
            "json" if !self.gates.enabled(BETA_LOGGING) => {
                self.fail(
                    "logging-format",
                    format!("json needs the feature {BETA_LOGGING}, which is off"),
                    "text",
                );
            }
            "text" | "json" => {}
            other => self.fail("logging-format", format!("there is no format {other:?}"), "text, json"),
        }
        if flags.logging_format != "text" && !flags.vmodule.0.is_empty() {
            self.fail("vmodule", "it is for text only", "--logging-format=text with it");
        }
        if flags.log_flush_frequency.is_zero() {
            self.fail("log-flush-frequency", "0s is no frequency", "more than 0s");
        }
        if self.gates.enabled(ALPHA_LOGGING) {
            return;
        }
        for (flag, used) in [
            ("log-json-info-buffer-size", flags.log_json_info_buffer_size.0 > 0),
            ("log-json-split-stream", flags.log_json_split_stream),
            ("log-text-info-buffer-size", flags.log_text_info_buffer_size.0 > 0),
            ("log-text-split-stream", flags.log_text_split_stream),
        ] {
            if used {
                let allowed = format!("--feature-gates={ALPHA_LOGGING}=true with it");
                self.fail(flag, format!("the feature {ALPHA_LOGGING} is off"), allowed);
            }
        }
    }

    pub(super) fn metrics(&mut self) {
        let flags = self.flags;
        let previous = format!("{}.{}", CURRENT.major, CURRENT.minor - 1);
        let asked = &flags.show_hidden_metrics_for_version;
        if !asked.is_empty() && *asked != previous {
            let problem = format!("{asked:?} is not the previous release");
            self.fail("show-hidden-metrics-for-version", problem, format!("{previous}, or empty"));
        }
        self.labels("allow-metric-labels", &flags.allow_metric_labels);
        let path = &flags.allow_metric_labels_manifest;
        if path.is_empty() {
            return;
        }
        // What the original reads, observed, is the map itself; an empty file is an empty map.
        let flag = "allow-metric-labels-manifest";
        let read = std::fs::read_to_string(path).map_err(|error| error.to_string()).and_then(|text| {
            serde_yaml_ng::from_str::<Option<BTreeMap<String, String>>>(&text)
                .map_err(|error| error.to_string())
        });
        match read {
            Ok(labels) => self.labels(flag, &labels.unwrap_or_default()),
            Err(problem) => {
                let allowed = "a YAML file with lines such as \"METRIC,LABEL\": \"VALUE,VALUE\"";
                self.fail(flag, format!("can't read {path:?}: {problem}"), allowed);
            }
        }
    }

    /// Requires keys that name a metric and a label.
    fn labels(&mut self, flag: &str, labels: &BTreeMap<String, String>) {
        for key in labels.keys() {
            let named =
                key.split_once(',').is_some_and(|(metric, label)| is_name(metric, ":") && is_name(label, ""));
            if !named {
                let problem = format!("{key:?} does not name a metric and a label");
                self.fail(flag, problem, "METRIC,LABEL=VALUE,VALUE");
            }
        }
    }
}

/// Whether a text can name a metric or, without the colon, a label (Prometheus' data model).
fn is_name(text: &str, also: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || also.contains(c);
    text.chars().all(inner) && text.chars().next().is_some_and(|c| !c.is_ascii_digit())
}
