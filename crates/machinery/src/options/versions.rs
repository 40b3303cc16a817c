//! Versions: what this build is, which Kubernetes release it stands in for, and which releases it can behave as.

use std::fmt;

use super::error::OptionError;
use super::value::ValueError;

/// The component that feature gates and versions are about.
pub const COMPONENT: &str = "kube";

/// This build's own version.
pub const COXSWAIN: &str = env!("CARGO_PKG_VERSION");

/// The Kubernetes release whose controller manager this build stands in for.
pub const KUBERNETES: &str = "v1.36.3";

/// The newest release that can be emulated: that of [`KUBERNETES`].
pub const CURRENT: MinorVersion = MinorVersion { major: 1, minor: 36 };

/// The oldest release that can be emulated or worked with.
pub const OLDEST: MinorVersion = MinorVersion { major: 1, minor: 33 };

/// A release of Kubernetes by its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinorVersion {
    /// The first.
    pub major: u16,
    /// The second.
    pub minor: u16,
}

impl MinorVersion {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.strip_prefix('v').unwrap_or(text).split_once('.')?;
        // The original takes a patch number of 0, which says nothing, and no other.
        // Differs: no.
        let minor = minor.strip_suffix(".0").unwrap_or(minor);
        let number = |text: &str| text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        Some(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl fmt::Display for MinorVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The releases that the manager behaves as and works with, as KEP-4330 (compatibility versions) defines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveVersions {
    /// The release to behave as.
    pub emulated: MinorVersion,
    /// The oldest release of the control plane to work with.
    pub min_compatibility: MinorVersion,
}

impl Default for EffectiveVersions {
    fn default() -> Self {
        Self { emulated: CURRENT, min_compatibility: previous(CURRENT) }
    }
}

/// The release before, but not before the oldest.
fn previous(version: MinorVersion) -> MinorVersion {
    MinorVersion { minor: version.minor.saturating_sub(1), ..version }.max(OLDEST)
}

impl EffectiveVersions {
    /// Reads `--emulated-version` and `--min-compatibility-version`; errors are added to `errors`.
    pub(super) fn complete(emulated: &[String], min: &[String], errors: &mut Vec<OptionError>) -> Self {
        let emulated = one("emulated-version", emulated, CURRENT, errors).unwrap_or(CURRENT);
        let min_compatibility =
            one("min-compatibility-version", min, emulated, errors).unwrap_or(previous(emulated));
        Self { emulated, min_compatibility }
    }
}

/// The version that a flag asks for, if it asks for one that is possible.
fn one(
    flag: &str,
    values: &[String],
    newest: MinorVersion,
    errors: &mut Vec<OptionError>,
) -> Option<MinorVersion> {
    let mut found: Option<MinorVersion> = None;
    for value in values {
        let (component, text) = value.split_once('=').unwrap_or((COMPONENT, value));
        let allowed = format!("{OLDEST} to {newest}, as MAJOR.MINOR or {COMPONENT}=MAJOR.MINOR, once");
        let problem = match MinorVersion::parse(text) {
            _ if component != COMPONENT => format!("unknown component {component:?}"),
            None => format!("{text:?} is not a version"),
            Some(_) if found.is_some() => "set more than once".to_owned(),
            Some(version) if version < OLDEST || version > newest => format!("{version} is out of range"),
            Some(version) => {
                found = Some(version);
                continue;
            }
        };
        errors.push(OptionError::invalid(flag, problem, allowed));
    }
    found
}

/// Checks a version to be reported in place of [`KUBERNETES`], of which it may only be a build.
pub(super) fn reported(text: &str) -> Result<String, ValueError> {
    let tail = text.strip_prefix(KUBERNETES);
    if tail.is_some_and(|tail| tail.is_empty() || tail.starts_with(['-', '+'])) {
        Ok(text.to_owned())
    } else {
        Err(ValueError::new(format!("expected {KUBERNETES}, or a build of it such as {KUBERNETES}+local")))
    }
}

/// What `--version` prints.
pub(super) fn line(kubernetes: &str) -> String {
    format!("Coxswain v{COXSWAIN} (Kubernetes {kubernetes})")
}

/// What `--version=raw` prints.
pub(super) fn raw(kubernetes: &str) -> String {
    format!(
        "coxswain.Version{{version: \"v{COXSWAIN}\", kubernetes: \"{kubernetes}\", emulates: \"{OLDEST}..{CURRENT}\", \
         profile: \"{}\", platform: \"{}/{}\"}}",
        if cfg!(debug_assertions) { "debug" } else { "release" },
        std::env::consts::OS,
        std::env::consts::ARCH,
    )
}
