//! Flags, validation, feature gates and the component configuration that they make.
//!
//! The way of a command line: [`parse`] reads it into [`Flags`] by the one table of flags, completes and validates
//! all of it together, and gives a [`Config`], which the rest of the manager never changes. Nothing here talks to an
//! API server, and nothing but the files that flags name is read.

mod composite;
mod configz;
mod controllers;
pub mod duration;
mod error;
mod flag;
mod flags;
pub mod gates;
mod help;
pub mod logging;
mod metric_labels;
mod migration;
mod parser;
pub mod recycler;
mod tls;
mod traces;
mod validate;
mod value;
pub mod versions;

#[cfg(test)]
mod differential;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;

pub use composite::{
    ByteQuantity, ComponentSetting, ComponentSettings, ModuleVerbosity, NamedCertKey, VersionRequest,
};
pub use controllers::{Selection, SelectionState};
pub use error::{OptionError, OptionErrors, OptionWarning};
pub use flag::{Flag, FlagEffect};
pub use flags::{Flags, TABLE};
pub use gates::{FeatureGates, FeatureState};
pub use migration::{ControllerLeader, LeaderMigration, MigrationLock};
pub use parser::WrittenFlag;
pub use tls::ServingTls;
pub use value::{FlagValue, Repetition, ValueError, Verbosity};
pub use versions::{EffectiveVersions, MinorVersion};

use crate::framework::Descriptor;
use crate::telemetry::push::PushSettings;
use crate::telemetry::tracing::TracingSettings;

/// The manager's configuration, complete and valid. It holds names of files, never what is secret in them.
#[derive(Clone, Debug)]
pub struct Config {
    /// The value of every flag. Controllers are named by their names here, not by aliases.
    pub flags: Flags,
    /// Which features are on.
    pub gates: FeatureGates,
    /// Which releases the manager behaves as and works with.
    pub versions: EffectiveVersions,
    /// The Kubernetes version to report: `v1.36.3`, or the build of it that `--version` names.
    pub kubernetes_version: String,
    /// What TLS the secure port speaks.
    pub serving_tls: ServingTls,
    /// How controllers are shared with another manager, if they are.
    pub leader_migration: Option<LeaderMigration>,
    /// How to trace, if at all.
    pub tracing: Option<TracingSettings>,
    /// How to push metrics, if at all.
    pub push: Option<PushSettings>,
    /// The values `VALUE,VALUE` that labels of metrics may take, by `METRIC,LABEL`; others are counted together.
    pub metric_labels: BTreeMap<String, String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            flags: Flags::default(),
            gates: FeatureGates::default(),
            versions: EffectiveVersions::default(),
            kubernetes_version: versions::KUBERNETES.to_owned(),
            serving_tls: ServingTls::default(),
            leader_migration: None,
            tracing: None,
            push: None,
            metric_labels: BTreeMap::new(),
        }
    }
}

impl Config {
    /// The port to serve HTTPS on, if any.
    pub fn secure_port(&self) -> Option<u16> {
        u16::try_from(self.flags.secure_port).ok().filter(|port| *port > 0)
    }

    /// The port that the admin API has of its own, if any.
    pub fn admin_port(&self) -> Option<u16> {
        u16::try_from(self.flags.admin_port).ok().filter(|port| *port > 0)
    }
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run the manager.
    Run(Box<Startup>),
    /// Print this and stop.
    Print(String),
}

/// What to run the manager with.
#[derive(Debug)]
pub struct Startup {
    /// The configuration.
    pub config: Config,
    /// What its operator should know.
    pub warnings: Vec<OptionWarning>,
    /// The flags that were given, by name, with their values: for the log.
    pub given: Vec<(String, String)>,
}

/// Splits a command line, without the program's name, into its flags. Checks the syntax of each value and nothing else: no file
/// is read.
///
/// # Errors
/// Flags that do not exist, arguments that are no flags, and values with a wrong syntax.
pub fn split(arguments: &[String]) -> Result<Vec<WrittenFlag>, OptionErrors> {
    let parser::Parsed { written, errors, .. } = parser::parse(arguments);
    if errors.is_empty() { Ok(written) } else { Err(OptionErrors(errors)) }
}

/// Reads a command line, without the program's name, against the controllers that there are.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    registry: &[Descriptor],
) -> Result<Invocation, OptionErrors> {
    let mut errors = Vec::new();
    let arguments = decode(arguments, &mut errors);
    let parser::Parsed { mut flags, given, errors: unreadable, .. } = parser::parse(&arguments);
    errors.extend(unreadable);
    let kubernetes = match &flags.version {
        VersionRequest::Report(version) => version.clone(),
        _ => versions::KUBERNETES.to_owned(),
    };
    if errors.is_empty() {
        match flags.version {
            _ if flags.help => return Ok(Invocation::Print(help::text(registry))),
            VersionRequest::Line => return Ok(Invocation::Print(versions::line(&kubernetes) + "\n")),
            VersionRequest::Raw => return Ok(Invocation::Print(versions::raw(&kubernetes) + "\n")),
            VersionRequest::No | VersionRequest::Report(_) => {}
        }
    }
    let mut found = Vec::new();
    let mut warnings = warn_of_given(&given, &flags);
    controllers::complete(&mut flags.controllers, registry, &mut found, &mut warnings);
    let versions =
        EffectiveVersions::complete(&flags.emulated_version, &flags.min_compatibility_version, &mut found);
    let gates = FeatureGates::complete(&flags.feature_gates, versions.emulated, &mut found, &mut warnings);
    let leader_migration = LeaderMigration::complete(&flags, &mut found);
    if let Some(migration) = &leader_migration {
        migration.warn_of_aliases(registry, &mut warnings);
    }
    let tracing = traces::complete(&flags, &mut found);
    let push = traces::complete_push(&flags, &mut found);
    let metric_labels = metric_labels::complete(&flags, &mut found);
    // Without a port nothing is served, and the original looks at none of the flags for it.
    let serving_tls = if flags.secure_port == 0 && flags.admin_port == 0 {
        ServingTls::default()
    } else {
        ServingTls::complete(&flags, &mut found, &mut warnings)
    };
    let shown: Vec<_> = given.iter().map(|flag| (flag.name(), flag.show(&flags))).collect();
    let config = Config {
        flags,
        gates,
        versions,
        kubernetes_version: kubernetes,
        serving_tls,
        leader_migration,
        tracing,
        push,
        metric_labels,
    };
    let mut check = validate::Check::new(&config, registry);
    check.run();
    found.extend(check.errors);
    warnings.extend(check.warnings);
    // A flag whose value could not be read stands at its default here, and there is nothing to add to that.
    found.retain(|error| {
        !errors.iter().any(|earlier| earlier.flag().is_some() && earlier.flag() == error.flag())
    });
    errors.extend(found);
    if !errors.is_empty() {
        return Err(OptionErrors(errors));
    }
    Ok(Invocation::Run(Box::new(Startup { config, warnings, given: shown })))
}

fn decode(arguments: impl IntoIterator<Item = OsString>, errors: &mut Vec<OptionError>) -> Vec<String> {
    let mut decoded = Vec::new();
    for argument in arguments {
        match argument.into_string() {
            Ok(argument) => decoded.push(argument),
            Err(argument) => {
                errors.push(OptionError::Encoding { argument: argument.to_string_lossy().into_owned() });
            }
        }
    }
    decoded
}

/// Warns of flags that are deprecated, or that ask for something that is left out.
fn warn_of_given(given: &[&'static Flag], flags: &Flags) -> Vec<OptionWarning> {
    let mut warnings = Vec::new();
    for flag in given {
        if let Some(why) = flag.deprecated {
            warnings.push(OptionWarning::new(&flag.name(), format!("is deprecated: {why}")));
        }
        if let FlagEffect::LeftOut(why) = flag.effect
            && flag.show(flags) != flag.default()
        {
            let message = format!("{} has no effect: {why}", flag.show(flags));
            warnings.push(OptionWarning::new(&flag.name(), message));
        }
    }
    warnings
}
