//! The flags of traces and of pushed metrics, beside the variables that say the same.

use super::error::OptionError;
use super::flags::Flags;
use crate::telemetry::push::PushSettings;
use crate::telemetry::tracing::TracingSettings;
use crate::telemetry::tracing::settings::{Given, SettingProblem, SettingSource};

const FILE: &str = "tracing-config-file";

/// Makes out how to trace; what can't be is added to `errors`.
pub(super) fn complete(flags: &Flags, errors: &mut Vec<OptionError>) -> Option<TracingSettings> {
    let given = Given {
        endpoint: &flags.tracing_endpoint,
        rate_per_million: flags.tracing_sampling_rate_per_million,
        file: &flags.tracing_config_file,
    };
    let settings = TracingSettings::complete(given, &|name| std::env::var(name).ok());
    settings.unwrap_or_else(|problems| refuse(problems, given.file, errors))
}

/// Makes out how to push metrics; what can't be is added to `errors`.
pub(super) fn complete_push(flags: &Flags, errors: &mut Vec<OptionError>) -> Option<PushSettings> {
    let settings = PushSettings::complete(&flags.metrics_otlp_endpoint, &|name| std::env::var(name).ok());
    settings.unwrap_or_else(|problems| refuse(problems, "", errors))
}

/// `file` is the value of `--tracing-config-file`.
fn refuse<T>(problems: Vec<SettingProblem>, file: &str, errors: &mut Vec<OptionError>) -> Option<T> {
    for each in problems {
        let error = match each.source {
            SettingSource::Flag(FILE) => OptionError::file(FILE, file, each.problem, each.allowed),
            SettingSource::Flag(flag) => OptionError::invalid(flag, each.problem, each.allowed),
            SettingSource::Variable(variable) => {
                OptionError::Variable { variable, problem: each.problem, allowed: each.allowed }
            }
        };
        // One variable may be about both.
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
    None
}
