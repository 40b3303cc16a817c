//! Enabling and disabling: from a request to an entry in the overrides, and to the phase that it is about.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep_until};
use tonic::{Extensions, Status};

use super::controllers::no_controller;
use super::{Shared, shutting_down};
use crate::admin::audit::Audit;
use crate::admin::authorize::Method;
use crate::admin::convert;
use crate::admin::errors::{ErrorReply, Reason, Violations, timed_out};
use crate::admin::manager::{ControllerState, Mutation, MutationKind, Obstacle, Phase};
use crate::admin::overrides::{Entry, HeldOverrides, MAX_USER_BYTES, Order, OverrideSet, StoreError};
use crate::admin::{proto, validate};
use coxswain_machinery::serve::UserInfo;

/// Others may write the overrides at the same time; each try reads anew.
const TRIES: u32 = 5;
/// When to try again after that many.
const RETRY: Duration = Duration::from_secs(1);
/// For how long a call without a deadline waits for a phase.
const WAIT: Duration = Duration::from_mins(2);

/// A request to enable or disable.
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the request")]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) enable: bool,
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) duration: Option<prost_types::Duration>,
    pub(super) expected_version: Option<String>,
    pub(super) wait: bool,
    pub(super) dry_run: bool,
    pub(super) force: bool,
}

/// What came of it.
pub(super) struct Change {
    pub(super) controllers: Vec<proto::Controller>,
    pub(super) changed: bool,
}

/// A request that was checked.
struct Checked {
    enable: bool,
    reason: String,
    duration: Option<Duration>,
    expected_version: Option<String>,
    user: Arc<UserInfo>,
    /// The replica that writes.
    replica: String,
}

impl Shared {
    /// Enables or disables.
    pub(super) async fn change(&self, extensions: &Extensions, asked: Asked) -> Result<Change, Status> {
        let controllers = self.manager.controllers();
        let all = asked.name == "*";
        let found = validate::resolve(&asked.name, &controllers);
        // Who may change all controllers may change each: that is what an empty name asks for.
        let scope = if all { "" } else { found.map_or(asked.name.as_str(), |state| state.name) };
        let user = self.allow(extensions, asked.method, scope).await?;

        let mut violations = Violations::default();
        validate::name("name", &asked.name, &mut violations);
        validate::reason(&asked.reason, &mut violations);
        let duration = validate::lasting(asked.duration.as_ref(), &mut violations);
        validate::expected_version(&asked.name, asked.expected_version.as_deref(), &mut violations);
        violations.check()?;
        let candidates: Vec<&ControllerState> = match found {
            _ if all => controllers.iter().collect(),
            Some(state) => vec![state],
            None => return Err(no_controller(&asked.name, &controllers)),
        };
        if asked.enable && !all {
            candidates.iter().try_for_each(|state| unobstructed(state))?;
        }
        if !asked.enable && !asked.force {
            may_do_without(&asked.name, all, &candidates)?;
        }
        let wait = asked.wait && !asked.dry_run;
        if wait {
            self.must_lead()?;
        }
        let checked = Checked {
            enable: asked.enable,
            reason: asked.reason,
            duration,
            expected_version: asked.expected_version,
            user,
            replica: shortened(self.manager.identity(), MAX_USER_BYTES),
        };

        let audit =
            (!asked.dry_run).then(|| Audit::begin(&checked.user, asked.method, scope, &checked.reason));
        let done = self.write(&checked, &candidates, all, asked.dry_run).await;
        if let Some(audit) = audit {
            audit.end(done.as_ref().map(Written::changed));
        }
        let written = done?;
        if !asked.dry_run {
            self.announce(&checked, &written);
        }
        if wait {
            let names: Vec<_> = written.targets.iter().map(|state| state.name).collect();
            self.wait_for_phase(&names, checked.enable).await?;
        }
        Ok(self.answer(&written))
    }

    /// Writes the overrides, unless they say it already or nothing is to be written.
    async fn write<'a>(
        &self,
        checked: &Checked,
        candidates: &[&'a ControllerState],
        all: bool,
        dry_run: bool,
    ) -> Result<Written<'a>, Status> {
        for _ in 0..TRIES {
            let held = self.manager.read_overrides().await.map_err(|error| unavailable(&error))?;
            let now = self.manager.now();
            let targets = targets(candidates, all, checked.enable, &held.set, now);
            if let (Some(expected), [state]) = (&checked.expected_version, targets.as_slice()) {
                same_version(state.name, expected, &held.set.version(state.name))?;
            }
            let changes = changes(&targets, checked, &held.set, now);
            if changes.is_empty() || dry_run {
                return Ok(Written { set: held.set.with(&changes), targets, changes });
            }
            match self.manager.write_overrides(&held, &changes).await {
                Ok(HeldOverrides { set, .. }) => return Ok(Written { set, targets, changes }),
                Err(StoreError::Conflict) => {}
                Err(error @ StoreError::Unavailable(_)) => return Err(unavailable(&error)),
                Err(error @ StoreError::Unknown(_)) => {
                    // The answer was lost: what is there now tells whether the write was carried out.
                    let found = self.manager.read_overrides().await.map_err(|_| unavailable(&error))?;
                    let there = |(name, entry): &(String, Entry)| found.set.entry(name) == Some(entry);
                    if changes.iter().all(there) {
                        return Ok(Written { set: found.set, targets, changes });
                    }
                }
            }
        }
        let message = format!("the overrides have changed {TRIES} times while this was to be written");
        Err(ErrorReply::new(Reason::Contention, message).retry_after(RETRY).into())
    }

    fn announce(&self, checked: &Checked, written: &Written<'_>) {
        for (name, entry) in &written.changes {
            let verb = if checked.enable { "enabled" } else { "disabled" };
            let until = entry.until.map(|until| format!(" until {until}")).unwrap_or_default();
            let why = if entry.reason.is_empty() { String::new() } else { format!(": {}", entry.reason) };
            self.manager.announce(&Mutation {
                user: Arc::clone(&checked.user),
                action: if checked.enable { MutationKind::Enabled } else { MutationKind::Disabled },
                target: name.clone(),
                reason: entry.reason.clone(),
                message: format!("{} {verb} {name}{until}{why}", checked.user.name),
            });
        }
    }

    /// The controllers as they are now, under the overrides as they were written, or would have been.
    fn answer(&self, written: &Written<'_>) -> Change {
        let now = self.manager.now();
        let names: Vec<_> = written.targets.iter().map(|state| state.name).collect();
        let states = self.manager.controllers();
        let concerned = states.iter().filter(|state| names.contains(&state.name));
        Change {
            controllers: concerned.map(|state| convert::controller(state, &written.set, now)).collect(),
            changed: written.changed(),
        }
    }

    /// Returns once all of `names` run, or none does.
    async fn wait_for_phase(&self, names: &[&'static str], enable: bool) -> Result<(), Status> {
        let until = Instant::now() + WAIT;
        let mut changes = self.manager.changes();
        loop {
            changes.mark_unchanged();
            if self.have_reached(names, enable)? {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Err(shutting_down()),
                () = sleep_until(until) => {
                    let verb = if enable { "run" } else { "stopped" };
                    return Err(timed_out(format!("not everything has {verb} within {WAIT:?}; the override is in force")));
                }
                woken = changes.changed() => woken.map_err(|_| shutting_down())?,
            }
        }
    }

    fn have_reached(&self, names: &[&'static str], enable: bool) -> Result<bool, Status> {
        self.must_lead()?;
        let (overrides, now) = (self.manager.overrides(), self.manager.now());
        let mut reached = true;
        for state in self.manager.controllers().iter().filter(|state| names.contains(&state.name)) {
            if overrides.desired(state.name, state.flags, now).enabled != enable {
                let message =
                    format!("{} was ordered otherwise meanwhile, or the order has ended", state.name);
                return Err(ErrorReply::new(Reason::Superseded, message).into());
            }
            reached &= match &state.phase {
                Phase::Running => enable,
                Phase::Disabled | Phase::NotImplemented => !enable,
                Phase::Skipped(_) if !enable => true,
                Phase::Failed(why) if enable => {
                    let message = format!("{} failed: {why}; it will be tried again", state.name);
                    return Err(ErrorReply::new(Reason::ControllerFailed, message)
                        .violates(state.name, why)
                        .into());
                }
                Phase::Skipped(why) => {
                    let message = format!("{} is skipped: {why}", state.name);
                    return Err(ErrorReply::new(Reason::Setting, message).violates(state.name, why).into());
                }
                _ => false,
            };
        }
        Ok(reached)
    }
}

/// What was written, or would have been.
struct Written<'a> {
    set: OverrideSet,
    targets: Vec<&'a ControllerState>,
    changes: Vec<(String, Entry)>,
}

impl Written<'_> {
    fn changed(&self) -> bool {
        !self.changes.is_empty()
    }
}

/// Whether nothing stands against running a controller.
fn unobstructed(state: &ControllerState) -> Result<(), Status> {
    let name = state.name;
    let (reason, subject, why) = match &state.obstacle {
        None => return Ok(()),
        Some(Obstacle::Gate(gate)) => {
            (Reason::FeatureGate, *gate, format!("the feature gate {gate} is off, which {name} needs"))
        }
        Some(Obstacle::CloudProvider(why)) => (Reason::CloudProvider, "--cloud-provider", why.clone()),
        Some(Obstacle::Setting(why)) => (Reason::Setting, name, why.clone()),
        Some(Obstacle::NotImplemented) => {
            (Reason::NotImplemented, name, format!("this version of Coxswain has no {name} yet"))
        }
    };
    Err(ErrorReply::new(reason, why.clone()).with("controller", name).violates(subject, why).into())
}

/// Whether a cluster can do without for long.
fn may_do_without(asked: &str, all: bool, candidates: &[&ControllerState]) -> Result<(), Status> {
    let why = if all {
        "disabling all controllers stops the cluster's reconciling altogether: it takes force".to_owned()
    } else if let Some(state) = candidates.iter().find(|state| state.special) {
        format!("the cluster can't do without {} for long: disabling it takes force", state.name)
    } else {
        return Ok(());
    };
    Err(ErrorReply::new(Reason::ForceRequired, why.clone()).violates(asked, why).into())
}

fn same_version(name: &str, expected: &str, found: &str) -> Result<(), Status> {
    if expected == found {
        return Ok(());
    }
    let message = format!("{name} is at version {found}, not {expected}: it has changed meanwhile");
    Err(ErrorReply::new(Reason::VersionMismatch, message).with("version", found).into())
}

/// The controllers that are meant. `*` means what it does in `--controllers` when it enables, and everything that is
/// wanted when it disables.
fn targets<'a>(
    candidates: &[&'a ControllerState],
    all: bool,
    enable: bool,
    set: &OverrideSet,
    now: Timestamp,
) -> Vec<&'a ControllerState> {
    let is_meant = |state: &&&ControllerState| {
        if !all {
            true
        } else if enable {
            state.enabled_by_default && state.obstacle.is_none()
        } else {
            set.desired(state.name, state.flags, now).enabled
        }
    };
    candidates.iter().filter(is_meant).copied().collect()
}

/// The entries to write, of those that don't say it already.
fn changes(
    targets: &[&ControllerState],
    checked: &Checked,
    set: &OverrideSet,
    now: Timestamp,
) -> Vec<(String, Entry)> {
    let mut version = set.next_version();
    let mut changes = Vec::new();
    for state in targets {
        // An override that says what the flags say is none, unless it is to end.
        let order = match checked.duration {
            None if state.flags.enabled == checked.enable => Order::Default,
            _ if checked.enable => Order::Enabled,
            _ => Order::Disabled,
        };
        let in_force = set.entry(state.name).filter(|entry| entry.is_in_force(now));
        let said = match (order, in_force) {
            (Order::Default, None) => set.problem_of(state.name).is_none(),
            (_, Some(entry)) => {
                entry.order == order
                    && entry.until.is_none()
                    && checked.duration.is_none()
                    && (checked.reason.is_empty() || checked.reason == entry.reason)
            }
            _ => false,
        };
        if said {
            continue;
        }
        let until = checked.duration.map(|duration| {
            let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
            now.saturating_add(duration).unwrap_or(Timestamp::MAX)
        });
        let user = shortened(&checked.user.name, MAX_USER_BYTES);
        let (reason, replica) = (checked.reason.clone(), checked.replica.clone());
        let entry = Entry { order, user, time: now, reason, until, version, replica };
        changes.push((state.name.to_owned(), entry));
        version += 1;
    }
    changes
}

fn shortened(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

fn unavailable(error: &StoreError) -> Status {
    let (reason, message) = match error {
        StoreError::Unknown(_) => (Reason::OutcomeUnknown, error.to_string()),
        _ => (Reason::ApiServer, format!("the API server did not take the override: {error}")),
    };
    ErrorReply::new(reason, message).retry_after(RETRY).into()
}
