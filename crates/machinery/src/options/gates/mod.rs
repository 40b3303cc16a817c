//! Feature gates: which features of Kubernetes are on. `table.rs` says what each gate is in each release; this module
//! reads `--feature-gates` against it, for the release that `--emulated-version` asks for. A gate is data at run
//! time, never a Cargo feature.

mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use table::TABLE;

use super::composite::ComponentSettings;
use super::error::{OptionError, OptionWarning, nearest};
use super::value::parse_bool;
#[cfg(any(test, feature = "testing"))]
use super::value::{FlagValue as _, Repetition};
use super::versions::{COMPONENT, CURRENT, MinorVersion};

const FLAG: &str = "feature-gates";

/// Gates of what this program does where they change nothing, and why: it is made otherwise than the original.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("AtomicFIFO", "Coxswain has no queue between a watch and its cache"),
    ("ClientsAllowCARotation", "the CA file is always reloaded"),
    ("ClientsAllowCBOR", "requests are always protobuf or JSON"),
    ("ClientsAllowTLSCacheGC", "closing a client always closes its connections"),
    ("ClientsPreferCBOR", "requests are always protobuf or JSON"),
    ("ContextualLogging", "log lines always have their context"),
    ("InOrderInformers", "changes are always delivered in order"),
    ("InOrderInformersBatchProcess", "Coxswain has no queue between a watch and its cache"),
    ("InformerResourceVersion", "a cache always tracks its resource version"),
    ("NativeHistograms", "histograms have fixed buckets"),
    ("SeparateTaintEvictionController", "taint eviction is always a separate controller"),
    (
        "StaleControllerConsistencyStatefulSet",
        "a StatefulSet is always reconciled with caches that contain its last writes",
    ),
    ("UnauthenticatedHTTP2DOSMitigation", "the streams of each connection are always limited"),
    ("UnlockWhileProcessingFIFO", "Coxswain has no queue between a watch and its cache"),
];

/// How far a feature has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Experimental.
    Alpha,
    /// Tested.
    Beta,
    /// Finished.
    Ga,
    /// On its way out.
    Deprecated,
}

impl Stage {
    /// As `kubernetes_feature_enabled` labels it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// What a gate is from a release on.
#[derive(Clone, Copy, Debug)]
pub struct GateSpec {
    /// The minor number of the release.
    pub since: u16,
    /// How far the feature has come.
    pub stage: Stage,
    /// Whether it is on unless something is said.
    pub default: bool,
    /// Whether nothing can be said.
    pub locked: bool,
}

/// One gate.
#[derive(Debug)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// The gates without which it can't be on.
    pub needs: &'static [&'static str],
    /// What it was and is, oldest first.
    pub history: &'static [GateSpec],
}

impl Gate {
    /// What it is in a release; `None` before its first.
    pub fn at(&self, version: MinorVersion) -> Option<&'static GateSpec> {
        self.history.iter().rev().find(|phase| phase.since <= version.minor)
    }
}

/// One gate as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureState {
    /// Its name.
    pub name: &'static str,
    /// How far the feature has come in the emulated release.
    pub stage: Stage,
    /// Whether it is on.
    pub enabled: bool,
}

/// Which features are on. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// In the order of [`TABLE`]; `None` for a gate that the emulated release does not know.
    states: Arc<[Option<bool>]>,
    /// Those that were switched off by name, by their places in [`TABLE`].
    switched_off: Arc<[usize]>,
    version: MinorVersion,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self::defaults(CURRENT)
    }
}

impl FeatureGates {
    fn defaults(version: MinorVersion) -> Self {
        Self {
            states: TABLE.iter().map(|gate| gate.at(version).map(|phase| phase.default)).collect(),
            switched_off: Arc::default(),
            version,
        }
    }

    /// As `--feature-gates` sets them in a release of this minor number. For tests.
    ///
    /// # Panics
    /// They cannot be set so.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used, reason = "for tests: they should end where it fails")]
    pub fn set(settings: &str, minor: u16) -> Self {
        let (mut errors, mut read) = (Vec::new(), ComponentSettings::default());
        if !settings.is_empty() {
            read.set(settings, Repetition::First).unwrap();
        }
        let gates = Self::complete(&read, MinorVersion { major: 1, minor }, &mut errors, &mut Vec::new());
        assert_eq!(errors, [], "{settings}");
        gates
    }

    /// Whether a feature is on; `false` for an unknown one.
    pub fn enabled(&self, name: &str) -> bool {
        index(name).and_then(|i| self.states.get(i).copied().flatten()).unwrap_or(false)
    }

    /// Whether somebody has switched a feature off, by its name. For what is done here unless somebody objects, where it is a
    /// feature that is off by default elsewhere.
    pub fn is_switched_off(&self, name: &str) -> bool {
        index(name).is_some_and(|i| self.switched_off.contains(&i))
    }

    /// Every gate that the emulated release knows, by name: what `kubernetes_feature_enabled` reports.
    pub fn iter(&self) -> impl Iterator<Item = FeatureState> + '_ {
        TABLE.iter().zip(self.states.iter()).filter_map(|(gate, state)| {
            let stage = gate.at(self.version)?.stage;
            state.map(|enabled| FeatureState { name: gate.name, stage, enabled })
        })
    }

    /// Reads `--feature-gates` for a release. What can't be is added to `errors` and left at its default.
    pub(super) fn complete(
        settings: &ComponentSettings,
        version: MinorVersion,
        errors: &mut Vec<OptionError>,
        warnings: &mut Vec<OptionWarning>,
    ) -> Self {
        let mut explicit = BTreeMap::new();
        for setting in &settings.0 {
            if setting.component != COMPONENT {
                let problem = format!(
                    "{}:{}: unknown component {:?}",
                    setting.component, setting.name, setting.component
                );
                errors.push(OptionError::invalid(
                    FLAG,
                    problem,
                    format!("NAME=BOOL or {COMPONENT}:NAME=BOOL"),
                ));
                continue;
            }
            match resolve(&setting.name, &setting.value, version) {
                Ok((i, value)) => {
                    explicit.insert(i, value);
                }
                Err(error) => errors.push(error),
            }
        }
        let of_kube = |named| settings.0.iter().any(|s| s.component == COMPONENT && s.named == named);
        if of_kube(true) && of_kube(false) {
            let problem = format!("some gates have the prefix {COMPONENT}: and some do not");
            errors.push(OptionError::invalid(
                FLAG,
                problem,
                format!("the prefix {COMPONENT}: for all gates or for none"),
            ));
        }
        let mut gates = Self::defaults(version);
        gates.apply(&explicit);
        for (i, value) in &explicit {
            warn(&TABLE[*i], *value, version, warnings);
        }
        gates.check_needs(errors);
        gates
    }

    /// `AllAlpha` and `AllBeta` first, then what was said of single gates, which wins.
    fn apply(&mut self, explicit: &BTreeMap<usize, bool>) {
        let all = |name| index(name).and_then(|i| explicit.get(&i).copied());
        let (alpha, beta) = (all("AllAlpha"), all("AllBeta"));
        let version = self.version;
        let states = TABLE.iter().zip(self.states.iter()).enumerate().map(|(i, (gate, state))| {
            let phase = gate.at(version)?;
            let all = match phase.stage {
                Stage::Alpha if gate.name != "AllAlpha" => alpha,
                Stage::Beta if gate.name != "AllBeta" => beta,
                _ => None,
            };
            let free = |value: &bool| !phase.locked || *value == phase.default;
            explicit.get(&i).copied().or(all.filter(free)).or(*state)
        });
        self.states = states.collect();
        self.switched_off = explicit.iter().filter(|(_, value)| !**value).map(|(i, _)| *i).collect();
    }

    fn check_needs(&self, errors: &mut Vec<OptionError>) {
        for state in self.iter().filter(|state| state.enabled) {
            let Some(gate) = index(state.name).map(|i| &TABLE[i]) else { continue };
            let missing: Vec<&str> = gate.needs.iter().copied().filter(|need| !self.enabled(need)).collect();
            if !missing.is_empty() {
                let missing = missing.join(", ");
                let problem = format!("{} is enabled, but requires {missing}", gate.name);
                let allowed = format!("{}=false, or {missing}=true", gate.name);
                errors.push(OptionError::invalid(FLAG, problem, allowed));
            }
        }
    }
}

fn index(name: &str) -> Option<usize> {
    TABLE.binary_search_by(|gate| gate.name.cmp(name)).ok()
}

/// Reads one setting: which gate, and what it shall be.
fn resolve(name: &str, value: &str, version: MinorVersion) -> Result<(usize, bool), OptionError> {
    let Some(i) = index(name) else {
        let known = TABLE.iter().filter(|gate| gate.at(version).is_some_and(|phase| !phase.locked));
        let near = nearest(name, known.map(|gate| gate.name));
        let allowed =
            if near.is_empty() { "the feature gates that --help lists".to_owned() } else { near.join(", ") };
        return Err(OptionError::invalid(FLAG, format!("unknown feature gate {name:?}"), allowed));
    };
    let wanted = parse_bool(value)
        .map_err(|_| OptionError::invalid(FLAG, format!("{name}={value} is not a boolean"), "true, false"))?;
    let Some(phase) = TABLE[i].at(version) else {
        let first = TABLE[i].history.first().map_or(CURRENT.minor, |phase| phase.since);
        let problem = format!("{name} does not exist in --emulated-version={version}");
        return Err(OptionError::invalid(
            FLAG,
            problem,
            format!("{name} with --emulated-version=1.{first} or later"),
        ));
    };
    if phase.locked && wanted != phase.default {
        let problem = format!("{name} is locked in {version} and cannot be set to {wanted}");
        return Err(OptionError::invalid(FLAG, problem, format!("{name}={}", phase.default)));
    }
    Ok((i, wanted))
}

fn warn(gate: &Gate, value: bool, version: MinorVersion, warnings: &mut Vec<OptionWarning>) {
    let name = gate.name;
    let message = match gate.at(version).map(|phase| phase.stage) {
        Some(Stage::Ga) => {
            format!("{name}={value}: the feature is GA; its gate will be removed in a later release")
        }
        Some(Stage::Deprecated) => {
            format!("{name}={value}: the gate is deprecated and will be removed in a later release")
        }
        Some(Stage::Alpha) if value && version < CURRENT => {
            format!("{name}={value}: alpha features are not supported with --emulated-version={version}")
        }
        _ => return,
    };
    warnings.push(OptionWarning::new(FLAG, message));
}
