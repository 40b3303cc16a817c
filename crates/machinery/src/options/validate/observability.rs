//! Logs and metrics.

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
                    format!("json needs the feature {BETA_LOGGING}, which is disabled"),
                    "text",
                );
            }
            "text" | "json" => {}
            other => self.fail("logging-format", format!("unknown format {other:?}"), "text, json"),
        }
        if flags.logging_format != "text" && !flags.vmodule.0.is_empty() {
            self.fail("vmodule", "only supported for the text format", "only with --logging-format=text");
        }
        if flags.log_flush_frequency.is_zero() {
            self.fail("log-flush-frequency", "0s is too short", "more than 0s");
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
                let allowed = format!("only with --feature-gates={ALPHA_LOGGING}=true");
                self.fail(flag, format!("the feature {ALPHA_LOGGING} is disabled"), allowed);
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
    }
}
