//! Which controllers run: `--controllers` read against the registry.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ring::digest::{SHA256, digest};

use super::Config;
use super::error::{OptionError, OptionWarning, nearest};
use crate::framework::{DefaultState, Descriptor};

const FLAG: &str = "controllers";
/// The value of `--admin-overrides` with which no order runs a controller that `--controllers` leaves out.
pub(super) const DISABLE_ONLY: &str = "disable-only";
/// Bytes of a digest that are kept: enough to tell flags apart, not to keep a secret.
const DIGEST_BYTES: usize = 8;

/// Whether a controller runs, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectionState {
    /// It runs.
    Enabled,
    /// `--controllers` leaves it out by name.
    DisabledByFlag,
    /// `--controllers` does not name it, and it is off by default or there is no `*`.
    NotSelected,
    /// Feature gates that it needs are off.
    MissingGates(Vec<&'static str>),
    /// It talks to a cloud, which this manager has no built-in provider for.
    LeftToCloud,
}

/// What `--controllers` says of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Whether it is to run.
    pub selected: bool,
    /// Whether it is named, rather than its default holding.
    pub named: bool,
}

impl Config {
    /// What `--controllers` says of a controller. A special one is selected whatever it says: observed of the original,
    /// and what keeps a manager that runs a few controllers able to make their tokens. Of others, the first mention of
    /// its name, with or without a dash, decides; without one, `*` and its default do.
    pub fn selection(&self, descriptor: &Descriptor) -> Selection {
        let selectors = &self.flags.controllers;
        match mention(selectors, descriptor) {
            Some(selected) if !descriptor.special => Selection { selected, named: true },
            mention => {
                let star = selectors.iter().any(|selector| selector == "*");
                let by_default = star && descriptor.default == DefaultState::On;
                Selection { selected: descriptor.special || by_default, named: mention == Some(true) }
            }
        }
    }

    /// Whether a controller runs: it is selected, its gates are on, and it needs no cloud provider. Whether it is built
    /// is not asked here.
    pub fn controller_state(&self, descriptor: &Descriptor) -> SelectionState {
        match self.selection(descriptor) {
            Selection { selected: true, .. } => {}
            Selection { named: true, .. } => return SelectionState::DisabledByFlag,
            Selection { named: false, .. } => return SelectionState::NotSelected,
        }
        let missing = self.missing_gates(descriptor);
        if !missing.is_empty() {
            return SelectionState::MissingGates(missing);
        }
        if descriptor.cloud { SelectionState::LeftToCloud } else { SelectionState::Enabled }
    }

    /// Whether overrides may only disable: no order runs a controller that `--controllers` leaves out.
    pub fn overrides_only_disable(&self) -> bool {
        self.flags.admin_overrides == DISABLE_ONLY
    }

    /// A digest of the flags that select controllers, in hexadecimal digits. It does not depend on the registry, so two
    /// versions with the same flags have the same digest, and neither does it depend on aliases or on an order of
    /// selectors that decides nothing.
    pub fn selection_digest(&self) -> String {
        let mut mentions: BTreeMap<&str, bool> = BTreeMap::new();
        for selector in &self.flags.controllers {
            let (name, selected) =
                selector.strip_prefix('-').map_or((selector.as_str(), true), |name| (name, false));
            mentions.entry(name).or_insert(selected);
        }
        let mut canonical = format!("{}\n", self.flags.admin_overrides);
        for (name, selected) in mentions {
            let _ = writeln!(canonical, "{}{name}", if selected { "" } else { "-" });
        }
        let digest = digest(&SHA256, canonical.as_bytes());
        digest.as_ref().iter().take(DIGEST_BYTES).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// The feature gates that a controller needs and that are off.
    pub fn missing_gates(&self, descriptor: &Descriptor) -> Vec<&'static str> {
        descriptor.gates.iter().copied().filter(|gate| !self.gates.enabled(gate)).collect()
    }
}

/// What the first mention of a controller asks for.
fn mention(selectors: &[String], descriptor: &Descriptor) -> Option<bool> {
    let is = |name: &str| name == descriptor.name || descriptor.aliases.contains(&name);
    selectors.iter().find_map(|selector| match selector.strip_prefix('-') {
        Some(name) if is(name) => Some(false),
        None if is(selector) => Some(true),
        _ => None,
    })
}

/// Replaces aliases by names. Unknown controllers are added to `errors`.
pub(super) fn complete(
    selectors: &mut [String],
    registry: &[Descriptor],
    errors: &mut Vec<OptionError>,
    warnings: &mut Vec<OptionWarning>,
) {
    for selector in selectors.iter_mut().filter(|selector| *selector != "*") {
        let (sign, name) = match selector.strip_prefix('-') {
            Some(name) => ("-", name),
            None => ("", selector.as_str()),
        };
        let is = |descriptor: &&Descriptor| descriptor.name == name || descriptor.aliases.contains(&name);
        if let Some(descriptor) = registry.iter().find(is) {
            if descriptor.special && sign == "-" {
                let message =
                    format!("{name} cannot be disabled here: it always starts if it has a signing key");
                warnings.push(OptionWarning::new(FLAG, message));
            }
            *selector = format!("{sign}{}", descriptor.name);
            continue;
        }
        let known = registry.iter().flat_map(|d| d.aliases.iter().copied().chain([d.name]));
        let near = nearest(name, known);
        let allowed =
            if near.is_empty() { "* and the names that --help lists".to_owned() } else { near.join(", ") };
        errors.push(OptionError::invalid(FLAG, format!("unknown controller {name:?}"), allowed));
    }
}

#[cfg(test)]
mod tests {
    use super::{SelectionState, complete};
    use crate::options::fixture::{find, registry};
    use crate::options::{Config, Flags};

    fn state(selectors: &[&str], name: &str) -> SelectionState {
        let mut controllers: Vec<String> = selectors.iter().map(|s| (*s).to_owned()).collect();
        let mut errors = Vec::new();
        complete(&mut controllers, registry(), &mut errors, &mut Vec::new());
        assert_eq!(errors, []);
        let config = Config { flags: Flags { controllers, ..Flags::default() }, ..Config::default() };
        config.controller_state(find(name).unwrap())
    }

    #[test]
    fn as_the_original_decides() {
        use SelectionState::{DisabledByFlag, Enabled, LeftToCloud, MissingGates, NotSelected};
        for (selectors, name, expected) in [
            (&["*"][..], "deployment-controller", Enabled),
            (&["*"], "token-cleaner-controller", NotSelected),
            (&["*", "token-cleaner-controller"], "token-cleaner-controller", Enabled),
            (&["tokencleaner"], "token-cleaner-controller", Enabled),
            (&["tokencleaner"], "deployment-controller", NotSelected),
            (&[], "deployment-controller", NotSelected),
            (&["*", "-deployment"], "deployment-controller", DisabledByFlag),
            (&["-deployment", "*"], "deployment-controller", DisabledByFlag),
            (&["-ttl-controller", "ttl"], "ttl-controller", DisabledByFlag),
            (&["ttl", "-ttl-controller"], "ttl-controller", Enabled),
            (&["*"], "service-lb-controller", LeftToCloud),
            (&["service"], "service-lb-controller", LeftToCloud),
            (&["*"], "podcertificaterequest-cleaner-controller", MissingGates(vec!["PodCertificateRequest"])),
            (&["*"], "storageversion-garbage-collector-controller", MissingGates(vec!["StorageVersionAPI"])),
            (&["*"], "resourceclaim-controller", Enabled),
            (&["ttl"], "serviceaccount-token-controller", Enabled),
            (&["*", "-serviceaccount-token"], "serviceaccount-token-controller", Enabled),
        ] {
            assert_eq!(state(selectors, name), expected, "{selectors:?} {name}");
        }
    }

    #[test]
    fn selection_digest_depends_on_first_mentions_and_not_on_order_or_alias() {
        let digest = |selectors: &[&str], overrides: &str| {
            let mut controllers: Vec<String> = selectors.iter().map(|s| (*s).to_owned()).collect();
            complete(&mut controllers, registry(), &mut Vec::new(), &mut Vec::new());
            let admin_overrides = overrides.to_owned();
            let flags = Flags { controllers, admin_overrides, ..Flags::default() };
            Config { flags, ..Config::default() }.selection_digest()
        };
        let usual = digest(&["*"], "all");
        assert!(usual.len() == 16 && usual.bytes().all(|byte| byte.is_ascii_hexdigit()), "{usual}");
        let without = digest(&["*", "-ttl"], "all");
        assert_eq!(without, digest(&["-ttl-controller", "*", "*"], "all"));
        assert_eq!(without, digest(&["*", "-ttl", "ttl"], "all"), "the first mention decides");
        let all = [
            usual,
            without,
            digest(&["*", "ttl"], "all"),
            digest(&["ttl"], "all"),
            digest(&[], "all"),
            digest(&["*"], "disable-only"),
        ];
        for (index, each) in all.iter().enumerate() {
            assert!(!all[..index].contains(each), "{index}: {all:?}");
        }
    }

    #[test]
    fn aliases_become_names_and_what_is_unknown_is_refused() {
        let mut controllers = ["*", "-podgc", "ttl", "deploymnet", "-*", ""].map(str::to_owned);
        let mut errors = Vec::new();
        complete(&mut controllers, registry(), &mut errors, &mut Vec::new());
        assert_eq!(controllers[..3], ["*", "-pod-garbage-collector-controller", "ttl-controller"]);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(
            errors[0].contains("unknown controller \"deploymnet\"; allowed: deployment"),
            "{}",
            errors[0]
        );
        assert!(errors[1].contains("unknown controller \"*\""));
    }
}
