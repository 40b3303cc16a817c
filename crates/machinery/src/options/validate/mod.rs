//! Validation: what the manager can work with. Everything wrong is found before anything is reported.
//!
//! Three rules decide. What the original refuses is refused. What it takes and then dies of, once a controller or the
//! server that uses it starts, is refused here at once - and only if that controller or server does start. What it
//! takes and never uses is taken.
//!
//! It is stricter than the original where a value can't mean anything: a server address that can't be read (also where
//! the original would ignore it), a prefix longer than an address, a negative duration, a number that is
//! not finite, a media type that no API server speaks, and a lock that could not be written. And it can't serve TLS
//! with nothing but what rustls leaves out.
//! Differs: strict-flags.

mod access;
mod drivers;
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
use super::{Config, SelectionState};
use crate::framework::Descriptor;

/// What validation reads, and what it finds.
pub(super) struct Check<'a> {
    flags: &'a Flags,
    gates: &'a FeatureGates,
    config: &'a Config,
    registry: &'a [Descriptor],
    pub(super) errors: Vec<OptionError>,
    pub(super) warnings: Vec<OptionWarning>,
}

impl<'a> Check<'a> {
    pub(super) fn new(config: &'a Config, registry: &'a [Descriptor]) -> Self {
        let (flags, gates) = (&config.flags, &config.gates);
        Self { flags, gates, config, registry, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Whether a controller is to run, so that what only it uses matters.
    fn runs(&self, name: &str) -> bool {
        let descriptor = self.registry.iter().find(|descriptor| descriptor.name == name);
        descriptor
            .is_some_and(|descriptor| self.config.controller_state(descriptor) == SelectionState::Enabled)
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
        self.drivers();
        self.logs();
        self.metrics();
    }

    fn fail(&mut self, flag: &str, problem: impl Into<String>, allowed: impl Into<String>) {
        self.errors.push(OptionError::invalid(flag, problem, allowed));
    }

    fn unreadable(&mut self, flag: &str, path: &str, error: impl std::fmt::Display) {
        let problem = format!("read {path:?}: {error}");
        self.errors.push(OptionError::unreadable(flag, problem, "a file that the manager can read"));
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
