//! Validation: what the manager can work with. Everything wrong is found before anything is reported.
//!
//! Three rules decide. What the original refuses is refused. What the original takes and then can't work with, once a
//! controller or the server starts, is refused here at once. What the original takes and never uses is taken, with a
//! warning, so that every command line that works there works here.

mod access;
mod files;
mod generic;
mod network;
mod observability;
mod serving;
mod workers;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use super::error::{OptionError, OptionWarning};
use super::flags::Flags;
use super::gates::FeatureGates;

/// What validation reads, and what it finds.
pub(super) struct Check<'a> {
    flags: &'a Flags,
    gates: &'a FeatureGates,
    pub(super) errors: Vec<OptionError>,
    pub(super) warnings: Vec<OptionWarning>,
}

impl<'a> Check<'a> {
    pub(super) fn new(flags: &'a Flags, gates: &'a FeatureGates) -> Self {
        Self { flags, gates, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Checks everything that takes no more than the flags and the files they name.
    pub(super) fn run(&mut self) {
        self.generic();
        self.election();
        self.network();
        self.serving();
        self.access();
        self.service_accounts();
        self.signing();
        self.workers();
        self.logs();
        self.metrics();
    }

    fn fail(&mut self, flag: &str, problem: impl Into<String>, allowed: impl Into<String>) {
        self.errors.push(OptionError::invalid(flag, problem, allowed));
    }

    fn warn(&mut self, flag: &str, message: impl Into<String>) {
        self.warnings.push(OptionWarning::new(flag, message));
    }

    /// Requires a number within bounds.
    fn range(&mut self, flag: &str, value: impl Into<i64>, allowed: RangeInclusive<i64>) {
        let value = value.into();
        if !allowed.contains(&value) {
            let allowed = match (*allowed.start(), *allowed.end()) {
                (low, i64::MAX) => format!("{low} or more"),
                (low, high) => format!("{low} to {high}"),
            };
            self.fail(flag, format!("{value} is out of range"), allowed);
        }
    }
}
