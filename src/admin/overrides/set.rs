//! All overrides, and what they make of the flags.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::ANNOTATION_PREFIX;
use super::entry::{Entry, EntryError, Order};
use coxswain_machinery::model::metadata::ANNOTATIONS;
use coxswain_machinery::wire::splice::Edit;
use coxswain_machinery::wire::text::{held_text, lossy_text};

/// What the flags say of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagSelection {
    /// Whether it is wanted.
    pub enabled: bool,
    /// Whether `--controllers` names it, rather than its default holding.
    pub named: bool,
    /// Whether no override runs the controller if it is not wanted (`--admin-overrides=disable-only`).
    pub fixed: bool,
}

/// Who says whether a controller is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// Its default.
    Default,
    /// A flag.
    Flag,
    /// An override.
    Override,
}

/// Whether a controller is wanted, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesiredState<'a> {
    /// Whether it is wanted.
    pub enabled: bool,
    /// Who says so.
    pub source: DecidedBy,
    /// The override, where it is one.
    pub entry: Option<&'a Entry>,
}

/// An annotation that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideProblem {
    /// The annotation's key.
    pub key: String,
    /// The controller that it is about; empty if it names none.
    pub controller: String,
    /// What is wrong with it.
    pub message: String,
}

/// All overrides that could be read, and what is wrong with the others. The default is no override at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverrideSet {
    entries: BTreeMap<String, Entry>,
    /// Entries that replicas wrote for controllers that this version does not have: a newer version was rolled back.
    unknown: BTreeMap<String, Entry>,
    problems: Vec<OverrideProblem>,
}

impl OverrideSet {
    /// Reads the annotations of the Lease; those of others are passed over. `is_known` tells controllers' names.
    pub fn parse<'a>(
        annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
        is_known: &dyn Fn(&str) -> bool,
    ) -> Self {
        let mut set = Self::default();
        for (key, value) in annotations {
            let Some(name) = key.strip_prefix(ANNOTATION_PREFIX) else { continue };
            let problem = if is_known(name) {
                match Entry::parse(&lossy_text(value)) {
                    Ok(entry) => {
                        set.entries.insert(name.to_owned(), entry);
                        continue;
                    }
                    Err(error) => OverrideProblem {
                        key: key.to_owned(),
                        controller: name.to_owned(),
                        message: error.to_string(),
                    },
                }
            } else if let Some(entry) = of_newer_version(name, value) {
                set.unknown.insert(name.to_owned(), entry);
                continue;
            } else {
                let message = format!("controller {name:?} does not exist; aliases are not allowed here");
                OverrideProblem { key: key.to_owned(), controller: String::new(), message }
            };
            set.problems.push(problem);
        }
        set
    }

    /// The entry of a controller, whether or not it is in force.
    pub fn entry(&self, controller: &str) -> Option<&Entry> {
        self.entries.get(controller)
    }

    /// The entries by controller, whether or not they are in force.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// The entries for controllers that only a newer version has. They have no effect, and stay as they are.
    pub fn unknown(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.unknown.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// What has no effect, by key.
    pub fn problems(&self) -> &[OverrideProblem] {
        &self.problems
    }

    /// Why a controller's entry has no effect.
    pub fn problem_of(&self, controller: &str) -> Option<&str> {
        self.problems
            .iter()
            .find(|problem| problem.controller == controller)
            .map(|problem| problem.message.as_str())
    }

    /// Flags ⊕ overrides.
    pub fn desired(&self, controller: &str, flags: FlagSelection, now: Timestamp) -> DesiredState<'_> {
        match self.entries.get(controller).filter(|entry| entry.is_in_force(now)) {
            Some(entry) if ineffective(entry, flags).is_none() => DesiredState {
                enabled: entry.order == Order::Enabled,
                source: DecidedBy::Override,
                entry: Some(entry),
            },
            _ => DesiredState {
                enabled: flags.enabled,
                source: if flags.named { DecidedBy::Flag } else { DecidedBy::Default },
                entry: None,
            },
        }
    }

    /// Why a controller's entry, although in force, has no effect on a replica with these flags.
    pub fn ineffective(
        &self,
        controller: &str,
        flags: FlagSelection,
        now: Timestamp,
    ) -> Option<&'static str> {
        let entry = self.entries.get(controller).filter(|entry| entry.is_in_force(now))?;
        ineffective(entry, flags)
    }

    /// The version of a controller's desired state, as requests expect it: opaque, and different after every change.
    pub fn version(&self, controller: &str) -> String {
        match self.entries.get(controller) {
            Some(entry) => entry.version.to_string(),
            None if self.problem_of(controller).is_some() => "invalid".to_owned(),
            None => "0".to_owned(),
        }
    }

    /// The version of the next entry. Never goes back as long as the Lease lives.
    pub fn next_version(&self) -> u64 {
        let all = self.entries.values().chain(self.unknown.values());
        all.map(|entry| entry.version).max().unwrap_or(0).saturating_add(1)
    }

    /// When the next override ends by itself, after which [`Self::desired`] must be asked again.
    pub fn next_expiry(&self, now: Timestamp) -> Option<Timestamp> {
        let in_force = self.entries.values().filter(|entry| entry.is_in_force(now));
        in_force.filter_map(|entry| entry.until).min()
    }

    /// Overrides whose time ended after `since` and not after `now`, by controller.
    pub fn expired(&self, since: Timestamp, now: Timestamp) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries().filter(move |(_, entry)| entry.is_in_force(since) && !entry.is_in_force(now))
    }

    /// The same, with what `previous` says of those controllers whose entries can't be read: a slip of the hand in an
    /// annotation must not change what runs.
    #[must_use]
    pub fn keeping(mut self, previous: &Self) -> Self {
        for problem in &self.problems {
            if let Some(entry) = previous.entries.get(&problem.controller) {
                self.entries.entry(problem.controller.clone()).or_insert_with(|| entry.clone());
            }
        }
        self
    }

    /// The set as it will be once `changes` are written.
    #[must_use]
    pub fn with(&self, changes: &[(String, Entry)]) -> Self {
        let mut set = self.clone();
        for (name, entry) in changes {
            set.problems.retain(|problem| problem.controller != *name);
            set.entries.insert(name.clone(), entry.clone());
        }
        set
    }
}

/// Returns the entry of an annotation whose controller this version does not have, if a replica of another version wrote it. Permanent
/// names of controllers end in `-controller`; other names are aliases and slips of the hand.
fn of_newer_version(name: &str, value: &str) -> Option<Entry> {
    let entry = Entry::parse(&lossy_text(value)).ok()?;
    (name.ends_with("-controller") && !entry.replica.is_empty()).then_some(entry)
}

fn ineffective(entry: &Entry, flags: FlagSelection) -> Option<&'static str> {
    match entry.order {
        Order::Enabled if flags.enabled => None,
        Order::Enabled if flags.fixed => {
            Some("--controllers does not select the controller, and --admin-overrides is disable-only")
        }
        Order::Enabled if !entry.outranks_flags() => {
            Some("--controllers does not select the controller, and the override was set without force")
        }
        Order::Enabled | Order::Disabled | Order::Default => None,
    }
}

/// The edits to an encoded Lease that write `changes`, all else in it untouched.
pub(super) fn edits(changes: &[(String, Entry)]) -> Result<Vec<Edit>, EntryError> {
    let edit = |(name, entry): &(String, Entry)| {
        // Users and reasons are not texts of the API: they are held before they are written.
        let value = held_text(entry.to_value()?.as_bytes()).into_owned();
        Ok(Edit::MapSet(ANNOTATIONS, format!("{ANNOTATION_PREFIX}{name}"), value))
    };
    changes.iter().map(edit).collect()
}
