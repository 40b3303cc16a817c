//! The flags of tracing, beside the variables that say the same.

use super::error::OptionError;
use super::flags::Flags;
use crate::telemetry::tracing::TracingSettings;
use crate::telemetry::tracing::settings::{Given, Source};

/// Makes out how to trace; what can't be is added to `errors`.
pub(super) fn complete(flags: &Flags, errors: &mut Vec<OptionError>) -> Option<TracingSettings> {
    let given = Given {
        endpoint: &flags.tracing_endpoint,
        rate_per_million: flags.tracing_sampling_rate_per_million,
        file: &flags.tracing_config_file,
    };
    let settings = TracingSettings::complete(given, &|name| std::env::var(name).ok());
    settings.unwrap_or_else(|problems| {
        errors.extend(problems.into_iter().map(|each| match each.source {
            Source::Flag(flag) => OptionError::invalid(flag, each.problem, each.allowed),
            Source::Variable(variable) => {
                OptionError::Variable { variable, problem: each.problem, allowed: each.allowed }
            }
        }));
        None
    })
}
